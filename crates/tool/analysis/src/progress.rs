//! The progress of a question that reads many events.

/// A function that is called from time to time with the number of events that are done, and the
/// number of all.
pub type Progress<'p> = &'p mut dyn FnMut(u64, u64);
