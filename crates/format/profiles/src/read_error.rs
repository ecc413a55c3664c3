use std::fmt;

/// Why a file is not what it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadError {
    /// Where, in bytes from the beginning: of what is in the file, if that was compressed.
    pub offset: u64,
    /// What is wrong there.
    pub reason: String,
}

impl ReadError {
    /// Something that is wrong at an offset.
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
