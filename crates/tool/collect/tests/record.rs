//! Tests `record` with programs that play the part of the recorder in themselves: this test binary,
//! started again.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use heapledger_collect::{Outcome, Progress, RecordError, RecordOptions, record};
use heapledger_core::sys;
use heapledger_recording::{Departure, ExitStatus, FreedBlock, ImageEndReason, ImageOrigin, Recording};
use heapledger_recording::{EventKind, EventsBuffer};
use heapledger_wire::event::Extended;
use heapledger_wire::session::{ENTRIES_UNKNOWN, Request, RequestKind};

mod support;
use support::{FakeImage, FakeThread, Hook};

const SCENARIO: &str = "FAKE_SCENARIO";

/// Not a test: the program that is recorded, if the environment asks for it.
#[test]
fn program() {
    let Ok(scenario) = std::env::var(SCENARIO) else { return };
    let (name, argument) = scenario.split_once(' ').unwrap_or((&scenario, "0"));
    let number: u64 = argument.parse().unwrap();
    match name {
        "none" => {}
        "exchange" => exchange(number),
        "killed" => killed(number),
        "forks" => forks(),
        "forked" => forked(number as u32),
        "execs" => execs(number),
        "missed" => missed(number),
        "leaves" => leaves(),
        "lingers" => lingers(),
        "fills" => fills(number),
        "exits" => {
            Hook::from_environment().image();
            std::process::exit(number as i32);
        }
        other => panic!("what is {other}?"),
    }
}

/// Returns the command that starts this binary as a program with a scenario.
fn fake(scenario: &str) -> Vec<OsString> {
    let test = std::env::current_exe().unwrap();
    let arguments = ["--exact", "program", "--nocapture", "--test-threads=1"];
    // The output of the test harness is of no interest.
    let script = format!("{SCENARIO}='{scenario}' exec \"$0\" \"$@\" >/dev/null");
    let shell = ["/bin/sh", "-c", &script].map(OsString::from);
    shell.into_iter().chain([test.into_os_string()]).chain(arguments.map(OsString::from)).collect()
}

fn again(scenario: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "program", "--nocapture", "--test-threads=1"]).env(SCENARIO, scenario);
    command
}

/// Returns a library that can be preloaded and does nothing, if there is one. The loader would
/// complain about an empty one.
fn library() -> Vec<u8> {
    let stubs = ["/lib/x86_64-linux-gnu/libdl.so.2", "/lib64/libdl.so.2", "/usr/lib/libdl.so.2"];
    stubs.iter().find_map(|path| std::fs::read(path).ok()).unwrap_or_default()
}

struct Recorded {
    outcome: Outcome,
    bytes: Vec<u8>,
    took: Duration,
    _directory: tempfile::TempDir,
}

impl Recorded {
    fn open(&self) -> Recording<'_> {
        let recording = Recording::open(&self.bytes).unwrap();
        assert_eq!(recording.verify(), []);
        recording
    }
}

fn options(command: Vec<OsString>, directory: &Path) -> RecordOptions {
    let mut options = RecordOptions::new(command, library());
    options.output = Some(directory.join("x.hl"));
    options.handle_signals = false;
    options
}

fn record_with(command: Vec<OsString>, change: impl FnOnce(&mut RecordOptions)) -> Recorded {
    let directory = tempfile::tempdir().unwrap();
    let mut options = options(command, directory.path());
    change(&mut options);
    let start = Instant::now();
    let outcome = record(&options, &mut |_| {}).unwrap();
    let took = start.elapsed();
    let bytes = std::fs::read(&outcome.output).unwrap_or_default();
    Recorded { outcome, bytes, took, _directory: directory }
}

fn record_fake(scenario: &str) -> Recorded {
    record_with(fake(scenario), |_| {})
}

// -------------------------------------------------------------------------------------------------

const EXCHANGE_THREADS: u64 = 4;

