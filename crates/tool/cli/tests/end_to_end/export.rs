//! Exports for other tools, as these tools read them.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::{fs, iter};

use serde_json::Value;

use crate::harness::{HEAPLEDGER, Job, Recording, Scratch, heapledger, installed, number};

/// Exports the recording in a format; returns the file and the messages.
pub(crate) fn exported(scratch: &Scratch, recording: &Recording, to: &str, options: &[&str]) -> (PathBuf, String) {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    // Some readers depend on the extension.
    let extension = match to {
        "pprof" => "pb.gz",
        "dhat" => "dhat.json",
        "collapsed" => "txt",
        "flamegraph" => "svg",
        "speedscope" => "speedscope.json",
        other => other,
    };
    let file = scratch.file(&format!("{}.{extension}", NUMBER.fetch_add(1, Ordering::Relaxed)));
    let words = [OsStr::new("export"), recording.path.as_os_str(), OsStr::new("--to"), OsStr::new(to)];
    let output = [OsStr::new("-o"), file.as_os_str()];
    let outcome = heapledger(words.into_iter().chain(options.iter().map(OsStr::new)).chain(output));
    assert!(outcome.status.success(), "{outcome:?}");
    (file, String::from_utf8(outcome.stderr).unwrap())
}

/// Returns the output of `go tool pprof`.
fn pprof(options: &[&str], file: &Path) -> String {
    let done = Command::new("go").args(["tool", "pprof"]).args(options).arg(file).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

/// A sample of `go tool pprof -raw`.
struct Sample {
    values: [i64; 4],
    locations: Vec<usize>,
    /// The line below the sample.
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
#[ignore = "it takes long; `.ci/run` runs it"]
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
        let (file, _) = exported(&scratch, &recording, "pprof", &["--at", at]);
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
        // The default sample type.
        let top = pprof(&["-top", "-unit=B"], &file);
        assert!(top.contains("Type: inuse_space") && top.contains(&format!("Total samples = {bytes}B")), "{top}");
        // The same without names, which pprof would look up now.
        let (file, told) = exported(&scratch, &recording, "gperftools", &["--at", at]);
        let raw = pprof(&["-raw", "-symbolize=none"], &file);
        let sums =
            samples(&raw).iter().fold([0; 4], |sums, sample| std::array::from_fn(|at| sums[at] + sample.values[at]));
        assert_eq!(sums, expected, "{recording:?}\n{raw}");
        assert!(told.contains("gperftools has no place for") && told.contains("names of functions, files"), "{told}");
    }
    let (_, recording) = Job::fixture("mix", "100").recorded(&scratch);
    let (file, _) = exported(&scratch, &recording, "pprof", &["--total", "--metric", "blocks"]);
    let top = pprof(&["-top"], &file);
    let allocations = recording.total("allocations");
    assert!(top.contains("Type: alloc_objects") && top.contains(&format!("of {allocations} total")), "{top}");
}

/// A Rust program: each location has its inlined functions, each module its build id.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn pprof_shows_inlined_functions_and_modules() {
    if installed("go").is_none() {
        return;
    }
    let scratch = Scratch::new();
    let (_, recording) = Job::fixture("growth", "50").recorded(&scratch);
    let raw = pprof(&["-raw"], &exported(&scratch, &recording, "pprof", &[]).0);
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
    // A line without a number continues the location before; an inlined function is above its
    // caller.
    let places = raw.lines().skip_while(|line| *line != "Locations").skip(1).take_while(|line| *line != "Mappings");
    let inlined = places.filter(|line| !line.contains(": 0x")).count();
    assert!(inlined > 0, "{raw}");
    let top = recording.ask("top", &["-n", "1", "--by", "function"]);
    let first = &top["rows"][0];
    let (file, _) = exported(&scratch, &recording, "pprof", &[]);
    let shown = pprof(&["-top", "-unit=B", "-nodecount=1", "-nodefraction=0"], &file);
    let row = shown.lines().last().unwrap();
    let (bytes, name) = (number(first, "bytes"), first["function"].as_str().unwrap());
    assert!(row.trim_start().starts_with(&format!("{bytes}B ")) && row.contains(name), "{row}: {first:#}");
    // Owners are labels, with the figures of their rows.
    let owner = &recording.ask("top", &["-n", "1"])["rows"][0];
    let (bytes, name) = (number(owner, "bytes"), owner["function"].as_str().unwrap());
    let tags = pprof(&["-tags", "-unit=B"], &file);
    let row = tags.lines().find(|row| row.ends_with(&format!(": {name}"))).unwrap_or_else(|| panic!("{name}: {tags}"));
    assert!(row.trim_start().starts_with(&format!("{bytes}.0B ")), "{row}: {owner:#}");
}

