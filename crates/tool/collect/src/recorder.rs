//! Records a command: starts it and the threads that serve it, collects until all is over, and
//! reports the outcome.

use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use heapledger_core::Bytes;
use heapledger_core::sample::Rate;
use heapledger_recording::{Clock as ClockKind, Session as SessionRecord, Time};
use heapledger_wire::session::state;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};

use crate::armed::{ArmError, ArmedProcess};
use crate::attachment::{self, AttachError, Attachment};
use crate::broker::Broker;
use crate::clock::{Clock, Reading};
use crate::collector::end::{Failed, Finished, SessionEnd};
use crate::collector::{Collector, Connections};
use crate::command::{self, RunningCommand};
use crate::control::{Control, Switch};
use crate::destination::Destination;
use crate::error::RecordError;
use crate::file_state::WriteFailure;
use crate::follow::{Follow, Work};
use crate::inbox::Inbox;
use crate::launch::{Launch, Started};
use crate::libraries::CommandLibraries;
use crate::options::{Begin, RecordOptions, Rotation};
use crate::outcome::{Outcome, Progress};
use crate::output::Output;
use crate::placed::Placement;
use crate::roots::Roots;
use crate::run::reports;
use crate::session::{self, Library, Session, Wants};
use crate::shared::{Page, Pool};
use crate::signals::Signals;
use crate::slowness::SlownessWatch;
use crate::status::Status;
use crate::way::Way;
use crate::writer::{Job, Writer};
use crate::{forks, process, unix};

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
    let prepared = Prepared::new(options, || install(options).map(Some), Session::new)?;
    let costs = Costs::now();

    let first_reading = Reading::now();
    let placed = Placement { library: &options.placed_library, session: &prepared.environment };
    let Started { pid, not_placed } = launch.start_recorded(prepared.library.as_ref(), &placed)?;
    let command = RunningCommand::watch(pid, Arc::clone(&prepared.page), signals.is_some());
    let command = command.inspect_err(|_| command::give_up(pid))?;
    if let Some(signals) = &signals {
        signals.command_runs(command.pidfd().as_fd());
    }
    let target = Target { command, pid: pid.as_raw_pid() as u32, name: launch.program(), running: None };
    let outcome = prepared.begin(target, signals.as_ref(), first_reading, costs, observer).run();
    Ok(Outcome { not_placed, ..outcome })
}

