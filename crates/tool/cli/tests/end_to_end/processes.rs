//! More than one process: fork, exec and everything between, and what a program can see of the
//! recorder.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::harness::{Build, Job, Recording, Scratch, build, exited, installed, number, program, wait_until};

/// Asserts that each process of a truth program agrees with its own output, by its pid.
#[track_caller]
fn processes_agree(told: &[Value], recording: &Recording) {
    for truth in told {
        let process = recording.process(number(truth, "pid"));
        for (name, value) in truth.as_object().unwrap() {
            match name.as_str() {
                "who" | "pid" => {}
                "code" => assert_eq!(process["exit"], json!({ "code": value }), "{truth} {recording:?}"),
                _ => assert_eq!(process[name], *value, "{name} of {truth}: {recording:?}"),
            }
        }
    }
    assert_eq!(recording.processes().len(), told.len(), "{recording:?}");
}

#[test]
fn children_of_fork() {
    let scratch = Scratch::new();
    for how in ["", "raw"] {
        let (outcome, recording) = Job::fixture("forks", how).recorded(&scratch);
        assert_eq!(outcome.status, exited(10), "{outcome:?}");
        processes_agree(&outcome.printed_objects(), &recording);
        recording.assert_whole().assert_adds_up();
        assert_eq!(recording.total("frees_inherited"), 350, "{recording:?}");
    }
}

/// A child that has not been introduced yet, because it was made by a raw system call and has not
/// allocated, starts a program by vfork: its memory is not taken for that of the program's process.
#[test]
fn a_child_of_a_raw_call_that_starts_a_program_first() {
    let scratch = Scratch::new();
    let (outcome, recording) = Job::fixture("vfork_in_raw_child", "").recorded(&scratch);
    assert_eq!(outcome.status, exited(5), "{outcome:?}");
    let child = recording.process(number(&outcome.printed_objects()[0], "child"));
    assert_eq!(child["exit"], json!({"code": 5}), "{recording:?}");
    let counts = ["allocations", "bytes_allocated", "frees"].map(|name| number(child, name));
    assert_eq!(counts, [7, 7000, 0], "{recording:?}");
}

/// A child leaves the rings to its parent. It has a ring for itself and one for its thread, and the
/// session's page.
#[test]
fn a_forked_child_does_not_keep_its_parents_rings() {
    let scratch = Scratch::new();
    let (outcome, recording) = Job::fixture("inherited_rings", "").recorded(&scratch);
    let told = &outcome.printed_objects()[0];
    assert_eq!((number(told, "parent"), number(told, "child")), (7, 3), "{outcome:?}");
    assert_eq!(recording.processes().len(), 2, "{recording:?}");
}

#[test]
fn fork_while_threads_allocate() {
    let scratch = Scratch::new();
    let (_, idle) = Job::fixture("fork_threads", "0").recorded(&scratch);
    let (outcome, recording) = Job::fixture("fork_threads", "100").recorded(&scratch);
    let told = &outcome.printed_objects()[0];
    assert_eq!(number(told, "bad"), 0, "{outcome:?}");
    recording.assert_whole().assert_adds_up();
    assert_eq!(recording.processes().len(), 101, "{:?}", recording.path);
    let children: Vec<_> =
        recording.processes().iter().filter(|process| process["exit"] == json!({"code": 5})).collect();
    assert_eq!(children.len(), 100, "{recording:?}");
    for child in children {
        let counts = ["allocations", "bytes_allocated", "blocks_live_end"].map(|name| number(child, name));
        assert_eq!(counts, [500, 500 * 48, 500], "{child:#} in {:?}", recording.path);
    }
    let parent = recording.processes().iter().find(|process| process["exit"] == json!({"code": 0})).unwrap();
    // The idle run's threads also allocate until they are stopped: only libc's share of it matters
    // here.
    let of_libc = idle.total("blocks_live_end");
    assert_eq!(number(parent, "frees"), number(told, "frees"), "{recording:?}");
    assert_eq!(number(parent, "blocks_live_end"), of_libc, "{recording:?}");
}