/// Stacks do not end in the allocator's functions; stacks that are equal without them are merged.
#[test]
fn pprof_without_the_allocator() {
    if installed("go").is_none() || installed("c++").is_none() {
        return;
    }
    let scratch = Scratch::new();
    let (_, recording) = Job::fixture("operators", "100").recorded(&scratch);
    let raw = pprof(&["-raw"], &exported(&scratch, &recording, "pprof", &[]).0);
    assert!(!raw.contains("operator new"), "{raw}");
    let mut stacks: Vec<_> = samples(&raw).into_iter().map(|sample| (sample.locations, sample.labels)).collect();
    let all = stacks.len();
    stacks.sort();
    stacks.dedup();
    assert_eq!(stacks.len(), all, "{raw}");
}

/// Returns the totals of a recording: allocations, then blocks at the peak and at the end; and the
/// bytes of each.
pub(crate) fn totals(recording: &Recording) -> ([i64; 3], [i64; 3]) {
    let blocks = ["allocations", "blocks_at_bytes_live_max", "blocks_live_end"];
    let bytes = ["bytes_allocated", "bytes_live_max", "bytes_live_end"];
    (blocks.map(|name| recording.total(name)), bytes.map(|name| recording.total(name)))
}

fn json(file: &Path) -> Value {
    serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn every_format_has_the_totals() {
    let scratch = Scratch::new();
    // One process; several whose peaks are at different times; and estimates.
    for job in [
        Job::fixture("mix_threads", "3000"),
        Job::shell("$PROGRAMS/mix 2000 >/dev/null; $PROGRAMS/mix 3000 >/dev/null; true"),
        Job::fixture("mix_threads", "3000").option("--sample=4KiB"),
    ] {
        let (_, recording) = job.recorded(&scratch);
        has_the_totals(&scratch, &recording);
    }
}

#[track_caller]
fn has_the_totals(scratch: &Scratch, recording: &Recording) {
    let (blocks, bytes) = totals(recording);
    let is_sample = recording.ask("info", &[])["sampling"].is_array();
    // Messages about the format come after those about the recording.
    let exported = |_: &Scratch, recording: &Recording, to: &str, options: &[&str]| {
        let (file, told) = exported(scratch, recording, to, options);
        let (notice, rest) = told.split_at(if is_sample { told.find('\n').unwrap() + 1 } else { 0 });
        assert_eq!(
            notice.contains("this is a sample, of one point in 4.0 KiB: figures are estimates"),
            is_sample,
            "{told}"
        );
        (file, rest.to_owned())
    };

    let (file, told) = exported(scratch, recording, "dhat", &[]);
    assert!(told.starts_with("heapledger: dhat has no place for temporary allocations"), "{told}");
    let dhat = json(&file);
    let points = dhat["pps"].as_array().unwrap();
    let sum = |name: &str| points.iter().map(|point| number(point, name)).sum::<i64>();
    assert_eq!((["tbk", "gbk", "ebk"].map(sum), ["tb", "gb", "eb"].map(sum)), (blocks, bytes));
    assert!(number(&dhat, "tg") <= number(&dhat, "te") && number(&dhat, "tg") > 0);
    for point in points {
        let of = |name| number(point, name);
        assert!(of("gb") <= of("mb") && of("eb") <= of("mb") && of("mb") <= of("tb"), "{point:#}");
        assert!(of("mbk") <= of("tbk") && of("tl") <= of("tbk") * number(&dhat, "te"), "{point:#}");
    }
    assert!(sum("tl") > 0 && sum("mb") > sum("gb"), "{dhat:#}");

    let (file, _) = exported(scratch, recording, "speedscope", &["--total"]);
    let speedscope = json(&file);
    let profiles = speedscope["profiles"].as_array().unwrap().iter().map(|profile| {
        let weights = profile["weights"].as_array().unwrap().iter().map(|weight| weight.as_i64().unwrap());
        (profile["name"].as_str().unwrap().split(" (").next().unwrap(), weights.sum::<i64>())
    });
    let expected = [
        ("bytes live at the peak", bytes[1]),
        ("blocks live at the peak", blocks[1]),
        ("bytes allocated in all", bytes[0]),
        ("blocks allocated in all", blocks[0]),
        ("bytes live at the end", bytes[2]),
        ("blocks live at the end", blocks[2]),
        ("temporary allocations", recording.total("temporary_allocations")),
    ];
    assert_eq!((profiles.collect::<Vec<_>>(), &speedscope["activeProfileIndex"]), (expected.into(), &2.into()));

    let mut collapsed = Vec::new();
    for (options, total) in [
        (&["--at", "peak"][..], bytes[1]),
        (&["--at", "end", "--metric", "blocks"], blocks[2]),
        (&["--total"], bytes[0]),
        (&["--metric", "temporary"], recording.total("temporary_allocations")),
    ] {
        let (file, told) = exported(scratch, recording, "collapsed", options);
        assert!(told.starts_with("heapledger: collapsed has no place for "), "{told}");
        collapsed = fs::read(file).unwrap();
        let text = std::str::from_utf8(&collapsed).unwrap();
        let figures = text.lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<i64>().unwrap());
        assert_eq!(figures.sum::<i64>(), total, "{options:?}\n{text}");
        let (file, _) = exported(scratch, recording, "heapprofile", options);
        let file = json(&file);
        let samples = file["samples"].as_array().unwrap();
        assert_eq!(samples.iter().map(|sample| number(sample, "size")).sum::<i64>(), total, "{options:?}");
        let depth = iter::successors(Some(&file["head"]), |node| node["children"].get(0)).count();
        assert!(depth > 2, "{file:#}");
    }
    // The same as from `flame`.
    let words = ["flame", "--collapsed", "--metric", "temporary", "-o", "-", recording.path.to_str().unwrap()];
    assert_eq!(heapledger(words).stdout, collapsed);

    let (file, _) = exported(scratch, recording, "flamegraph", &["--total"]);
    let picture = fs::read_to_string(file).unwrap();
    assert!(picture.contains("<svg") && picture.contains(" allocated in all<"), "{picture}");
}

