//! The calls of an image in order, as columns.

use heapledger_core::{Bytes, Serial, StackId, ThreadId};

use crate::error::Error;
use crate::frame::{Compressor, EncodedChunk};
use crate::ids::{Call, ImageId, Live, Time};

/// One call that changed the heap, or failed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, at the resolution of the chunk ([`ChunkHead::tick_ns`](crate::ChunkHead::tick_ns), rounded down).
    pub time: Time,
    /// Who.
    pub thread: ThreadId,
    /// The entry point.
    pub call: Call,
    /// What happened.
    pub kind: EventKind,
}

/// What a call did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A block came to be.
    Alloc {
        /// The block: always the next serial of the image.
        serial: Serial,
        /// Requested bytes.
        size: Bytes,
        /// Where from.
        stack: StackId,
    },
    /// A block went.
    Free {
        /// Which.
        block: FreedBlock,
    },
    /// A block took the place of another, wherever it lies now.
    Realloc {
        /// The block that went. [`FreedBlock::None`] for `realloc(NULL, size)`.
        old: FreedBlock,
        /// The block that came: always the next serial of the image.
        serial: Serial,
        /// Requested bytes.
        size: Bytes,
        /// Where from.
        stack: StackId,
    },
    /// A block was asked for and not given. Of a reallocation: the old block is untouched.
    Failed {
        /// Requested bytes.
        size: Bytes,
        /// Where from.
        stack: StackId,
    },
}

/// Which block a call released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreedBlock {
    /// A block of this image.
    Known(Serial),
    /// A block that was live when the image began: the parent's before a fork, or older than the attachment.
    Inherited,
    /// A block that nobody saw allocated.
    Unknown,
    /// No block: the old block of `realloc(NULL, size)`.
    None,
}

/// What a few events say in addition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extras {
    /// The alignment that was asked for.
    pub alignment: Option<u64>,
    /// The count of `calloc` or `reallocarray`. The size of the event is the product.
    pub count: Option<u64>,
    /// The size that the allocator really provides.
    pub usable: Option<Bytes>,
    /// The bytes that a sampled block stands for.
    pub weight: Option<Bytes>,
    /// Why a call failed.
    pub errno: Option<u32>,
    /// The size of a released block that is not [`FreedBlock::Known`], where it is known nevertheless.
    pub freed_size: Option<Bytes>,
    /// The size that the caller of `free_sized` or `free_aligned_sized` stated.
    pub declared_size: Option<Bytes>,
}

impl Extras {
    /// Nothing to add.
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

/// The resolution of times in a chunk unless the encoder is told otherwise: 100 µs.
pub const TICK_NS: u32 = 100_000;

/// Gathers events of one image, in time order, into chunks. Reused from chunk to chunk.
#[derive(Debug)]
pub struct EventsEncoder {
    _private: (),
}

impl EventsEncoder {
    /// An encoder for an image whose next serial is 0 and that has nothing live.
    pub fn new(image: ImageId) -> EventsEncoder {
        let _ = image;
        todo!()
    }

    /// The same with another resolution of times than [`TICK_NS`]; at least 1.
    pub fn with_tick_ns(self, tick_ns: u32) -> EventsEncoder {
        let _ = tick_ns;
        todo!()
    }

    /// Adds an event, and what is live in the image after it.
    ///
    /// A time before that of the event before is taken as equal to it. Fails, and adds nothing, if a serial is not the
    /// image's next one, a freed block has no earlier serial, or the chunk is full.
    pub fn push(&mut self, event: &Event, extras: &Extras, live_after: Live) -> Result<(), Error> {
        let _ = (event, extras, live_after);
        todo!()
    }

    /// The number of events in the unfinished chunk.
    pub fn len(&self) -> usize {
        todo!()
    }

    /// Whether the unfinished chunk has no event.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the chunk must be finished before the next event.
    pub fn is_full(&self) -> bool {
        todo!()
    }

    /// The serial that the next allocation takes.
    pub fn next_serial(&self) -> Serial {
        todo!()
    }

    /// The chunk of the events pushed so far; the encoder goes on with the next chunk. `None` if there are none.
    pub fn finish(&mut self, compressor: &mut Compressor) -> Option<EncodedChunk> {
        let _ = compressor;
        todo!()
    }
}

/// Memory for the events of one chunk; reused from chunk to chunk.
#[derive(Debug, Default)]
pub struct EventsBuffer {
    _private: (),
}

/// The events of one decoded chunk.
#[derive(Clone, Copy, Debug)]
pub struct Events<'b> {
    _private: &'b (),
}

impl<'b> Events<'b> {
    /// The events in order.
    pub fn as_slice(&self) -> &'b [Event] {
        todo!()
    }

    /// What the event at this index of the slice says in addition.
    pub fn extras(&self, index: usize) -> Extras {
        let _ = index;
        todo!()
    }

    /// All events that say something in addition, with their index, in order.
    pub fn all_extras(&self) -> &'b [(u32, Extras)] {
        todo!()
    }
}
