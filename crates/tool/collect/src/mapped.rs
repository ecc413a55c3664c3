//! The mappings of an image at a moment.

use std::collections::BTreeMap;

use heapledger_core::{StackId, ThreadId};
use heapledger_recording::{AddressSpace, MappingCall, MappingFlags, MappingKind, MappingSerial, TextId};

/// The facts about a mapping that stay.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub(crate) kind: MappingKind,
    pub(crate) flags: MappingFlags,
    pub(crate) file: TextId,
    /// The first address less the offset in the file, wrapping.
    pub(crate) base: u64,
    pub(crate) stack: StackId,
    pub(crate) thread: Option<ThreadId>,
    pub(crate) call: MappingCall,
    /// The bytes that are still mapped.
    pub(crate) bytes: u64,
}

/// The address space at a moment, with the facts about each mapping.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mapped {
    pub(crate) space: AddressSpace,
    pub(crate) known: BTreeMap<MappingSerial, Known>,
    pub(crate) next: u64,
}
