//! What is written for other tools, as these tools read it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{HEAPLEDGER, Job, Recording, Scratch, heapledger, installed, number};

/// The recording in pprof's format.
fn exported(scratch: &Scratch, recording: &Recording, options: &[&str]) -> PathBuf {
    let file = scratch.file("profile.pb.gz");
    let words = [OsStr::new("export"), recording.path.as_os_str(), OsStr::new("--to"), OsStr::new("pprof")];
    let output = [OsStr::new("-o"), file.as_os_str()];
    let outcome = heapledger(words.into_iter().chain(options.iter().map(OsStr::new)).chain(output));
    assert!(outcome.status.success(), "{outcome:?}");
    file
}

fn pprof(options: &[&str], file: &Path) -> String {
    let done = Command::new("go").args(["tool", "pprof"]).args(options).arg(file).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

/// A sample of `go tool pprof -raw`.
struct Sample {
    values: [i64; 4],
    locations: Vec<usize>,
    /// The line below it.
    labels: String,
}

fn samples(raw: &str) -> Vec<Sample> {
    let lines = raw.lines().skip_while(|line| !line.starts_with("alloc_objects/count ")).skip(1);
    let mut samples: Vec<Sample> = Vec::new();
    for line in lines.take_while(|line| *line != "Locations") {
        if !line.trim_start().starts_with(|first: char| first.is_ascii_digit()) {
            samples.last_mut().unwrap_or_else(|| panic!("{line}")).labels.push_str(line.trim());
            continue;
        }
        let (values, locations) = line.split_once(':').unwrap_or_else(|| panic!("{line}"));
        let values: Vec<i64> = values.split_whitespace().map(|value| value.parse().unwrap()).collect();
        let locations = locations.split_whitespace().map(|id| id.parse().unwrap()).collect();
        samples.push(Sample { values: values.try_into().unwrap(), locations, labels: String::new() });
    }
    samples
}

#[test]
fn pprof_counts_what_we_count() {
    if installed("go").is_none() {
        return;
    }
    let scratch = Scratch::new();
    for (job, at) in [
        (Job::fixture("mix_threads", "3000"), "peak"),
        (Job::fixture("forks", ""), "end"),
        (Job::shell("ls | cat"), "peak"),
    ] {
        let (_, recording) = job.recorded(&scratch);
        let file = exported(&scratch, &recording, &["--at", at]);
        let raw = pprof(&["-raw"], &file);
        let sums =
            samples(&raw).iter().fold([0; 4], |sums, sample| std::array::from_fn(|at| sums[at] + sample.values[at]));
        let live = match at {
            "peak" => ["blocks_at_bytes_live_max", "bytes_live_max"],
            _ => ["blocks_live_end", "bytes_live_end"],
        };
        let [blocks, bytes] = live.map(|name| recording.total(name));
        let expected = [recording.total("allocations"), recording.total("bytes_allocated"), blocks, bytes];
        assert_eq!(sums, expected, "{recording:?}\n{raw}");
        // What is shown unless something else is asked for.
        let top = pprof(&["-top", "-unit=B"], &file);
        assert!(top.contains("Type: inuse_space") && top.contains(&format!("Total samples = {bytes}B")), "{top}");
    }
}

/// A Rust program with inlined functions: each place with all that was inlined there, each module with its build id.
#[test]
fn pprof_shows_inlined_functions_and_modules() {
    if installed("go").is_none() {
        return;
    }
    let scratch = Scratch::new();
    let (_, recording) = Job::fixture("growth", "50").recorded(&scratch);
    let raw = pprof(&["-raw"], &exported(&scratch, &recording, &[]));
    let info = recording.ask("info", &[]);
    let program = info["modules"]
        .as_array()
        .unwrap()
        .iter()
        .find(|module| module["path"].as_str().is_some_and(|path| path.ends_with("/growth")));
    let build_id = program.unwrap_or_else(|| panic!("{info:#}"))["build_id"].as_str().unwrap_or_default();
    let mappings: Vec<&str> = raw.lines().skip_while(|line| *line != "Mappings").skip(1).collect();
    // The program is the first; all its addresses have names, files, lines, and inlined functions.
    assert!(
        mappings[0].starts_with("1: ") && mappings[0].contains("/growth") && mappings[0].contains(build_id),
        "{raw}"
    );
    assert!(mappings[0].ends_with("[FN][FL][LN][IN]"), "{raw}");
    // A line without a number goes on with the place before: what was inlined is above what it was inlined into.
    let places = raw.lines().skip_while(|line| *line != "Locations").skip(1).take_while(|line| *line != "Mappings");
    let inlined = places.filter(|line| !line.contains(": 0x")).count();
    assert!(inlined > 0, "{raw}");
    let top = recording.ask("top", &["-n", "1"]);
    let first = &top["rows"][0];
    let shown = pprof(&["-top", "-unit=B", "-nodecount=1", "-nodefraction=0"], &exported(&scratch, &recording, &[]));
    let row = shown.lines().last().unwrap();
    let (bytes, name) = (number(first, "bytes"), first["function"].as_str().unwrap());
    assert!(row.trim_start().starts_with(&format!("{bytes}B ")) && row.contains(name), "{row}: {first:#}");
}

/// Stacks do not end in the allocator's functions; those that are equal without them are one.
#[test]
fn pprof_without_the_allocator() {
    if installed("go").is_none() || installed("c++").is_none() {
        return;
    }
    let scratch = Scratch::new();
    let (_, recording) = Job::fixture("operators", "100").recorded(&scratch);
    let raw = pprof(&["-raw"], &exported(&scratch, &recording, &[]));
    assert!(!raw.contains("operator new"), "{raw}");
    let mut stacks: Vec<_> = samples(&raw).into_iter().map(|sample| (sample.locations, sample.labels)).collect();
    let all = stacks.len();
    stacks.sort();
    stacks.dedup();
    assert_eq!(stacks.len(), all, "{raw}");
}

#[test]
fn to_stdout_and_to_nowhere() {
    let scratch = Scratch::new();
    let (_, recording) = Job::fixture("mix", "100").recorded(&scratch);
    let export = |output: &str| {
        let words = [HEAPLEDGER, "export", "--to", "pprof", "-o", output, recording.path.to_str().unwrap()];
        Job::new(words).bare()
    };
    let outcome = export("-");
    assert!(outcome.status.success() && outcome.stdout.starts_with(&[0x1f, 0x8b]), "{outcome:?}");
    let outcome = export("/nonexistent/file");
    let told = String::from_utf8_lossy(&outcome.stderr);
    assert!(outcome.status.code() == Some(1) && told.contains("cannot write `/nonexistent/file`"), "{outcome:?}");
    let outcome = heapledger(["export", "--to", "no-such-format", "-o", "x"]);
    assert!(String::from_utf8_lossy(&outcome.stderr).contains("pprof"), "{outcome:?}");
}
