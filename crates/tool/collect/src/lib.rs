//! The collector: everything that `heapledger record` does after parsing its arguments.
//!
//! [`record`] runs a command, and records what its processes do with their heaps. It works in the
//! calling thread, with three more threads: the *broker* (`broker`) answers the programs, the
//! *writer* (`writer`) compresses and writes, and one waits for the command (`command`). The
//! *collector* (`collector`) is in between.
//!
//! [`run`] starts a command in the same way with hook libraries, and records nothing.
//!
//! Nothing is printed. The [`Outcome`] has everything, including the command's exit status.

use std::borrow::Cow;
use std::ffi::OsString;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use heapledger_core::Bytes;
use heapledger_core::sample::Rate;
use heapledger_recording::{Clock as ClockKind, Session as SessionRecord, Time};
use heapledger_wire::session::{mode, state};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use rustix::time::{ClockId, clock_gettime};

mod broker;
mod clock;
mod collector;
mod command;
mod control;
mod departures;
mod destination;
mod early;
mod error;
mod forks;
mod image;
mod inbox;
mod launch;
mod lost;
mod memory;
mod outcome;
mod output;
pub mod peer;
mod process;
mod run;
mod session;
mod shared;
mod slowness;
mod source;
mod stamps;
mod texts;
mod tree;
mod unix;
mod writer;

use broker::Broker;
use clock::{Clock, Reading};
use collector::{Collector, Failed, Finished, SessionEnd};
use command::RunningCommand;
use control::{Control, Switch};
use destination::Destination;
use inbox::Inbox;
use launch::Launch;
use output::Output;
use session::{Library, Session};
use shared::Pool;
use slowness::SlownessWatch;
use unix::Signals;
use writer::{Job, Writer};

pub use control::{ControlRequest, RunningSession, Status};
pub use error::RecordError;
pub use outcome::{ImageOutcome, Outcome, ProcessOutcome, Progress, Totals};
pub use run::{check, run};
pub use session::is_observed;
pub use unix::die_by;

/// The options of a recording.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RecordOptions {
    /// The program and its arguments. The program is searched for as a shell would.
    pub command: Vec<OsString>,
    /// The file to write. `None`: `heapledger.PROGRAM.PID.hl` in the current directory.
    pub output: Option<PathBuf>,
    /// Replace the file if it exists. A device or a pipe is written to in any case.
    pub force: bool,
    /// Record until all processes have ended, not only the command.
    pub wait_for_descendants: bool,
    /// The treatment of events for which there is no room.
    pub on_full: OnFull,
    /// The time for which the recorder may stand still (stopped, or waiting for a disk) until
    /// programs continue without it. They then drop events as with [`OnFull::Drop`], until the
    /// recorder is back. `None`: they wait forever.
    pub stall_timeout: Option<Duration>,
    /// The maximum private memory of the recorder in each process, besides the shared rings. Beyond
    /// it, new stacks end at the innermost frame that is already known. `None`: no limit.
    pub target_memory: Option<Bytes>,
    /// Keep sites and totals only, no events. The size of the file is then bounded by the number of
    /// stacks, however long the run. The file is replaced from time to time, at most every ten
    /// seconds, by one with everything that is known then.
    pub totals_only: bool,
    /// Continue in another file from time to time. Without effect if only totals are kept.
    pub rotate: Option<Rotation>,
    /// The time at which to begin to record allocations.
    pub begin: Begin,
    /// The time for which to record, from the first moment at which allocations are recorded. After
    /// that the command continues unrecorded.
    pub duration: Option<Duration>,
    /// The preload library. It is put into a private directory for the duration of the session.
    pub library: Cow<'static, [u8]>,
    /// The absolute paths of hook libraries. They are loaded together with the preload library, in
    /// this order.
    pub hooks: Vec<PathBuf>,
    /// The size of a thread's ring in bytes: a power of two from 16 KiB to 64 MiB. Other values are
    /// clamped and rounded up. Processes with many threads get smaller rings.
    pub ring_capacity: usize,
    /// Record a sample of all blocks: each byte selects its block with the same small probability,
    /// such that the mean distance is this number, rounded to a power of two. Totals are then
    /// estimates. `None`: all blocks.
    pub sample_every: Option<Bytes>,
    /// The parts of an allocation's stack and context that are recorded.
    pub stacks: StackMode,
    /// Compare every stack with the one from the program's C library.
    pub verify_stacks: bool,
    /// Handle the signals that the process gets meanwhile: ignore those of the keyboard, pass on
    /// requests to end, stop and continue together with the command, start recording on SIGUSR1 and
    /// stop it on SIGUSR2. Only one recording of a process can do so at a time.
    pub handle_signals: bool,
    /// The version of the tool, stored in the recording.
    pub tool_version: String,
    /// The options that were given, stored in the recording.
    pub options_text: String,
}

