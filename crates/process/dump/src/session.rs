//! Traces: dumps at intervals, on demand and at peaks, in a file.

use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use heapledger_core::Bytes;
use heapledger_inspect::Ledger;
use heapledger_profiles::chrome::{Guid, HeapFormat, Kind, Level, Trace};
use heapledger_report::between::{self, Figures, quiet, untracked};

use crate::made::{self, GlobalDump, Options};
use crate::process::Failure;
use crate::registry;
use crate::schedule::Schedule;

/// The time from the beginning to the first tick.
const FIRST_TICK: Duration = Duration::from_millis(200);

/// The configuration of a [`Session`].
#[derive(Clone, Debug)]
pub struct Config {
    /// The times at which dumps are made.
    pub schedule: Schedule,
    /// If set, dumps are made when more is live than ever before.
    pub peak: Option<Peak>,
    /// The format of heaps in the file.
    pub heaps: HeapFormat,
    /// True to include the descendants of this process that [listen](heapledger_report::listen).
    pub children: bool,
    /// The time that each provider, and each reporter, may take.
    pub provider_deadline: Duration,
    /// The time that a dump may take. Functions of heaps whose names have not been looked up by
    /// then appear as their addresses. The first look-up takes seconds in a program with much debug
    /// information.
    pub deadline: Duration,
}

impl Default for Config {
    /// The defaults of [`Schedule`], [`HeapFormat`] and [`Options`]; no dumps at peaks, none of
    /// children.
    fn default() -> Config {
        let Options { provider_deadline, deadline, .. } = Options::default();
        Config {
            schedule: Schedule::default(),
            peak: None,
            heaps: HeapFormat::default(),
            children: false,
            provider_deadline,
            deadline,
        }
    }
}

/// Dumps at peaks: when more is live than ever before, by the ledger, if it runs, else by the
/// allocator's figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Peak {
    /// The fraction by which the live bytes have to exceed the last peak: 0.1 for a tenth.
    pub share: f64,
    /// The number of live bytes below which there is no peak.
    pub bytes_min: Bytes,
    /// The interval at which the live bytes are compared. Peaks in between are missed.
    pub every: Duration,
    /// The level of detail of such dumps.
    pub level: Level,
}

impl Default for Peak {
    /// A detailed dump at each increase by a tenth, from a mebibyte, checked twenty times a second.
    fn default() -> Peak {
        let (share, bytes_min) = (0.1, Bytes(1 << 20));
        Peak { share, bytes_min, every: Duration::from_millis(50), level: Level::Detailed }
    }
}

