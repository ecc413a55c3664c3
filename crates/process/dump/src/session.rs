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
use heapledger_profile_formats::chrome::{Guid, HeapFormat, Kind, Level, Trace};
use heapledger_query::Ledger;
use heapledger_reporters::internal::{self, Figures, untracked, untracked_thread};

use crate::global_dump::{self, DumpOptions, GlobalDump};
use crate::process::DumpFailure;
use crate::registry;
use crate::schedule::Schedule;

/// The time from the beginning to the first tick.
const FIRST_TICK: Duration = Duration::from_millis(200);

/// The configuration of a [`TraceSession`].
#[derive(Clone, Debug)]
pub struct TraceConfig {
    /// The times at which dumps are made.
    pub schedule: Schedule,
    /// If set, dumps are made when more is live than ever before.
    pub peak: Option<PeakTrigger>,
    /// The format of heaps in the file.
    pub heaps: HeapFormat,
    /// True to include the descendants of this process that [listen](heapledger_reporters::listen).
    pub children: bool,
    /// The time that each provider, and each reporter, may take.
    pub provider_deadline: Duration,
    /// The time that a dump may take. Functions of heaps whose names have not been looked up by
    /// then appear as their addresses. The first look-up takes seconds in a program with much debug
    /// information.
    pub deadline: Duration,
}

impl Default for TraceConfig {
    /// The defaults of [`Schedule`], [`HeapFormat`] and [`DumpOptions`]; no dumps at peaks, none of
    /// children.
    fn default() -> TraceConfig {
        let DumpOptions { provider_deadline, deadline, .. } = DumpOptions::default();
        TraceConfig {
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
pub struct PeakTrigger {
    /// The fraction by which the live bytes have to exceed the last peak: 0.1 for a tenth.
    pub share: f64,
    /// The number of live bytes below which there is no peak.
    pub bytes_min: Bytes,
    /// The interval at which the live bytes are compared. Peaks in between are missed.
    pub every: Duration,
    /// The level of detail of such dumps.
    pub level: Level,
}

impl Default for PeakTrigger {
    /// A detailed dump at each increase by a tenth, from a mebibyte, checked twenty times a second.
    fn default() -> PeakTrigger {
        let (share, bytes_min) = (0.1, Bytes(1 << 20));
        PeakTrigger { share, bytes_min, every: Duration::from_millis(50), level: Level::Detailed }
    }
}

/// The reason why a session did not begin.
#[derive(Debug)]
#[non_exhaustive]
pub enum TraceError {
    /// Another session is running.
    Running,
    /// The file cannot be written, or no thread can be made.
    Io(io::Error),
}

impl fmt::Display for TraceError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TraceError::Running => out.write_str("the trace was not begun: there is one already"),
            TraceError::Io(error) => write!(out, "the trace was not begun: {error}"),
        }
    }
}

impl std::error::Error for TraceError {}

impl From<io::Error> for TraceError {
    fn from(error: io::Error) -> TraceError {
        TraceError::Io(error)
    }
}

/// The outcome of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraceSummary {
    /// The number of dumps in the file.
    pub dumps: u64,
    /// The number of these dumps that were made at a peak.
    pub dumps_at_peak: u64,
    /// The first 64 failures of providers and processes.
    pub failures: Vec<DumpFailure>,
}

const FAILURES_MAX: usize = 64;

/// A trace that is being made. Dropping it ends the trace and completes the file.
///
/// ```
/// use heapledger_dump::{TraceConfig, Level, Schedule, TraceSession};
/// # let path = std::env::temp_dir().join(format!("doc-{}.trace.json", std::process::id()));
///
/// let session = TraceSession::to_file(&path, TraceConfig { schedule: Schedule::never(), ..TraceConfig::default() })?;
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
pub struct TraceSession {
    shared: Arc<Shared>,
    thread: Option<untracked_thread::Thread>,
    process: u32,
}

struct Shared {
    config: TraceConfig,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    trace: Option<Trace<Box<dyn Write + Send>>>,
    summary: TraceSummary,
    error: Option<io::Error>,
    is_over: bool,
}

