//! Starts and stops a recording from outside: requests to a `record` in the protocol of
//! [`ask`](heapledger_report_format::ask). The answer is one text with lines `NAME VALUE`.

use std::io;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use heapledger_core::arch;
use heapledger_core::sample::Rate;
use heapledger_report_format::ask::{ListedSocket, RequestLine, listen, serve, stop_serving};
use heapledger_wire::event::units;
use heapledger_wire::session::mode;

use crate::ask::ask;
use crate::inbox::{Inbox, Message};
use crate::live_figures::{self, LiveFigures};
use crate::live_pages::{self, LivePages};
use crate::outcome::Totals;
use crate::shared::Page;
use crate::status::{ANSWER_MAX, Status};
use crate::unix;

/// The prefix of the names of sockets, with the pid of `record`.
const PREFIX: &str = "heapledger-control.";
/// The first word of a request.
const WORD: &str = "heapledger-control";
/// The maximum length of an answer with live blocks: they take some 10 bytes a page.
const PAGES_ANSWER_MAX: usize = 1 << 30;
/// The timeout for the recorder's answer.
const TIMEOUT: Duration = Duration::from_secs(2);
/// The timeout for requests that wait for the file to be written.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// Switches recording on and off, and sets its rate, in all processes of the session at once.
#[derive(Debug)]
pub(crate) struct Switch {
    page: Arc<Page>,
    inbox: Arc<Inbox>,
    /// True if the recording is of a sample, whose rate can be set.
    is_sample: bool,
    /// The time when allocations were recorded for the first time.
    began: Mutex<Option<Instant>>,
    /// True if the recording is ending.
    is_over: AtomicBool,
    /// True if somebody has asked for its end.
    is_end_asked: AtomicBool,
}

impl Switch {
    pub(crate) fn new(page: Arc<Page>, inbox: Arc<Inbox>, is_sample: bool) -> Switch {
        let is_on = page.mode() & mode::PAUSED == 0;
        let (is_over, is_end_asked) = (AtomicBool::new(false), AtomicBool::new(false));
        Switch { page, inbox, is_sample, began: Mutex::new(is_on.then(Instant::now)), is_over, is_end_asked }
    }

    /// Records allocations from now on.
    pub(crate) fn start(&self) {
        let mut began = self.lock();
        if self.is_on() {
            return;
        }
        began.get_or_insert_with(Instant::now);
        self.inbox.post([Message::Resumed { stamp: units(arch::ticks()) }]);
        self.page.mode.fetch_and(!(mode::PAUSED | mode::IDLE), Ordering::SeqCst);
        crate::command::wake(&self.page);
    }

    /// Records no allocations from now on.
    pub(crate) fn stop(&self) {
        let _began = self.lock();
        if self.is_on() {
            self.page.mode.fetch_or(mode::PAUSED, Ordering::SeqCst);
            self.inbox.post([Message::Paused { stamp: units(arch::ticks()) }]);
            crate::command::wake(&self.page);
        }
    }

    /// Asks for the end of the recording.
    fn end(&self) {
        self.is_end_asked.store(true, Ordering::Release);
        crate::command::wake(&self.page);
    }

    /// True if somebody has asked for the end of the recording.
    pub(crate) fn is_end_asked(&self) -> bool {
        self.is_end_asked.load(Ordering::Acquire)
    }

    /// Samples blocks at this rate from now on, if the recording is of a sample.
    fn rate(&self, rate: Rate) {
        let _began = self.lock();
        if self.is_sample && self.sampling() != Some(rate) {
            self.page.rate.store(rate.logarithm().into(), Ordering::SeqCst);
            self.inbox.post([Message::Rated { stamp: units(arch::ticks()), rate }]);
            crate::command::wake(&self.page);
        }
    }

    /// Returns the rate at which blocks are sampled.
    fn sampling(&self) -> Option<Rate> {
        self.is_sample.then(|| Rate::from_logarithm(self.page.rate().into()))
    }

    pub(crate) fn is_on(&self) -> bool {
        self.page.mode() & mode::PAUSED == 0
    }

    /// Waits until everything that has happened until now is in the file. Returns false if that
    /// fails.
    fn save(&self) -> bool {
        self.wait_for(|stamp, done| Message::Save { stamp, done })
    }

    /// Waits until a resident snapshot of a process is in the file. Returns false if that fails, or
    /// the process is not recorded.
    fn snapshot_resident(&self, pid: u32) -> bool {
        self.wait_for(|stamp, done| Message::Resident { pid, stamp, done })
    }

    /// Returns the live blocks of a process by page. `None` if it is not recorded, or by a sample,
    /// or if there is no memory for so many.
    fn live_pages(&self, pid: u32) -> Option<Vec<u8>> {
        let mut blocks = self.answer_of(|stamp, done| Message::LiveBlocks { pid, stamp, done })?;
        live_pages::write(&live_pages::by_page(&mut blocks)?)
    }

