//! What can go wrong.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

/// Why a command could not be recorded, or not to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The command is empty.
    #[error("no command was given")]
    NoCommand,
    /// There is no such program.
    #[error("{}: command not found", program.display())]
    CommandNotFound {
        /// As it was given.
        program: OsString,
    },
    /// There is such a file, but it cannot be executed.
    #[error("{}: not executable", program.display())]
    NotExecutable {
        /// As it was given.
        program: OsString,
        /// Why.
        source: io::Error,
    },
    /// The program could not be started.
    #[error("{}: cannot be started", program.display())]
    Launch {
        /// As it was given.
        program: OsString,
        /// Why.
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
        /// Why.
        source: io::Error,
    },
    /// The output file could not be written to its end.
    #[error("cannot write {}", path.display())]
    WriteOutput {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The preload library could not be put where the program finds it.
    #[error("cannot place the recorder's library in {}", path.display())]
    Library {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Something that every recording needs was refused by the system.
    #[error("cannot create {what}")]
    Session {
        /// What.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The collector's own memory ran out.
    #[error("out of memory for the table of live blocks")]
    OutOfMemory,
    /// The recording could not be encoded: an error in Heapledger.
    #[error("the recording could not be encoded")]
    Encode(#[from] heapledger_recording::Error),
}

impl Error {
    /// For `map_err`: a failed system call on the way to `what`.
    pub(crate) fn session<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> Error {
        move |error| Error::Session { what, source: error.into() }
    }
}
