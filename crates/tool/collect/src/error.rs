//! The errors of a recording.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

/// The reason why a command could not be recorded, or not to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The command is empty.
    #[error("no command was given")]
    NoCommand,
    /// There is no such program.
    #[error("{}: command not found", program.display())]
    CommandNotFound {
        /// The name as it was given.
        program: OsString,
    },
    /// The file exists, but it cannot be executed.
    #[error("{}: not executable", program.display())]
    NotExecutable {
        /// The name as it was given.
        program: OsString,
        /// The reason.
        source: io::Error,
    },
    /// The program could not be started.
    #[error("{}: cannot be started", program.display())]
    Launch {
        /// The name as it was given.
        program: OsString,
        /// The reason.
        source: io::Error,
    },
    /// The output file exists, and was not to be replaced.
    #[error("{} exists", path.display())]
    OutputExists {
        /// The file.
        path: PathBuf,
    },
    /// The output file could not be created.
    #[error("cannot create {}", path.display())]
    CreateOutput {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The output file could not be written to its end.
    #[error("cannot write {}", path.display())]
    WriteOutput {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The preload library could not be put in a place where the program finds it.
    #[error("cannot place the recorder's library in {}", path.display())]
    Library {
        /// The directory.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The system refused a resource that every recording needs.
    #[error("cannot create {what}")]
    Session {
        /// The resource.
        what: &'static str,
        /// The reason.
        source: io::Error,
    },
    /// The process cannot be asked to join.
    #[error("{source}")]
    Attach {
        /// The reason.
        source: crate::ArmError,
    },
    /// The recorder's library could not be placed into the process.
    #[error("{source}")]
    AttachFromOutside {
        /// The reason.
        source: crate::AttachError,
    },
    /// The collector ran out of memory.
    #[error("out of memory for the table of live blocks")]
    OutOfMemory,
    /// The recording could not be encoded: an error in Heapledger.
    #[error("the recording could not be encoded")]
    Encode(#[from] heapledger_recording::RecordingError),
}

impl RecordError {
    /// Returns a function for `map_err` that converts a failed system call about `what`.
    pub(crate) fn session<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> RecordError {
        move |error| RecordError::Session { what, source: error.into() }
    }
}
