//! Answering other processes that ask for reports.

use std::fmt;
use std::io;
use std::os::unix::net::UnixListener;
use std::process;
use std::sync::{Arc, OnceLock};

use heapledger_annotate::{untracked, untracked_thread};
use heapledger_dmd::request::{self as dmd, DmdAnswer};
use heapledger_report_format::ask;
use heapledger_report_format::request::{ReportsRequest, SOCKET_PREFIX, ledger};

use crate::collect::collect;
use crate::dark_matter::{self, dump};
use crate::report_options::ReportOptions;
use crate::{ledger_control, socket};

/// Answers requests for this process's reports, such as those of `heapledger reports show PID` and
/// of a [collection](crate::collect) in a parent process, until this is dropped. While it exists,
/// `heapledger status` shows the process's ledger; `heapledger sample 512KiB PID` starts a sampling
/// ledger or changes its rate, and `heapledger pause PID` stops it.
///
/// The requests are answered by a thread that takes none of the program's signals, behind an
/// abstract Unix socket with a random name. It answers processes of the same user and of root, one
/// request after the other; a client that does not send one, or does not read the answer, holds up
/// nobody. A child made by `fork` does not answer unless it calls [`listen`] itself.
#[must_use = "it answers until this is dropped"]
pub struct Listener {
    /// Until it is dropped.
    listener: Option<Arc<UnixListener>>,
    thread: Option<untracked_thread::Thread>,
    process: u32,
}

/// Starts to answer: see [`Listener`].
///
/// ```
/// # use heapledger_reporters as reports;
/// let listener = reports::listen()?;
/// // … as long as the program runs.
/// drop(listener);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
///
/// An error if the socket or the thread cannot be made.
pub fn listen() -> io::Result<Listener> {
    untracked::scope(|| {
        let listener = Arc::new(ask::listen(SOCKET_PREFIX)?);
        let of_thread = Arc::clone(&listener);
        let thread = untracked_thread::spawn("heapledger", move || ask::serve(&of_thread, socket::peer, answer))?;
        Ok(Listener { listener: Some(listener), thread: Some(thread), process: process::id() })
    })
}

impl Listener {
    /// Answers for as long as the program runs.
    pub fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // A copy of a parent's has neither the thread nor the right to stop the parent's.
        if self.process != process::id() {
            std::mem::forget(self.thread.take());
            return;
        }
        let _untracked = untracked::enter();
        if let Some(listener) = self.listener.take() {
            // It cannot fail: only this ends the listening.
            let _ = ask::stop_serving(&listener);
        }
        if let Some(thread) = self.thread.take() {
            thread.join();
        }
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Listener").field("process", &self.process).finish_non_exhaustive()
    }
}

/// Returns the answer to a request; `None` if the line is not a request.
fn answer(line: &[u8]) -> Option<Vec<u8>> {
    if let Some(request) = dmd::DmdRequest::parse(line) {
        return Some(answer_dmd(&request));
    }
    if let Some(request) = ledger::LedgerRequest::parse(line) {
        return Some(ledger_control::answer(request).to_line().into_bytes());
    }
    if let Some(dump) = MAKE_DUMP.get().and_then(|make| make(line)) {
        return Some(dump);
    }
    let request = ReportsRequest::parse(line)?;
    let options = ReportOptions {
        anonymous: request.anonymous,
        mark: request.mark,
        children: request.children,
        reporter_deadline: request.reporter_deadline,
        deadline: request.deadline,
    };
    Some(collect(&options).to_gzip())
}

/// Answers a request for a memory dump; `None` if it is no such request.
pub type MakeDump = fn(&[u8]) -> Option<Vec<u8>>;

/// The function that answers such requests, if there is one.
pub static MAKE_DUMP: OnceLock<MakeDump> = OnceLock::new();

fn answer_dmd(request: &dmd::DmdRequest) -> Vec<u8> {
    let dmd::DmdRequest { mode, report, anonymous, reporter_deadline, deadline } = *request;
    let log = dump(&dark_matter::DarkMatterOptions {
        mode,
        report,
        anonymous,
        reporter_deadline,
        deadline,
        ..dark_matter::DarkMatterOptions::default()
    });
    let file = log.map(|log| log.to_gzip());
    let reason;
    let answer = match &file {
        Ok(file) => DmdAnswer::Log(file),
        Err(dark_matter::DarkMatterError::Recorded) => DmdAnswer::Recorded,
        Err(error) => {
            reason = error.to_string();
            DmdAnswer::Refused(&reason)
        }
    };
    let (mut bytes, file) = answer.to_bytes();
    bytes.extend_from_slice(file);
    bytes
}
