//! Programs with another allocator under the recorder, the checks and the log: all of them see the
//! same as with the C library's.

use std::ffi::OsStr;
use std::fs;

use heapledger_analysis::Moment;
use heapledger_dmd::Mode;
use serde_json::Value;

use super::same;
use crate::harness::{
    Job, Outcome, Recording, Scratch, exited, heapledger, installed, number, program, shared_library,
};
use crate::hooks::examples;
use crate::truth::agrees;
use crate::{check, documents, marks};

const HERE: &str = "--allocator=heapledger";

#[test]
fn every_call_is_recorded() {
    agrees(|work| Job::fixture("mix", work).option(HERE), "30000");
    agrees(|work| Job::fixture("mix_threads", work).option(HERE), "5000");
    let scratch = Scratch::new();
    let (_, recording) = Job::fixture("mix", "10").option(HERE).recorded(&scratch);
    let info = heapledger(["info".as_ref(), recording.path.as_os_str()]);
    assert!(info.text().contains("options  --allocator heapledger\n"), "{info:?}");
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn every_call_of_many_threads_and_processes_is_recorded() {
    for (fixture, work) in [("crowd", "1000"), ("early", "500"), ("temporary", "1000"), ("exchange", "20000")] {
        agrees(|work| Job::fixture(fixture, work).option(HERE), work);
    }
    let scratch = Scratch::new();
    let line = "for i in 1 2 3; do $PROGRAMS/mix 1000 & done; wait; env -i $PROGRAMS/mix 1000";
    program("mix");
    let figures = |allocator: &str| {
        let (_, recording) = Job::shell(line).option(allocator).recorded(&scratch);
        recording.assert_whole().assert_adds_up();
        ["allocations", "frees", "bytes_allocated"]
            .map(|name| recording.running("mix").into_iter().map(|process| number(process, name)).sum::<i64>())
    };
    assert_eq!(figures(HERE), figures("--allocator=system"));
}

/// A sample is an estimate of the same calls, and no free is missed.
#[test]
fn samples() {
    let scratch = Scratch::new();
    let job = Job::fixture("mix_threads", "30000").option(HERE);
    let (_, whole) = job.clone().recorded(&scratch);
    let (_, sampled) = job.option("--sample=4KiB").recorded(&scratch);
    sampled.assert_whole();
    let (exact, estimate) = (whole.total("bytes_allocated"), sampled.total("bytes_allocated"));
    assert!(estimate > exact / 2 && estimate < exact * 2, "{estimate} for {exact}");
    let live = sampled.total("blocks_live_end");
    assert!(live <= sampled.total("allocations"), "{sampled:?}");
}

fn checked(arguments: &[&str], allocator: &str) -> (Outcome, Value) {
    let scratch = Scratch::new();
    let (report, fixture) = (scratch.file("report.json"), program("misuse"));
    let line = ["check", "--allocator", allocator, "--json", "-o", report.to_str().unwrap(), "--"];
    let outcome = heapledger(line.into_iter().chain([fixture.to_str().unwrap()]).chain(arguments.iter().copied()));
    (outcome, documents::read(&fs::read(report).unwrap()))
}

/// The checks replace this allocator as they do the C library's.
#[test]
fn misuse_is_found() {
    for kind in ["twice", "malloc-delete", "size", "overwrite", "overwrite-realloc", "overwrite-live"] {
        let found = |allocator: &str| {
            let (outcome, report) = checked(&[kind, "3"], allocator);
            assert_eq!((outcome.status, outcome.text().as_str()), (exited(7), "done\n"), "{kind}: {outcome:?}");
            let misuses = report["misuses"].as_array().unwrap().clone();
            let mut seen: Vec<_> =
                misuses.iter().map(|misuse| (misuse["kind"].clone(), check::stacks(misuse))).collect();
            seen.sort_by_key(|(kind, _)| kind.to_string());
            assert_eq!(report["unchecked"], 0, "{kind}: {report:#}");
            seen
        };
        let here = found("heapledger");
        assert!(!here.is_empty(), "{kind}");
        assert_eq!(here, found("system"), "{kind}");
    }
}

/// An allocator with C++ operators of its own is checked as the C library's is.
#[test]
fn another_allocator_is_checked_too() {
    if shared_library("libjemalloc.so.2").is_none() {
        return;
    }
    let (_, report) = checked(&["overwrite"], "jemalloc");
    assert_eq!((&report["unchecked"], report["misuses"].as_array().map(Vec::len)), (&0.into(), Some(1)), "{report:#}");
}

#[test]
fn every_call_is_in_the_log() {
    let scratch = Scratch::new();
    let figures = |allocator: &str| {
        let log = scratch.file("calls.log");
        let words = ["log", "record", "--quiet", "--force", "--allocator", allocator, "-o", log.to_str().unwrap()];
        let outcome = Job::fixture("mix", "2000").through(words.map(OsStr::new)).outcome();
        assert_eq!(outcome.status, exited(0), "{outcome:?}");
        let info = heapledger(["log", "info", "--json", log.to_str().unwrap()]);
        let info: Value = serde_json::from_slice(&info.stdout).unwrap();
        info["rows"].clone()
    };
    let here = figures("heapledger");
    assert!(here.as_array().is_some_and(|rows| rows.len() > 5), "{here}");
    assert_eq!(here, figures("system"));
}

/// Observers see the calls, and a replacement that passes some on: each is given blocks of the
/// allocator below.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn hooks_of_users() {
    let scratch = Scratch::new();
    let (histogram, fences) = examples();
    let Some(sqlite) = installed("sqlite3") else { return };
    let sql =
        "with recursive n(i) as (select 1 union all select i + 1 from n where i < 5000) select max(hex(i)) from n;";
    let counted = |allocator: &str| {
        let file = scratch.file(allocator);
        let job = Job::new([sqlite.as_os_str(), ":memory:".as_ref()]).stdin(sql).variable("HISTOGRAM", &file);
        let hooks = ["--hook".as_ref(), fences.as_os_str(), "--hook".as_ref(), histogram.as_os_str()];
        let words = ["run", "--quiet", "--allocator", allocator].map(OsStr::new);
        assert_eq!(job.through(words.into_iter().chain(hooks)).outcome(), job.bare(), "{allocator}");
        let text = fs::read_to_string(&file).unwrap();
        let line = text.lines().find(|line| line.starts_with("process ")).unwrap().to_owned();
        let (_, counts) = line.split_once(':').unwrap_or(("", &line));
        counts.to_owned()
    };
    let here = counted("heapledger");
    assert_eq!(here, counted("system"));
}

/// The dark matter of a program: the blocks that are reported once, twice, and not at all are those
/// that the program says.
#[test]
fn dark_matter() {
    let scratch = Scratch::new();
    let (outcome, recording) = Job::fixture("marks", "100").option(HERE).recorded(&scratch);
    recording.assert_whole().assert_adds_up();
    let (expected, _) = marks::sums_of(&outcome.printed_objects().pop().unwrap());
    let log = marks::log(&recording.path, Mode::DarkMatter, Moment::Total);
    assert_eq!(marks::marks(&log), expected);
}

/// All verbs read a recording that was made with it.
#[test]
fn a_recording_is_like_any_other() {
    let scratch = Scratch::new();
    let job = Job::fixture("mix", "500");
    same(&job);
    let (_, recording) = job.option(HERE).recorded(&scratch);
    for verb in ["top", "leaks", "sizes", "temporary"] {
        recording.ask(verb, &[]);
    }
    Recording::open(recording.path.clone()).assert_whole();
}
