//! The errors of reading a log.

use std::fmt;
use std::io;

/// The reasons why a log cannot be read.
#[derive(Debug)]
pub enum ReadError {
    /// The stream fails.
    Io(io::Error),
    /// The text is not a log.
    Malformed {
        /// The offset in bytes from the beginning of the JSON text, which may have been unpacked.
        offset: u64,
        /// The error there.
        reason: String,
    },
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::Io(_) => f.write_str("it cannot be read"),
            ReadError::Malformed { offset, reason } => write!(f, "at byte {offset}: {reason}"),
        }
    }
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> ReadError {
        ReadError::Io(error)
    }
}

impl std::error::Error for ReadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ReadError::Io(error) => Some(error),
            ReadError::Malformed { .. } => None,
        }
    }
}
