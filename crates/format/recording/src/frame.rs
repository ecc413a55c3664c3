//! The bytes around the contents: file header, chunk header, trailer; checksums and compression.
//!
//! ```text
//! file header  magic 8 │ major 1 │ minor 1 │ flags 2 │ crc of the 12 bytes before 4
//! chunk        magic 8 │ kind 2 │ codec 1 │ flags 1 │ head length 4 │ stored length 4 │ raw length 4
//!              crc of what follows 4 │ crc of the 28 bytes before 4 │ head │ contents │ zeros up to a multiple of 8
//! trailer      magic 8 │ offset of the first index chunk 8 │ offset of the footer 8 │ 0 4 │ crc of the 28 bytes before 4
//! ```

use prost::Message;

use crate::error::{Reason, RecordingError};
use crate::head::{ChunkHead, ChunkKind};
use crate::proto;

/// The major version written, and the newest that is read.
pub const VERSION_MAJOR: u8 = 2;
/// The minor version written.
pub const VERSION_MINOR: u8 = 8;
/// The most bytes that a chunk's contents take uncompressed.
pub const CHUNK_RAW_MAX: usize = 16 << 20;

pub(crate) const FILE_HEADER: usize = 16;
pub(crate) const CHUNK_HEADER: usize = 32;
pub(crate) const TRAILER: usize = 32;
/// The most bytes that a chunk's head takes.
const HEAD_MAX: usize = 4096;

// Each magic has a byte with the high bit set, and both sorts of line ends, so that a transfer as
// text breaks it.
const FILE_MAGIC: [u8; 8] = *b"\x89HLR\r\n\x1a\n";
const CHUNK_MAGIC: [u8; 8] = *b"\x89HLC\r\n\x1a\n";
const TRAILER_MAGIC: [u8; 8] = *b"\x89HLT\r\n\x1a\n";

// The file's magic after a transfer as text: CR dropped, LF made CR LF (with and without regard to
// the CR there), cut to seven bits.
const TEXT_MAGICS: [&[u8]; 4] = [b"\x89HLR\n", b"\x89HLR\r\n\x1a\r\n", b"\x89HLR\r\r\n", b"\x09HLR"];

const CODEC_RAW: u8 = 0;
const CODEC_ZSTD: u8 = 1;
/// Fast, and nearly as good if nothing repeats.
const ZSTD_LEVEL: i32 = 1;
/// For events of programs that do the same again and again: half the size for a few nanoseconds an
/// event.
const ZSTD_LEVEL_REPEATING: i32 = 5;

/// The flag bits that must be understood; a reader ignores the others.
const FILE_FLAGS_REQUIRED: u16 = 0xff00;
/// The file holds a sample: a reader that took it for a complete recording would show wrong
/// figures.
pub(crate) const FILE_FLAG_SAMPLE: u16 = 0x0100;
const CHUNK_FLAGS_REQUIRED: u8 = 0xf0;

pub(crate) fn file_header(flags: u16) -> [u8; FILE_HEADER] {
    let mut header = [0; FILE_HEADER];
    header[..8].copy_from_slice(&FILE_MAGIC);
    header[8] = VERSION_MAJOR;
    header[9] = VERSION_MINOR;
    header[10..12].copy_from_slice(&flags.to_le_bytes());
    let crc = crc32fast::hash(&header[..12]);
    header[12..].copy_from_slice(&crc.to_le_bytes());
    header
}

/// Checks the file header; returns the version.
pub(crate) fn read_file_header(file: &[u8]) -> Result<(u8, u8), RecordingError> {
    if !file.starts_with(&FILE_MAGIC) {
        return Err(if TEXT_MAGICS.iter().any(|magic| file.starts_with(magic)) {
            RecordingError::TransferredAsText
        } else if file.starts_with(&FILE_MAGIC[..4]) {
            RecordingError::HeaderDamaged
        } else {
            RecordingError::NotARecording
        });
    }
    let header = file.first_chunk::<FILE_HEADER>().ok_or(RecordingError::HeaderDamaged)?;
    let [.., major, minor, f0, f1, c0, c1, c2, c3] = *header;
    if u32::from_le_bytes([c0, c1, c2, c3]) != crc32fast::hash(&header[..12]) {
        return Err(RecordingError::HeaderDamaged);
    }
    if major != VERSION_MAJOR {
        return Err(RecordingError::UnsupportedVersion { major, minor });
    }
    let flags = u16::from_le_bytes([f0, f1]);
    if flags & FILE_FLAGS_REQUIRED & !FILE_FLAG_SAMPLE != 0 {
        return Err(RecordingError::UnsupportedFlags { flags });
    }
    Ok((major, minor))
}

