//! The last snapshot of a program that ends by itself, and those of programs that are attached to,
//! statically linked, or for musl. Nothing is read at the exits of those that have no preload
//! library.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Signal, kill_process};
use serde_json::Value;

use super::recorded::{adds_up, row};
use crate::armed::{id, succeeded};
use crate::harness::*;
use crate::static_programs::static_with_musl;

const STATUS: i32 = 7;
const KEPT: i64 = 1000;
/// The number of blocks that the handler of the exit leaves.
const LEFT: i64 = 800;

/// Records a program that waits as long as it takes. Returns its last snapshot.
fn last(program: &Path, how: &str, scratch: &Scratch) -> (Outcome, Value) {
    let job = Job::new([program.as_os_str(), how.as_ref()]).option("--resident-exit=60s");
    let (outcome, recording) = job.recorded(scratch);
    assert_eq!(outcome.text(), "kept\n");
    let answer = recording.ask("rss", &["--at", "end", "--by", "function", "-n", "0"]);
    adds_up(&answer);
    (outcome, answer)
}

/// Checks that the last snapshot is that of the exit, when so many blocks were live.
#[track_caller]
fn is_of_exit(answer: &Value, blocks: i64) {
    assert_eq!(answer["cause"], "the program ended", "{answer:#}");
    let snapshots = answer["snapshots"].as_array().unwrap();
    let ends = snapshots.iter().filter(|snapshot| snapshot["cause"] == "the program ended").count();
    assert_eq!(ends, 1, "{answer:#}");
    let keep = row(answer, "keep");
    assert_eq!((number(keep, "blocks"), number(keep, "bytes_resident")), (blocks, blocks * 4000), "{answer:#}");
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_program_that_ends_is_read_last() {
    let scratch = Scratch::new();
    let program = program("exits");
    let of_way =
        [("return", LEFT), ("_exit", KEPT), ("_Exit", KEPT), ("thread", LEFT), ("vfork", LEFT), ("descriptors", LEFT)];
    for (how, blocks) in of_way {
        let (outcome, answer) = last(&program, how, &scratch);
        assert_eq!(outcome.status, exited(STATUS), "{how}: {outcome:?}");
        is_of_exit(&answer, blocks);
        if answer["knows_zeroes"] == true && how != "thread" {
            assert_eq!(number(&answer, "bytes_difference"), 0, "{how}: {answer:#}");
        }
    }
    if installed("musl-gcc").is_some() {
        let (outcome, answer) = last(&build("exits", Build::Musl), "return", &scratch);
        assert_eq!(outcome.status, exited(STATUS), "{outcome:?}");
        is_of_exit(&answer, LEFT);
    }
}

/// The exit of a statically linked program is left alone, by whatever way it ends.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn exits_of_static_programs_are_left_alone() {
    let scratch = Scratch::new();
    let musl = installed("musl-gcc").map(|_| static_with_musl("exits"));
    for program in [build("exits", Build::Static)].into_iter().chain(musl) {
        for how in ["return", "_exit", "_Exit", "thread", "vfork", "descriptors"] {
            let job = Job::new([program.as_os_str(), how.as_ref()]).option("--resident-exit=60s");
            let (outcome, recording) = job.recorded(&scratch);
            assert_eq!((outcome.status, outcome.text().as_str()), (exited(STATUS), "kept\n"), "{how}: {outcome:?}");
            assert!(recording.total("allocations") >= KEPT, "{recording:?}");
            let answer = heapledger(["rss", recording.path.to_str().unwrap(), "--json"]);
            assert!(!answer.text().contains("the program ended"), "{how}: {}", answer.text());
        }
    }
}

/// So is that of a program that is attached to.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn the_exit_of_an_attached_program_is_left_alone() {
    let scratch = Scratch::new();
    let mut command = Command::new(program("exits"));
    let mut waiting = command.arg("waits").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(waiting.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "kept\n");
    let pid = waiting.id().to_string();
    let file = scratch.file("attached.hl");
    let words = [HEAPLEDGER, "record", "--pid", &pid, "--resident-exit=60s", "--names", "none", "-o"].map(OsStr::new);
    let recorder = Job::new(words.into_iter().chain([file.as_os_str()])).start_bare();
    wait_until("the recorder is ready", || heapledger(["status", &*pid]).status == exited(0));
    drop(waiting.stdin.take());
    assert_eq!(waiting.wait().unwrap(), exited(STATUS));
    succeeded(&recorder.outcome());
    let answer = heapledger(["rss", file.to_str().unwrap(), "--json"]);
    assert!(!answer.text().contains("the program ended"), "{}", answer.text());
}