/// The peak of each function, its bytes at the end, and the lifetimes of its blocks.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn dhat_has_maxima_and_lifetimes() {
    let scratch = Scratch::new();
    let (_, recording) = Job::fixture("lives", "").recorded(&scratch);
    let dhat = json(&exported(&scratch, &recording, "dhat", &[]).0);
    let of = |function: &str| {
        let frames = dhat["ftbl"].as_array().unwrap();
        let is_there = |at: &Value| frames[at.as_u64().unwrap() as usize].as_str().unwrap().contains(function);
        let mut points = dhat["pps"].as_array().unwrap().iter();
        let point = points.find(|point| point["fs"].as_array().unwrap().iter().any(is_there)).unwrap();
        (["tb", "tbk", "mb", "mbk", "gb", "gbk", "eb", "ebk"].map(|name| number(point, name)), number(point, "tl"))
    };
    let (early, early_lives) = of(": early (");
    let (waves, waves_lives) = of(": waves (");
    let (late, late_lives) = of(": late (");
    assert_eq!(early, [1000, 10, 1000, 10, 0, 0, 0, 0]);
    assert_eq!(waves, [3000, 60, 1200, 24, 300, 6, 300, 6]);
    assert_eq!(late, [5000, 5, 5000, 5, 5000, 5, 5000, 5]);
    // In microseconds. The machine may be busy, and times are rounded.
    let pass = 49_000;
    assert!(early_lives >= 10 * pass && early_lives <= 10 * number(&dhat, "te"), "{early_lives}");
    assert!(waves_lives >= 6 * pass && waves_lives < 60 * pass && late_lives >= 5 * pass, "{waves_lives} {late_lives}");
}