/// Runs threads that take blocks from one allocator and give them to each other. The allocator
/// hands out the address that came back last, so the order between threads matters as much as
/// possible.
fn exchange(rounds: u64) {
    static FREE: Mutex<Vec<u64>> = Mutex::new(Vec::new());
    static NEXT: AtomicU64 = AtomicU64::new(1);
    static SLOTS: [AtomicU64; 16] = [const { AtomicU64::new(0) }; 16];
    fn allocate(thread: &mut FakeThread) -> u64 {
        let recycled = FREE.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let address = recycled.unwrap_or_else(|| NEXT.fetch_add(1, Ordering::Relaxed) << 4);
        thread.malloc(address, address % 1_000, 1).unwrap();
        address
    }
    fn release(thread: &mut FakeThread, address: u64) {
        thread.free(address).unwrap();
        FREE.lock().unwrap_or_else(PoisonError::into_inner).push(address);
    }
    let hook = Hook::from_environment();
    let (_, first) = hook.image();
    let image = first.image;
    std::thread::scope(|scope| {
        for number in 0..EXCHANGE_THREADS {
            scope.spawn(move || {
                let mut thread = hook.thread(image, "exchanges");
                for round in 0..rounds {
                    let address = allocate(&mut thread);
                    let slot = &SLOTS[(round * 7 + number) as usize % SLOTS.len()];
                    let other = slot.swap(address, Ordering::AcqRel);
                    if other != 0 {
                        release(&mut thread, other);
                    }
                }
                thread.extended(&Extended::ThreadEnd).unwrap();
            });
        }
    });
    let mut last = hook.thread(image, "tidies up");
    for slot in &SLOTS {
        let address = slot.swap(0, Ordering::AcqRel);
        if address != 0 {
            release(&mut last, address);
        }
    }
}

#[test]
fn blocks_that_threads_exchange_stay_in_order() {
    let recorded = record_fake("exchange 200000");
    let recording = recorded.open();
    assert!(recording.complete());
    let counts = recorded.outcome.footer.counts;
    let total = EXCHANGE_THREADS * 200_000;
    assert_eq!((counts.allocations.0, counts.frees.0), (total, total));
    assert_eq!((counts.frees_unknown.0, counts.blocks_live_end.0, counts.bytes_live_end.0), (0, 0, 0));
    assert_eq!((counts.events_late, counts.events_lost, counts.threads), (0, 0, EXCHANGE_THREADS + 2));
    assert!((1..=16 + EXCHANGE_THREADS).contains(&counts.blocks_live_max.0), "{}", counts.blocks_live_max.0);
    // Nothing was ever live twice; that would have been corrected by an extra free.
    let mut buffer = EventsBuffer::default();
    let (mut events, mut time) = (0, 0);
    for chunk in recording.event_chunks(recording.images()[0].image) {
        for event in chunk.decode(&mut buffer).unwrap().as_slice() {
            events += 1;
            assert!(event.time.0 >= time);
            time = event.time.0;
        }
    }
    assert_eq!(events, 2 * total);
    assert!(recorded.outcome.command_recorded());
    assert_eq!(recorded.outcome.exit, ExitStatus::Code(0));
    let costs = recorded.outcome.footer.costs;
    assert!(costs.collector_cpu_ns.unwrap() > 0 && costs.program_cpu_ns.unwrap() > 0);
    assert!(costs.ring_bytes.unwrap().0 > 6 * (256 << 10));
}

/// Is killed in the middle of its work, without notice.
fn killed(events: u64) {
    let (_, mut thread) = Hook::from_environment().image();
    for number in 1..=events {
        thread.malloc(number << 4, 1, 1).unwrap();
    }
    thread.producer.begin();
    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
}

#[test]
fn a_killed_program_loses_nothing() {
    let recorded = record_fake("killed 300000");
    let recording = recorded.open();
    assert!(recording.complete());
    assert_eq!(recorded.outcome.exit, ExitStatus::Signal(9));
    assert_eq!(recorded.outcome.footer.counts.bytes_live_end.0, 300_000);
    let image = recording.images()[0].image;
    assert_eq!(recording.image_end(image).unwrap().exit, Some(ExitStatus::Signal(9)));
    assert_eq!(recording.image_end(image).unwrap().reason, ImageEndReason::Exit);
}

