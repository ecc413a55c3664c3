//! Programs with a ledger of their own: by themselves, in every form of linking and with other allocators, and under the
//! recorder, which must say the same.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{Job, Scratch, number, skipped};
use crate::stamps;

/// The last round keeps its block: so every thread ends at its peak, and the peak of all is the sum.
const ROUNDS: &str = "10000";
const THREADS: &str = "3";

/// How `fixtures/linked` is built.
struct Variant {
    name: &'static str,
    feature: &'static str,
    target: &'static str,
    flags: &'static str,
}

const SYSTEM: Variant = Variant { name: "system", feature: "", target: "", flags: "" };

/// The program in this form, or why it cannot be made.
fn build(variant: &Variant) -> Result<PathBuf, String> {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("linked").join(variant.name);
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fixtures/linked/Cargo.toml");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--manifest-path"]).arg(&manifest).arg("--target-dir").arg(&directory);
    cargo.env_remove("CARGO_TARGET_DIR").env("RUSTFLAGS", variant.flags);
    for (option, value) in [("--features", variant.feature), ("--target", variant.target)] {
        if !value.is_empty() {
            cargo.args([option, value]);
        }
    }
    let output = cargo.output().unwrap();
    let program = directory.join(variant.target).join("debug/linked");
    if output.status.success() { Ok(program) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

/// What the program did, and what its ledger says.
fn answers(output: &str) -> Vec<Value> {
    output.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The ledger in the program agrees with the program, and has stacks.
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

/// So does the recorder, with the ledger in the program at the same time and without it; and it warns of nothing.
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
        // No site is named by the allocator that passes the calls on.
        let named: Vec<&str> =
            top["rows"].as_array().unwrap().iter().filter_map(|row| row["function"].as_str()).collect();
        assert!(!named.iter().any(|name| name.contains("watched") || name.contains("caller")), "{named:?}");
    }
}

/// What the program keeps of each type it says itself; so does its ledger, and so does the recorder.
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
    let program = build(&SYSTEM).unwrap();
    agrees(&program);
    agrees_when_recorded(&program);
    stamps_agree(&program);
}

/// Nothing can be preloaded into it.
#[test]
#[ignore = "it builds programs; `.ci/run` runs it"]
fn linked_statically_with_glibc() {
    let variant =
        Variant { name: "static", target: "x86_64-unknown-linux-gnu", flags: "-Ctarget-feature=+crt-static", ..SYSTEM };
    agrees(&build(&variant).unwrap());
}

#[test]
#[ignore = "it builds programs; `.ci/run` runs it"]
fn linked_statically_with_musl() {
    match build(&Variant { name: "musl", target: "x86_64-unknown-linux-musl", ..SYSTEM }) {
        Ok(program) => agrees(&program),
        Err(error) if error.contains("target may not be installed") => {
            skipped("the Rust target x86_64-unknown-linux-musl is not installed");
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
#[ignore = "it builds programs; `.ci/run` runs it"]
fn with_mimalloc() {
    let program = build(&Variant { name: "mimalloc", feature: "mimalloc", ..SYSTEM }).unwrap();
    agrees(&program);
    agrees_when_recorded(&program);
    stamps_agree(&program);
}

#[test]
#[ignore = "compiles jemalloc: `.ci/run full` runs it"]
fn with_jemalloc() {
    let program = build(&Variant { name: "jemalloc", feature: "jemalloc", ..SYSTEM }).unwrap();
    agrees(&program);
    agrees_when_recorded(&program);
    stamps_agree(&program);
}
