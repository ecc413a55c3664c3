//! Answering other processes that ask for reports.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process;
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use heapledger_context::quiet::quietly;
use heapledger_dmd::request::{self as dmd, Answer};
use heapledger_reports::request::{REQUEST_BYTES_MAX, Request, ledger};
use heapledger_resident::internally;

use crate::collect::{Options, collect};
use crate::dark_matter::{self, dump};
use crate::{socket, steer};

/// How long a client may take to ask, and between two of its readings.
const PATIENCE: Duration = Duration::from_secs(5);

/// Answers whoever asks for this process's reports, as `heapledger reports show PID` and a [collection](crate::collect) of
/// a parent do, until this is dropped. `heapledger status` shows its ledger then; `heapledger sample 512KiB PID` starts one that
/// samples, or has it sample at another rate, and `heapledger stop PID` stops it.
///
/// It is a quiet thread, which takes none of the program's signals, behind an abstract Unix socket with a random name, which answers
/// processes of the same user, and root's. One at a time is answered. A child made by `fork` does not answer unless it
/// calls [`listen`] itself.
#[must_use = "it answers until this is dropped"]
pub struct Listener {
    listener: Arc<UnixListener>,
    thread: Option<JoinHandle<()>>,
    process: u32,
}

/// Starts to answer: see [`Listener`].
///
/// ```
/// # use heapledger_report as reports;
/// let listener = reports::listen()?;
/// // … as long as the program runs.
/// drop(listener);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
///
/// Where there can be no such socket, or no thread.
pub fn listen() -> io::Result<Listener> {
    let listener = Arc::new(socket::listen()?);
    let of_thread = Arc::clone(&listener);
    let run = move || {
        // Until the listener is shut down.
        while let Ok((client, _)) = of_thread.accept() {
            // Whoever does not take the answer goes without it.
            let _ = answer(&client);
        }
    };
    let thread = quietly(|| thread::Builder::new().name("heapledger".into()).spawn(run))?;
    Ok(Listener { listener, thread: Some(thread), process: process::id() })
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
        // It wakes the thread, which finds that there is nothing to accept any more.
        // SAFETY: a descriptor that is open.
        unsafe { libc::shutdown(self.listener.as_raw_fd(), libc::SHUT_RDWR) };
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Listener").field("process", &self.process).finish_non_exhaustive()
    }
}

fn answer(client: &UnixStream) -> io::Result<()> {
    let user = socket::peer(client)?;
    if user != socket::own_user() && user != 0 {
        return Ok(());
    }
    client.set_read_timeout(Some(PATIENCE))?;
    client.set_write_timeout(Some(PATIENCE))?;
    let mut line = Vec::new();
    BufReader::new(client.take(REQUEST_BYTES_MAX as u64)).read_until(b'\n', &mut line)?;
    if let Some(request) = dmd::Request::parse(&line) {
        return answer_dmd(client, &request);
    }
    if let Some(request) = ledger::Request::parse(&line) {
        let mut client = client;
        return client.write_all(steer::answer(request).to_line().as_bytes());
    }
    if let Some(dump) = MAKE_DUMP.get().and_then(|make| make(&line)) {
        let mut client = client;
        return client.write_all(&dump);
    }
    let Some(request) = Request::parse(&line) else { return Ok(()) };
    let options = Options {
        anonymous: request.anonymous,
        mark: request.mark,
        children: request.children,
        reporter_deadline: request.reporter_deadline,
        deadline: request.deadline,
    };
    let file = collect(&options).to_gzip();
    let mut client = client;
    client.write_all(&file)
}

/// Answers a request for a memory dump; `None` if it is no such request.
pub type MakeDump = fn(&[u8]) -> Option<Vec<u8>>;

/// Who does, if anybody.
pub static MAKE_DUMP: OnceLock<MakeDump> = OnceLock::new();

fn answer_dmd(mut client: &UnixStream, request: &dmd::Request) -> io::Result<()> {
    let dmd::Request { mode, report, anonymous, reporter_deadline, deadline } = *request;
    let log = dump(&dark_matter::Options {
        mode,
        report,
        anonymous,
        reporter_deadline,
        deadline,
        ..dark_matter::Options::default()
    });
    let file = log.map(|log| internally(move || log.to_gzip()));
    let reason;
    let answer = match &file {
        Ok(file) => Answer::Log(file),
        Err(dark_matter::Error::Recorded) => Answer::Recorded,
        Err(error) => {
            reason = error.to_string();
            Answer::Refused(&reason)
        }
    };
    let (line, file) = answer.to_bytes();
    client.write_all(&line)?;
    client.write_all(file)
}