/// The reason why a session did not begin.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// Another session is running.
    Running,
    /// The file cannot be written, or no thread can be made.
    Io(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Running => out.write_str("the trace was not begun: there is one already"),
            StartError::Io(error) => write!(out, "the trace was not begun: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

impl From<io::Error> for StartError {
    fn from(error: io::Error) -> StartError {
        StartError::Io(error)
    }
}

/// The outcome of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// The number of dumps in the file.
    pub dumps: u64,
    /// The number of these dumps that were made at a peak.
    pub dumps_at_peak: u64,
    /// The first 64 failures of providers and processes.
    pub failures: Vec<Failure>,
}

const FAILURES_MAX: usize = 64;

/// A trace that is being made. Dropping it ends the trace and completes the file.
///
/// ```
/// use heapledger_dump::{Config, Level, Schedule, Session};
/// # let path = std::env::temp_dir().join(format!("doc-{}.trace.json", std::process::id()));
///
/// let session = Session::to_file(&path, Config { schedule: Schedule::never(), ..Config::default() })?;
/// // … what the program does
/// session.dump(Level::Detailed)?;
/// let summary = session.finish()?;
/// assert_eq!(summary.dumps, 1);
/// # std::fs::remove_file(path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A process has at most one session at a time. A child made by `fork` has none.
#[must_use = "the trace ends when this is dropped"]
pub struct Session {
    shared: Arc<Shared>,
    thread: Option<quiet::Thread>,
    process: u32,
}

struct Shared {
    config: Config,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    trace: Option<Trace<Box<dyn Write + Send>>>,
    summary: Summary,
    error: Option<io::Error>,
    is_over: bool,
}

/// The process that has a session.
static OWNER: Mutex<u32> = Mutex::new(0);

fn owner() -> MutexGuard<'static, u32> {
    OWNER.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    /// Begins a trace in a new file, which only this user can read.
    ///
    /// # Errors
    ///
    /// See [`StartError`].
    pub fn to_file(path: impl AsRef<Path>, config: Config) -> Result<Session, StartError> {
        untracked::scope(|| {
            let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
            Session::start(BufWriter::new(file), config)
        })
    }

    /// Begins a trace. All providers are asked again, including disabled ones.
    ///
    /// # Errors
    ///
    /// See [`StartError`].
    pub fn start(out: impl Write + Send + 'static, config: Config) -> Result<Session, StartError> {
        {
            let _guard = between::dumps();
            let (mut owner, own) = (owner(), process::id());
            if *owner == own {
                return Err(StartError::Running);
            }
            *owner = own;
        }
        let begin = || -> io::Result<Session> {
            registry::forgive();
            let out: Box<dyn Write + Send> = Box::new(out);
            let trace = Some(Trace::begin(out, config.heaps)?);
            let state = State { trace, summary: Summary::default(), error: None, is_over: false };
            let shared = Arc::new(Shared { config, state: Mutex::new(state), changed: Condvar::new() });
            let run = {
                let shared = Arc::clone(&shared);
                move || shared.run()
            };
            let thread = quiet::thread("heapledger-dump", run)?;
            Ok(Session { shared, thread: Some(thread), process: process::id() })
        };
        untracked::scope(begin).map_err(|error| {
            *owner() = 0;
            StartError::Io(error)
        })
    }

    /// Makes a dump now, writes it, and returns its number.
    ///
    /// # Errors
    ///
    /// An error if the dump cannot be written, or if this is a forked child.
    pub fn dump(&self, level: Level) -> io::Result<Guid> {
        if self.process != process::id() {
            return Err(io::Error::other("the trace is that of another process"));
        }
        untracked::scope(|| self.shared.dump(level, Kind::Explicit))
    }

    /// Ends the trace.
    ///
    /// # Errors
    ///
    /// The first error of writing the file.
    pub fn finish(mut self) -> io::Result<Summary> {
        untracked::scope(|| self.end())
    }

    fn end(&mut self) -> io::Result<Summary> {
        // A copy in a forked child has neither the thread nor the right to write the parent's file.
        if self.process != process::id() {
            std::mem::forget(self.thread.take());
            // Not even the data that is still in its buffer may be written.
            std::mem::forget(Arc::clone(&self.shared));
            return Err(io::Error::other("the trace is that of another process"));
        }
        let Some(thread) = self.thread.take() else { return Ok(Summary::default()) };
        self.shared.lock().is_over = true;
        self.shared.changed.notify_all();
        thread.join();
        let mut state = self.shared.lock();
        let end = |trace: Trace<_>| trace.finish().map(drop);
        let result = state.trace.take().map_or(Ok(()), end);
        *owner() = 0;
        match state.error.take() {
            Some(error) => Err(error),
            None => result.map(|()| std::mem::take(&mut state.summary)),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // The result is ignored here: `finish` returns it.
        let _ = untracked::scope(|| self.end());
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Session").field("config", &self.shared.config).finish_non_exhaustive()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn dump(&self, level: Level, kind: Kind) -> io::Result<Guid> {
        let Config { children, provider_deadline, deadline, .. } = self.config;
        let options = Options { level, kind, children, provider_deadline, deadline };
        self.write(made::dump(&options), kind)
    }

    fn write(&self, dump: GlobalDump, kind: Kind) -> io::Result<Guid> {
        let mut state = self.lock();
        let Some(trace) = state.trace.as_mut() else { return Err(io::Error::other("the trace has ended")) };
        let result = dump.processes.iter().try_for_each(|own| trace.dump(dump.guid, kind, own));
        let summary = &mut state.summary;
        summary.dumps += 1;
        summary.dumps_at_peak += u64::from(kind == Kind::Peak);
        let room = FAILURES_MAX.saturating_sub(summary.failures.len());
        summary.failures.extend(dump.failures.into_iter().take(room));
        result.map(|()| dump.guid)
    }

    /// Runs in the session's thread and makes the periodic dumps.
    fn run(&self) {
        let began = Instant::now();
        let tick = self.config.schedule.tick();
        let mut next_tick = tick.map(|_| began + FIRST_TICK);
        let mut next_look = self.config.peak.map(|_| began);
        let (mut ticks, mut peak) = (0, 0);
        while self.wait([next_tick, next_look].into_iter().flatten().min()) {
            let now = Instant::now();
            let mut result = Ok(());
            if let (Some(at), Some(tick)) = (next_tick, tick)
                && at <= now
            {
                if let Some(level) = self.config.schedule.level(ticks) {
                    result = self.dump(level, Kind::Periodic).map(drop);
                }
                ticks += 1;
                // After a late tick, the missed ones are skipped.
                next_tick = Some((at + tick).max(Instant::now()));
            }
            if let (Some(at), Some(config)) = (next_look, self.config.peak)
                && at <= now
            {
                if let Some(live) = live_bytes().filter(|&live| config.is_peak(live, peak)) {
                    peak = live;
                    result = result.and(self.dump(config.level, Kind::Peak).map(drop));
                }
                next_look = Some(Instant::now() + config.every.max(Duration::from_millis(1)));
            }
            if let Err(error) = result {
                self.lock().error.get_or_insert(error);
            }
        }
    }

    /// Waits until a moment. True if the session is not over.
    fn wait(&self, until: Option<Instant>) -> bool {
        let mut state = self.lock();
        loop {
            if state.is_over {
                return false;
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            state = match left {
                Some(Duration::ZERO) => return true,
                Some(left) => self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

impl Peak {
    fn is_peak(&self, live: u64, last: u64) -> bool {
        live >= self.bytes_min.0 && live as f64 > last as f64 * (1.0 + self.share.max(0.0))
    }
}

/// Returns the number of live bytes, if it is known.
fn live_bytes() -> Option<u64> {
    let ledger = Ledger::get();
    if ledger.is_running() {
        return Some(ledger.totals().bytes_live.0);
    }
    Figures::now().map(|figures| figures.allocated)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peak_is_more_than_the_last_by_a_share() {
        let peak = Peak { share: 0.1, bytes_min: Bytes(100), ..Peak::default() };
        assert!(!peak.is_peak(99, 0) && peak.is_peak(100, 0));
        assert!(!peak.is_peak(1_100, 1_000) && peak.is_peak(1_101, 1_000));
    }
}
