//! Chunks that are unpacked when asked for: events and checkpoints.

use heapledger_core::Serial;

use crate::checkpoint::{self, LiveBlock};
use crate::error::RecordingError;
use crate::events::{Events, EventsBuffer};
use crate::frame::Unpacker;
use crate::head::{ChunkEntry, ChunkHead};
use crate::ids::Time;
use crate::messages::Counts;
use crate::reader::Recording;

/// A chunk of events, not yet unpacked.
#[derive(Clone, Copy, Debug)]
pub struct EventChunk<'r> {
    pub(super) recording: &'r Recording<'r>,
    pub(super) chunk: &'r ChunkEntry,
}

impl<'r> EventChunk<'r> {
    /// Returns the chunk's entry, which tells where it is.
    pub fn entry(&self) -> &'r ChunkEntry {
        self.chunk
    }

    /// Returns the chunk's head: the number of events, the first and last time, the first serial,
    /// and the live totals.
    pub fn head(&self) -> &'r ChunkHead {
        &self.chunk.head
    }

    /// Unpacks the events into the buffer, whose earlier contents are dropped.
    pub fn decode<'b>(&self, buffer: &'b mut EventsBuffer) -> Result<Events<'b>, RecordingError> {
        let EventsBuffer { unpacker, decoded } = buffer;
        self.recording.read(self.chunk, unpacker, |contents| decoded.decode(contents, &self.chunk.head))?;
        Ok(decoded.events())
    }
}

/// A checkpoint of a recording, not yet unpacked.
#[derive(Clone, Debug)]
pub struct Checkpoint<'r> {
    pub(super) recording: &'r Recording<'r>,
    /// At least one.
    pub(super) parts: Vec<&'r ChunkEntry>,
}

impl Checkpoint<'_> {
    /// Returns its moment.
    pub fn time(&self) -> Time {
        self.head().time_first
    }

    /// Returns the serial of the image's next allocation.
    pub fn next_serial(&self) -> Serial {
        self.head().serial_first
    }

    /// Returns the image's totals at that moment.
    pub fn counts(&self) -> Counts {
        self.head().counts.unwrap_or_default()
    }

    /// Returns the number of live blocks.
    pub fn len(&self) -> usize {
        self.parts.iter().map(|part| part.head.rows as usize).sum()
    }

    /// True if nothing was live.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Unpacks the live blocks one chunk at a time: each call of `each` gets some of them.
    pub fn for_each_part(&self, mut each: impl FnMut(&[LiveBlock])) -> Result<(), RecordingError> {
        let mut unpacker = Unpacker::default();
        let mut blocks = Vec::new();
        for part in &self.parts {
            blocks.clear();
            self.recording
                .read(part, &mut unpacker, |contents| checkpoint::decode(contents, &part.head, &mut blocks))?;
            each(&blocks);
        }
        Ok(())
    }

    /// Returns the event chunks with which replay goes on: those of the image that come after the
    /// checkpoint.
    pub fn event_chunks_after(&self) -> impl Iterator<Item = EventChunk<'_>> {
        let image = self.head().image.unwrap_or_default();
        let offset = self.parts[0].offset;
        self.recording.event_chunks(image).filter(move |chunk| chunk.entry().offset > offset)
    }

    pub(super) fn offset(&self) -> u64 {
        self.parts[0].offset
    }

    fn head(&self) -> &ChunkHead {
        &self.parts[0].head
    }
}