#[test]
fn every_way_to_start_a_program() {
    let scratch = Scratch::new();
    let told = program("execs");
    let ways = [
        "fork+execv",
        "fork+execve-cleared",
        "vfork+execv",
        "vfork+execve-cleared",
        "posix_spawn",
        "posix_spawn-cleared",
        "posix_spawnp",
        "system",
        "popen",
    ];
    for how in ways {
        let arguments = format!("{how} {} told something", told.display());
        let (outcome, recording) = Job::fixture("spawns", &arguments).both(&scratch);
        assert!(outcome.text().contains("code 21"), "{how}: {outcome:?}");
        recording.assert_whole();
        // The shell of `system` has the same words in its command line.
        let started = recording.processes().iter().find(|process| {
            process["command"].as_str().is_some_and(|command| command.starts_with(told.to_str().unwrap()))
        });
        let started = started.unwrap_or_else(|| panic!("{how}: the program is not in the recording: {recording:?}"));
        assert_eq!(started["exit"], json!({"code": 21}), "{how}: {recording:?}");
        // A child of vfork is not a separate process until it calls exec.
        let expected = if matches!(how, "system" | "popen") { 2..=3 } else { 2..=2 };
        assert!(expected.contains(&recording.processes().len()), "{how}: {recording:?}");
        assert!(
            number(started, "allocations") >= 7 && number(started, "bytes_allocated") >= 7000,
            "{how}: {started:#}"
        );
    }
    for how in ["vfork+failed", "posix_spawn-failed"] {
        let (_, recording) = Job::fixture("spawns", &format!("{how} -")).both(&scratch);
        assert_eq!(recording.assert_whole().processes().len(), 1, "{how}: {recording:?}");
    }
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn every_member_of_the_exec_family() {
    let scratch = Scratch::new();
    let execs = program("execs");
    let path = format!("{}:{}", execs.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let family = [
        "execl",
        "execle",
        "execlp",
        "execv",
        "execve",
        "execve-empty",
        "execve-null",
        "execve-environ",
        "execvp",
        "execvpe",
        "clearenv",
        "fexecve",
        "execveat",
        "after a failure",
    ];
    for how in family {
        let job = Job::new([execs.to_str().unwrap(), how]).variable("PATH", &path);
        let (outcome, recording) = job.both(&scratch);
        assert_eq!(outcome.status, exited(21), "{how}: {outcome:?}");
        recording.assert_whole();
        let [process] = recording.processes() else { panic!("{how}: {recording:?}") };
        assert_eq!(process["exit"], json!({"code": 21}), "{how}: {recording:?}");
        assert_eq!(process["images"].as_array().map(Vec::len), Some(2), "{how}: {recording:?}");
        // The first image's 100 blocks, the second's 7, and those that setenv and a thread need.
        assert!((107..=130).contains(&recording.total("allocations")), "{how}: {recording:?}");
    }
}

/// A shell runs a script that runs interpreters, one of them with an empty environment.
#[test]
fn a_chain_of_interpreters() {
    let (Some(perl), Some(python)) = (installed("perl"), installed("python3")) else { return };
    let scratch = Scratch::new();
    scratch.script(
        "script",
        format!(
            "#!/bin/sh\necho \"script: $*\"\n{perl} -e 'print \"perl: @ARGV\\n\"' a b\n\
             env -i {python} -c 'import os, sys; print(\"python:\", sys.argv, dict(os.environ).get(\"LD_PRELOAD\"))' c\n\
             (exit 3)\n",
            perl = perl.display(),
            python = python.display()
        ),
    );
    let (outcome, recording) =
        Job::new(["/bin/sh", "-c", "./script one two; exit $?"]).directory(scratch.path()).both(&scratch);
    assert_eq!(outcome.status, exited(3), "{outcome:?}");
    recording.assert_whole().assert_adds_up();
    for name in ["perl", "python"] {
        assert!(!recording.running(name).is_empty(), "{name}: {recording:?}");
    }
}

#[test]
fn a_pipeline() {
    let scratch = Scratch::new();
    let (_, recording) = Job::shell("seq 20000 | sort -rn | head -n 3; cat - | wc -c").stdin("input").both(&scratch);
    // head ends early, and a process that still writes to it dies of SIGPIPE.
    recording.assert_whole().assert_adds_up();
    assert!(!recording.running("sort").is_empty(), "{recording:?}");
}

#[test]
fn nothing_is_added_to_the_environment() {
    let scratch = Scratch::new();
    Job::fixture("environment", "").both(&scratch).1.assert_whole();
    Job::shell("env; sh -c env; env -i sh -c env").both(&scratch).1.assert_whole();
    // The libraries that the user preloads stay in place, and stay visible.
    let own = build("plugin_a", Build::Module);
    let line = format!("LD_PRELOAD={} {}", own.display(), program("environment").display());
    Job::shell(&line).both(&scratch).1.assert_whole();
    let (outcome, recording) = Job::fixture("environment", "").variable("LD_PRELOAD", &own).both(&scratch);
    assert!(outcome.text().contains(own.to_str().unwrap()), "{outcome:?}");
    recording.assert_whole();
}

/// A library that wraps the functions that start programs, and puts their arguments into the
/// program's environment, in vfork children too: it sees nothing of ours, and the programs that it
/// starts are recorded.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_wrapper_that_edits_the_environment() {
    let scratch = Scratch::new();
    let (edits, wrapper) = (program("edits"), build("wraps", Build::Module));
    for preloaded in [None, Some(&wrapper)] {
        let (mut job, mut bare) = (Job::fixture("edits", "20"), Job::fixture("edits", ""));
        if let Some(wrapper) = preloaded {
            job = job.variable("LD_PRELOAD", wrapper);
            bare = bare.variable("LD_PRELOAD", wrapper);
        }
        let (outcome, recording) = job.both(&scratch);
        assert!(outcome.status.success() && outcome.text().ends_with("done\n"), "{outcome:?}");
        recording.assert_whole();
        // Five children in each round, and one at the end.
        assert_eq!(recording.processes().len(), 102, "{recording:?}");
        assert!(!recording.running("env").is_empty(), "{recording:?}");
        let checked = [env!("CARGO_BIN_EXE_heapledger").as_ref(), "check".as_ref(), "--".as_ref(), edits.as_os_str()];
        let mut checked = Job::new(checked);
        if let Some(wrapper) = preloaded {
            checked = checked.variable("LD_PRELOAD", wrapper);
        }
        let (checked, bare) = (checked.bare(), bare.bare());
        assert_eq!((checked.status, checked.text()), (bare.status, bare.text()));
    }
}

/// mold's wrapper does this in g++, whose environment has grown by then.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn the_linker_mold() {
    let (Some(mold), Some(_)) = (installed("mold"), installed("g++")) else { return };
    let scratch = Scratch::new();
    scratch.write("hello.cpp", "#include <iostream>\nint main() { std::cout << \"hello\\n\"; }\n");
    let job = Job::new([mold.to_str().unwrap(), "-run", "g++", "hello.cpp", "-o", "hello"]).directory(scratch.path());
    let (outcome, recording) = job.both(&scratch);
    assert!(outcome.status.success(), "{outcome:?}");
    recording.assert_whole();
    for name in ["g++", "cc1plus", "collect2"] {
        assert!(!recording.running(name).is_empty(), "{name}: {recording:?}");
    }
    assert_eq!(Job::new([scratch.file("hello")]).bare().text(), "hello\n");
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn programs_started_by_several_threads() {
    let scratch = Scratch::new();
    let (outcome, recording) = Job::fixture("spawn_threads", "20").both(&scratch);
    assert_eq!(outcome.text(), "bad 0, seen during 0, after 0\n");
    recording.assert_whole().assert_adds_up();
    for code in [3, 4, 5] {
        let found = recording.processes().iter().filter(|process| process["exit"] == json!({"code": code})).count();
        assert_eq!(found, 40, "exit code {code}: {}", recording.path.display());
    }
}

/// A static program cannot be recorded; it must still run, and so must the programs after it.
#[test]
fn a_static_program() {
    let scratch = Scratch::new();
    let fixed = build("limits", Build::Static);
    Job::new([fixed.as_os_str(), "none".as_ref(), "0".as_ref()]).both(&scratch);
    let line = format!("{} none 0; {} told", fixed.display(), program("execs").display());
    let (_, recording) = Job::shell(&line).both(&scratch);
    assert_eq!(recording.assert_whole().running("told").len(), 2, "the shell, and the program after: {recording:?}");
}

/// Nothing in a static program removes additions to its environment, so nothing may be added.
#[test]
fn nothing_is_added_to_the_environment_of_a_static_program() {
    let scratch = Scratch::new();
    let fixed = build("environment", Build::Static);
    Job::new([&fixed]).both(&scratch);
    Job::shell(&format!("{}; true", fixed.display())).both(&scratch);
}

#[test]
fn a_daemon_that_outlives_the_recording() {
    let scratch = Scratch::new();
    let (done, go) = (scratch.file("done"), scratch.file("go"));
    let job = Job::fixture("daemon", &format!("{} {} 1000", done.display(), go.display()));
    let (outcome, recording) = job.recorded(&scratch);
    assert!(outcome.status.success() && !done.exists(), "record waited for the daemon: {outcome:?}");
    assert!(recording.running("daemon").iter().any(|process| process["exit"].is_null()), "{recording:?}");
    fs::write(&go, "").unwrap();
    wait_until("the daemon is done", || fs::read(&done).is_ok_and(|bytes| bytes == b"done, descriptor 0\n"));

    fs::remove_file(&done).unwrap();
    fs::remove_file(&go).unwrap();
    let (file, ends) = (scratch.file("waited.hl"), scratch.file("ends"));
    let line = format!("\"$PROGRAMS/daemon\" {} {} 1000; : > {}", done.display(), go.display(), ends.display());
    let running = Job::shell(&line).option("--wait").start(Some(&file));
    wait_until("the command is at its end", || ends.exists());
    fs::write(&go, "").unwrap();
    let outcome = running.outcome();
    assert!(outcome.status.success(), "{outcome:?}");
    assert_eq!(fs::read_to_string(&done).unwrap(), "done, descriptor 0\n");
    let recording = Recording::open(file);
    recording.assert_whole();
    let daemon = recording.processes().last().unwrap();
    assert_eq!((number(daemon, "allocations"), number(daemon, "blocks_live_end")), (1000, 500), "{recording:?}");
}

/// The session's peak is that of the sum over the processes that were alive at the same time.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn the_peak_of_a_session() {
    let scratch = Scratch::new();
    program("tower");
    let peak = |line: &str| {
        let (_, recording) = Job::shell(line).both(&scratch);
        recording.assert_whole().total("bytes_live_max")
    };
    let one_by_one = peak("\"$PROGRAMS/tower\" 50000000 0; \"$PROGRAMS/tower\" 50000000 0");
    assert!((50_000_000..60_000_000).contains(&one_by_one), "{one_by_one}");
    let at_once = peak("\"$PROGRAMS/tower\" 50000000 500 & \"$PROGRAMS/tower\" 50000000 500 & wait");
    assert!((100_000_000..110_000_000).contains(&at_once), "{at_once}");
}