/// Asks an armed process to join a session, and records it and the processes that it starts from
/// then on, until it has ended, the time for recording is over, or somebody asks for the end: by a
/// request, or by a signal to end (SIGINT, SIGTERM). The process then goes on unrecorded, and is
/// armed again.
///
/// The option `command` is what the recording has as its command; options about the start of a
/// program have no effect.
///
/// # Errors
///
/// Fails before anything was asked of the process; then no file is left.
pub fn attach(
    process: &ArmedProcess,
    options: &RecordOptions,
    observer: &mut dyn FnMut(Progress<'_>),
) -> Result<Outcome, RecordError> {
    let number = process.pid();
    process.leave_dead_session().map_err(|source| RecordError::Attach { source })?;
    let signals = if options.handle_signals { Signals::handle() } else { None };
    let prepared = Prepared::new(options, || Ok(None), || Session::in_network_of(number))?;
    let pid =
        Pid::from_raw(number.cast_signed()).ok_or(RecordError::Attach { source: ArmError::Gone { pid: number } })?;
    let costs = Costs::now();
    let first_reading = Reading::now();
    let command = RunningCommand::follow(pid, Arc::clone(&prepared.page))?;
    if let Some(signals) = &signals {
        // Requests to end are for this process.
        signals.command_ended();
    }
    process.ask(&prepared.environment).map_err(RecordError::session("a request to the process"))?;
    let executable = std::fs::read_link(format!("/proc/{number}/exe")).unwrap_or_default();
    let name = executable.file_name().unwrap_or(OsStr::new("program"));
    let target = Target { command, pid: number, name, running: Some(Running::Armed(process)) };
    Ok(prepared.begin(target, signals.as_ref(), first_reading, costs, observer).run())
}

/// Places the recorder's library into a process that runs without it, and records it and the
/// processes that it forks from then on, until it has ended, the time for recording is over, or
/// somebody asks for the end, as for [`attach`]. Then the library is taken out again, and the
/// process goes on as if it had never been recorded.
///
/// The option `command` is what the recording has as its command, and `placed_library` is the
/// library; options about the start of a program have no effect.
///
/// # Errors
///
/// Fails if the process cannot be recorded: it is as before then, and no file is left.
pub fn attach_from_outside(
    pid: u32,
    options: &RecordOptions,
    observer: &mut dyn FnMut(Progress<'_>),
) -> Result<Outcome, RecordError> {
    let gone = || RecordError::AttachFromOutside { source: AttachError::Gone { pid } };
    let process = Pid::from_raw(pid.cast_signed()).ok_or_else(gone)?;
    let signals = if options.handle_signals { Signals::handle() } else { None };
    let thread = attachment::check(pid).map_err(|source| RecordError::AttachFromOutside { source })?;
    // Without room for the library, programs that the process executes run unrecorded.
    let prepared = Prepared::new(options, || Ok(install(options).ok()), || Session::in_network_of(thread))?;
    let costs = Costs::now();
    let first_reading = Reading::now();
    let command = RunningCommand::follow(process, Arc::clone(&prepared.page)).map_err(|_| gone())?;
    if let Some(signals) = &signals {
        // Requests to end are for this process.
        signals.command_ended();
    }
    let placed = Attachment::place(pid, &options.placed_library, &prepared.environment);
    let attachment = match placed {
        Ok(attachment) => attachment,
        Err(source) => {
            command.leave();
            return Err(RecordError::AttachFromOutside { source });
        }
    };
    let attachment = Arc::new(attachment);
    if let Some(follow) = &prepared.follow {
        let _ = follow.attached.set(Arc::clone(&attachment));
    }
    let stop = attachment.stop;
    let executable = attachment.program.clone();
    let name = executable.file_name().unwrap_or(OsStr::new("program"));
    let target = Target { command, pid, name, running: Some(Running::Attached(Arc::clone(&attachment))) };
    let recorder = prepared.begin(target, signals.as_ref(), first_reading, costs, observer);
    (recorder.observer)(Progress::Attached(stop));
    Ok(recorder.run())
}

/// All that a session needs before there is a process to be recorded.
struct Prepared<'a> {
    options: &'a RecordOptions,
    library: Option<Library>,
    output: Output,
    environment: OsString,
    page: Arc<Page>,
    writer: Writer,
    inbox: Arc<Inbox>,
    pool: Arc<Pool>,
    broker: Broker,
    follow: Option<Arc<Follow>>,
    switch: Arc<Switch>,
}

/// The process that is recorded with all that it starts.
struct Target<'a> {
    command: RunningCommand,
    pid: u32,
    /// The name of its program.
    name: &'a OsStr,
    /// The process, if it ran before.
    running: Option<Running<'a>>,
}

/// A process that ran before the session.
#[derive(Debug)]
enum Running<'a> {
    /// It has the preload library, and has been asked to join.
    Armed(&'a ArmedProcess),
    /// It has got the library now.
    Attached(Arc<Attachment>),
}

