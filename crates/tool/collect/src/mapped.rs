//! The mappings of an image at a moment.

use std::collections::BTreeMap;

use heapledger_core::{StackId, ThreadId};
use heapledger_inject::Mapping;
use heapledger_recording::{AddressSpace, MappedPiece, MappingCall, MappingFlags, MappingKind, MappingSerial, TextId};

/// The facts about a mapping that stay.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub(crate) kind: MappingKind,
    pub(crate) flags: MappingFlags,
    pub(crate) file: TextId,
    /// The device and the inode of what is mapped, as the kernel lists them, if they are known.
    pub(crate) object: Option<Object>,
    /// The first address less the offset in the file, wrapping.
    pub(crate) base: u64,
    pub(crate) stack: StackId,
    pub(crate) thread: Option<ThreadId>,
    pub(crate) call: MappingCall,
    /// The bytes that are still mapped.
    pub(crate) bytes: u64,
}

/// A file, by the numbers of its device and its inode; all are 0 for anonymous memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Object {
    device: (u32, u32),
    inode: u64,
}

impl Object {
    pub(crate) const ANONYMOUS: Object = Object { device: (0, 0), inode: 0 };

    pub(crate) fn of(region: &Mapping) -> Object {
        Object { device: region.device, inode: region.inode }
    }
}

/// The address space at a moment, with the facts about each mapping.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mapped {
    pub(crate) space: AddressSpace,
    pub(crate) known: BTreeMap<MappingSerial, Known>,
    pub(crate) next: u64,
}

impl Mapped {
    /// Returns the most bytes that this takes in memory, about: nodes of the maps are at least half
    /// full.
    pub(crate) fn bytes_in_memory(&self) -> u64 {
        let of_facts = self.known.len() * size_of::<(MappingSerial, Known)>();
        let of_pieces = self.space.len() * size_of::<MappedPiece>();
        2 * (of_facts + of_pieces) as u64
    }
}