fn forks() {
    let (_, mut thread) = Hook::from_environment().image();
    thread.malloc(0x1000, 10, 1).unwrap();
    thread.extended(&Extended::Fork { sequence: 1 }).unwrap();
    thread.free(0x1000).unwrap();
    assert!(again(&format!("forked {}", thread.image.number)).status().unwrap().code() == Some(5));
}

/// Plays a forked child, although it was not forked.
fn forked(parent: u32) {
    let hook = Hook::from_environment();
    let request = Request { image: parent, fork: 1, node_base: 1, ..hook.request(RequestKind::Fork) };
    let (_, mut thread) = hook.introduce(request).unwrap();
    thread.free(0x1000).unwrap();
    std::process::exit(5);
}

#[test]
fn a_child_inherits_by_the_handshake() {
    let recorded = record_fake("forks");
    let recording = recorded.open();
    let [parent, child] = recording.images() else { panic!("two images") };
    assert_eq!((child.how, child.parent_image), (ImageOrigin::Fork, Some(parent.image)));
    assert_eq!((child.inherited_blocks.0, child.inherited_exact), (1, true));
    assert_eq!(recording.image_counts(child.image).unwrap().frees_inherited.0, 1);
    let [first, second] = recorded.outcome.processes.as_slice() else { panic!("two processes") };
    assert_eq!((first.pid, second.parent_pid), (recorded.outcome.command_pid, recorded.outcome.command_pid));
    // Kernels before 6.15 report the exit status only to the parent.
    assert!(matches!(second.exit, Some(ExitStatus::Code(5)) | None), "{:?}", second.exit);
    assert!(!second.running);
}

/// Plays a program whose entries were not redirected as they should have been.
fn missed(entries: u64) {
    let hook = Hook::from_environment();
    let entries_missed = if entries == 0 { ENTRIES_UNKNOWN } else { entries };
    hook.introduce(Request { entries_missed, ..hook.request(RequestKind::Image) }).unwrap();
}

#[test]
fn entries_that_are_not_redirected_are_in_the_recording() {
    let recorded = record_fake("missed 3");
    let reasons = |departures: &[Departure]| departures.iter().map(|departure| departure.reason).collect::<Vec<_>>();
    assert_eq!(reasons(&recorded.outcome.departures), [97]);
    let recording = recorded.open();
    assert_eq!(reasons(recording.departures()), [97]);
    assert_eq!(recording.departures()[0].pid, recorded.outcome.command_pid);
    // Without a plan, but also without an allocator: nothing is missing.
    assert_eq!(record_fake("missed 0").outcome.departures, []);
}

fn execs(more: u64) {
    let (_, mut thread) = Hook::from_environment().image();
    thread.malloc(0x1000, more + 1, 1).unwrap();
    if more > 0 {
        panic!("{}", again(&format!("execs {}", more - 1)).exec());
    }
}

#[test]
fn exec_goes_on_in_the_same_process() {
    let recorded = record_fake("execs 2");
    let recording = recorded.open();
    let how: Vec<_> = recording.images().iter().map(|image| image.how).collect();
    assert_eq!(how, [ImageOrigin::Launched, ImageOrigin::Exec, ImageOrigin::Exec]);
    let ends: Vec<_> =
        recording.images().iter().map(|image| recording.image_end(image.image).unwrap().reason).collect();
    assert_eq!(ends, [ImageEndReason::Exec, ImageEndReason::Exec, ImageEndReason::Exit]);
    assert_eq!(recorded.outcome.processes.len(), 1);
    assert_eq!(recording.processes().len(), 1);
    assert_eq!(recorded.outcome.footer.counts.bytes_allocated.0, 3 + 2 + 1);
    assert_eq!(recorded.outcome.footer.counts.bytes_live_end.0, 1);
    assert!(recording.images()[0].argv.iter().any(|argument| argument == b"program"));
}

