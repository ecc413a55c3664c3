//! Programs with a ledger of their own: by themselves, in every form of linking and with other
//! allocators, and under the recorder, which must give the same figures.

use std::ffi::OsStr;
use std::path::Path;

use serde_json::{Value, json};

use crate::harness::{Job, Scratch, exited, number};
use crate::stamps;
use crate::variants::{HEAP, JEMALLOC, MIMALLOC, STATIC, SYSTEM, build, build_for_musl};

/// The last round keeps its block, so every thread ends at its peak, and the peak of all is the
/// sum.
const ROUNDS: &str = "10000";
const THREADS: &str = "3";

/// Returns the counts of the program, and those of its ledger.
fn answers(output: &str) -> Vec<Value> {
    output.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Asserts that the ledger in the program agrees with the program, and has stacks.
fn agrees(program: &Path) {
    for threads in ["1", THREADS] {
        let outcome = Job::new([program.to_str().unwrap(), ROUNDS, threads]).bare();
        assert!(outcome.status.success(), "{outcome:?}");
        let [truth, ledger] = answers(&outcome.text()).try_into().unwrap();
        for figure in ["allocations", "frees", "bytes", "live", "peak"] {
            assert_eq!(number(&ledger, figure), number(&truth, figure), "{figure} of {}", program.display());
        }
        assert_eq!((number(&ledger, "unknown"), number(&ledger, "lost")), (0, 0), "{ledger}");
        assert!(number(&ledger, "frames") >= 5, "{ledger}");
    }
}

/// Asserts that the recorder agrees, too, with and without the ledger in the program, and that it
/// prints no warning.
fn agrees_when_recorded(program: &Path) {
    for is_bare in [false, true] {
        let scratch = Scratch::new();
        let words = [program.to_str().unwrap(), ROUNDS, THREADS];
        let mut job = Job::new(words);
        if is_bare {
            job = job.argument("bare");
        }
        let (outcome, recording) = job.recorded(&scratch);
        let lines = answers(&outcome.text());
        let truth = &lines[0];
        if let Some(ledger) = lines.get(1) {
            assert_eq!(number(ledger, "bytes"), number(truth, "bytes"), "{ledger}");
        }
        assert!(!String::from_utf8_lossy(&outcome.stderr).contains("warning["), "{outcome:?}");
        recording.assert_whole();
        let top = recording.ask("top", &["--total", "--function", "storm"]);
        assert_eq!(number(&top["total"], "blocks"), number(truth, "allocations"), "{top}");
        assert_eq!(number(&top["total"], "bytes"), number(truth, "bytes"));
        let live = recording.ask("top", &["--at", "peak", "--function", "storm"]);
        assert_eq!(number(&live["total"], "bytes"), number(truth, "live"), "{live}");
        // No site is named after the allocator that passes the calls on.
        let named: Vec<&str> =
            top["rows"].as_array().unwrap().iter().filter_map(|row| row["function"].as_str()).collect();
        assert!(!named.iter().any(|name| name.contains("watched") || name.contains("caller")), "{named:?}");
    }
}

/// Asserts that the recorder and the checks see the same with Heapledger's allocator instead of the
/// C library's below the program.
fn agrees_above_the_allocator(program: &Path) {
    let scratch = Scratch::new();
    let job = Job::new([program.to_str().unwrap(), ROUNDS, THREADS]);
    let (outcome, recording) = job.clone().option("--allocator=heapledger").recorded(&scratch);
    recording.assert_whole();
    let lines = answers(&outcome.text());
    let [truth, ledger] = &lines[..] else { panic!("{outcome:?}") };
    let top = recording.ask("top", &["--total", "--function", "storm"]);
    assert_eq!(number(&top["total"], "blocks"), number(truth, "allocations"), "{top}");
    for figures in [number(ledger, "bytes"), number(&top["total"], "bytes")] {
        assert_eq!(figures, number(truth, "bytes"), "{top}");
    }
    let words = ["check", "--error-exitcode", "9", "--allocator", "heapledger"].map(OsStr::new);
    let checked = job.through(words).outcome();
    assert_eq!(checked.status, exited(0), "{checked:?}");
}

/// Asserts that the program, its ledger and the recorder agree about the bytes of each type.
fn stamps_agree(program: &Path) {
    let scratch = Scratch::new();
    let job = Job::new([program.to_str().unwrap(), "stamps"]);
    let [kept, found] = answers(&job.bare().text()).try_into().unwrap();
    assert_eq!((&found, number(&kept, "unknown")), (&kept, 0));
    let (outcome, recording) = job.recorded(&scratch);
    let kept = answers(&outcome.text()).remove(0);
    recording.assert_whole().assert_adds_up();
    assert_eq!((recording.total("stamps_unknown"), number(&kept, "unknown")), (0, 0));
    let recorded = stamps::recorded(&recording.path);
    let live = |label: &str| {
        let sums = recorded.iter().filter(|(stamp, _)| stamp.rsplit('|').next() == Some(label));
        sums.fold([0, 0], |sum, (_, figures)| [sum[0] + figures[2], sum[1] + figures[3]])
    };
    for (label, figures) in kept["stamps"].as_object().unwrap() {
        assert_eq!(json!(live(label)), *figures, "{label} of {recorded:?}");
    }
    let lines = recorded.keys().filter(|stamp| stamp.starts_with("linked::stamps::Token|"));
    assert_eq!(lines.count(), 2, "{recorded:?}");
}

#[test]
#[ignore = "it builds programs of their own; `.ci/run` runs it"]
fn with_the_systems_allocator() {
    let program = build("linked", &SYSTEM);
    agrees(&program);
    agrees_above_the_allocator(&program);
    agrees_when_recorded(&program);
    stamps_agree(&program);
}

/// Nothing can be preloaded into the program.
#[test]
#[ignore = "it builds programs; `.ci/run` runs it"]
fn linked_statically_with_glibc() {
    agrees(&build("linked", &STATIC));
}

#[test]
#[ignore = "it builds programs; `.ci/run` runs it"]
fn linked_statically_with_musl() {
    build_for_musl("linked").iter().for_each(|program| agrees(program));
}

#[test]
#[ignore = "it builds programs; `.ci/run` runs it"]
fn with_heapledgers_allocator() {
    let program = build("linked", &HEAP);
    agrees(&program);
    agrees_above_the_allocator(&program);
    agrees_when_recorded(&program);
    stamps_agree(&program);
}

#[test]
#[ignore = "it builds programs; `.ci/run` runs it"]
fn with_mimalloc() {
    let program = build("linked", &MIMALLOC);
    agrees(&program);
    agrees_when_recorded(&program);
    stamps_agree(&program);
}

#[test]
#[ignore = "compiles jemalloc: `.ci/run full` runs it"]
fn with_jemalloc() {
    let program = build("linked", &JEMALLOC);
    agrees(&program);
    agrees_when_recorded(&program);
    stamps_agree(&program);
}