impl<'a> Prepared<'a> {
    fn new(
        options: &'a RecordOptions,
        library: impl FnOnce() -> Result<Option<Library>, RecordError>,
        session: impl FnOnce() -> Result<Session, RecordError>,
    ) -> Result<Prepared<'a>, RecordError> {
        let output = Output::create(options.output.as_deref(), options.force, options.rotation().is_some())?;
        let file = output.file()?;
        let sampling = options.sample_every.map(Rate::nearest);
        let is_sample = sampling.is_some();
        let destination = match options.totals_only {
            true => Destination::replaced(file, is_sample),
            false => Destination::appended(file, is_sample),
        };
        let library = library()?;
        let mut session = session()?;
        if let Some(library) = &library {
            session.listen_beside(library);
        }
        let inbox = Arc::new(Inbox::new(options.mappings && !options.totals_only));
        let environment = session.to_environment(Wants {
            samples: is_sample,
            usable: options.usable_sizes,
            mappings: inbox.keeps_mappings(),
            waits: options.stall_timeout.is_none(),
        });
        let page = Arc::new(session_page(options, sampling.unwrap_or_default())?);
        let writer = Writer::start(destination, Some(Arc::clone(&page)))?;
        let pool = Arc::new(Pool::default());
        let capacity = options.ring_capacity();
        let path_for = |way| library.as_ref().and_then(|library| library.path_for(way)).map(Path::to_owned);
        let follow = (!options.placed_library.is_empty()).then(|| {
            Arc::new(Follow {
                placed_library: options.placed_library.clone(),
                library: path_for(Way::Preloaded),
                library_for_musl: path_for(Way::Musl),
                hooks: library.as_ref().map_or(&[][..], Library::hooks).to_vec(),
                session: environment.clone(),
                inbox: Arc::clone(&inbox),
                work: Work::default(),
                attached: OnceLock::new(),
            })
        });
        let follow_of_broker = follow.clone();
        let (page_of_broker, inbox_of_broker) = (Arc::clone(&page), Arc::clone(&inbox));
        let broker =
            Broker::start(session, page_of_broker, inbox_of_broker, Arc::clone(&pool), capacity, follow_of_broker)?;
        let switch = Arc::new(Switch::new(Arc::clone(&page), Arc::clone(&inbox), is_sample));
        Ok(Prepared { options, library, output, environment, page, writer, inbox, pool, broker, follow, switch })
    }

    /// Begins to collect what the process does.
    fn begin<'r>(
        self,
        target: Target<'r>,
        signals: Option<&'r Signals>,
        first_reading: Reading,
        costs: Costs,
        observer: &'r mut dyn FnMut(Progress<'_>),
    ) -> Recorder<'r>
    where
        'a: 'r,
    {
        let Prepared { options, library, mut output, environment, page, writer, inbox, pool, broker, follow, switch } =
            self;
        let Target { command, pid: command_pid, name, running } = target;
        let started = Instant::now();
        output.keep();
        // If this fails, the file has a name, though not the default one.
        let _ = output.name(name, command_pid, options.force);
        writer.send(Job::Name(output.path().to_owned()));
        // The command has its own copy of our limits by now, so it does not see the change.
        raise_descriptor_limit();
        observer(Progress::Started { pid: command_pid, output: output.path() });

        // The clock must know its rate before the first events.
        std::thread::sleep(Duration::from_millis(1));
        let clock = Clock::new(first_reading, Reading::now());
        let roots = Arc::clone(&inbox.roots);
        let connections = Connections { page: Arc::clone(&page), inbox, pool, writer };
        let mut collector = Collector::new(command_pid, clock, session_record(options), connections);
        collector.set_resident(options.resident);
        collector.set_file(output.path());
        if !switch.is_on() {
            collector.pause(Time(0));
        }
        if let Some(rate) = options.sample_every.map(Rate::nearest) {
            collector.rate(Time(0), rate);
        }
        let slowness = options.stall_timeout.map(|timeout| SlownessWatch::start(Arc::clone(&page), timeout));
        let status = Status { is_attached: running.is_some(), ..status(command_pid, output.path()) };
        let control = Control::start(Arc::clone(&switch), status);
        Recorder {
            options,
            observer,
            output,
            library,
            signals,
            page,
            switch,
            broker,
            follow,
            slowness,
            control,
            collector,
            roots,
            command,
            command_pid,
            target: running,
            environment,
            joined: None,
            started,
            costs,
            reported: Reported { next_progress: Instant::now(), processes: 0, segments: 0, command_end: false },
            child_start_timeout: None,
        }
    }
}

