//! Joining chunks into a file.

use prost::Message;

use crate::error::RecordingError;
use crate::frame::{self, CHUNK_RAW_MAX, Compressor, EncodedChunk, Trailer};
use crate::head::{CHUNK_ROWS_MAX, ChunkEntry, ChunkHead, ChunkKind};
use crate::messages::{Footer, Record};
use crate::reader::Recording;
use crate::{proto, records};

/// Tracks the positions of chunks in the file, and ends it with index, footer and trailer.
///
/// It holds the bytes that are to be written next: after any call, append
/// [`pending`](Self::pending) to the file and call [`clear_pending`](Self::clear_pending). The
/// bytes that have been written are a readable recording at every moment.
#[derive(Debug)]
pub struct RecordingWriter {
    pending: Vec<u8>,
    /// The length of the file without the pending bytes.
    written: u64,
    index: Batches,
}

impl RecordingWriter {
    /// Creates a writer whose pending bytes are the file header.
    #[expect(clippy::new_without_default, reason = "a writer with pending bytes is no default")]
    pub fn new() -> RecordingWriter {
        RecordingWriter { pending: frame::file_header(0).to_vec(), written: 0, index: Batches::default() }
    }

    /// Creates a writer for a recording of a sample, which its [`Session`](crate::Session) says
    /// too.
    pub fn of_sample() -> RecordingWriter {
        let pending = frame::file_header(frame::FILE_FLAG_SAMPLE).to_vec();
        RecordingWriter { pending, ..RecordingWriter::new() }
    }

    /// Returns a writer that goes on behind the chunks of a recording, without the
    /// [names](crate::Names) at its end; and the number of bytes of that file that stay unchanged,
    /// to be copied first. `None` if the recording is not finished, or not all of its chunks can be
    /// read.
    pub fn after(recording: &Recording<'_>) -> Option<(RecordingWriter, u64)> {
        recording.footer()?;
        let chunks = recording.chunks();
        let kept = chunks.iter().rposition(|chunk| chunk.kind != ChunkKind::Names).map_or(0, |last| last + 1);
        let mut index = Batches::default();
        let mut written = frame::FILE_HEADER as u64;
        for ChunkEntry { offset, length, kind, head } in &chunks[..kept] {
            // The index has only lengths, so there must be no hole.
            if *offset != written {
                return None;
            }
            written += u64::from(*length);
            index.push(&proto::IndexEntry {
                length: *length,
                kind: u32::from(kind.number()),
                head: Some((*head).into()),
            });
        }
        let writer = RecordingWriter { pending: Vec::new(), written, index };
        recording.damage().is_empty().then_some((writer, written))
    }

    /// Adds a chunk.
    pub fn push(&mut self, chunk: &EncodedChunk) {
        self.index.push(&proto::IndexEntry {
            // A chunk is a little larger than CHUNK_RAW_MAX at most.
            length: chunk.bytes.len() as u32,
            kind: u32::from(chunk.kind.number()),
            head: Some(chunk.head.into()),
        });
        self.pending.extend_from_slice(&chunk.bytes);
    }

    /// Returns the bytes to append to the file.
    pub fn pending(&self) -> &[u8] {
        &self.pending
    }

    /// Forgets the pending bytes: they have been written.
    pub fn clear_pending(&mut self) {
        self.written += self.pending.len() as u64;
        self.pending.clear();
    }

    /// Returns the length of the file so far, including pending bytes.
    pub fn length(&self) -> u64 {
        self.written + self.pending.len() as u64
    }

    /// Adds index, footer and trailer to the pending bytes: the file ends there, and nothing may be
    /// added to it.
    pub fn finish(&mut self, footer: &Footer, compressor: &mut Compressor) {
        let index = self.length();
        for chunk in std::mem::take(&mut self.index).into_chunks(ChunkKind::Index, compressor) {
            self.pending.extend_from_slice(&chunk.bytes);
        }
        let trailer = Trailer { index, footer: self.length() };
        let mut contents = Batches::default();
        contents.push(&proto::Footer::from(*footer));
        for chunk in contents.into_chunks(ChunkKind::Footer, compressor) {
            self.pending.extend_from_slice(&chunk.bytes);
        }
        self.pending.extend_from_slice(&trailer.to_bytes());
    }
}

/// Returns the chunks of some metadata records, usually one chunk. Fails if one record alone is
/// larger than a chunk.
pub fn encode_records(records: &[Record], compressor: &mut Compressor) -> Result<Vec<EncodedChunk>, RecordingError> {
    let mut batches = Batches::default();
    for record in records {
        let record = proto::Record::from(record.clone());
        if records::put_len(&record) > CHUNK_RAW_MAX {
            return Err(RecordingError::Unwritable("a record that is larger than a chunk"));
        }
        batches.push(&record);
    }
    Ok(batches.into_chunks(ChunkKind::Metadata, compressor))
}

/// Messages, batched into the contents of chunks.
#[derive(Debug, Default)]
struct Batches {
    full: Vec<(u32, Vec<u8>)>,
    rows: u32,
    contents: Vec<u8>,
}

/// The size at which a batch is full, in bytes.
const BATCH_FULL: usize = 1 << 20;

impl Batches {
    /// Adds a message that is not larger than a chunk.
    fn push(&mut self, message: &impl Message) {
        let too_large = self.contents.len() + records::put_len(message) > BATCH_FULL;
        if self.rows as usize == CHUNK_ROWS_MAX || (too_large && self.rows > 0) {
            self.full.push((self.rows, std::mem::take(&mut self.contents)));
            self.rows = 0;
        }
        records::put(&mut self.contents, message);
        self.rows += 1;
    }

    fn into_chunks(mut self, kind: ChunkKind, compressor: &mut Compressor) -> Vec<EncodedChunk> {
        if self.rows > 0 {
            self.full.push((self.rows, self.contents));
        }
        let seal = |(rows, contents): &(u32, Vec<u8>)| {
            let head = ChunkHead { rows: *rows, ..ChunkHead::default() };
            compressor.seal(kind, &head, contents)
        };
        self.full.iter().map(seal).collect()
    }
}