/// Nothing is read after a fatal signal, and nothing if that is not wanted.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn programs_that_are_not_read_last() {
    let scratch = Scratch::new();
    let causes = |how: &str, option: &str| {
        let (outcome, recording) = Job::fixture("exits", how).option(option).recorded(&scratch);
        let answer = heapledger(["rss", recording.path.to_str().unwrap(), "--json"]);
        (outcome.status, answer.text())
    };
    let (status, answer) = causes("signal", "--resident-exit=60s");
    assert_eq!(status.signal().or(status.code().map(|code| code - 128)), Some(Signal::TERM.as_raw()));
    assert!(!answer.contains("the program ended"), "{answer}");
    for option in ["--no-resident", "--resident-exit=0"] {
        let (status, answer) = causes("return", option);
        assert_eq!(status, exited(STATUS));
        assert!(!answer.contains("the program ended"), "{answer}");
    }
}

/// A recorder that stands still is not waited for.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_stopped_recorder_does_not_keep_a_program() {
    let scratch = Scratch::new();
    program("exits");
    let [status, fifo, kept] = ["status", "fifo", "kept"].map(|name| scratch.file(name));
    // Nothing is started once the recorder has been stopped.
    let line = format!(
        "mkfifo {}; \"$PROGRAMS/exits\" waits < {} > {}; echo $? > {}",
        fifo.display(),
        fifo.display(),
        kept.display(),
        status.display()
    );
    let file = scratch.file("recording.hl");
    let running = Job::shell(&line).option("--resident-exit=600s").option("--stall-timeout=never").start(Some(&file));
    let has = |path: &Path, text: &str| fs::read_to_string(path).is_ok_and(|content| content == text);
    wait_until("the shell waits for a writer", || fifo.exists());
    let writer = fs::OpenOptions::new().write(true).open(&fifo).unwrap();
    wait_until("the program has allocated", || has(&kept, "kept\n"));
    kill_process(running.pid(), Signal::STOP).unwrap();
    drop(writer);
    wait_until("the program has ended without its recorder", || has(&status, &format!("{STATUS}\n")));
    kill_process(running.pid(), Signal::CONT).unwrap();
    assert_eq!(running.outcome().status, exited(0));
}

/// Programs that are attached to have the snapshots that the options ask for.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn programs_that_are_attached_to() {
    let scratch = Scratch::new();
    let running = Job::fixture("armed", &format!("{} 2", scratch.path().display())).start_bare();
    let pid = id(&running);
    for (cycle, option) in ["--resident-every=10ms", "--no-resident"].iter().enumerate() {
        wait_until("the program is ready", || scratch.file(&format!("ready.{cycle}")).exists());
        let file = scratch.file(&format!("{cycle}.hl"));
        let words = [HEAPLEDGER, "record", "--pid", &pid, option, "--names", "none", "-o"].map(OsStr::new);
        let recorder = Job::new(words.into_iter().chain([file.as_os_str()])).start_bare();
        wait_until("the recorder is ready", || heapledger(["status", &*pid]).status == exited(0));
        scratch.write(&format!("go.{cycle}"), "");
        wait_until("the program has allocated", || scratch.file(&format!("did.{cycle}")).exists());
        if cycle == 0 {
            // A snapshot takes its time; the last one is made when the recording ends.
            let asked = heapledger(["rss", &*pid, "--by", "function", "--json"]);
            assert!(asked.status.success(), "{asked:?}");
        }
        succeeded(&heapledger(["stop", &*pid]));
        succeeded(&recorder.outcome());
        scratch.write(&format!("over.{cycle}"), "");
        let outcome = heapledger(["rss", file.to_str().unwrap(), "--at", "end", "--json"]);
        if cycle == 0 {
            let answer: Value = crate::documents::read(&outcome.stdout);
            adds_up(&answer);
            assert!(answer["snapshots"].as_array().unwrap().len() >= 2, "{answer:#}");
            assert_eq!(answer["process"].to_string(), pid);
        } else {
            assert!(String::from_utf8_lossy(&outcome.stderr).contains("HL0129"), "{outcome:?}");
        }
    }
    succeeded(&running.outcome());
}

/// A statically linked program has snapshots.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn statically_linked_programs() {
    let scratch = Scratch::new();
    let program = build("fragmented", Build::Static);
    let options = ["--resident-exit=60s", "--resident-every=50ms"];
    let recorded = super::recorded::Recorded::begin(&scratch, &options, &[program.to_str().unwrap()]);
    let kept = recorded.waiting.numbers("kept ")[0] as i64;
    let file = scratch.file("recorded.hl");
    let is_there = || {
        let answer = heapledger(["rss", file.to_str().unwrap(), "--at", "end", "--by", "function", "--json"]);
        answer.status.success() && {
            let answer: Value = crate::documents::read(&answer.stdout);
            let rows = answer["rows"].as_array().unwrap();
            rows.iter().any(|row| row["function"] == "keep" && number(row, "blocks") == kept)
        }
    };
    wait_until("there is a snapshot of all blocks", is_there);
    recorded.end();
}
