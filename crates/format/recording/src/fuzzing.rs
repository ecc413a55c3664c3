//! One body for the fuzz target and the property test.