/// The peak of processes that run one after the other is that of one of them, at any moment.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn several_processes_have_one_peak() {
    let scratch = Scratch::new();
    let job = || {
        Job::shell("$PROGRAMS/mix 2000 >/dev/null; $PROGRAMS/mix 3000 >/dev/null; $PROGRAMS/mix 9000 >/dev/null; true")
    };
    let (_, recording) = job().recorded(&scratch);
    let of_two = |recording: &Recording| {
        let two: Vec<&Value> =
            recording.processes().iter().filter(|it| !it["command"].to_string().contains("sh -c")).take(2).collect();
        let pids: Vec<String> = two.iter().map(|process| number(process, "pid").to_string()).collect();
        (
            ["-p".to_owned(), pids[0].clone(), "-p".to_owned(), pids[1].clone()],
            two.iter().map(|it| number(it, "bytes_live_max")).max().unwrap(),
        )
    };
    let (options, peak) = of_two(&recording);
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    assert_eq!(number(&recording.ask("summary", &options)["peak"], "bytes"), peak);
    for moment in [&["--at", "end"][..], &["--at", "1ms"], &["--at", "peak"]] {
        let options = [&options[..], moment].concat();
        let dhat = json(&exported(&scratch, &recording, "dhat", &options).0);
        let at_peak = dhat["pps"].as_array().unwrap().iter().map(|point| number(point, "gb")).sum::<i64>();
        assert_eq!(at_peak, peak, "{options:?}");
        let massif = fs::read_to_string(exported(&scratch, &recording, "massif", &options).0).unwrap();
        let snapshots: Vec<&str> = massif.split("#-----------\nsnapshot=").collect();
        let of_peak = snapshots.iter().find(|snapshot| snapshot.contains("heap_tree=peak")).unwrap();
        assert!(of_peak.contains(&format!("mem_heap_B={peak}\n")) && !of_peak.contains("\ntime=0\n"), "{of_peak}");
    }
    // Without events, the bytes that were live in both at once are unknown.
    let (_, recording) = job().option("--aggregate").recorded(&scratch);
    let (options, _) = of_two(&recording);
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    assert!(recording.ask("summary", &options)["peak"].is_null());
    let (_, told) = exported(&scratch, &recording, "dhat", &[&options[..], &["--at", "end"]].concat());
    assert!(told.contains("asks for what was live at the peak"), "{told}");
}

/// A recording without events has no lifetimes; one with nothing live at the end cannot be drawn.
#[test]
fn what_a_recording_does_not_tell() {
    let scratch = Scratch::new();
    let (_, recording) = Job::fixture("mix", "100").option("--aggregate").recorded(&scratch);
    let (file, told) = exported(&scratch, &recording, "dhat", &[]);
    let says = "dhat asks for the most that was live of each stack, lifetimes, which this recording does not tell";
    assert!(told.contains(says), "{told}");
    let dhat = json(&file);
    for point in dhat["pps"].as_array().unwrap() {
        let of = |name| number(point, name);
        assert_eq!((of("tl"), of("mb")), (0, of("gb").max(of("eb"))), "{point:#}");
    }
    let outcome = heapledger(["export", "--to", "dhat", "--at", "1ms", "-o", "-", recording.path.to_str().unwrap()]);
    assert!(!outcome.status.success(), "{outcome:?}");
    let words = ["export", "--metric", "temporary", "--at", "end", "--to", "collapsed", "-o", "-"];
    let outcome = heapledger(words.into_iter().chain([recording.path.to_str().unwrap()]));
    assert!(String::from_utf8_lossy(&outcome.stderr).contains("there is no moment"), "{outcome:?}");
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
