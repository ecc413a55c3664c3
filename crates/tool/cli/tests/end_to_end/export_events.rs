//! Formats with a timeline, or with every allocation and free, as their tools read them.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::harness::{HEAPLEDGER, Job, Outcome, Recording, Scratch, heapledger, installed, number};

/// Exports the recording in another format.
fn exported(
    scratch: &Scratch,
    recording: &Recording,
    format: &str,
    name: &str,
    options: &[&str],
) -> (PathBuf, Outcome) {
    let (file, from) = (scratch.file(name), recording.path.to_str().unwrap());
    let words = ["export", "--force", from, "--to", format, "-o", file.to_str().unwrap()];
    let outcome = heapledger(words.iter().chain(options));
    assert!(outcome.status.success(), "{outcome:?}");
    (file, outcome)
}

fn stderr_of(outcome: &Outcome) -> String {
    String::from_utf8_lossy(&outcome.stderr).into_owned()
}

/// Returns an exact sum of `heaptrack_print`: its printed sums are rounded, except in flame graphs.
fn heaptrack(scratch: &Scratch, file: &Path, what: &str) -> i64 {
    let lines = scratch.file("heaptrack.lines");
    let done = Command::new("heaptrack_print")
        .args(["--disable-builtin-suppressions", "--flamegraph-cost-type", what, "-F"])
        .arg(&lines)
        .arg(file)
        .output()
        .unwrap();
    let complaint = String::from_utf8_lossy(&done.stderr);
    assert!(
        done.status.success() && !complaint.contains("fail") && !complaint.contains("out of bounds"),
        "{complaint}"
    );
    let lines = fs::read_to_string(lines).unwrap();
    lines.lines().map(|line| line.rsplit(' ').next().unwrap().parse::<i64>().unwrap()).sum()
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn heaptrack_counts_what_we_count() {
    if installed("heaptrack_print").is_none() {
        return;
    }
    let scratch = Scratch::new();
    for (job, name) in [
        (Job::fixture("mix", "3000"), "run.txt"),
        (Job::fixture("temporary", "20"), "run.zst"),
        (Job::fixture("mix_threads", "300"), "run.gz"),
        (Job::shell("ls | cat"), "run.zst"),
    ] {
        let (_, recording) = job.recorded(&scratch);
        let (file, outcome) = exported(&scratch, &recording, "heaptrack", name, &[]);
        let sum = |what| heaptrack(&scratch, &file, what);
        assert_eq!(sum("allocations"), recording.total("allocations"), "{recording:?}");
        if recording.processes().len() == 1 {
            assert_eq!(sum("peak"), recording.total("bytes_live_max"), "{recording:?}");
            assert_eq!(sum("leaked"), recording.total("bytes_live_end"), "{recording:?}");
        } else {
            assert!(stderr_of(&outcome).contains("live when a process was over"), "{outcome:?}");
        }
        // Each thread may have had one that was live at the peak, or when a time was written.
        let (temporaries, expected) = (sum("temporary"), recording.total("temporary_allocations"));
        let threads = recording.processes().iter().map(|process| number(process, "threads")).sum::<i64>();
        let missed = expected - temporaries;
        assert!(
            if threads == 1 { missed == 0 } else { (0..=3 * threads).contains(&missed) },
            "{missed}: {recording:?}"
        );
    }
}

/// The live blocks at a time, and those that one function has allocated.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn heaptrack_shows_a_part_of_what_happened() {
    if installed("heaptrack_print").is_none() {
        return;
    }
    let scratch = Scratch::new();
    let (_, recording) = Job::fixture("growth", "50").recorded(&scratch);
    for options in [&["--at", "peak"][..], &["--at", "1ms"], &["--size", "..100"]] {
        let (file, _) = exported(&scratch, &recording, "heaptrack", "part.zst", options);
        let question = if options[0] == "--at" { options.to_vec() } else { [options, &["--at", "end"]].concat() };
        let expected = recording.ask("top", &question);
        assert_eq!(
            heaptrack(&scratch, &file, "leaked"),
            number(&expected["total"], "bytes"),
            "{options:?}: {expected:#}"
        );
    }
}

