//! The description of a chunk that can be read without unpacking it.

use heapledger_core::{Bytes, Serial};

use crate::ids::{ImageId, Live, Time};
use crate::messages::Counts;

/// The most rows (events, nodes, blocks, records…) in one chunk.
pub const CHUNK_ROWS_MAX: usize = 131_072;

/// The kind of a chunk's contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChunkKind {
    /// [`Record`](crate::Record)s.
    Metadata,
    /// [`Annotation`](crate::Annotation)s of one image.
    Annotations,
    /// Stack tree nodes of one image.
    Nodes,
    /// Events of one image.
    Events,
    /// A part of a checkpoint of one image.
    Checkpoint,
    /// Per-site totals of one image.
    Sites,
    /// Live bytes over time, of the session or of one image.
    Timeline,
    /// The offsets and descriptions of all chunks before it.
    Index,
    /// The [`Footer`](crate::Footer).
    Footer,
    /// Memory of one image's process over time, as the system counts it.
    Memory,
    /// The functions at places in modules.
    Names,
    /// [Changes of the mappings](crate::MappingEvent) of one image.
    Mappings,
    /// A part of a resident snapshot of one image.
    Resident,
    /// A kind that this version does not know; its chunks are skipped.
    Other(u16),
}

impl ChunkKind {
    /// Returns the number in a chunk's header.
    pub const fn number(self) -> u16 {
        match self {
            ChunkKind::Metadata => 1,
            ChunkKind::Annotations => 2,
            ChunkKind::Nodes => 3,
            ChunkKind::Events => 4,
            ChunkKind::Checkpoint => 5,
            ChunkKind::Sites => 6,
            ChunkKind::Timeline => 7,
            ChunkKind::Index => 8,
            ChunkKind::Footer => 9,
            ChunkKind::Memory => 10,
            ChunkKind::Names => 11,
            ChunkKind::Mappings => 12,
            ChunkKind::Resident => 13,
            ChunkKind::Other(number) => number,
        }
    }

    /// Returns the kind with this number.
    pub const fn from_number(number: u16) -> ChunkKind {
        match number {
            1 => ChunkKind::Metadata,
            2 => ChunkKind::Annotations,
            3 => ChunkKind::Nodes,
            4 => ChunkKind::Events,
            5 => ChunkKind::Checkpoint,
            6 => ChunkKind::Sites,
            7 => ChunkKind::Timeline,
            8 => ChunkKind::Index,
            9 => ChunkKind::Footer,
            10 => ChunkKind::Memory,
            11 => ChunkKind::Names,
            12 => ChunkKind::Mappings,
            13 => ChunkKind::Resident,
            other => ChunkKind::Other(other),
        }
    }
}

/// The description of a chunk: stored uncompressed in front of its contents, and again in the
/// index. A field that a kind does not use is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkHead {
    /// The image that the contents belong to; `None` for the session's own.
    pub image: Option<ImageId>,
    /// The number of rows: events, nodes, records…
    pub rows: u32,
    /// The time of the first row. For a checkpoint: its moment.
    pub time_first: Time,
    /// The time of the last row.
    pub time_last: Time,
    /// Events: the serial of the first allocation in the chunk. Checkpoint: the serial of the next
    /// allocation.
    pub serial_first: Serial,
    /// Events: the number of serials that the chunk takes.
    pub serials: u32,
    /// Events: the blocks live in the image before the first event.
    pub live_before: Live,
    /// Events: the blocks live in the image after the last event.
    pub live_after: Live,
    /// Events: the most bytes that were live in the image after any event of the chunk.
    pub bytes_live_max: Bytes,
    /// Events: the resolution of the times inside the chunk, in nanoseconds.
    pub tick_ns: u32,
    /// Events: the number of blocks that were reattributed to another stack; these are not rows.
    pub moves: u32,
    /// Events: the number of [marks](crate::Mark) between them; these are not rows.
    pub marks: u32,
    /// Checkpoint, resident snapshot: the number of this part, from 0.
    pub part: u32,
    /// Checkpoint, resident snapshot: the number of parts.
    pub parts: u32,
    /// Checkpoint: the image's totals at that moment.
    pub counts: Option<Counts>,
}

impl ChunkHead {
    pub(crate) fn of(image: ImageId) -> ChunkHead {
        ChunkHead { image: Some(image), ..ChunkHead::default() }
    }

    /// Counts a row and widens the time range by its time.
    pub(crate) fn add_row(&mut self, time: Time) {
        let first = self.rows == 0;
        self.time_first = if first { time } else { self.time_first.min(time) };
        self.time_last = if first { time } else { self.time_last.max(time) };
        self.rows += 1;
    }

    /// Returns the head of the rows so far, and puts a fresh one for the same image in its place.
    /// `None` if there are no rows.
    pub(crate) fn take(&mut self) -> Option<ChunkHead> {
        let fresh = ChunkHead { image: self.image, ..ChunkHead::default() };
        if self.rows == 0 { None } else { Some(std::mem::replace(self, fresh)) }
    }
}

/// The position and the description of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkEntry {
    /// Its first byte in the file.
    pub offset: u64,
    /// Its length in the file, header and padding included.
    pub length: u32,
    /// The kind of its contents.
    pub kind: ChunkKind,
    /// Its description.
    pub head: ChunkHead,
}
