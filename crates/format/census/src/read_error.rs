//! The errors of reading a snapshot.

use std::fmt;
use std::io;

/// The reasons why a snapshot cannot be read.
#[derive(Debug)]
pub enum ReadError {
    /// The stream fails.
    Io(io::Error),
    /// The file is a sampling profile of V8 (`.heapprofile`): a call tree with sizes, without nodes
    /// and edges.
    Profile,
    /// The file is no snapshot, or a damaged one.
    Malformed {
        /// The offset in bytes from the beginning, of the unpacked data if the file is compressed.
        offset: u64,
        /// The error there.
        reason: String,
    },
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::Io(_) => f.write_str("it cannot be read"),
            ReadError::Profile => f.write_str("it is a sampling profile: a call tree with sizes, not a graph of nodes"),
            ReadError::Malformed { offset, reason } => write!(f, "at byte {offset}: {reason}"),
        }
    }
}

impl std::error::Error for ReadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ReadError::Io(error) => Some(error),
            ReadError::Profile | ReadError::Malformed { .. } => None,
        }
    }
}