/// The treatment of events of a thread whose ring is full because the collector cannot keep up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFull {
    /// The thread waits until there is room: nothing is lost.
    #[default]
    Wait,
    /// Allocations and frees are dropped and counted. Totals are then lower bounds. The thread
    /// waits only if it would otherwise have no stacks from then on: for the nodes of a new stack
    /// that needs more than a quarter of the ring.
    Drop,
}

/// The parts of an allocation's stack and context that are recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StackMode {
    /// The stack, and the context that the program declares.
    #[default]
    Mixed,
    /// The stack.
    Native,
    /// The context that the program declares.
    Pseudo,
    /// Nothing.
    None,
}

/// The conditions for continuing in another file. Each file can be read on its own: it begins with
/// the blocks that are live then. The files are numbered from 1: `NAME.0001.hl`, `NAME.0002.hl` …
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rotation {
    /// The age of a file after which it ends.
    pub age: Option<Duration>,
    /// The length of a file after which it ends, if it has at least 65,536 events.
    pub bytes: Option<u64>,
    /// The number of files to keep; older ones are removed. `None`: all.
    pub keep: Option<u32>,
}

/// The time at which to begin to record allocations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Begin {
    /// With the command.
    #[default]
    AtOnce,
    /// This long after the command was started.
    After(Duration),
    /// When it is requested: see [`Running`].
    OnRequest,
}

impl RecordOptions {
    /// Returns the default options.
    pub fn new(command: Vec<OsString>, library: impl Into<Cow<'static, [u8]>>) -> RecordOptions {
        RecordOptions {
            command,
            output: None,
            force: false,
            wait_for_descendants: false,
            on_full: OnFull::Wait,
            stall_timeout: Some(STALL_TIMEOUT),
            target_memory: None,
            rotate: None,
            begin: Begin::AtOnce,
            duration: None,
            totals_only: false,
            library: library.into(),
            hooks: Vec::new(),
            ring_capacity: 256 << 10,
            sample_every: None,
            stacks: StackMode::Mixed,
            verify_stacks: false,
            handle_signals: true,
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
            options_text: String::new(),
        }
    }

    /// Returns the mode in which the session begins.
    fn mode(&self) -> u32 {
        let on_full = match self.on_full {
            OnFull::Wait => 0,
            OnFull::Drop => mode::DROPS,
        };
        let begin = if self.begin == Begin::AtOnce { 0 } else { mode::PAUSED | mode::IDLE };
        let stacks = match self.stacks {
            StackMode::Mixed | StackMode::Native => 0,
            StackMode::Pseudo | StackMode::None => mode::NO_STACKS,
        };
        on_full | begin | stacks | if self.verify_stacks { mode::VERIFIES_STACKS } else { 0 }
    }

    fn ring_capacity(&self) -> usize {
        self.ring_capacity.clamp(broker::CAPACITY_MIN, broker::CAPACITY_MAX).next_power_of_two()
    }
}

/// The default of [`RecordOptions::stall_timeout`].
const STALL_TIMEOUT: Duration = Duration::from_secs(5);

