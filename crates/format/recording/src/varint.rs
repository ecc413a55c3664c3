//! Varints.
