//! Chunks as bytes: header, checksum, compression.

use crate::error::Error;
use crate::head::{ChunkHead, ChunkKind};

/// The major version written, and the newest that is read.
pub const VERSION_MAJOR: u8 = 1;
/// The minor version written.
pub const VERSION_MINOR: u8 = 0;
/// The most bytes that a chunk's contents take uncompressed.
pub const CHUNK_RAW_MAX: usize = 16 << 20;

/// Compresses chunks. Holds the compressor's tables, so keep one per thread.
pub struct Compressor {
    _private: (),
}

impl std::fmt::Debug for Compressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Compressor").finish_non_exhaustive()
    }
}

impl Compressor {
    /// Zstandard at level 1.
    #[expect(clippy::new_without_default, reason = "it is not cheap")]
    pub fn new() -> Compressor {
        todo!()
    }

    /// A chunk with these contents. Fails if they are larger than [`CHUNK_RAW_MAX`].
    pub fn encode_chunk(&mut self, kind: ChunkKind, head: &ChunkHead, raw: &[u8]) -> Result<EncodedChunk, Error> {
        let _ = (kind, head, raw);
        todo!()
    }
}

/// A finished chunk, not yet in a file. Can be made on one thread and placed by another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedChunk {
    pub(crate) kind: ChunkKind,
    pub(crate) head: ChunkHead,
    pub(crate) bytes: Vec<u8>,
}

impl EncodedChunk {
    /// What it holds.
    pub fn kind(&self) -> ChunkKind {
        self.kind
    }

    /// What it says about itself.
    pub fn head(&self) -> &ChunkHead {
        &self.head
    }

    /// The bytes that go into the file.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}