/// Leaves a child behind whose lifetime the environment determines.
fn leaves() {
    Hook::from_environment().image();
    #[expect(clippy::zombie_processes, reason = "it is to outlive this process")]
    again("lingers").spawn().unwrap();
    // The child has introduced itself when its file exists.
    let file = PathBuf::from(std::env::var_os("LINGERS_FILE").unwrap());
    while !file.exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn lingers() {
    let file = PathBuf::from(std::env::var_os("LINGERS_FILE").unwrap());
    let (_, mut thread) = Hook::from_environment().image();
    thread.malloc(0x1000, 77, 1).unwrap();
    std::fs::write(&file, "here").unwrap();
    let timeout = std::env::var("LINGERS_MILLISECONDS").unwrap().parse().unwrap();
    let until = Instant::now() + Duration::from_millis(timeout);
    // The file is removed when the recorder is done.
    while Instant::now() < until && file.exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    if !thread.image.page.is_over() {
        thread.free(0x1000).unwrap();
    }
}

fn record_leaver(wait: bool) -> Recorded {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("here");
    let mut command = vec![OsString::from("/usr/bin/env")];
    let mut assignment = OsString::from("LINGERS_FILE=");
    assignment.push(&file);
    command.push(assignment);
    // A child that is left behind and not waited for outlives the recorder.
    command.push(format!("LINGERS_MILLISECONDS={}", if wait { 500 } else { 60_000 }).into());
    command.extend(fake("leaves"));
    record_with(command, |options| options.wait_for_descendants = wait)
}

#[test]
fn who_is_left_behind_goes_on_alone() {
    let recorded = record_leaver(false);
    let recording = recorded.open();
    let [_, child] = recorded.outcome.processes.as_slice() else { panic!("two processes") };
    assert!(child.running);
    assert_eq!(child.images[0].end, ImageEndReason::Detached);
    assert_eq!(child.images[0].counts.bytes_live_end.0, 77);
    assert_eq!(recording.image_end(child.images[0].image).unwrap().exit, None);
    assert!(recording.complete());
}

#[test]
fn who_is_left_behind_can_be_waited_for() {
    let recorded = record_leaver(true);
    recorded.open();
    let [_, child] = recorded.outcome.processes.as_slice() else { panic!("two processes") };
    assert!(!child.running);
    assert_eq!((child.images[0].end, child.images[0].counts.frees.0), (ImageEndReason::Exit, 1));
    assert!(recorded.took > Duration::from_millis(450), "{:?}", recorded.took);
}

#[test]
fn statuses_are_reported_and_nothing_else_is_needed() {
    for (command, exit) in [("exit 3", ExitStatus::Code(3)), ("kill -TERM $$", ExitStatus::Signal(15))] {
        let recorded = record_with(["/bin/sh", "-c", command].map(OsString::from).to_vec(), |_| {});
        assert_eq!(recorded.outcome.exit, exit);
        assert!(!recorded.outcome.command_recorded());
        assert!(recorded.open().complete());
        // Nothing waits for a poll: starting and ending take a few milliseconds, unless other
        // processes have the processors.
        let again = || record_with(["/bin/sh", "-c", command].map(OsString::from).to_vec(), |_| {}).took;
        let is_quick = |took: Duration| took < Duration::from_millis(500);
        assert!(is_quick(recorded.took) || (0..20).any(|_| is_quick(again())), "{:?}", recorded.took);
    }
    assert_eq!(record_fake("exits 9").outcome.exit, ExitStatus::Code(9));
}

#[test]
fn progress_is_reported_from_start_to_end() {
    let directory = tempfile::tempdir().unwrap();
    let go = directory.path().join("go");
    let waits = format!("until [ -e '{}' ]; do sleep 0.01; done", go.display());
    let options = options(["sh", "-c", &waits].map(OsString::from).to_vec(), directory.path());
    let mut reported = Vec::new();
    let started = Instant::now();
    record(&options, &mut |progress| {
        reported.push(match progress {
            Progress::Started { .. } => "started",
            Progress::Running(_) => "running",
            Progress::CommandEnded { exit: ExitStatus::Code(0), running: 0, waits: false } => "ended",
            Progress::Finishing => "finishing",
            _ => "something else",
        });
        if reported == ["started", "running", "running", "running"] {
            std::fs::write(&go, "").unwrap();
        }
    })
    .unwrap();
    let running = reported.len() - 3;
    assert_eq!(reported[0], "started");
    assert!(reported[1..=running].iter().all(|what| *what == "running"), "{reported:?}");
    assert_eq!(reported[reported.len() - 2..], ["ended", "finishing"]);
    // One at once, and one in each 100 ms at most.
    let most = 1 + started.elapsed().as_millis() / 100;
    assert!((3..=most as usize).contains(&running), "{reported:?} in {:?}", started.elapsed());
}

/// Writes until nobody reads any more, and then a little more.
fn fills(events: u64) {
    let hook = Hook::from_environment();
    // The session may be over by now.
    let Some((_, mut thread)) = hook.introduce(hook.request(RequestKind::Image)) else { std::process::exit(42) };
    for number in 1..=events {
        if thread.malloc(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20 << 4, number * 37 % 9_999, 1).is_err() {
            assert!(thread.image.page.is_over());
            std::process::exit(42);
        }
    }
    std::process::exit(43);
}

#[test]
fn a_full_disk_ends_the_recording_and_not_the_program() {
    let mut failed = 0;
    let directory = tempfile::tempdir().unwrap();
    let mut options = options(fake("fills 10000000"), directory.path());
    options.output = Some("/dev/full".into());
    options.force = true;
    let outcome = record(&options, &mut |progress| {
        if let Progress::Failed(error) = progress {
            assert!(matches!(error, RecordError::WriteOutput { .. }));
            failed += 1;
        }
    })
    .unwrap();
    assert_eq!(outcome.exit, ExitStatus::Code(42));
    assert_eq!(failed, 1);
    let Some(RecordError::WriteOutput { path, source }) = outcome.problem else { panic!("{:?}", outcome.problem) };
    assert_eq!(path, Path::new("/dev/full"));
    assert_eq!(source.kind(), std::io::ErrorKind::StorageFull);
    assert!(!outcome.footer.complete);
}

#[test]
fn only_what_starts_leaves_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let refused = |command: &[&str]| {
        let command = command.iter().map(OsString::from).collect();
        let error = record(&options(command, directory.path()), &mut |_| panic!("nothing runs")).unwrap_err();
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        error
    };
    assert!(matches!(refused(&[]), RecordError::NoCommand));
    assert!(matches!(refused(&["/nonexistent/program"]), RecordError::CommandNotFound { .. }));
    assert!(matches!(refused(&["no-such-command-at-all"]), RecordError::CommandNotFound { .. }));
    assert!(matches!(refused(&["/etc/passwd"]), RecordError::NotExecutable { .. }));
    // A script without an interpreter line: `execvp` leaves it to the shell.
    let scripts = tempfile::tempdir().unwrap();
    let file = scripts.path().join("script");
    std::fs::write(&file, "exit $1").unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let command = vec![file.into_os_string(), "6".into()];
    assert_eq!(record(&options(command, directory.path()), &mut |_| {}).unwrap().exit, ExitStatus::Code(6));
    std::fs::write(directory.path().join("x.hl"), "precious").unwrap();
    let error = record(&options(vec!["true".into()], directory.path()), &mut |_| {}).unwrap_err();
    assert!(matches!(error, RecordError::OutputExists { .. }));
    assert_eq!(std::fs::read(directory.path().join("x.hl")).unwrap(), b"precious");
}