/// The offsets of the index and the footer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trailer {
    pub(crate) index: u64,
    pub(crate) footer: u64,
}

impl Trailer {
    pub(crate) fn to_bytes(self) -> [u8; TRAILER] {
        let mut bytes = [0; TRAILER];
        bytes[..8].copy_from_slice(&TRAILER_MAGIC);
        bytes[8..16].copy_from_slice(&self.index.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.footer.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..28]);
        bytes[28..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Returns the trailer in these bytes, if there is one.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Trailer> {
        let mut fields = Fields(bytes.first_chunk::<TRAILER>()?);
        if fields.take::<8>() != TRAILER_MAGIC || crc_after(bytes, 28)? != crc32fast::hash(&bytes[..28]) {
            return None;
        }
        Some(Trailer { index: u64::from_le_bytes(fields.take()), footer: u64::from_le_bytes(fields.take()) })
    }
}

/// A chunk in the file whose header is valid. Its contents may still be anything.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChunkFrame<'a> {
    pub(crate) kind: ChunkKind,
    codec: u8,
    flags: u8,
    raw_length: usize,
    crc: u32,
    head: &'a [u8],
    stored: &'a [u8],
    padding: &'a [u8],
}

/// The reason why there is no chunk at an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoFrame {
    /// There is no chunk magic.
    Absent,
    /// There is a chunk magic, but the rest of the header makes no sense.
    Damaged,
    /// There is a chunk, but it goes on beyond the end of the file.
    Truncated,
}

/// The fields of a chunk's header.
struct HeaderFields {
    kind: ChunkKind,
    codec: u8,
    flags: u8,
    head_length: usize,
    stored_length: usize,
    raw_length: usize,
    crc: u32,
}

impl HeaderFields {
    fn parse(header: &[u8; CHUNK_HEADER]) -> Result<HeaderFields, NoFrame> {
        let mut fields = Fields(header);
        if fields.take::<8>() != CHUNK_MAGIC {
            return Err(NoFrame::Absent);
        }
        let kind = ChunkKind::from_number(u16::from_le_bytes(fields.take()));
        let [codec, flags] = fields.take();
        let head_length = u32::from_le_bytes(fields.take()) as usize;
        let stored_length = u32::from_le_bytes(fields.take()) as usize;
        let raw_length = u32::from_le_bytes(fields.take()) as usize;
        let crc = u32::from_le_bytes(fields.take());
        if crc_after(header, 28) != Some(crc32fast::hash(&header[..28]))
            || head_length > HEAD_MAX
            || raw_length > CHUNK_RAW_MAX
            || stored_length > raw_length
        {
            return Err(NoFrame::Damaged);
        }
        Ok(HeaderFields { kind, codec, flags, head_length, stored_length, raw_length, crc })
    }
}

/// Returns the kind and the length of the chunk that has this header. `None` if it is damaged.
pub(crate) fn parse_header(header: &[u8; CHUNK_HEADER]) -> Option<(ChunkKind, usize)> {
    let HeaderFields { kind, head_length, stored_length, .. } = HeaderFields::parse(header).ok()?;
    Some((kind, CHUNK_HEADER + (head_length + stored_length).next_multiple_of(8)))
}