/// Installs the libraries for the program.
fn install(options: &RecordOptions) -> Result<Library, RecordError> {
    let mut library = Library::install(&options.library, &options.hooks)?;
    let (allocator, heap_checker) = (&options.allocator, options.heap_checker.as_ref());
    library.add_below(&CommandLibraries { preload: &options.library, allocator, heap_checker })?;
    Ok(library)
}

/// A recording whose command has been started.
struct Recorder<'a> {
    options: &'a RecordOptions,
    observer: &'a mut dyn FnMut(Progress<'_>),
    output: Output,
    /// The library's private directory, if there is one.
    library: Option<Library>,
    signals: Option<&'a Signals>,
    page: Arc<Page>,
    switch: Arc<Switch>,
    broker: Broker,
    follow: Option<Arc<Follow>>,
    slowness: Option<SlownessWatch>,
    control: Option<Control>,
    collector: Collector,
    /// The root directories of the processes.
    roots: Arc<Roots>,
    command: RunningCommand,
    command_pid: u32,
    /// The process, if it ran before the session.
    target: Option<Running<'a>>,
    /// The address of the session.
    environment: OsString,
    /// The time when such a process joined the session.
    joined: Option<Instant>,
    started: Instant,
    /// The costs before the command was started.
    costs: Costs,
    reported: Reported,
    /// The time to wait for forked children when the command has ended, once it was computed.
    child_start_timeout: Option<Duration>,
}

/// The progress that was reported.
struct Reported {
    /// The time when the figures are to be reported next.
    next_progress: Instant,
    /// The number of processes that the status knows of.
    processes: u32,
    /// The number of complete files.
    segments: u32,
    /// True if the end of the command was reported.
    command_end: bool,
}

