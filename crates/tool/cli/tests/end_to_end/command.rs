//! The command itself: files, exit status, output, signals.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;

use rustix::process::{Signal, WaitOptions, kill_process, kill_process_group, waitpid};
use serde_json::json;

use crate::harness::{HEAPLEDGER, Job, Outcome, Recording, Scratch, exited, heapledger, program, wait_until};

#[test]
fn the_default_name_is_never_overwritten() {
    let scratch = Scratch::new();
    let job = Job::fixture("dies", "10 exit").directory(scratch.path());
    for round in 1..=2 {
        assert_eq!(job.start(None).outcome().status, exited(3));
        assert_eq!(scratch.recordings().len(), round, "{:?}", scratch.recordings());
    }
    for path in scratch.recordings() {
        let recording = Recording::open(path.clone());
        let pid = recording.processes()[0]["pid"].as_i64().unwrap();
        assert_eq!(path.file_name().unwrap().to_str().unwrap(), format!("heapledger.dies.{pid}.hl"));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}

#[test]
fn a_named_file_is_overwritten_only_by_force() {
    let scratch = Scratch::new();
    let file = scratch.write("x.hl", "precious");
    let job = Job::fixture("dies", "10 exit");
    let outcome = job.start(Some(&file)).outcome();
    assert!(!outcome.status.success() && outcome.status != exited(3), "{outcome:?}");
    assert!(!outcome.stderr.is_empty(), "it does not say why");
    assert_eq!(fs::read(&file).unwrap(), b"precious");
    assert_eq!(job.option("--force").start(Some(&file)).outcome().status, exited(3));
    Recording::open(file).assert_whole();
}

#[test]
fn the_report_is_on_stderr_and_can_be_silenced() {
    let scratch = Scratch::new();
    let job = Job::shell("echo out; echo err >&2; cat").stdin("in\n");
    let (quiet, _) = job.both(&scratch);
    let (loud, _) = job.with_report().recorded(&scratch);
    assert_eq!(quiet.text(), "out\nin\n");
    assert_eq!(loud.text(), quiet.text());
    let report = String::from_utf8(loud.stderr).unwrap();
    assert!(report.starts_with("err\n") && report.len() > 50, "{report}");
}

#[test]
fn arguments_and_directory_arrive_as_given() {
    let scratch = Scratch::new();
    let words = [
        "/bin/sh",
        "-c",
        "pwd; for i; do echo \"[$i]\"; done",
        "name",
        "--quiet",
        "-o",
        "a b",
        "",
        "--",
        "*",
        "--help",
    ];
    let (outcome, _) = Job::new(words).directory(scratch.path()).both(&scratch);
    assert!(outcome.text().contains("[--quiet]\n[-o]\n[a b]\n[]\n[--]\n[*]\n[--help]\n"), "{outcome:?}");
    assert_eq!(scratch.recordings().len(), 1);
}

/// A file without a `#!` line is run by the shell, as by `execvp`.
#[test]
fn a_script_without_an_interpreter() {
    let scratch = Scratch::new();
    scratch.script("plain", "echo from $0: \"$@\"\nexit 8\n");
    let (outcome, _) = Job::new(["./plain", "one", "two"]).directory(scratch.path()).both(&scratch);
    assert_eq!(outcome.status, exited(8), "{outcome:?}");
}

/// The recording reaches the file size limit: the program neither notices nor hangs.
#[test]
fn a_file_that_may_not_grow() {
    let scratch = Scratch::new();
    let job = Job::fixture("mix_threads", "100000").with_report();
    let bare = job.bare();
    // In units of 512 bytes: part of the recording, and less than our library needs.
    for (limit, may_fail) in [(1024, false), (16, true)] {
        let file = scratch.file(&format!("{limit}.hl"));
        let outcome = Job::shell(&format!("ulimit -f {limit}; exec {}", job.recording_words(&file))).bare();
        assert_eq!(outcome.status.signal(), None, "ulimit -f {limit}: {outcome:?}");
        assert!(!outcome.stderr.is_empty(), "ulimit -f {limit}: it does not say that the recording is cut off");
        assert!(may_fail || outcome.text() == bare.text(), "ulimit -f {limit}: {outcome:?}");
        assert!(may_fail || Recording::open(file).summary["complete"] == false, "ulimit -f {limit}: {outcome:?}");
    }
}

/// The command records itself, and a session inside a session.
#[test]
fn the_command_under_itself() {
    let scratch = Scratch::new();
    let (_, inner) = Job::fixture("mix", "1000").recorded(&scratch);
    let words = [OsStr::new(HEAPLEDGER), OsStr::new("summary"), inner.path.as_os_str(), OsStr::new("--json")];
    let (_, recording) = Job::new(words).both(&scratch);
    assert!(recording.assert_whole().total("allocations") > 100, "{recording:?}");
    let nested = scratch.file("nested.hl");
    let job = Job::shell(&format!("exec {}", Job::fixture("dies", "1000 exit").recording_words(&nested)));
    let (outcome, recording) = job.recorded(&scratch);
    assert_eq!(outcome.status, exited(3), "{outcome:?}");
    recording.assert_whole();
    Recording::open(nested);
}

/// Returns the output of `surroundings` without what tests themselves make different.
pub(crate) fn comparable(outcome: &Outcome) -> String {
    let lines = outcome.text();
    let lines = lines.lines().map(|line| match line.split_once(":\t") {
        // Signals 32 and 33 are the C library's own: its posix_spawn ignores them, its fork does
        // not.
        Some(("SigIgn", set)) => format!("SigIgn {:x}", u64::from_str_radix(set, 16).unwrap() & !(3 << 31)),
        // The leader of the group is the process that the test started: record.
        _ => line.replace("leader of its group 1", "leader of its group 0"),
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Compares the output of `surroundings`, started by a shell after this line, without the recorder
/// and with it.
#[track_caller]
fn same_surroundings(before: &str) {
    let scratch = Scratch::new();
    let own = program("surroundings");
    let exec = if before.ends_with(' ') { "" } else { "; exec " };
    let bare = Job::shell(&format!("{before}{exec}{} one", own.display())).bare();
    let words = Job::fixture("surroundings", "one").recording_words(&scratch.file("recording.hl"));
    let recorded = Job::shell(&format!("{before}{exec}{words}")).bare();
    assert!(comparable(&bare).contains("argument one"), "{bare:?}");
    assert_eq!(comparable(&bare), comparable(&recorded), "{before}");
    assert_eq!(bare.status, recorded.status, "{before}");
}

/// Signals, descriptors, limits: the program inherits the same as without the recorder.
#[test]
fn surroundings_arrive_as_given() {
    same_surroundings("trap '' HUP INT QUIT TERM USR1");
    same_surroundings("umask 0; ulimit -n 333");
    same_surroundings("exec 7< /dev/null 9>&1");
    same_surroundings("nice -n 5 ");
}

/// Rust's start-up makes this one harder than the others: it ignores SIGPIPE before `main`.
#[test]
fn an_ignored_sigpipe_arrives_as_given() {
    same_surroundings("trap '' PIPE");
}

/// The recorder's files are in the directory that the user chooses, whatever its name.
#[test]
fn a_temporary_directory_with_a_strange_name() {
    let scratch = Scratch::new();
    for name in ["with space", "with:colon"] {
        let directory = scratch.file(name);
        fs::create_dir(&directory).unwrap();
        let file = scratch.file("recording.hl");
        let words = Job::fixture("dies", "1000 exit").option("--force").recording_words(&file);
        let outcome = Job::shell(&format!("exec {words}")).variable("TMPDIR", &directory).bare();
        assert_eq!((outcome.status, &outcome.stderr[..]), (exited(3), &b""[..]), "{name}: {outcome:?}");
        let recording = Recording::open(file);
        assert_eq!(recording.assert_whole().total("allocations"), 1000, "{name}: {recording:?}");
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0, "something was left in {}", directory.display());
    }
}

/// A name may contain any bytes except a slash.
#[test]
fn a_program_with_a_strange_name() {
    let scratch = Scratch::new();
    let names: [&[u8]; 4] = [b"two words", b"a\"quote\\\nline", b"\xff\xfe\x80", b"-o"];
    for name in names {
        let path = scratch.path().join(OsStr::from_bytes(name));
        fs::hard_link(program("dies"), &path).unwrap();
        let outcome = Job::new([path.as_os_str(), OsStr::new("10"), OsStr::new("exit")])
            .directory(scratch.path())
            .start(None)
            .outcome();
        assert_eq!(outcome.status, exited(3), "{outcome:?}");
        let [file] = &scratch.recordings()[..] else { panic!("{:?}", scratch.recordings()) };
        let recording = Recording::open(file.clone());
        assert_eq!(recording.assert_whole().processes().len(), 1);
        fs::remove_file(file).unwrap();
    }
}

#[test]
fn a_command_that_cannot_be_started() {
    let scratch = Scratch::new();
    let text = scratch.write("text", "no program");
    for (command, code) in
        [("/nonexistent/program", 127), ("no-such-program-anywhere", 127), (text.to_str().unwrap(), 126)]
    {
        let outcome = Job::new([command]).directory(scratch.path()).start(None).outcome();
        assert_eq!(outcome.status, exited(code), "{command}: {outcome:?}");
        let said = String::from_utf8_lossy(&outcome.stderr);
        assert!(said.contains(command) && !said.contains("panicked"), "{command}: {outcome:?}");
        assert!(scratch.recordings().is_empty(), "{command} left {:?}", scratch.recordings());
    }
    let (nowhere, mark) = (scratch.file("no/such/directory/x.hl"), scratch.file("mark"));
    let outcome = Job::shell(&format!(": > '{}'", mark.display())).start(Some(&nowhere)).outcome();
    assert!(!outcome.status.success() && !mark.exists(), "it ran without a file to record to: {outcome:?}");
    let outcome = heapledger(["record"]);
    assert!(!outcome.status.success() && !outcome.stderr.is_empty(), "{outcome:?}");
}

/// A signal to `heapledger record` is meant for the program: SIGTERM and SIGHUP are passed on.
#[test]
fn signals_are_passed_on() {
    let scratch = Scratch::new();
    for (signal, name) in [(Signal::TERM, "TERM"), (Signal::HUP, "HUP")] {
        let (file, mark) = (scratch.file(&format!("{name}.hl")), scratch.file(name));
        let line =
            format!("trap 'echo got {name}; exit 9' {name}; : > '{}'; while :; do sleep 0.05; done", mark.display());
        let running = Job::shell(&line).start(Some(&file));
        wait_until("the shell has set its trap", || mark.exists());
        kill_process(running.pid(), signal).unwrap();
        let outcome = running.outcome();
        assert_eq!((outcome.status, outcome.text()), (exited(9), format!("got {name}\n")), "{outcome:?}");
        Recording::open(file).assert_whole();
    }
    // A program that does not handle the signal dies of it, and so does record.
    let (file, mark) = (scratch.file("default.hl"), scratch.file("runs"));
    let line = format!(": > '{}'; while :; do sleep 0.05; done", mark.display());
    let running = Job::shell(&line).start(Some(&file));
    wait_until("the program runs", || mark.exists());
    kill_process(running.pid(), Signal::TERM).unwrap();
    let outcome = running.outcome();
    assert_eq!(outcome.status.signal(), Some(15), "{outcome:?}");
    assert_eq!(Recording::open(file).processes()[0]["exit"], json!({"signal": 15}));
}

/// The keyboard's signals reach the whole group, so the program handles them.
#[test]
fn the_keyboard_interrupts_the_program() {
    let scratch = Scratch::new();
    let (file, mark) = (scratch.file("handled.hl"), scratch.file("mark"));
    let line = format!("trap 'echo interrupted; exit 5' INT; : > '{}'; while :; do sleep 0.05; done", mark.display());
    let running = Job::shell(&line).start(Some(&file));
    wait_until("the shell has set its trap", || mark.exists());
    kill_process_group(running.pid(), Signal::INT).unwrap();
    let outcome = running.outcome();
    assert_eq!((outcome.status, outcome.text()), (exited(5), "interrupted\n".to_owned()), "{outcome:?}");
    Recording::open(file).assert_whole();

    let (file, tally) = (scratch.file("died.hl"), scratch.file("tally"));
    let running = Job::fixture("tally", tally.to_str().unwrap()).start(Some(&file));
    wait_until("the program allocates", || fs::read(&tally).is_ok_and(|cells| cells.iter().any(|&byte| byte != 0)));
    kill_process_group(running.pid(), Signal::QUIT).unwrap();
    let outcome = running.outcome();
    assert_eq!(outcome.status.signal(), Some(3), "{outcome:?}");
    Recording::open(file).assert_whole();
}

/// A command that is stopped takes `record` with it, so a shell's job control works as if it were
/// not there.
#[test]
fn a_command_that_stops() {
    let scratch = Scratch::new();
    let file = scratch.file("recording.hl");
    let running = Job::shell("kill -TSTP $$; echo continued; exit 6").start(Some(&file));
    wait_until("record stops with its command", || {
        let changed = waitpid(Some(running.pid()), WaitOptions::UNTRACED | WaitOptions::NOHANG).unwrap();
        changed.inspect(|(_, status)| assert!(status.stopped(), "{status:?}")).is_some()
    });
    kill_process(running.pid(), Signal::CONT).unwrap();
    let outcome = running.outcome();
    assert_eq!((outcome.status, outcome.text()), (exited(6), "continued\n".to_owned()), "{outcome:?}");
    Recording::open(file).assert_whole();
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn no_recording_is_no_panic() {
    let scratch = Scratch::new();
    let (_, recording) = Job::fixture("mix", "20000").recorded(&scratch);
    let whole = fs::read(&recording.path).unwrap();
    let damaged = |name: &str, bytes: &[u8]| scratch.write(name, bytes);
    let mut flipped = whole.clone();
    for at in (100..flipped.len()).step_by(211) {
        flipped[at] ^= 0x55;
    }
    let files = [
        (damaged("empty.hl", b""), false),
        (damaged("text.hl", b"this is no recording\n"), false),
        (damaged("flipped.hl", &flipped), true),
        (damaged("half.hl", &whole[..whole.len() / 2]), true),
        (damaged("short.hl", &whole[..whole.len() - 7]), true),
        (scratch.file("missing.hl"), false),
        (scratch.path().to_owned(), false),
    ];
    for (file, may_succeed) in &files {
        for verb in ["summary", "top", "tree", "leaks", "temporary", "info"] {
            let outcome = heapledger([OsStr::new(verb), file.as_os_str()]);
            let said = String::from_utf8_lossy(&outcome.stderr);
            assert!(outcome.status.code().is_some() && outcome.status != exited(101), "{verb} {file:?}: {outcome:?}");
            assert!(!said.contains("panicked"), "{verb} {file:?}: {outcome:?}");
            if outcome.status.success() {
                assert!(may_succeed, "{verb} {file:?} succeeds: {outcome:?}");
            } else {
                assert!(
                    said.contains(file.file_name().unwrap().to_str().unwrap()),
                    "{verb} does not name {file:?}: {outcome:?}"
                );
            }
        }
    }
}

/// The reader of a program's output may close it early.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_closed_pipe_is_no_panic() {
    let scratch = Scratch::new();
    let (_, recording) = Job::fixture("mix", "20000").recorded(&scratch);
    program("mix");
    for verb in ["summary", "top", "tree", "leaks"] {
        let line = format!("'{}' {verb} '{}' | head -c 1 > /dev/null", HEAPLEDGER, recording.path.display());
        let outcome = Job::shell(&line).bare();
        assert!(outcome.stderr.is_empty(), "{verb}: {outcome:?}");
    }
}