/// The interval at which [`Progress::Running`] is reported.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// Runs the command and records it, until it has ended and everything that it wrote is in the file.
///
/// If something fails before the command runs, an error is returned, and no file is left. A later
/// failure ends the recording, but not the command; the outcome then has a
/// [`problem`](Outcome::problem).
pub fn record(options: &RecordOptions, observer: &mut dyn FnMut(Progress<'_>)) -> Result<Outcome, RecordError> {
    let launch = Launch::find(&options.command)?;
    let signals = if options.handle_signals { Signals::handle() } else { None };
    let rotation = options.rotate.filter(|_| !options.totals_only);
    let mut output = Output::create(options.output.as_deref(), options.force, rotation.is_some())?;
    let file = output.file()?;
    let sampling = options.sample_every.map(Rate::nearest);
    let is_sample = sampling.is_some();
    let destination = match options.totals_only {
        true => Destination::replaced(file, is_sample),
        false => Destination::appended(file, is_sample),
    };
    let library = Library::install(&options.library, &options.hooks)?;
    let session = Session::new()?;
    let environment = session.to_environment(is_sample, options.stall_timeout.is_none());
    let page = Arc::new(session::page(options.mode(), sampling.unwrap_or_default(), options.stall_timeout)?);
    let writer = Writer::start(destination, Some(Arc::clone(&page)))?;
    let takes_contexts = matches!(options.stacks, StackMode::Mixed | StackMode::Pseudo);
    page.without_contexts.store(u32::from(!takes_contexts), Ordering::Relaxed);
    // 0 means no limit.
    page.target_memory.store(options.target_memory.map_or(0, |limit| limit.0.max(1)), Ordering::Relaxed);
    let inbox = Arc::new(Inbox::default());
    let pool = Arc::new(Pool::default());
    let capacity = options.ring_capacity();
    let broker = Broker::start(session, Arc::clone(&page), Arc::clone(&inbox), Arc::clone(&pool), capacity)?;
    let switch = Arc::new(Switch::new(Arc::clone(&page), Arc::clone(&inbox), is_sample));
    let costs = Costs::now();
    let record = session_record(options);

    let first_reading = Reading::now();
    let pid = launch.start(Some(&library), Some(&environment))?;
    let started = Instant::now();
    let command = RunningCommand::watch(pid, Arc::clone(&page), signals.is_some());
    let command = command.inspect_err(|_| give_up_command(pid))?;
    if let Some(signals) = &signals {
        signals.command_runs(command.pidfd().as_fd());
    }
    output.keep();
    // If this fails, the file has a name, though not the default one.
    let _ = output.name(launch.program(), pid.as_raw_pid() as u32, options.force);
    writer.send(Job::Name(output.path().to_owned()));
    // The command has its own copy of our limits by now, so it does not see the change.
    raise_descriptor_limit();
    observer(Progress::Started { pid: pid.as_raw_pid() as u32, output: output.path() });

    // The clock must know its rate before the first events.
    std::thread::sleep(Duration::from_millis(1));
    let clock = Clock::new(first_reading, Reading::now());
    let command_pid = pid.as_raw_pid() as u32;
    let mut collector = Collector::new(Arc::clone(&page), inbox, pool, writer, clock, record, command_pid);
    if !switch.is_on() {
        collector.pause(Time(0));
    }
    if let Some(rate) = sampling {
        collector.rate(Time(0), rate);
    }
    let slowness = options.stall_timeout.map(|timeout| SlownessWatch::start(Arc::clone(&page), timeout));
    let control = Control::start(
        Arc::clone(&switch),
        Status {
            recorder: std::process::id(),
            command: command_pid,
            output: std::path::absolute(output.path()).unwrap_or_default(),
            ..Status::default()
        },
    );
    let mut next_progress = Instant::now();
    let (mut end_is_reported, mut time_is_up) = (false, false);
    let mut child_start_timeout = None;
    let mut segments_reported = 0;
    while !collector.has_failed() {
        collector.iterate();
        collector.keep_up();
        if Instant::now() >= next_progress {
            next_progress = Instant::now() + PROGRESS_INTERVAL;
            let totals = collector.totals();
            if let Some(control) = &control {
                control.update(totals, collector.pids(), output.path());
            }
            observer(Progress::Running(totals));
        }
        if let Some((starts, sender)) = signals.as_ref().and_then(Signals::take_request)
            // A recorded process that signals its whole process group does not mean the recorder.
            && !collector.pids().any(|pid| pid == sender)
        {
            if starts { switch.start() } else { switch.stop() }
        }
        let mut wake_at = None;
        if let (Begin::After(delay), None) = (options.begin, switch.began()) {
            let at = started + delay;
            if Instant::now() >= at { switch.start() } else { wake_at = Some(at) }
        }
        if let (Some(duration), Some(began)) = (options.duration, switch.began()) {
            if Instant::now() >= began + duration {
                time_is_up = true;
                observer(Progress::TimeIsUp);
                break;
            }
            wake_at = Some(began + duration);
        }
        while segments_reported < collector.segments_ended() {
            segments_reported += 1;
            if let Some(path) = output.kept_segment(segments_reported) {
                observer(Progress::SegmentEnded { path });
            }
        }
        if let Some(Rotation { age, bytes, keep }) = rotation
            && collector.is_segment_full(age, bytes)
        {
            match output.next(options.force, keep) {
                Ok(file) => collector.rotate(file),
                Err(error) => collector.fail(error),
            }
        }
        if let Some(ended) = command.ended() {
            // Processes that ended before the command must be reported before the running ones are
            // counted.
            broker.synchronise();
            collector.iterate();
            let (running, waits) = (collector.running(), options.wait_for_descendants);
            if !end_is_reported {
                end_is_reported = true;
                observer(Progress::CommandEnded { exit: ended.exit, running, waits });
                if let Some(signals) = &signals {
                    signals.command_ended();
                }
            }
            let is_hurried = signals.as_ref().is_some_and(Signals::is_hurried);
            // A child that is just being forked is to be recorded and, if asked for, waited for: on
            // a busy machine it may get no processor for seconds. Only forks that failed, or whose
            // child was killed at once, take all that time.
            let moment = if waits {
                forks::CHILD_TIMEOUT
            } else {
                *child_start_timeout.get_or_insert_with(forks::child_start_timeout)
            };
            let has_all_come = !collector.awaits_children(moment);
            if is_hurried || (has_all_come && (running == 0 || !waits)) {
                break;
            }
        }
        collector.sleep(wake_at, || !end_is_reported && command.ended().is_some());
    }

    if !collector.has_failed() {
        observer(Progress::Finishing);
    }
    page.state.store(state::OVER, Ordering::Release);
    drop(slowness);
    drop(control);
    // No more processes come. Dropping the broker also asks for exit statuses once more.
    drop(broker);
    collector.end_session();
    let command_ended = command.ended();
    let (cpu, program_cpu) = costs.since();
    let wall = |ended: command::Ended| ended.at.saturating_duration_since(started).as_nanos() as u64;
    let end = SessionEnd {
        exit: command_ended.map(|ended| ended.exit),
        program_wall_ns: command_ended.map_or_else(|| started.elapsed().as_nanos() as u64, wall),
        program_cpu_ns: command_ended.map(|_| program_cpu),
        collector_cpu_ns: cpu,
    };
    let Finished { command_has_come, footer, events_of_file, stalls, processes, departures, bytes_written, failure } =
        collector.finish(&end);
    let problem = failure.map(|failure| match failure {
        Failed::Here(error) => error,
        Failed::Writing(writer::Failure::Encode(error)) => RecordError::Encode(error),
        Failed::Writing(writer::Failure::Write(source)) => {
            RecordError::WriteOutput { path: output.path().to_owned(), source }
        }
    });
    if let Some(problem) = &problem {
        observer(Progress::Failed(problem));
    }
    let ended = command.wait();
    Ok(Outcome {
        output: output.path().to_owned(),
        bytes_written,
        segments: output.segments(),
        earlier: output.earlier(),
        command_pid,
        exit: ended.exit,
        footer,
        events_of_file,
        stalls,
        processes,
        departures_count: departures.0,
        departures: departures.1,
        command_has_come,
        has_begun: switch.began().is_some(),
        time_is_up,
        clock_reliable: process::has_invariant_counter(),
        problem,
    })
}

/// Kills the command and reaps it: without a handle it cannot be waited for.
fn give_up_command(pid: Pid) {
    // It is our child and has not been reaped, so the pid is still its own.
    let _ = kill_process(pid, Signal::KILL);
    let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
}

fn session_record(options: &RecordOptions) -> SessionRecord {
    let start = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let directory = std::env::current_dir().unwrap_or_default();
    SessionRecord {
        tool_version: options.tool_version.clone(),
        start_unix_ns: start.as_nanos() as u64,
        command: options.command.iter().map(|part| part.as_bytes().to_vec()).collect(),
        directory: directory.into_os_string().into_vec(),
        page_size: Bytes(rustix::param::page_size() as u64),
        options: options.options_text.clone(),
        clock: ClockKind::Tsc,
        totals_only: options.totals_only,
        samples: options.sample_every.is_some(),
        segment: u32::from(options.rotate.is_some() && !options.totals_only),
        ..SessionRecord::default()
    }
}

/// Raises the limit of descriptors: the broker has one for each running process.
fn raise_descriptor_limit() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // If this fails, there is only room for fewer processes.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// The CPU time so far.
struct Costs {
    own: Duration,
    children: u64,
}

impl Costs {
    fn now() -> Costs {
        let own = clock_gettime(ClockId::ProcessCPUTime);
        let own = Duration::new(own.tv_sec as u64, own.tv_nsec as u32);
        Costs { own, children: unix::children_cpu_ns() }
    }

    /// Returns the CPU time since then in nanoseconds: our own, and that of children that have
    /// ended.
    fn since(&self) -> (u64, u64) {
        let now = Costs::now();
        let own = now.own.saturating_sub(self.own).as_nanos() as u64;
        (own, now.children.saturating_sub(self.children))
    }
}