impl Recorder<'_> {
    /// Collects until everything is over, and finishes the recording.
    fn run(mut self) -> Outcome {
        let time_is_up = self.collect();
        self.finish(time_is_up)
    }

    /// Collects until all processes that are waited for have ended, the time for recording is over,
    /// or the recording fails. Returns true if the time is over.
    fn collect(&mut self) -> bool {
        while !self.collector.has_failed() {
            self.collector.iterate();
            self.collector.keep_up();
            self.report_progress();
            self.obey_signals();
            self.note_joining();
            let mut wake_at = self.begin_after_delay();
            if self.is_end_asked() {
                (self.observer)(Progress::TimeIsUp);
                return true;
            }
            if let (Some(duration), Some(began)) = (self.options.duration, self.began()) {
                if Instant::now() >= began + duration {
                    (self.observer)(Progress::TimeIsUp);
                    return true;
                }
                wake_at = Some(began + duration);
            }
            self.report_segments();
            self.rotate_if_full();
            if self.have_all_ended() {
                break;
            }
            let is_awaited = || self.is_end_asked() || !self.reported.command_end && self.command.ended().is_some();
            self.collector.sleep(wake_at, is_awaited);
        }
        false
    }

    /// Returns the time when recording began.
    fn began(&self) -> Option<Instant> {
        match self.target {
            Some(Running::Armed(_)) => self.joined,
            // It is recorded from the redirection on, also if it makes no call.
            Some(Running::Attached(_)) => Some(self.started),
            None => self.switch.began(),
        }
    }

    /// Notes that the process that was asked to join has joined.
    fn note_joining(&mut self) {
        if self.target.is_some() && self.joined.is_none() && self.collector.has_images() {
            self.joined = Some(Instant::now());
            (self.observer)(Progress::Joined);
        }
    }

    /// True if somebody has asked for the end of the recording.
    fn is_end_asked(&self) -> bool {
        let is_signalled = || self.target.is_some() && self.signals.is_some_and(Signals::is_hurried);
        self.switch.is_end_asked() || is_signalled()
    }

    fn report_progress(&mut self) {
        let is_due = Instant::now() >= self.reported.next_progress;
        // Questions about a process come as soon as it is there.
        let processes = self.collector.processes();
        if !is_due && processes == self.reported.processes {
            return;
        }
        self.reported.processes = processes;
        let totals = self.collector.totals();
        if let Some(control) = &self.control {
            control.update(totals, self.collector.pids(), self.output.path());
        }
        if is_due {
            self.reported.next_progress = Instant::now() + PROGRESS_INTERVAL;
            (self.observer)(Progress::Running(totals));
        }
    }

    /// Starts or stops recording if a signal has asked for it.
    fn obey_signals(&self) {
        if let Some((starts, sender)) = self.signals.and_then(Signals::take_request)
            // A recorded process that signals its whole process group does not mean the recorder.
            && !self.collector.pids().any(|pid| pid == sender)
        {
            if starts { self.switch.start() } else { self.switch.stop() }
        }
    }

    /// Begins to record if that is due by now. Returns the time at which it will be due.
    fn begin_after_delay(&self) -> Option<Instant> {
        let (Begin::After(delay), None) = (self.options.begin, self.switch.began()) else { return None };
        let at = self.started + delay;
        if Instant::now() < at {
            return Some(at);
        }
        self.switch.start();
        None
    }

    fn report_segments(&mut self) {
        while self.reported.segments < self.collector.segments_ended() {
            self.reported.segments += 1;
            if let Some(path) = self.output.kept_segment(self.reported.segments) {
                (self.observer)(Progress::SegmentEnded { path });
            }
        }
    }

    fn rotate_if_full(&mut self) {
        if let Some(Rotation { age, bytes, keep }) = self.options.rotation()
            && self.collector.is_segment_full(age, bytes)
        {
            match self.output.next(self.options.force, keep) {
                Ok(file) => {
                    self.collector.rotate(file);
                    self.collector.set_file(self.output.path());
                    // The status has the new path.
                    self.reported.next_progress = Instant::now();
                }
                Err(error) => self.collector.fail(error),
            }
        }
    }

    /// True if the command has ended, and the other processes that are waited for.
    fn have_all_ended(&mut self) -> bool {
        let Some(ended) = self.command.ended() else { return false };
        // Processes that ended before the command must be reported before the running ones are
        // counted.
        self.broker.synchronise();
        self.collector.iterate();
        let (running, waits) = (self.collector.running(), self.options.wait_for_descendants);
        if !self.reported.command_end {
            self.reported.command_end = true;
            (self.observer)(Progress::CommandEnded { exit: ended.exit, running, waits });
            if let Some(signals) = self.signals {
                signals.command_ended();
            }
        }
        let is_hurried = self.signals.is_some_and(Signals::is_hurried);
        // A child that is just being forked is to be recorded and, if asked for, waited for: on
        // a busy machine it may get no processor for seconds. Only forks that failed, or whose
        // child was killed at once, take all that time.
        let moment = if waits {
            forks::CHILD_TIMEOUT
        } else {
            *self.child_start_timeout.get_or_insert_with(forks::child_start_timeout)
        };
        let has_all_come = !self.collector.awaits_children(moment);
        is_hurried || (has_all_come && (running == 0 || !waits))
    }

    /// Ends the session, and waits for the command if it still runs.
    fn finish(mut self, time_is_up: bool) -> Outcome {
        if !self.collector.has_failed() {
            (self.observer)(Progress::Finishing);
            self.collector.make_last_snapshots();
        }
        match &self.target {
            Some(running) => {
                if let Running::Armed(process) = running
                    && self.joined.is_none()
                {
                    process.withdraw(&self.environment);
                }
                // The processes notice at their next calls, and are armed again.
                self.page.end();
                self.command.leave();
                if let Running::Attached(attachment) = running {
                    if let Some(follow) = &self.follow {
                        follow.close();
                        // A request may be on its way.
                        self.broker.synchronise();
                        follow.settle();
                    }
                    let removed = attachment.remove();
                    attachment.remove_from_children();
                    (self.observer)(Progress::Detached(removed.as_ref().map(Option::as_ref)));
                }
            }
            None => self.page.state.store(state::OVER, Ordering::Release),
        }
        drop(self.slowness);
        drop(self.control);
        // No more processes come. Dropping the broker also asks for exit statuses once more.
        drop(self.broker);
        self.collector.end_session();
        // It may have joined and ended since the latest look.
        let has_joined = self.joined.is_some() || self.collector.has_images();
        let (started, command_ended) = (self.started, self.command.ended());
        let (cpu, program_cpu) = self.costs.since();
        let wall = |ended: command::Ended| ended.at.saturating_duration_since(started).as_nanos() as u64;
        let end = SessionEnd {
            exit: command_ended.map(|ended| ended.exit),
            program_wall_ns: command_ended.map_or_else(|| started.elapsed().as_nanos() as u64, wall),
            program_cpu_ns: command_ended.filter(|_| self.target.is_none()).map(|_| program_cpu),
            collector_cpu_ns: cpu,
        };
        let finished = self.collector.finish(&end);
        let Finished { command_has_come, footer, events_of_file, stalls, processes, departures, bytes_written, .. } =
            finished;
        let code_files_damaged = finished.code_files_damaged;
        let output = self.output;
        let problem = finished.failure.map(|failure| problem(failure, output.path()));
        if let Some(problem) = &problem {
            (self.observer)(Progress::Failed(problem));
        }
        let ended = self.command.wait();
        Outcome {
            heap_reports: self.library.as_ref().map(|library| reports(library.directory())).unwrap_or_default(),
            output: output.path().to_owned(),
            bytes_written,
            segments: output.segments(),
            earlier: output.earlier(),
            command_pid: self.command_pid,
            exit: ended.exit,
            footer,
            events_of_file,
            stalls,
            processes,
            departures_count: departures.0,
            departures: departures.1,
            code_files_damaged,
            roots: self.roots,
            command_has_come,
            has_begun: if self.target.is_some() { has_joined } else { self.switch.began().is_some() },
            time_is_up,
            clock_reliable: process::has_invariant_counter(),
            not_placed: None,
            problem,
        }
    }
}