/// True if `ms_print` shows a snapshot with these bytes by stack.
fn detailed(shown: &str, bytes: i64) -> bool {
    let with_commas = |number: i64| {
        let digits = number.to_string();
        let groups: Vec<&str> =
            digits.as_bytes().rchunks(3).rev().map(|group| str::from_utf8(group).unwrap()).collect();
        groups.join(",")
    };
    shown.contains(&format!("({}B) (heap allocation functions)", with_commas(bytes)))
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn ms_print_shows_peak_and_end() {
    if installed("ms_print").is_none() {
        return;
    }
    let scratch = Scratch::new();
    for job in [Job::fixture("growth", "50"), Job::fixture("mix_threads", "300"), Job::shell("ls | cat")] {
        let (_, recording) = job.recorded(&scratch);
        let (file, _) = exported(&scratch, &recording, "massif", "massif.out", &[]);
        let done = Command::new("ms_print").arg(&file).output().unwrap();
        assert!(done.status.success() && done.stderr.is_empty(), "{}", String::from_utf8_lossy(&done.stderr));
        let shown = String::from_utf8(done.stdout).unwrap();
        assert!(shown.contains(" (peak)"), "{shown}");
        assert!(shown.matches("(heap allocation functions)").count() > 2, "{shown}");
        assert!(detailed(&shown, recording.total("bytes_live_max")), "{recording:?}{shown}");
        assert!(detailed(&shown, recording.total("bytes_live_end")), "{recording:?}{shown}");
        // The root of a tree has the bytes of its children.
        let text = fs::read_to_string(&file).unwrap();
        let bytes = |line: &str| -> i64 { line.split_whitespace().nth(1).unwrap().parse().unwrap() };
        let lines: Vec<&str> = text.lines().collect();
        for (at, root) in lines.iter().enumerate().filter(|(_, line)| line.contains("(heap allocation functions)")) {
            let tree = lines[at + 1..].iter().take_while(|line| line.starts_with(' '));
            let first_level = tree.filter(|line| !line.starts_with("  "));
            assert_eq!(first_level.map(|line| bytes(line)).sum::<i64>(), bytes(root), "{text}");
        }
    }
}

#[test]
fn massif_shows_a_moment() {
    let scratch = Scratch::new();
    let (_, recording) = Job::fixture("growth", "50").recorded(&scratch);
    let (file, _) = exported(&scratch, &recording, "massif", "massif.out", &["--at", "1ms"]);
    let expected = number(&recording.ask("top", &["--at", "1ms"])["total"], "bytes");
    let text = fs::read_to_string(file).unwrap();
    let snapshot = format!("time=1\nmem_heap_B={expected}\nmem_heap_extra_B=0\nmem_stacks_B=0\nheap_tree=detailed\n");
    assert!(text.contains(&snapshot), "{snapshot}{text}");
}

/// Returns the bytes that are retained at the profile's end, for each process.
fn retained(profile: &Value) -> HashMap<i64, i64> {
    let threads = profile["threads"].as_array().unwrap();
    let sum = |thread: &Value| {
        let weights = thread["nativeAllocations"]["weight"].as_array().unwrap();
        weights.iter().map(|weight| weight.as_i64().unwrap()).sum()
    };
    threads.iter().map(|thread| (thread["pid"].as_str().unwrap().parse().unwrap(), sum(thread))).collect()
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn firefox_profiles_retain_what_is_live() {
    let scratch = Scratch::new();
    let (_, recording) = Job::fixture("forks", "").recorded(&scratch);
    let (file, _) = exported(&scratch, &recording, "firefox", "run.json", &[]);
    let profile: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let live = recording.processes().iter().map(|process| (number(process, "pid"), number(process, "bytes_live_end")));
    assert_eq!(retained(&profile), live.collect(), "{recording:?}");
    // Each process has a counter, which ends with the bytes that are live just before it ends.
    assert_eq!(profile["counters"].as_array().map(Vec::len), Some(recording.processes().len()));
    let (file, outcome) = exported(&scratch, &recording, "firefox", "few.json", &["--blocks-max", "10"]);
    let few: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    assert_eq!(retained(&few), retained(&profile));
    assert!(stderr_of(&outcome).contains("more than 10 blocks"), "{outcome:?}");
}

#[test]
fn events_that_there_are_not() {
    let scratch = Scratch::new();
    let (_, recording) = Job::fixture("mix", "100").option("--aggregate").recorded(&scratch);
    let path = recording.path.to_str().unwrap();
    let outcome = heapledger(["export", path, "--to", "heaptrack", "-o", scratch.file("x.zst").to_str().unwrap()]);
    assert!(outcome.status.code() == Some(2) && stderr_of(&outcome).contains("--aggregate"), "{outcome:?}");
    assert!(!scratch.file("x.zst").exists());
    // The file has the live bytes over time, and at the peak.
    let (file, _) = exported(&scratch, &recording, "massif", "massif.out", &[]);
    let text = fs::read_to_string(file).unwrap();
    assert!(text.contains(&format!("mem_heap_B={}\n", recording.total("bytes_live_max"))), "{text}");
}

#[test]
fn a_full_device_is_an_error() {
    let scratch = Scratch::new();
    let (_, recording) = Job::fixture("mix", "3000").recorded(&scratch);
    let words = [HEAPLEDGER, "export", "--to", "heaptrack", "-o", "/dev/full", recording.path.to_str().unwrap()];
    let outcome = Job::new(words).bare();
    assert!(
        outcome.status.code() == Some(1) && stderr_of(&outcome).contains("cannot write `/dev/full`"),
        "{outcome:?}"
    );
}
