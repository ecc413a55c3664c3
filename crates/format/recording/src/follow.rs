//! Reading a file that is still being written, chunk by chunk.
//!
//! [`Recording::open`](crate::Recording::open) needs the whole file at once. A reader that follows
//! a recorder reads the [header](ChunkHeader) of each new chunk instead, which says where the next
//! one begins, and the bytes of those chunks that it needs.

use crate::error::{Damage, Reason, RecordingError};
use crate::frame::{self, CHUNK_HEADER, ChunkFrame, EncodedChunk};
use crate::head::ChunkKind;

/// The offset of the first chunk in a file.
pub const FIRST_CHUNK: u64 = frame::FILE_HEADER as u64;
/// The length of a chunk's header in bytes.
pub const CHUNK_HEADER_LENGTH: usize = CHUNK_HEADER;

/// The beginning of a chunk: what must be known to skip it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkHeader {
    /// The kind of its contents.
    pub kind: ChunkKind,
    /// Its length in the file in bytes, header and padding included: less than 17 MiB.
    pub length: u32,
}

impl ChunkHeader {
    /// Parses the header of a chunk. `None` if there is no chunk, or its header is damaged: that
    /// may also be the end of a finished file, behind its last chunk.
    pub fn parse(header: &[u8; CHUNK_HEADER_LENGTH]) -> Option<ChunkHeader> {
        let (kind, length) = frame::parse_header(header)?;
        // A chunk is a little larger than CHUNK_RAW_MAX at most.
        Some(ChunkHeader { kind, length: u32::try_from(length).ok()? })
    }
}

impl EncodedChunk {
    /// Takes the bytes of a chunk from a file, where they are at `offset`. Checks them against
    /// their checksum.
    ///
    /// # Errors
    ///
    /// Fails if these bytes are not exactly one chunk, if they are damaged, or if the chunk needs a
    /// newer version.
    pub fn from_bytes(bytes: Vec<u8>, offset: u64) -> Result<EncodedChunk, RecordingError> {
        let damaged = |reason| RecordingError::Damaged(Damage { offset, reason });
        let frame = ChunkFrame::parse(&bytes).map_err(|_| damaged(Reason::ChunkHeader))?;
        if frame.length() != bytes.len() {
            return Err(damaged(Reason::Gap { bytes: bytes.len().abs_diff(frame.length()) as u64 }));
        }
        frame.check().and_then(|()| frame.check_flags()).map_err(damaged)?;
        let (kind, head) = (frame.kind, frame.head().map_err(damaged)?);
        Ok(EncodedChunk { kind, head, bytes })
    }
}

#[cfg(test)]
mod tests;
