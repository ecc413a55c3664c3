//! Armed programs: started with the library, and recorded from `heapledger start PID` on.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{
    HEAPLEDGER, Job, Outcome, Recording, Running, Scratch, exited, heapledger, installed, number, program, wait_until,
};

/// The numbers of `fixtures/programs/armed.c`, in a cycle.
const THREADS: i64 = 4;
pub(crate) const OLD: i64 = 100;
pub(crate) const ALLOCATIONS: i64 = THREADS * 2500 + 10;

/// Places the library, and returns its path.
pub(crate) fn library(scratch: &Scratch) -> PathBuf {
    let directory = scratch.file("lib");
    let outcome = heapledger(["lib".as_ref(), "record".as_ref(), "--directory".as_ref(), directory.as_os_str()]);
    assert_eq!(outcome.status, exited(0), "{outcome:?}");
    PathBuf::from(outcome.text().trim_end())
}

/// Returns a running program's id.
pub(crate) fn id(running: &Running) -> String {
    running.pid().as_raw_nonzero().to_string()
}

/// Begins to record a program, and returns while it is recorded.
pub(crate) fn start(pid: &str, file: &Path, options: &[&str]) -> Running {
    let words = [HEAPLEDGER, "start", pid, "--force", "--names", "none", "-o"].map(OsStr::new);
    let options = options.iter().map(OsStr::new);
    Job::new(words.into_iter().chain([file.as_os_str()]).chain(options)).start_bare()
}

/// Asserts that a recording, which began while the program ran, has one of its cycles.
pub(crate) fn assert_has_a_cycle(recording: &Recording) {
    let of = |name: &str| recording.total(name);
    assert_eq!(
        (of("allocations"), of("frees"), of("frees_unknown"), of("events_lost"), of("blocks_live_end")),
        (ALLOCATIONS, ALLOCATIONS - 10, OLD, 0, 10),
        "{recording:?}"
    );
    assert_eq!((of("threads"), recording.processes().len()), (THREADS + 1, 1), "{recording:?}");
    let image = &recording.processes()[0]["images"][0];
    assert_eq!(image["how"], "attached", "{recording:?}");
    assert!(image["age_seconds"].as_f64().unwrap() > 0.0, "{recording:?}");
}

pub(crate) fn succeeded(outcome: &Outcome) {
    assert_eq!(outcome.status, exited(0), "{outcome:?}");
}

/// True if a process has memory of a session: rings, or its page.
fn has_session(pid: &str) -> bool {
    fs::read_to_string(format!("/proc/{pid}/maps")).unwrap().contains("/memfd:")
}

/// Each session has exactly what the program does in it, whatever was recorded before; in between
/// nothing of it is left in the program, whose environment stays as the user made it.
#[test]
fn each_session_has_what_happens_in_it() {
    let scratch = Scratch::new();
    let library = library(&scratch);
    let cycles: [&[&str]; 4] = [&[], &["--usable"], &["--aggregate"], &["--stacks", "none"]];
    let words = format!("{} {}", scratch.path().display(), cycles.len());
    let job = Job::fixture("armed", &words).variable("LD_PRELOAD", &library);
    let running = job.start_bare();
    let pid = id(&running);
    let make = |name: &str, cycle: usize| scratch.write(&format!("{name}.{cycle}"), "");
    let made = |name: &str, cycle: usize| {
        wait_until(name, || scratch.file(&format!("{name}.{cycle}")).exists());
    };
    for (cycle, options) in cycles.iter().enumerate() {
        made("ready", cycle);
        assert!(!has_session(&pid), "{cycle}");
        let file = scratch.file(&format!("{cycle}.hl"));
        let recorder = start(&pid, &file, options);
        wait_until("the recorder is ready", || heapledger(["status", &*pid]).status == exited(0));
        make("go", cycle);
        made("did", cycle);
        assert!(has_session(&pid), "{cycle}");
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap();
        let text = String::from_utf8_lossy(&environment);
        assert!(text.contains(&format!("LD_PRELOAD={}\0", library.display())), "{text}");
        assert!(!text.contains("HEAPLEDGER_SESSION"), "{text}");
        succeeded(&heapledger(["stop", &*pid]));
        let outcome = recorder.outcome();
        succeeded(&outcome);
        make("over", cycle);
        made("left", cycle);
        assert_has_a_cycle(&Recording::open(file));
    }
    let outcome = running.outcome();
    succeeded(&outcome);
    assert_eq!(outcome.text(), format!("{{\"cycles\": {}}}\n", cycles.len()));
}

