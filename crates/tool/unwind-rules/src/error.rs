//! The errors of this crate.

use std::path::PathBuf;

/// The result of reading a module.
pub type Result<T> = std::result::Result<T, RulesError>;

/// A reason why the rules of a file cannot be found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RulesError {
    /// The file cannot be opened.
    #[error("cannot open `{}`: {error}", file.display())]
    Open {
        /// The file.
        file: PathBuf,
        /// The reason of the system.
        error: std::io::Error,
    },
    /// The file is not one whose code can be read, or is damaged.
    #[error("cannot read `{}`: {reason}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The reason, with the offset of what is damaged where one is known.
        reason: String,
    },
    /// The file is for another processor than x86-64.
    #[error("`{}` is not for x86-64", file.display())]
    OtherMachine {
        /// The file.
        file: PathBuf,
    },
}
