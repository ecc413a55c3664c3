use std::fmt;

/// The reason why a file cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadError {
    /// The offset in bytes from the beginning; of the unpacked contents, if the file was
    /// compressed.
    pub offset: u64,
    /// The error there.
    pub reason: String,
}

impl ReadError {
    /// Creates an error at an offset.
    pub fn new(offset: u64, reason: impl Into<String>) -> ReadError {
        ReadError { offset, reason: reason.into() }
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at byte {}: {}", self.offset, self.reason)
    }
}

impl std::error::Error for ReadError {}
