//! The calls of an image in order, as columns.

use heapledger_core::sample::Rate;
use heapledger_core::{Blocks, Bytes, Serial, StackId, ThreadId};

use crate::error::Reason;
use crate::ids::{Call, Time};

mod decoder;
mod encoder;
mod marks;
mod ops;
mod usable;

pub(crate) use decoder::Decoded;
pub use decoder::{Events, EventsBuffer};
pub use encoder::EventsEncoder;
pub use marks::{BlockMark, Mark, MarkedBlocks, Reported};

/// One call that changed the heap, or failed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The time, at the resolution of the chunk ([`ChunkHead::tick_ns`](crate::ChunkHead::tick_ns),
    /// rounded down).
    pub time: Time,
    /// The thread.
    pub thread: ThreadId,
    /// The entry point.
    pub call: Call,
    /// In a recording of a sample: how the event belongs to it.
    pub sampled: Sampled,
    /// The effect of the call.
    pub kind: EventKind,
}

/// The relation of an event to the sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sampled {
    /// The rate at which an allocation was sampled.
    pub rate: Rate,
    /// For a release: true if the thread has made unsampled allocations since the latest sampled
    /// one of its own. The block is then not temporary.
    pub after_unsampled: bool,
}

impl Sampled {
    /// The value for recordings of all blocks.
    pub const NOT: Sampled = Sampled { rate: Rate::EXACT, after_unsampled: false };
}

/// The effect of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A block was allocated.
    Alloc {
        /// The block: always the next serial of the image.
        serial: Serial,
        /// Requested bytes.
        size: Bytes,
        /// The allocating stack.
        stack: StackId,
    },
    /// A block was freed.
    Free {
        /// The block.
        block: FreedBlock,
    },
    /// A block replaced another, whether or not at the same address.
    Realloc {
        /// The old block. [`FreedBlock::None`] for `realloc(NULL, size)`.
        old: FreedBlock,
        /// The new block: always the next serial of the image.
        serial: Serial,
        /// Requested bytes.
        size: Bytes,
        /// The allocating stack.
        stack: StackId,
    },
    /// A block was asked for and not returned. In a reallocation, the old block is untouched.
    Failed {
        /// Requested bytes.
        size: Bytes,
        /// The allocating stack.
        stack: StackId,
    },
    /// Not a call: from now on a live block counts as if another stack had allocated it, because
    /// the program said so later. The time is that of the event before (for the first one of a
    /// chunk, its own); neither the thread nor the call means anything.
    Reattributed {
        /// The block.
        block: Serial,
        /// The stack that it is reattributed to.
        stack: StackId,
    },
}

impl EventKind {
    /// True if a block was allocated.
    pub(crate) fn allocates(&self) -> bool {
        matches!(self, EventKind::Alloc { .. } | EventKind::Realloc { .. })
    }

    /// True if a block may have been released.
    pub(crate) fn releases(&self) -> bool {
        matches!(self, EventKind::Free { .. } | EventKind::Realloc { .. })
    }
}

/// The block that a call released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreedBlock {
    /// A block of this image.
    Known(Serial),
    /// A block that was live when the image began: the parent's before a fork, or older than the
    /// attachment.
    Inherited,
    /// A block that was not seen allocated.
    Unknown,
    /// No block: the old block of `realloc(NULL, size)`.
    None,
}

/// The additional fields that a few events have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extras {
    /// The alignment that was asked for.
    pub alignment: Option<u64>,
    /// The count of `calloc` or `reallocarray`. The size of the event is the product.
    pub count: Option<u64>,
    /// The usable size of an allocated block: the bytes that its allocator lets the program use.
    /// `None` if it was not recorded.
    pub usable: Option<Bytes>,
    /// The weight of a released block that is inherited, in a sample.
    pub weight: Option<Blocks>,
    /// The error number of a failed call.
    pub errno: Option<u32>,
    /// The size of a released block that is not [`FreedBlock::Known`], if it is known nevertheless.
    pub freed_size: Option<Bytes>,
    /// The size that the caller of `free_sized` or `free_aligned_sized` stated.
    pub declared_size: Option<Bytes>,
}

impl Extras {
    /// No additional fields.
    pub const NONE: Extras = Extras {
        alignment: None,
        count: None,
        usable: None,
        weight: None,
        errno: None,
        freed_size: None,
        declared_size: None,
    };
}

/// The default resolution of times in a chunk: 500 µs.
pub const TICK_NS: u32 = 500_000;

const EXTRA_ALIGNMENT: u64 = 1;
const EXTRA_COUNT: u64 = 2;
const EXTRA_USABLE: u64 = 3;
const EXTRA_ERRNO: u64 = 5;
const EXTRA_FREED_SIZE: u64 = 6;
const EXTRA_DECLARED_SIZE: u64 = 7;
const EXTRA_RATE: u64 = 8;
const EXTRA_AFTER_UNSAMPLED: u64 = 9;
const EXTRA_WEIGHT: u64 = 10;

impl Extras {
    fn tagged(&self) -> [(u64, Option<u64>); 7] {
        [
            (EXTRA_ALIGNMENT, self.alignment),
            (EXTRA_COUNT, self.count),
            (EXTRA_USABLE, self.usable.map(|bytes| bytes.0)),
            (EXTRA_WEIGHT, self.weight.map(|blocks| blocks.0)),
            (EXTRA_ERRNO, self.errno.map(u64::from)),
            (EXTRA_FREED_SIZE, self.freed_size.map(|bytes| bytes.0)),
            (EXTRA_DECLARED_SIZE, self.declared_size.map(|bytes| bytes.0)),
        ]
    }

    /// Sets a field. Tags that this version does not know are ignored.
    fn set(&mut self, tag: u64, value: u64) -> Result<(), Reason> {
        let twice = match tag {
            EXTRA_ALIGNMENT => self.alignment.replace(value).is_some(),
            EXTRA_COUNT => self.count.replace(value).is_some(),
            EXTRA_USABLE => self.usable.replace(Bytes(value)).is_some(),
            EXTRA_WEIGHT => self.weight.replace(Blocks(value)).is_some(),
            EXTRA_ERRNO => {
                let errno = u32::try_from(value).map_err(|_| Reason::Invalid("an error number"))?;
                self.errno.replace(errno).is_some()
            }
            EXTRA_FREED_SIZE => self.freed_size.replace(Bytes(value)).is_some(),
            EXTRA_DECLARED_SIZE => self.declared_size.replace(Bytes(value)).is_some(),
            _ => false,
        };
        if twice { Err(Reason::Invalid("an event says something twice")) } else { Ok(()) }
    }
}