/// Records one cycle of `fixtures/programs/armed.c`, and returns when the program has left the
/// session.
fn one_session(job: Job, scratch: &Scratch, library: &Path, options: &[&str]) -> Recording {
    let running = job.variable("LD_PRELOAD", library).start_bare();
    let pid = id(&running);
    let made = |name: &str| wait_until(name, || scratch.file(name).exists());
    made("ready.0");
    let file = scratch.file("recording.hl");
    let recorder = start(&pid, &file, options);
    wait_until("the recorder is ready", || heapledger(["status", &*pid]).status == exited(0));
    scratch.write("go.0", "");
    made("did.0");
    // Options come too late: the recording can only be resumed.
    let outcome = heapledger(["start", &*pid, "--usable"]);
    assert_eq!(outcome.status, exited(2), "{outcome:?}");
    assert!(String::from_utf8_lossy(&outcome.stderr).contains("is being recorded already"), "{outcome:?}");
    succeeded(&heapledger(["stop", &*pid]));
    succeeded(&recorder.outcome());
    scratch.write("over.0", "");
    made("ready.1");
    assert!(!has_session(&pid));
    Recording::open(file)
}

/// A program that allocates little leaves a sampled session as soon as any other.
#[test]
fn a_quiet_program_leaves_a_sampled_session() {
    let scratch = Scratch::new();
    let library = library(&scratch);
    let job = Job::fixture("armed", &format!("{} 2", scratch.path().display()));
    let recording = one_session(job, &scratch, &library, &["--sample", "1GiB"]);
    assert_eq!(recording.total("events_lost"), 0, "{recording:?}");
}

/// To join takes four descriptors at a time, for a moment. This program has three.
#[test]
fn a_program_that_may_open_few_files_is_recorded() {
    let scratch = Scratch::new();
    let library = library(&scratch);
    let fixture = program("armed");
    let line = "ulimit -n 6; exec \"$0\" \"$1\" 2 3>&- 4>&- 5>&-";
    let words = ["/bin/sh".as_ref(), "-c".as_ref(), line.as_ref(), fixture.as_os_str(), scratch.path().as_os_str()];
    let recording = one_session(Job::new(words), &scratch, &library, &[]);
    assert_eq!((recording.total("allocations"), recording.total("events_lost")), (ALLOCATIONS, 0), "{recording:?}");
}

/// A filter that is there when the program begins may end it at any call that it does not list. So
/// it is asked only if the user says so, or if it has been recorded before.
#[test]
fn a_program_under_a_filter_is_asked_if_the_user_says_so() {
    let scratch = Scratch::new();
    let library = library(&scratch);
    for (how, is_recorded) in [("allow", true), ("refuse", false), ("kill", false)] {
        let directory = scratch.file(how);
        fs::create_dir(&directory).unwrap();
        let (filtered, armed) = (program("filtered"), program("armed"));
        let words = [filtered.as_os_str(), how.as_ref(), armed.as_os_str(), directory.as_os_str(), "2".as_ref()];
        // In the environment of the second program alone.
        let words = ["/usr/bin/env".as_ref()].into_iter().chain(words);
        let running = Job::new(words).variable("LD_PRELOAD", &library).start_bare();
        let pid = id(&running);
        let made = |name: &str| wait_until(name, || directory.join(name).exists());
        made("ready.0");
        let file = scratch.file("filtered.hl");
        let outcome = start(&pid, &file, &[]).outcome();
        assert_eq!(outcome.status, exited(2), "{how}: {outcome:?}");
        let told = String::from_utf8_lossy(&outcome.stderr).into_owned();
        assert!(told.contains("HL0116") && told.contains("--sandboxed"), "{how}: {told}");
        if how != "kill" {
            // The second time nobody asks: the program has made these calls.
            for (cycle, options) in [&["--sandboxed"][..], &[]].into_iter().enumerate() {
                made(&format!("ready.{cycle}"));
                let recorder = start(&pid, &file, options);
                wait_until("the recorder is ready", || heapledger(["status", &*pid]).status == exited(0));
                fs::write(directory.join(format!("go.{cycle}")), "").unwrap();
                made(&format!("did.{cycle}"));
                succeeded(&heapledger(["stop", &*pid]));
                succeeded(&recorder.outcome());
                fs::write(directory.join(format!("over.{cycle}")), "").unwrap();
                made(&format!("left.{cycle}"));
                if is_recorded {
                    let recording = Recording::open(file.clone());
                    assert_eq!(recording.total("allocations"), ALLOCATIONS, "{how}: {recording:?}");
                }
            }
            succeeded(&running.outcome());
        }
    }
}

