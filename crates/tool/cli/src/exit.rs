//! All exit codes.

use std::process::ExitCode;

/// The exit status of `heapledger`. (`heapledger record` ends as the program did, once that runs.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// All went well, or the reader of the output has seen enough and closed it.
    Ok = 0,
    /// Something unexpected happened.
    Unexpected = 1,
    /// The command line makes no sense.
    Usage = 2,
    /// The program to record could not be started.
    NotStarted = 101,
    /// The recording cannot be read.
    Unreadable = 102,
    /// There is nothing to show: nothing was recorded.
    NothingRecorded = 103,
    /// `heapledger diff` found more growth than is allowed.
    Grew = 104,
    /// The program to record is not executable; as in a shell.
    NotExecutable = 126,
    /// There is no such program to record; as in a shell.
    NotFound = 127,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_documented() {
        use Exit::*;
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/exit-status.md");
        let page = std::fs::read_to_string(page).unwrap();
        for exit in [Ok, Unexpected, Usage, NotStarted, Unreadable, NothingRecorded, Grew, NotExecutable, NotFound] {
            assert!(page.contains(&format!("\n| {} | ", exit as u8)), "{exit:?}");
        }
    }
}