impl<'a> ChunkFrame<'a> {
    /// Parses the chunk that starts with these bytes.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<ChunkFrame<'a>, NoFrame> {
        let Some(header) = bytes.first_chunk::<CHUNK_HEADER>() else {
            // If not even a header is left, bytes that could begin one count as a truncated chunk.
            let beginning = &CHUNK_MAGIC[..bytes.len().min(CHUNK_MAGIC.len())];
            return Err(if bytes.starts_with(beginning) { NoFrame::Truncated } else { NoFrame::Absent });
        };
        let HeaderFields { kind, codec, flags, head_length, stored_length, raw_length, crc } =
            HeaderFields::parse(header)?;
        let payload = &bytes[CHUNK_HEADER..];
        let length = head_length + stored_length;
        let payload = payload.get(..length.next_multiple_of(8)).ok_or(NoFrame::Truncated)?;
        let (head, rest) = payload.split_at(head_length);
        let (stored, padding) = rest.split_at(stored_length);
        Ok(ChunkFrame { kind, codec, flags, raw_length, crc, head, stored, padding })
    }

    /// Returns its length in the file.
    pub(crate) fn length(&self) -> usize {
        CHUNK_HEADER + self.head.len() + self.stored.len() + self.padding.len()
    }

    /// Checks the head and the contents against their checksum.
    pub(crate) fn check(&self) -> Result<(), Reason> {
        let mut hasher = crc32fast::Hasher::new();
        for part in [self.head, self.stored, self.padding] {
            hasher.update(part);
        }
        if hasher.finalize() == self.crc { Ok(()) } else { Err(Reason::Checksum) }
    }

    /// Checks that the chunk has no unknown flag that must be understood.
    pub(crate) fn check_flags(&self) -> Result<(), Reason> {
        if self.flags & CHUNK_FLAGS_REQUIRED == 0 { Ok(()) } else { Err(Reason::Unsupported("a flag")) }
    }

    /// Returns the bytes of [`head`](Self::head).
    pub(crate) fn head_bytes(&self) -> &'a [u8] {
        self.head
    }

    /// Returns the same contents under another head. Meaningful only after [`check`](Self::check).
    pub(crate) fn with_head(&self, head: &ChunkHead) -> EncodedChunk {
        let head_bytes = proto::ChunkHead::from(*head).encode_to_vec();
        let bytes = frame_bytes(self.kind, self.codec, &head_bytes, self.stored, self.raw_length);
        EncodedChunk { kind: self.kind, head: *head, bytes }
    }

    /// Returns the chunk's description of itself. Meaningful only after [`check`](Self::check).
    pub(crate) fn head(&self) -> Result<ChunkHead, Reason> {
        let head = proto::ChunkHead::decode(self.head).map_err(|_| Reason::Invalid("the head"))?;
        Ok(head.into())
    }
}

/// Unpacks chunks. Holds the memory for one.
#[derive(Default)]
pub(crate) struct Unpacker {
    decompressor: Option<zstd::bulk::Decompressor<'static>>,
    raw: Vec<u8>,
}

impl std::fmt::Debug for Unpacker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unpacker").finish_non_exhaustive()
    }
}

impl Unpacker {
    /// Returns the contents of a chunk whose checksum fits: at most [`CHUNK_RAW_MAX`] bytes.
    pub(crate) fn unpack<'u, 'a: 'u>(&'u mut self, frame: &ChunkFrame<'a>) -> Result<&'u [u8], Reason> {
        frame.check()?;
        frame.check_flags()?;
        match frame.codec {
            CODEC_RAW if frame.stored.len() == frame.raw_length => Ok(frame.stored),
            CODEC_ZSTD => {
                if self.decompressor.is_none() {
                    self.decompressor = zstd::bulk::Decompressor::new().ok();
                }
                let decompressor = self.decompressor.as_mut().ok_or(Reason::Decompress)?;
                self.raw.clear();
                self.raw.reserve(frame.raw_length);
                match decompressor.decompress_to_buffer(frame.stored, &mut self.raw) {
                    Ok(length) if length == frame.raw_length => Ok(&self.raw),
                    _ => Err(Reason::Decompress),
                }
            }
            CODEC_RAW => Err(Reason::Invalid("the lengths of an uncompressed chunk differ")),
            _ => Err(Reason::Unsupported("a compression")),
        }
    }
}

/// Returns the first chunk at or after `from`: one with a valid header, or the beginning of one at
/// the very end.
pub(crate) fn find_chunk(file: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    while let Some(step) = file.get(at..)?.iter().position(|&byte| byte == CHUNK_MAGIC[0]) {
        at += step;
        let rest = &file[at..];
        let candidate = Trailer::from_bytes(rest).is_some()
            || match ChunkFrame::parse(rest) {
                Ok(_) => true,
                Err(NoFrame::Truncated) => rest.len() >= CHUNK_HEADER,
                Err(_) => false,
            };
        if candidate {
            return Some(at);
        }
        at += 1;
    }
    None
}

/// Compresses chunks. Holds the compressor's tables, so keep one per thread.
pub struct Compressor {
    zstd: Option<zstd::bulk::Compressor<'static>>,
    /// True if the latest events became much smaller: the next ones will too.
    events_repeat: bool,
    compressed: Vec<u8>,
}

impl std::fmt::Debug for Compressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Compressor").finish_non_exhaustive()
    }
}

impl Compressor {
    /// Creates a compressor for Zstandard at levels 1 and 5.
    #[expect(clippy::new_without_default, reason = "it is not cheap")]
    pub fn new() -> Compressor {
        // Without a compressor (no memory for its tables) chunks are stored uncompressed: larger,
        // but not wrong.
        Compressor { zstd: zstd::bulk::Compressor::new(ZSTD_LEVEL).ok(), events_repeat: true, compressed: Vec::new() }
    }

