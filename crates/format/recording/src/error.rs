//! The errors in a file, and their positions.

/// The reason why a file, or a part of it, could not be read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordingError {
    /// The first bytes are not those of a recording.
    #[error("not a heapledger recording")]
    NotARecording,
    /// The first bytes are those of a recording that was sent as text: line ends were changed.
    #[error("the recording was damaged by a transfer as text (line ends were changed)")]
    TransferredAsText,
    /// The 16 bytes of the file header are cut short or fail their checksum.
    #[error("the recording's file header is damaged")]
    HeaderDamaged,
    /// The file was written by a newer version in a way that this one cannot read.
    #[error("the recording has format version {major}.{minor}; this version reads up to {}.x", crate::VERSION_MAJOR)]
    UnsupportedVersion {
        /// The file's major version.
        major: u8,
        /// The file's minor version.
        minor: u8,
    },
    /// The file header asks for a feature that this version does not have.
    #[error("the recording needs features that this version does not have (flags {flags:#06x})")]
    UnsupportedFlags {
        /// All flags of the file header.
        flags: u16,
    },
    /// A part of the file cannot be read.
    #[error(transparent)]
    Damaged(#[from] Damage),
    /// The writer was given something that the format cannot hold.
    #[error("cannot be recorded: {0}")]
    Unwritable(&'static str),
}

/// A position in a file that cannot be read, and the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at byte {offset}: {reason}")]
pub struct Damage {
    /// The offset in the file: the start of the chunk, or of the bytes that are not a chunk.
    pub offset: u64,
    /// The error there.
    pub reason: Reason,
}

/// The error at a position in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// The file has no valid trailer: the recorder was killed, or the end is missing. Chunks were
    /// found by scanning.
    #[error("the file ends without its trailer (the recorder did not finish, or the end is missing)")]
    NoTrailer,
    /// The trailer is whole, but the index or the footer it names is not.
    #[error("the index or the footer is damaged; chunks were found by scanning")]
    BadIndex,
    /// The last chunk goes on beyond the end of the file.
    #[error("the last chunk is cut short")]
    Truncated,
    /// Bytes that are not a chunk, up to the next one or to the end.
    #[error("{bytes} bytes are not a chunk and were skipped")]
    Gap {
        /// The number of bytes.
        bytes: u64,
    },
    /// The chunk's header is not that of a chunk, fails its checksum or breaks a limit.
    #[error("a chunk header is damaged")]
    ChunkHeader,
    /// The chunk's contents fail their checksum.
    #[error("a chunk's contents fail their checksum")]
    Checksum,
    /// The chunk needs a codec or feature that this version does not have.
    #[error("a chunk needs a newer version ({0})")]
    Unsupported(&'static str),
    /// The compressed contents do not decompress to the stated length.
    #[error("a chunk does not decompress")]
    Decompress,
    /// The chunk is valid as bytes, but its contents contradict themselves or the rules of the
    /// format.
    #[error("a chunk's contents are invalid ({0})")]
    Invalid(&'static str),
    /// The chunk is not the one that the index describes.
    #[error("a chunk does not match the index")]
    IndexMismatch,
    /// A table would grow beyond the reader's limit; the rest was left out.
    #[error("more data than the reader's limit allows; the rest was left out")]
    Limit,
}
