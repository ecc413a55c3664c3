//! The dark matter of this program: logs of its heap with the blocks that are unreported, and those
//! that are reported twice.
//!
//! [`dump`] asks all reporters, which mark what they measure in the ledger, and makes a log of the
//! same heap: every live block by where it was allocated, of what type, in which context, and who
//! has reported it. [`save`] writes it to a file, [`on_signal`] does that when the program is told
//! to; a program that [listens](crate::listen) gives it to `heapledger dmd PID`. The command shows
//! what is in it: `docs/dmd.md` of the project.
//!
//! ```no_run
//! # use heapledger_reporters as reports;
//! use reports::dark_matter::{self, DarkMatterOptions};
//!
//! dark_matter::save("server.dmd.json.gz", &DarkMatterOptions::default())?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # Costs
//!
//! The program's threads go on while reporters are asked. Then whoever allocates or frees waits
//! while the ledger is copied: [`About::pause_ns`](heapledger_dmd::About::pause_ns) says for how
//! long it was. What else is done, is done in the calling thread.

pub(crate) mod actions;
mod log;
#[cfg(feature = "symbols")]
mod names;
mod options;
mod signal;

use std::path::Path;
use std::{error, fmt, io};

use heapledger_annotate::untracked;
use heapledger_core::bridge;
use heapledger_dmd::Log;
pub use heapledger_dmd::Mode;
use heapledger_query::{Ledger, SnapshotError};
#[cfg(feature = "symbols")]
pub use names::name_frames;
pub use options::DarkMatterOptions;
pub use signal::{OnSignal, at_exit, on_signal};

use crate::report_options::ReportOptions;
use crate::{collect, save as files};

/// The reason why there is no log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DarkMatterError {
    /// The program has no running ledger.
    NotRunning,
    /// A recorder observes the program: the marks are in the recording.
    Recorded,
    /// The call came from a reporter.
    Reporting,
    /// The ledger does not count blocks that have been freed: see
    /// [`keep_freed`](heapledger_query::LedgerOptions::keep_freed).
    NotKept,
    /// The ledger cannot be copied.
    Snapshot(SnapshotError),
}

impl fmt::Display for DarkMatterError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DarkMatterError::NotRunning => out.write_str("no ledger runs in the program"),
            DarkMatterError::Recorded => out.write_str(
                "the program is recorded: its reporters have been asked, and the recording has what they say",
            ),
            DarkMatterError::NotKept => {
                out.write_str("the program's ledger does not count blocks that have been freed")
            }
            DarkMatterError::Reporting => out.write_str("a reporter is being asked"),
            DarkMatterError::Snapshot(error) => error.fmt(out),
        }
    }
}

impl error::Error for DarkMatterError {}

impl From<DarkMatterError> for io::Error {
    fn from(error: DarkMatterError) -> io::Error {
        io::Error::other(error)
    }
}

/// Makes a log of the heap as it is now. The memory of the log itself is in no ledger.
///
/// If two calls run at a time, or a call and a [collection](crate::collect), the second waits for
/// the first.
///
/// # Errors
///
/// See [`DarkMatterError`].
pub fn dump(options: &DarkMatterOptions) -> Result<Log, DarkMatterError> {
    untracked::scope(|| log_now(options))
}

fn log_now(options: &DarkMatterOptions) -> Result<Log, DarkMatterError> {
    let is_recorded = is_recorded();
    if !is_recorded && !Ledger::get().is_running() {
        return Err(DarkMatterError::NotRunning);
    }
    let DarkMatterOptions { mode, report, anonymous, reporter_deadline, deadline, contents_max } = *options;
    // The marks stay, and no other collection begins, until the log has been made.
    let marked = if report && mode == Mode::DarkMatter {
        let (mark, children) = (true, false);
        let options = ReportOptions { anonymous, mark, children, reporter_deadline, deadline };
        Some(collect::mark(&options).ok_or(DarkMatterError::Reporting)?)
    } else {
        None
    };
    if is_recorded {
        return Err(DarkMatterError::Recorded);
    }
    if mode == Mode::Cumulative && !Ledger::get().keeps_freed() {
        return Err(DarkMatterError::NotKept);
    }
    let claims = marked.as_ref().map_or(&[][..], |marked| &marked.claims);
    let contents_max = Some(contents_max).filter(|_| mode == Mode::Scan && !anonymous);
    log::of_ledger(mode, contents_max, claims).map_err(DarkMatterError::Snapshot)
}

/// Writes a [log](dump) to a file that `heapledger dmd`, and Mozilla's `dmd.py`, can read. By
/// custom its name ends with `.json.gz`.
///
/// The file is first written under another name in the same directory, so it is either complete or
/// missing. Only this user can read it.
///
/// # Errors
///
/// The errors of [`dump`], and any error of writing the file.
pub fn save(path: impl AsRef<Path>, options: &DarkMatterOptions) -> io::Result<()> {
    untracked::scope(|| {
        let file = dump(options)?.to_gzip();
        files::whole(path.as_ref(), &file)
    })
}

/// True if a recorder observes the program now: marks then go to the recorder, and not to the
/// program's own ledger.
fn is_recorded() -> bool {
    let recorder = bridge::find().filter(|_| !heapledger_core::arch::bridge().is_null());
    recorder.and_then(bridge::BridgeRef::is_recording).is_some_and(|is_recording| is_recording() != 0)
}
