//! The state of the search for wrappers, and the wrappers that were found.

use crate::functions::FunctionId;
use crate::stacks::{NodeId, StacksNumber};

/// A stack that allocates, and the totals that it ever allocated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Evidence {
    pub(crate) stack: NodeId,
    pub(crate) blocks: u64,
    pub(crate) temporaries: u64,
}

/// The state of the search for the wrappers of a recording.
#[derive(Debug, Default)]
pub(crate) enum Search {
    /// Wrappers have not been asked for.
    #[default]
    NotBegun,
    /// Wrappers have not been asked for, but all stacks of the recording have been read: the ones
    /// with this number.
    Readable(StacksNumber, Vec<Evidence>),
    /// The functions are marked.
    Done,
}

/// A function that was found to allocate for its callers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrapper {
    /// The function.
    pub function: FunctionId,
    /// The size of its code in bytes; for a template, of the largest instance.
    pub code_bytes: u64,
    /// The number of stacks whose blocks it would own.
    pub stacks: usize,
    /// The number of blocks that it ever allocated; 0 if the recording has no totals.
    pub blocks: u64,
}