/// A program with hook libraries is not armed, though it has the library.
#[test]
fn a_program_with_hooks_cannot_be_asked() {
    let scratch = Scratch::new();
    let library = library(&scratch);
    let job = Job::fixture("armed", &format!("{} 1", scratch.path().display()));
    let job = job.variable("LD_PRELOAD", &library).variable("HEAPLEDGER_HOOKS", "/nonexistent.so");
    let running = job.start_bare();
    wait_until("the program is ready", || scratch.file("ready.0").exists());
    let outcome = heapledger(["start", &*id(&running)]);
    assert_eq!(outcome.status, exited(2), "{outcome:?}");
    assert!(String::from_utf8_lossy(&outcome.stderr).contains("HL0101"), "{outcome:?}");
}

/// A hundred sessions of all kinds, while threads allocate and children are forked and become other
/// programs: none is harmed.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_hundred_sessions_harm_nobody() {
    const KINDS: [&[&str]; 5] = [&[], &["--sample", "4KiB"], &["--usable"], &["--aggregate"], &["--on-full", "drop"]];
    let scratch = Scratch::new();
    let library = library(&scratch);
    let end = scratch.file("end");
    let job = Job::new([program("armed_storm").as_os_str(), end.as_os_str()]).variable("LD_PRELOAD", &library);
    let running = job.start_bare();
    let pid = id(&running);
    let file = scratch.file("recording.hl");
    // `main` has begun when there is a second thread.
    wait_until("the program runs", || fs::read_dir(format!("/proc/{pid}/task")).unwrap().count() > 1);
    let mut allocations = [0; KINDS.len()];
    for (cycle, options) in KINDS.iter().cycle().take(100).enumerate() {
        let recorder = start(&pid, &file, &[options, &["--duration", "30ms"][..]].concat());
        if cycle % 11 == 9 {
            // The recorder dies: the program notices, and can be recorded again.
            wait_until("the program is recorded", || has_session(&pid));
            drop(recorder);
            continue;
        }
        succeeded(&recorder.outcome());
        let recording = Recording::open(file.clone());
        // On a busy machine the program may get no processor in that time.
        allocations[cycle % KINDS.len()] += recording.total("allocations");
        assert_eq!(recording.summary["events_lost_by_cause"]["unreadable"], 0, "{cycle}: {recording:?}");
    }
    assert!(allocations.iter().all(|&allocations| allocations > 0), "{allocations:?}");
    // All threads come to the allocator, and the last of them takes the rings away.
    wait_until("nothing is left in the program", || !has_session(&pid));
    scratch.write("end", "");
    let outcome = running.outcome();
    succeeded(&outcome);
    let told = &outcome.printed_objects()[0];
    assert_eq!((number(told, "wrong"), number(told, "failed")), (0, 0), "{outcome:?}");
}

/// A program that an armed one starts while it is recorded joins the session, and does not see it.
#[test]
fn programs_that_are_started_join() {
    let scratch = Scratch::new();
    let library = library(&scratch);
    // Not any variable with our name: whoever runs the tests may have set some.
    let line = "while [ ! -e $0/end ]; do env | grep -c '^HEAPLEDGER_SESSION='; /bin/sh -c 'true; env > $0/env.new && mv $0/env.new $0/env' $0; done";
    let directory = scratch.path().as_os_str();
    let job = Job::new(["/bin/sh".as_ref(), "-c".as_ref(), line.as_ref(), directory]).variable("LD_PRELOAD", &library);
    let running = job.start_bare();
    let pid = id(&running);
    wait_until("the shell runs", || scratch.file("env").exists());
    let file = scratch.file("shells.hl");
    let recorder = start(&pid, &file, &[]);
    wait_until("programs are recorded", || {
        let status = heapledger(["status", &*pid, "--json"]);
        let rows = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap()["rows"][0].clone();
        status.status == exited(0) && number(&rows(&status.text()), "allocations") > 1000
    });
    succeeded(&heapledger(["stop", &*pid]));
    succeeded(&recorder.outcome());
    scratch.write("end", "");
    let outcome = running.outcome();
    assert!(outcome.text().lines().all(|line| line == "0"), "{outcome:?}");
    let environment = fs::read_to_string(scratch.file("env")).unwrap();
    assert!(environment.contains(&format!("LD_PRELOAD={}\n", library.display())), "{environment}");
    let recording = Recording::open(file);
    assert!(!recording.running("env").is_empty(), "{recording:?}");
    assert_eq!(recording.total("events_lost"), 0, "{recording:?}");
}

