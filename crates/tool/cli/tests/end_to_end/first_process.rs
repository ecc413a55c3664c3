//! The recorder as process 1 of a container: it inherits orphans, and receives the signals.

use std::fs;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::harness::{HEAPLEDGER, Job, Recording, Running, Scratch, exited, installed, skipped, wait_until};

const ALONE: [&str; 4] = ["unshare", "--pid", "--fork", "--mount-proc"];

/// False if pid namespaces are not available; prints why.
fn has_namespaces() -> bool {
    if installed("unshare").is_none() {
        return false;
    }
    let is_permitted = Job::new(ALONE).argument("true").bare().status.success();
    if !is_permitted {
        skipped("no pid namespace can be made here");
    }
    is_permitted
}

/// Runs a line of the shell, recorded by process 1 of a pid namespace.
fn alone(file: &Path, line: &str) -> Job {
    let record = [HEAPLEDGER, "record", "--quiet", "-o", file.to_str().unwrap(), "--", "/bin/sh", "-c", line];
    Job::new(ALONE.iter().chain(&record))
}

/// Returns the pid of the recorder, in our namespace.
fn recorder(running: &Running) -> Pid {
    let pid = running.pid().as_raw_nonzero();
    let children = format!("/proc/{pid}/task/{pid}/children");
    let child = || fs::read_to_string(&children).ok()?.split_whitespace().next()?.parse().ok();
    wait_until("the recorder is there", || child().is_some());
    Pid::from_raw(child().unwrap()).unwrap()
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn the_first_process_ends_as_its_command_does() {
    let scratch = Scratch::new();
    if !has_namespaces() {
        return;
    }
    // Process 1 cannot be killed by its own signals.
    for (name, line, status) in
        [("code", "exit 7", 7), ("killed", "kill -KILL $$", 137), ("faulted", "kill -SEGV $$", 139)]
    {
        let file = scratch.file(&format!("{name}.hl"));
        let outcome = alone(&file, line).bare();
        assert_eq!(outcome.status, exited(status), "{line}: {outcome:?}");
        Recording::open(file).assert_whole();
    }
}

#[test]
fn the_first_process_reaps_orphans() {
    let scratch = Scratch::new();
    if !has_namespaces() {
        return;
    }
    let file = scratch.file("recording.hl");
    // A zombie has a directory of its own until it is reaped.
    let line = "( /bin/sh -c 'echo $$ > pid.new; mv pid.new pid; exit 3' & )\n\
                until [ -e pid ]; do sleep 0.01; done\n\
                while [ -e /proc/$(cat pid) ]; do sleep 0.01; done\n\
                echo reaped $(cat pid); exit 6";
    let outcome = alone(&file, line).directory(scratch.path()).bare();
    let orphan: i64 =
        outcome.text().trim_start_matches("reaped ").trim().parse().unwrap_or_else(|_| panic!("{outcome:?}"));
    assert_eq!(outcome.status, exited(6), "{outcome:?}");
    let recording = Recording::open(file);
    recording.assert_whole();
    // Kernels before 6.15 do not tell how children of other processes ended.
    let exit = &recording.process(orphan)["exit"];
    assert!(exit.is_null() || *exit == json!({"code": 3}), "{recording:?}");
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn the_first_process_passes_signals_on() {
    let scratch = Scratch::new();
    if !has_namespaces() {
        return;
    }
    for (name, signal) in
        [("TERM", Signal::TERM), ("INT", Signal::INT), ("QUIT", Signal::QUIT), ("WINCH", Signal::WINCH)]
    {
        let (file, mark) = (scratch.file(&format!("{name}.hl")), scratch.file(name));
        let line =
            format!("trap 'echo got {name}; exit 9' {name}; : > '{}'; while :; do sleep 0.05; done", mark.display());
        let running = alone(&file, &line).start_bare();
        wait_until("the shell has set its trap", || mark.exists());
        kill_process(recorder(&running), signal).unwrap();
        let outcome = running.outcome();
        assert_eq!((outcome.status, outcome.text()), (exited(9), format!("got {name}\n")), "{outcome:?}");
        Recording::open(file).assert_whole();
    }
    // A command that does not handle the signal dies of it.
    let (file, mark) = (scratch.file("default.hl"), scratch.file("default"));
    let running = alone(&file, &format!(": > '{}'; exec sleep 100", mark.display())).start_bare();
    wait_until("the command runs", || mark.exists());
    kill_process(recorder(&running), Signal::TERM).unwrap();
    let outcome = running.outcome();
    assert_eq!(outcome.status, exited(143), "{outcome:?}");
    Recording::open(file).assert_whole();
}