/// Tests strangers and clients that misbehave while another program is recorded.
#[test]
fn the_broker_answers_well_behaved_clients() {
    let directory = tempfile::tempdir().unwrap();
    let options = options(["sleep", "0.8"].map(OsString::from).to_vec(), directory.path());
    let mut is_done = false;
    let outcome = record(&options, &mut |progress| {
        let Progress::Started { pid, .. } = progress else { return };
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
        let entry = environment.split(|&byte| byte == 0).find_map(|entry| entry.strip_prefix(b"HEAPLEDGER_SESSION="));
        let hook = Hook::parse(std::str::from_utf8(entry.unwrap()).unwrap());

        let mute: Vec<_> = (0..300).map(|_| hook.connect().unwrap()).collect();
        let stranger = Hook { token: *b"00000000000000000000000000000000", ..hook };
        assert!(stranger.ask(stranger.request(RequestKind::Image)).is_none());
        let refused = |request: Request| hook.ask(request).unwrap().0.refused;
        let probe = hook.request(RequestKind::Probe);
        assert_eq!(refused(probe), 0);
        assert_eq!(refused(Request { version: 99, ..probe }), 1);
        assert_eq!(refused(Request { kind: 77, ..probe }), 1);
        assert_eq!(refused(Request { kind: RequestKind::Ring as u32, image: 5, ..probe }), 1);
        assert_eq!(refused(Request { kind: RequestKind::Fork as u32, image: 5, ..probe }), 1);

        // This process is not one of the command's, but it has the token.
        let start = Instant::now();
        let (_, mut thread) = hook.image();
        // The broker waits a second for each client that says nothing; one after the other, that
        // would be five minutes.
        assert!(start.elapsed() < Duration::from_secs(100), "{:?}", start.elapsed());
        thread.malloc(0x1000, 5, 1).unwrap();
        let asked = Request { image: thread.image.number, capacity: 1 << 20, ..hook.request(RequestKind::Ring) };
        assert_eq!(hook.ask(asked).unwrap().0.ring_length, (1 << 20) + 4096);
        let FakeImage { number, .. } = thread.image;
        for _ in 0..40 {
            let mut another = hook.thread(FakeImage { number, ..thread.image }, "another");
            another.malloc(u64::from(sys::thread_id()) << 4, 1, 1).unwrap();
        }
        drop(mute);
        is_done = true;
    })
    .unwrap();
    assert!(is_done);
    assert!(!outcome.command_recorded());
    let [process] = outcome.processes.as_slice() else { panic!("one process") };
    assert_eq!((process.pid, process.running), (std::process::id(), true));
    assert_eq!(process.images[0].counts.allocations.0, 41);
    // All 40 allocations have the same address, so there is a missed free before each but the
    // first.
    let recording_bytes = std::fs::read(&outcome.output).unwrap();
    let recording = Recording::open(&recording_bytes).unwrap();
    let mut buffer = EventsBuffer::default();
    let events: Vec<_> = recording
        .event_chunks(process.images[0].image)
        .flat_map(|chunk| chunk.decode(&mut buffer).unwrap().as_slice().to_vec())
        .collect();
    let freed = |kind: &EventKind| matches!(kind, EventKind::Free { block: FreedBlock::Known(_) });
    assert_eq!(events.iter().filter(|event| freed(&event.kind)).count(), 39);
}

