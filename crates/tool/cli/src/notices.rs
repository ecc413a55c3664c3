//! Sentences about a recording as a whole: what it has lost, what it does not contain, and how far
//! its figures can be trusted.

pub(crate) mod lost;
pub(crate) mod mappings;
pub(crate) mod resident;
pub(crate) mod stack_checks;
pub(crate) mod unseen;