    /// Returns the figures of the session, as soon as their stacks are in the file. They are those
    /// of the last copy if the next one is not due: other requests are not kept waiting for it.
    /// `None` if the file cannot be written.
    fn figures(&self, status: impl FnOnce() -> Status) -> Option<Vec<u8>> {
        let answered = self.answer_of(|stamp, done| Message::Figures { stamp, done })?;
        self.receive(&answered.written)?;
        // The file may have been followed by another one since the copy.
        let status = Status { output: answered.copy.file.clone(), ..status() };
        live_figures::write(&answered, &status.to_text(), live_figures::SITES_MAX).ok()
    }

    /// Posts a message, and waits until the collector notifies its requester.
    fn wait_for(&self, message: impl FnOnce(u64, SyncSender<()>) -> Message) -> bool {
        self.answer_of(message).is_some()
    }

    /// Posts a message, and waits until the collector answers its requester. `None` if it does not.
    fn answer_of<A>(&self, message: impl FnOnce(u64, SyncSender<A>) -> Message) -> Option<A> {
        let (done, is_done) = sync_channel(1);
        self.inbox.post([message(units(arch::ticks()), done)]);
        crate::command::wake(&self.page);
        self.receive(&is_done)
    }

    /// Waits for an answer. `None` if there is none, or the recording ends.
    fn receive<A>(&self, is_done: &Receiver<A>) -> Option<A> {
        let until = Instant::now() + WRITE_TIMEOUT;
        // The end of the recording does not wait for this.
        while !self.is_over.load(Ordering::Acquire) && Instant::now() < until {
            match is_done.recv_timeout(Duration::from_millis(50)) {
                Ok(answer) => return Some(answer),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
        None
    }

    /// Returns the status as it is now.
    fn status(&self, status: &Mutex<Status>) -> Status {
        let mut status = status.lock().unwrap_or_else(PoisonError::into_inner).clone();
        (status.is_on, status.has_begun) = (self.is_on(), self.began().is_some());
        status.sampling = self.sampling();
        status
    }

    /// Returns the time when recording began for the first time.
    pub(crate) fn began(&self) -> Option<Instant> {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        // The value is consistent between any two calls.
        self.began.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread that answers commands. Ended when dropped.
#[derive(Debug)]
pub(crate) struct Control {
    listener: Arc<UnixListener>,
    switch: Arc<Switch>,
    status: Arc<Mutex<Status>>,
    thread: Option<JoinHandle<()>>,
}

impl Control {
    /// Starts the thread. Returns `None` if the socket cannot be made; then there are no commands.
    pub(crate) fn start(switch: Arc<Switch>, status: Status) -> Option<Control> {
        let listener = Arc::new(listen(PREFIX).ok()?);
        let status = Arc::new(Mutex::new(status));
        let (for_thread, state) = (Arc::clone(&listener), Arc::clone(&status));
        let switched = Arc::clone(&switch);
        let run = move || serve(&for_thread, unix::peer, |line| answer(line, &switched, &state));
        let thread = thread::Builder::new().name("control".into()).spawn(run).ok()?;
        Some(Control { listener, switch, status, thread: Some(thread) })
    }

    /// Updates the status.
    pub(crate) fn update(&self, totals: Totals, processes: impl Iterator<Item = u32>, output: &Path) {
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        status.elapsed_ns = totals.elapsed.as_nanos() as u64;
        status.allocations = totals.allocations.0;
        status.bytes_live = totals.live.bytes.0;
        status.bytes_written = totals.bytes_written;
        // Each rotation changes the file.
        status.output = std::path::absolute(output).unwrap_or_default();
        status.processes.clear();
        status.processes.extend(processes);
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.switch.is_over.store(true, Ordering::Release);
        // It cannot fail: only this ends the listening.
        let _ = stop_serving(&self.listener);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Does what a request says, and returns the answer. `None` if it is not a request, or if it fails.
fn answer(line: &[u8], switch: &Switch, status: &Mutex<Status>) -> Option<Vec<u8>> {
    match ControlRequest::parse(line)? {
        ControlRequest::Start => switch.start(),
        ControlRequest::Stop => switch.stop(),
        ControlRequest::End => switch.end(),
        ControlRequest::Sample(rate) => switch.rate(rate),
        ControlRequest::Status => {}
        ControlRequest::Save => switch.save().then_some(())?,
        ControlRequest::Resident(pid) => switch.snapshot_resident(pid).then_some(())?,
        ControlRequest::LivePages(pid) => return switch.live_pages(pid),
        ControlRequest::Figures => return switch.figures(|| switch.status(status)),
    }
    Some(switch.status(status).to_text())
}

/// A request to a recording in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlRequest {
    /// Record allocations from now on.
    Start,
    /// Do not record them from now on.
    Stop,
    /// End the recording; the programs go on unrecorded.
    End,
    /// Sample blocks at this rate from now on. Without effect if the recording is not of a sample,
    /// as the status says.
    Sample(Rate),
    /// Only return the status.
    Status,
    /// Wait until everything that has happened so far is in the file. It can then be read like an
    /// unfinished recording.
    Save,
    /// Wait until a snapshot of the resident memory of the process with this pid is in the file.
    /// Fails if it is not recorded, or cannot be read.
    Resident(u32),
    /// Return the live blocks of the process with this pid by page, instead of the status: see
    /// [`RunningSession::live_pages`].
    LivePages(u32),
    /// Return the figures of all sites, instead of the status: see [`LiveRecording`]. They are
    /// copied at most four times a second; in between, the last copy is the answer.
    ///
    /// [`LiveRecording`]: crate::LiveRecording
    Figures,
}

impl ControlRequest {
    fn to_line(self) -> String {
        let word = match self {
            ControlRequest::Start => "start",
            ControlRequest::Stop => "stop",
            ControlRequest::End => "end",
            ControlRequest::Sample(rate) => &format!("rate={}", rate.logarithm()),
            ControlRequest::Status => "status",
            ControlRequest::Save => "save",
            ControlRequest::Resident(pid) => &format!("resident={pid}"),
            ControlRequest::LivePages(pid) => &format!("live-pages={pid}"),
            ControlRequest::Figures => "figures",
        };
        RequestLine::write(WORD, &[(true, word)])
    }

    fn parse(line: &[u8]) -> Option<ControlRequest> {
        let line = RequestLine::parse(line, WORD)?;
        if let Some(logarithm) = line.value("rate") {
            return logarithm.parse().ok().map(Rate::from_logarithm).map(ControlRequest::Sample);
        }
        if let Some(pid) = line.value("resident") {
            return pid.parse().ok().map(ControlRequest::Resident);
        }
        if let Some(pid) = line.value("live-pages") {
            return pid.parse().ok().map(ControlRequest::LivePages);
        }
        let requests = [
            ("start", ControlRequest::Start),
            ("stop", ControlRequest::Stop),
            ("end", ControlRequest::End),
            ("status", ControlRequest::Status),
            ("save", ControlRequest::Save),
            ("figures", ControlRequest::Figures),
        ];
        requests.into_iter().find(|(word, _)| line.has(word)).map(|(_, request)| request)
    }
}

/// A recording of this user (for root: of any user) that is in progress on this machine and in this
/// network namespace.
#[derive(Debug)]
pub struct RunningSession {
    address: ListedSocket,
    /// The status when it was found.
    pub status: Status,
}

impl RunningSession {
    /// Returns all recordings in progress.
    pub fn all() -> io::Result<Vec<RunningSession>> {
        let mut running = Vec::new();
        for address in ListedSocket::all(PREFIX)? {
            if let Ok(status) = request_status(&address, ControlRequest::Status) {
                running.push(RunningSession { address, status });
            }
        }
        running.sort_by_key(|running| running.status.recorder);
        Ok(running)
    }

    /// Returns the recording in progress that has a process; `None` if none has it.
    ///
    /// # Errors
    ///
    /// As [`all`](RunningSession::all).
    pub fn of_process(pid: u32) -> io::Result<Option<RunningSession>> {
        Ok(RunningSession::all()?.into_iter().find(|running| running.status.has_process(pid)))
    }

    /// Makes a request. Returns the status after it.
    pub fn ask(&self, request: ControlRequest) -> io::Result<Status> {
        match request_status(&self.address, request) {
            // A recorder that ends may do so before it has answered.
            Err(error) if request == ControlRequest::End && error.kind() == io::ErrorKind::UnexpectedEof => {
                Ok(self.status.clone())
            }
            answer => answer,
        }
    }

    /// Returns the pages of a process that have live blocks, in ascending order: the moment is that
    /// of the request. The recorder takes no events while it copies its list of live blocks.
    ///
    /// # Errors
    ///
    /// `UnexpectedEof` if the recorder does not answer: the process is not recorded or has ended,
    /// the recording is of a sample, or the recorder is of an earlier version. `InvalidData` if the
    /// answer is no list of pages.
    pub fn live_pages(&self, pid: u32) -> io::Result<Vec<LivePages>> {
        let line = ControlRequest::LivePages(pid).to_line();
        let (_, bytes) = ask(vec![self.address.clone()], None, &line, PAGES_ANSWER_MAX, WRITE_TIMEOUT)?;
        live_pages::read(&bytes).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Returns the figures of all sites: of this moment, or of the last copy if the recorder may
    /// not make another one [yet](LiveFigures::next_copy). Waits up to 30 seconds for the recorder.
    ///
    /// # Errors
    ///
    /// `UnexpectedEof` if the recorder does not answer: the recording ends, or the recorder is of
    /// an earlier version. `Unsupported` if it is of a later version, `InvalidData` if the answer
    /// makes no sense.
    pub fn live_figures(&self) -> io::Result<LiveFigures> {
        let line = ControlRequest::Figures.to_line();
        let (_, answer) =
            ask(vec![self.address.clone()], None, &line, live_figures::ANSWER_MAX, WRITE_TIMEOUT + TIMEOUT)?;
        live_figures::read(&answer)
    }
}

fn request_status(address: &ListedSocket, request: ControlRequest) -> io::Result<Status> {
    let waits = matches!(request, ControlRequest::Save | ControlRequest::Resident(_));
    let timeout = if waits { WRITE_TIMEOUT } else { TIMEOUT };
    let (_, text) = ask(vec![address.clone()], None, &request.to_line(), ANSWER_MAX, timeout)?;
    Status::from_text(&text).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests;