/// The process that has a session.
static OWNER: Mutex<u32> = Mutex::new(0);

fn owner() -> MutexGuard<'static, u32> {
    OWNER.lock().unwrap_or_else(PoisonError::into_inner)
}

impl TraceSession {
    /// Begins a trace in a new file, which only this user can read.
    ///
    /// # Errors
    ///
    /// See [`TraceError`].
    pub fn to_file(path: impl AsRef<Path>, config: TraceConfig) -> Result<TraceSession, TraceError> {
        untracked::scope(|| {
            let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
            TraceSession::start(BufWriter::new(file), config)
        })
    }

    /// Begins a trace. All providers are asked again, including disabled ones.
    ///
    /// # Errors
    ///
    /// See [`TraceError`].
    pub fn start(out: impl Write + Send + 'static, config: TraceConfig) -> Result<TraceSession, TraceError> {
        {
            let _guard = internal::lock_dumps();
            let (mut owner, own) = (owner(), process::id());
            if *owner == own {
                return Err(TraceError::Running);
            }
            *owner = own;
        }
        let begin = || -> io::Result<TraceSession> {
            registry::reset_failures();
            let out: Box<dyn Write + Send> = Box::new(out);
            let trace = Some(Trace::begin(out, config.heaps)?);
            let state = State { trace, summary: TraceSummary::default(), error: None, is_over: false };
            let shared = Arc::new(Shared { config, state: Mutex::new(state), changed: Condvar::new() });
            let run = {
                let shared = Arc::clone(&shared);
                move || shared.run()
            };
            let thread = untracked_thread::spawn("heapledger-dump", run)?;
            Ok(TraceSession { shared, thread: Some(thread), process: process::id() })
        };
        untracked::scope(begin).map_err(|error| {
            *owner() = 0;
            TraceError::Io(error)
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
    pub fn finish(mut self) -> io::Result<TraceSummary> {
        untracked::scope(|| self.end())
    }

    fn end(&mut self) -> io::Result<TraceSummary> {
        // A copy in a forked child has neither the thread nor the right to write the parent's file.
        if self.process != process::id() {
            std::mem::forget(self.thread.take());
            // Not even the data that is still in its buffer may be written.
            std::mem::forget(Arc::clone(&self.shared));
            return Err(io::Error::other("the trace is that of another process"));
        }
        let Some(thread) = self.thread.take() else { return Ok(TraceSummary::default()) };
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

impl Drop for TraceSession {
    fn drop(&mut self) {
        // The result is ignored here: `finish` returns it.
        let _ = untracked::scope(|| self.end());
    }
}

impl fmt::Debug for TraceSession {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("TraceSession").field("config", &self.shared.config).finish_non_exhaustive()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn dump(&self, level: Level, kind: Kind) -> io::Result<Guid> {
        let TraceConfig { children, provider_deadline, deadline, .. } = self.config;
        let options = DumpOptions { level, kind, children, provider_deadline, deadline };
        self.write(global_dump::dump(&options), kind)
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
        let mut next_peak_check = self.config.peak.map(|_| began);
        let (mut ticks, mut peak) = (0, 0);
        while self.wait([next_tick, next_peak_check].into_iter().flatten().min()) {
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
            if let (Some(at), Some(config)) = (next_peak_check, self.config.peak)
                && at <= now
            {
                if let Some(live) = live_bytes().filter(|&live| config.is_peak(live, peak)) {
                    peak = live;
                    result = result.and(self.dump(config.level, Kind::Peak).map(drop));
                }
                next_peak_check = Some(Instant::now() + config.every.max(Duration::from_millis(1)));
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

impl PeakTrigger {
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
        let peak = PeakTrigger { share: 0.1, bytes_min: Bytes(100), ..PeakTrigger::default() };
        assert!(!peak.is_peak(99, 0) && peak.is_peak(100, 0));
        assert!(!peak.is_peak(1_100, 1_000) && peak.is_peak(1_101, 1_000));
    }
}
