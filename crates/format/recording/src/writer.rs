//! Stringing chunks together into a file.

use crate::error::Error;
use crate::frame::{Compressor, EncodedChunk};
use crate::messages::{Footer, Record};

/// Keeps track of where chunks land in the file, and ends it with index, footer and trailer.
///
/// It holds the bytes that are to be written next: after any call, append [`pending`](Self::pending) to the file and
/// call [`clear_pending`](Self::clear_pending). What has been written is a readable recording at every moment.
#[derive(Debug)]
pub struct RecordingWriter {
    _private: (),
}

impl RecordingWriter {
    /// A writer whose pending bytes are the file header.
    #[expect(clippy::new_without_default, reason = "a writer with pending bytes is no default")]
    pub fn new() -> RecordingWriter {
        todo!()
    }

    /// Adds a chunk.
    pub fn push(&mut self, chunk: &EncodedChunk) {
        let _ = chunk;
        todo!()
    }

    /// The bytes to append to the file.
    pub fn pending(&self) -> &[u8] {
        todo!()
    }

    /// Forgets the pending bytes: they have been written.
    pub fn clear_pending(&mut self) {
        todo!()
    }

    /// The length of the file so far, pending bytes included.
    pub fn length(&self) -> u64 {
        todo!()
    }

    /// Adds index, footer and trailer to the pending bytes. Nothing may be added after that.
    pub fn finish(&mut self, footer: &Footer, compressor: &mut Compressor) {
        let _ = (footer, compressor);
        todo!()
    }
}

/// The chunks of some metadata records; usually one chunk. Fails if one record alone is larger than a chunk.
pub fn encode_records(records: &[Record], compressor: &mut Compressor) -> Result<Vec<EncodedChunk>, Error> {
    let _ = (records, compressor);
    todo!()
}
