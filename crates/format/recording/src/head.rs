//! What a chunk says about itself without being unpacked.

use heapledger_core::{Bytes, Serial};

use crate::ids::{ImageId, Live, Time};
use crate::messages::Counts;

/// The most rows (events, nodes, blocks, records…) in one chunk.
pub const CHUNK_ROWS_MAX: usize = 131_072;

/// What a chunk holds.
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
    /// Where every chunk before it is.
    Index,
    /// The [`Footer`](crate::Footer).
    Footer,
    /// Memory of one image's process over time, as the system counts it.
    Memory,
    /// The functions at places in modules.
    Names,
    /// A kind that this version does not know; its chunks are skipped.
    Other(u16),
}

impl ChunkKind {
    /// The number in a chunk's header.
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
            ChunkKind::Other(number) => number,
        }
    }

    /// The kind with this number.
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
            other => ChunkKind::Other(other),
        }
    }
}

/// What a chunk says about itself: stored uncompressed in front of its contents, and again in the index.
/// A field that a kind has no use for is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkHead {
    /// The image that the contents belong to; `None` for the session's own.
    pub image: Option<ImageId>,
    /// The number of rows: events, nodes, records…
    pub rows: u32,
    /// The time of the first row. Of a checkpoint: its moment.
    pub time_first: Time,
    /// The time of the last row.
    pub time_last: Time,
    /// Events: the serial that the first allocation in the chunk takes. Checkpoint: the one that the next would take.
    pub serial_first: Serial,
    /// Events: how many serials the chunk takes.
    pub serials: u32,
    /// Events: what was live in the image before the first event.
    pub live_before: Live,
    /// Events: what was live in the image after the last event.
    pub live_after: Live,
    /// Events: the most bytes that were live in the image after any event of the chunk.
    pub bytes_live_max: Bytes,
    /// Events: the resolution of the times inside the chunk, in nanoseconds.
    pub tick_ns: u32,
    /// Events: how many blocks were put down to another stack; these are no rows.
    pub moves: u32,
    /// Events: how many [marks](crate::Mark) there are between them; these are no rows.
    pub marks: u32,
    /// Checkpoint: which part of it this chunk is, from 0.
    pub part: u32,
    /// Checkpoint: how many parts there are.
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

    /// The head of the rows so far, and a fresh one of the same image in its place. `None` if there are no rows.
    pub(crate) fn take(&mut self) -> Option<ChunkHead> {
        let fresh = ChunkHead { image: self.image, ..ChunkHead::default() };
        if self.rows == 0 { None } else { Some(std::mem::replace(self, fresh)) }
    }
}

/// Where a chunk is, and what it says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkEntry {
    /// Its first byte in the file.
    pub offset: u64,
    /// Its length in the file, header and padding included.
    pub length: u32,
    /// What it holds.
    pub kind: ChunkKind,
    /// What it says about itself.
    pub head: ChunkHead,
}