/// Programs that cannot be asked, each with a code and a command.
#[test]
fn refusals_say_what_to_do() {
    let plain = Job::new(["sleep", "60"]).start_bare();
    let pid = id(&plain);
    for (target, code, says) in
        [(&*pid, "HL0101", "LD_PRELOAD=$(heapledger lib record)"), ("4194304", "", "there is no process 4194304")]
    {
        let outcome = heapledger(["start", target]);
        assert_eq!(outcome.status, exited(2), "{outcome:?}");
        let text = String::from_utf8_lossy(&outcome.stderr).into_owned();
        assert!(text.contains(code) && text.contains(says) && text.contains("hint:"), "{text}");
    }
}

/// A real server under load: its clients get all their answers, and it goes on.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_server_under_load_is_recorded_twice() {
    let (Some(server), Some(client), Some(load)) =
        (installed("redis-server"), installed("redis-cli"), installed("redis-benchmark"))
    else {
        return;
    };
    let scratch = Scratch::new();
    let library = library(&scratch);
    let socket = scratch.file("socket");
    let words = ["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"].map(OsStr::new);
    let line = [server.as_os_str()].into_iter().chain(words).chain([socket.as_os_str()]);
    let running = Job::new(line).variable("LD_PRELOAD", &library).start_bare();
    let pid = id(&running);
    let ask = |word: &str| Command::new(&client).arg("-s").arg(&socket).arg(word).output().unwrap().stdout;
    wait_until("the server answers", || ask("ping") == b"PONG\n");
    let words = ["-q", "-t", "set,lpush,get", "-n", "100000", "-d", "200", "-s"].map(OsStr::new);
    let clients = Job::new([load.as_os_str()].into_iter().chain(words).chain([socket.as_os_str()])).start_bare();
    for options in [&["--duration", "300ms"][..], &["--duration", "300ms", "--sample", "16KiB"]] {
        let file = scratch.file("redis.hl");
        succeeded(&start(&pid, &file, options).outcome());
        let recording = Recording::open(file);
        assert!(recording.total("allocations") > 1000, "{recording:?}");
        assert_eq!(recording.total("events_lost"), 0, "{recording:?}");
    }
    succeeded(&clients.outcome());
    ask("shutdown");
    succeeded(&running.outcome());
}

/// A call of an armed program takes four instructions more: the exported jump, a look at a word, a
/// branch, and a jump to the allocator.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn an_armed_call_takes_four_instructions_more() {
    let Some(valgrind) = installed("valgrind") else { return };
    let scratch = Scratch::new();
    let library = library(&scratch);
    let instructions = |preload: &Path, work: &str| {
        let words = ["--tool=callgrind", "--callgrind-out-file=/dev/null"].map(OsStr::new);
        let fixture = program("malloc_costs");
        let line = [valgrind.as_os_str()].into_iter().chain(words).chain([
            fixture.as_os_str(),
            "pair".as_ref(),
            work.as_ref(),
        ]);
        let outcome = Job::new(line).variable("LD_PRELOAD", preload).bare();
        let text = String::from_utf8_lossy(&outcome.stderr).into_owned();
        let counted = text.lines().find_map(|line| line.split("Collected : ").nth(1));
        counted.unwrap_or_else(|| panic!("{outcome:?}")).trim().parse::<i64>().unwrap()
    };
    let per_call = |preload: &Path| instructions(preload, "200000") - instructions(preload, "100000");
    let more = per_call(&library) - per_call(Path::new(""));
    assert!((700_000..=810_000).contains(&more), "{more} for 100,000 pairs");
}