#[test]
fn a_name_is_found_where_none_is_given() {
    // Run in a process of its own, because it changes the current directory.
    let directory = tempfile::tempdir().unwrap();
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "records_in_another_directory", "--nocapture"])
        .env("RECORD_IN", directory.path())
        .stdout(std::process::Stdio::null())
        .status();
    assert!(status.unwrap().success());
    let names: Vec<_> = std::fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let [name] = names.as_slice() else { panic!("{names:?}") };
    assert!(name.starts_with("heapledger.true.") && name.ends_with(".hl"), "{name}");
}

/// Not a test by itself.
#[test]
fn records_in_another_directory() {
    let Some(directory) = std::env::var_os("RECORD_IN") else { return };
    std::env::set_current_dir(&directory).unwrap();
    let command = std::env::var("RECORD_FAKE").map_or_else(|_| vec!["true".into()], |scenario| fake(&scenario));
    let mut options = RecordOptions::new(command, library());
    options.handle_signals = false;
    let outcome = record(&options, &mut |_| {}).unwrap();
    assert!(outcome.output.exists());
}

/// Not a test by itself: a recorder whose handling of signals can be tested.
#[test]
fn records_with_signals() {
    let Some(directory) = std::env::var_os("SIGNALS_IN") else { return };
    let directory = PathBuf::from(directory);
    let mut options = options(["sleep", "1000"].map(OsString::from).to_vec(), &directory);
    options.handle_signals = true;
    let outcome = record(&options, &mut |progress| {
        if let Progress::Started { pid, .. } = progress {
            std::fs::write(directory.join("new"), pid.to_string()).unwrap();
            std::fs::rename(directory.join("new"), directory.join("pid")).unwrap();
        }
    });
    let ExitStatus::Signal(signal) = outcome.unwrap().exit else { std::process::exit(99) };
    std::process::exit(100 + signal);
}