    /// Returns a chunk with these contents. Fails if they are larger than [`CHUNK_RAW_MAX`].
    pub fn encode_chunk(
        &mut self,
        kind: ChunkKind,
        head: &ChunkHead,
        contents: &[u8],
    ) -> Result<EncodedChunk, RecordingError> {
        if contents.len() > CHUNK_RAW_MAX {
            return Err(RecordingError::Unwritable("the contents of a chunk are larger than its limit"));
        }
        Ok(self.seal(kind, head, contents))
    }

    /// Returns a chunk with these contents, which are not too large.
    pub(crate) fn seal(&mut self, kind: ChunkKind, head: &ChunkHead, contents: &[u8]) -> EncodedChunk {
        debug_assert!(contents.len() <= CHUNK_RAW_MAX);
        self.compressed.clear();
        self.compressed.reserve(zstd::zstd_safe::compress_bound(contents.len()));
        let is_events = kind == ChunkKind::Events;
        let level = if is_events && self.events_repeat { ZSTD_LEVEL_REPEATING } else { ZSTD_LEVEL };
        let compressed = self.zstd.as_mut().is_some_and(|zstd| {
            zstd.set_compression_level(level).is_ok() && zstd.compress_to_buffer(contents, &mut self.compressed).is_ok()
        });
        if is_events {
            self.events_repeat = self.compressed.len() < contents.len() / 3;
        }
        let (codec, stored) = if compressed && self.compressed.len() < contents.len() {
            (CODEC_ZSTD, self.compressed.as_slice())
        } else {
            (CODEC_RAW, contents)
        };
        let head_bytes = proto::ChunkHead::from(*head).encode_to_vec();
        let bytes = frame_bytes(kind, codec, &head_bytes, stored, contents.len());
        EncodedChunk { kind, head: *head, bytes }
    }
}

fn frame_bytes(kind: ChunkKind, codec: u8, head: &[u8], stored: &[u8], raw_length: usize) -> Vec<u8> {
    let length = CHUNK_HEADER + (head.len() + stored.len()).next_multiple_of(8);
    let mut bytes = Vec::with_capacity(length);
    bytes.extend_from_slice(&CHUNK_MAGIC);
    bytes.extend_from_slice(&kind.number().to_le_bytes());
    bytes.extend_from_slice(&[codec, 0]);
    for length in [head.len(), stored.len(), raw_length] {
        // All three are at most CHUNK_RAW_MAX.
        bytes.extend_from_slice(&(length as u32).to_le_bytes());
    }
    bytes.extend_from_slice(&[0; 8]);
    bytes.extend_from_slice(head);
    bytes.extend_from_slice(stored);
    bytes.resize(length, 0);
    let payload_crc = crc32fast::hash(&bytes[CHUNK_HEADER..]);
    bytes[24..28].copy_from_slice(&payload_crc.to_le_bytes());
    let header_crc = crc32fast::hash(&bytes[..28]);
    bytes[28..32].copy_from_slice(&header_crc.to_le_bytes());
    bytes
}

/// Returns a chunk with any head and contents at all, for tests of the reader.
pub(crate) fn unchecked_chunk(kind: ChunkKind, head: &[u8], contents: &[u8]) -> Vec<u8> {
    frame_bytes(kind, CODEC_RAW, head, contents, contents.len())
}

/// A chunk that is finished but for its compression, which can be done on another thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawChunk {
    pub(crate) kind: ChunkKind,
    pub(crate) head: ChunkHead,
    pub(crate) contents: Vec<u8>,
}

impl RawChunk {
    /// Returns the head, which describes the contents.
    pub fn head(&self) -> &ChunkHead {
        &self.head
    }

    /// Returns the same contents under another head.
    pub fn with_head(self, head: ChunkHead) -> RawChunk {
        RawChunk { head, ..self }
    }

    /// Returns the finished chunk.
    pub fn compress(&self, compressor: &mut Compressor) -> EncodedChunk {
        compressor.seal(self.kind, &self.head, &self.contents)
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
    /// Returns the kind of its contents.
    pub fn kind(&self) -> ChunkKind {
        self.kind
    }

    /// Returns the head, which describes the contents.
    pub fn head(&self) -> &ChunkHead {
        &self.head
    }

    /// Returns the bytes that go into the file.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Takes fields of fixed width off the front of a header.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        match self.0.split_first_chunk::<N>() {
            Some((field, rest)) => {
                self.0 = rest;
                *field
            }
            None => [0; N],
        }
    }
}

fn crc_after(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests;