/// A thousand processes, one after the other and some at the same time.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn many_processes() {
    let scratch = Scratch::new();
    program("dies");
    let line =
        "i=0; while [ $i -lt 100 ]; do for j in 1 2 3; do \"$PROGRAMS/dies\" 50 return & done; wait; i=$((i+1)); done";
    let (_, recording) = Job::shell(line).both(&scratch);
    recording.assert_whole().assert_adds_up();
    let children: Vec<_> =
        recording.processes().iter().filter(|process| process["exit"] == json!({"code": 7})).collect();
    assert_eq!(children.len(), 300, "{}", recording.path.display());
    assert!(children.iter().all(|child| number(child, "allocations") >= 50), "{}", recording.path.display());
    assert!(Path::new(&recording.path).exists());
}

/// A program finds the bridge through a weak reference, and its declarations are in the recording.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn markers_through_the_bridge() {
    let scratch = Scratch::new();
    let (_, recording) = Job::fixture("bridge", "").both(&scratch);
    let info = recording.assert_whole().ask("info", &[]);
    let annotations = info["annotations"].as_array().unwrap();
    let told: Vec<_> = annotations.iter().map(|one| (one["code"].as_i64().unwrap(), one["text"].as_str())).collect();
    assert_eq!(told, [(262, Some("warmed up")), (4000, None)], "{recording:?}");
}