/// Waits until a condition holds.
fn until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(300), "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn state_of(pid: u32) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').and_then(|(_, rest)| rest.trim().chars().next()).unwrap_or('-')
}

#[test]
fn signals_reach_whom_they_should() {
    use rustix::process::{Pid, Signal, kill_process, kill_process_group};
    let directory = tempfile::tempdir().unwrap();
    let mut recorder = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "records_with_signals", "--nocapture"])
        .env("SIGNALS_IN", directory.path())
        .stdout(std::process::Stdio::null())
        .process_group(0)
        .spawn()
        .unwrap();
    let id = recorder.id();
    let pid = Pid::from_child(&recorder);
    until("the command runs", || directory.path().join("pid").exists());
    let command: u32 = std::fs::read_to_string(directory.path().join("pid")).unwrap().parse().unwrap();
    // Signals of the keyboard go to the process group.
    for _ in 0..5 {
        kill_process_group(pid, Signal::TSTP).unwrap();
        until("both stop", || state_of(id) == 'T' && state_of(command) == 'T');
        // Continuing the recorder also continues the command.
        kill_process(pid, Signal::CONT).unwrap();
        until("both go on", || state_of(id) != 'T' && state_of(command) != 'T');
    }
    kill_process(pid, Signal::INT).unwrap();
    kill_process(pid, Signal::QUIT).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    assert!(recorder.try_wait().unwrap().is_none(), "it ignores what the keyboard sends");
    // A stop by a program does not concern the recorder.
    kill_process(Pid::from_raw(command as i32).unwrap(), Signal::STOP).unwrap();
    until("the command stops", || state_of(command) == 'T');
    std::thread::sleep(Duration::from_millis(50));
    assert_ne!(state_of(id), 'T');
    kill_process(Pid::from_raw(command as i32).unwrap(), Signal::CONT).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    assert_eq!(recorder.wait().unwrap().code(), Some(115));
}

/// Tests that the recorder is stopped for a while, and the program is not.
#[test]
fn a_recorder_that_was_stopped_goes_on() {
    use rustix::process::{Pid, Signal, kill_process};
    let directory = tempfile::tempdir().unwrap();
    let mut recorder = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "records_in_another_directory", "--nocapture"])
        .env("RECORD_IN", directory.path())
        .env("RECORD_FAKE", "exchange 100000")
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let pid = Pid::from_child(&recorder);
    for stopped in [1_300, 100, 100] {
        std::thread::sleep(Duration::from_millis(15));
        kill_process(pid, Signal::STOP).unwrap();
        std::thread::sleep(Duration::from_millis(stopped));
        kill_process(pid, Signal::CONT).unwrap();
    }
    assert_eq!(recorder.wait().unwrap().code(), Some(0));
    let entry = std::fs::read_dir(directory.path()).unwrap().next().unwrap().unwrap();
    let bytes = std::fs::read(entry.path()).unwrap();
    let recording = Recording::open(&bytes).unwrap();
    assert!(recording.complete());
    let counts = recording.footer().unwrap().counts;
    assert_eq!((counts.allocations.0, counts.frees.0), (EXCHANGE_THREADS * 100_000, EXCHANGE_THREADS * 100_000));
    assert_eq!((counts.frees_unknown.0, counts.events_lost), (0, 0));
}