/// Returns the error that a recording to this file failed with.
fn problem(failure: Failed, output: &Path) -> RecordError {
    match failure {
        Failed::Here(error) => error,
        Failed::Writing(WriteFailure::Encode(error)) => RecordError::Encode(error),
        Failed::Writing(WriteFailure::Write(source)) => RecordError::WriteOutput { path: output.to_owned(), source },
    }
}

/// Returns the session page as the options want it.
fn session_page(options: &RecordOptions, rate: Rate) -> Result<Page, RecordError> {
    let page = session::page(options.mode(), rate, options.stall_timeout)?;
    page.without_contexts.store(u32::from(!options.takes_contexts()), Ordering::Relaxed);
    page.exit_wait.store(options.resident.exit_wait(), Ordering::Relaxed);
    // 0 means no limit.
    page.target_memory.store(options.target_memory.map_or(0, |limit| limit.0.max(1)), Ordering::Relaxed);
    Ok(page)
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
        segment: u32::from(options.rotation().is_some()),
        ..SessionRecord::default()
    }
}

/// Returns the status of a recording that has just begun.
fn status(command: u32, output: &Path) -> Status {
    Status {
        recorder: std::process::id(),
        command,
        output: std::path::absolute(output).unwrap_or_default(),
        ..Status::default()
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
