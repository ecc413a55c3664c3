//! Comparison of two runs, or of two moments of one.

use std::process::Command;

use serde_json::Value;

use crate::documents;
use crate::harness::{Job, Outcome, Recording, Scratch, exited, heapledger, installed, number};
use crate::owners::OF_EVENTS;

fn diff(before: &Recording, after: &Recording, options: &[&str]) -> Outcome {
    let files = [&before.path, &after.path].map(|path| path.to_str().unwrap());
    heapledger(["diff"].iter().chain(&files).chain(options).copied())
}

#[track_caller]
fn answer(before: &Recording, after: &Recording, options: &[&str]) -> Value {
    let outcome = diff(before, after, &[options, &["--json", "-n", "0"]].concat());
    assert!(outcome.status.success(), "{outcome:?}");
    documents::read(&outcome.stdout)
}

fn rows(answer: &Value) -> &[Value] {
    answer["rows"].as_array().unwrap()
}

/// Two runs of the same program differ in addresses and process ids; another build has other code,
/// too.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn equal_runs_do_not_differ() {
    let scratch = Scratch::new();
    let one = Job::fixture("mix", "300").recorded(&scratch).1;
    let two = Job::fixture("mix", "300").recorded(&scratch).1;
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../fixtures/programs/mix.c");
    let program = scratch.file("mix");
    let built = Command::new("cc")
        .args(["-std=gnu11", "-O1", "-g", "-fno-builtin", "-pthread", "-falign-functions=256", source, "-o"])
        .arg(&program)
        .status();
    assert!(built.unwrap().success());
    let three = Job::new([program.as_os_str(), "300".as_ref()]).recorded(&scratch).1;
    assert_eq!(one.total("bytes_allocated"), three.total("bytes_allocated"));
    for other in [&two, &three] {
        for by in ["function", "site", "module"].into_iter().chain(OF_EVENTS) {
            for metric in ["bytes", "blocks", "temporary"] {
                let answer = answer(&one, other, &["--total", "--by", by, "--metric", metric]);
                assert_eq!(answer["growth"], 0);
                assert!(rows(&answer).is_empty(), "{by} {metric}: {answer:#}");
            }
        }
    }
    // By address they would differ: no frame of the program is at the same address.
    let frames = |recording: &Recording| {
        let info = recording.ask("top", &["--total", "--by", "stack", "-n", "1"]);
        info["rows"][0]["stack"][0]["module"].clone()
    };
    assert_ne!(frames(&one), frames(&three));
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn growth_is_found_and_adds_up() {
    let Some(perl) = installed("perl") else { return };
    let scratch = Scratch::new();
    let run = |script: &str| Job::new([perl.to_str().unwrap(), "-e", script]).recorded(&scratch).1;
    let small = run("our @kept = map { 'x' x 1000 } 1..100;");
    let large = run("our @kept = map { 'x' x 1000 } 1..5000;");
    for options in [&["--at", "end"][..], &["--at", "peak"], &["--total"], &["--total", "--metric", "blocks"]] {
        // Some parts are known from events only, which takes longer.
        let parts = if options == ["--at", "end"] { &OF_EVENTS[..] } else { &[] };
        for &by in ["function", "site", "module"].iter().chain(parts) {
            let answer = answer(&small, &large, &[options, &["--by", by]].concat());
            let growths: Vec<i64> = rows(&answer).iter().map(|row| number(row, "growth")).collect();
            assert!(growths.is_sorted_by(|a, b| a >= b), "{growths:?}");
            assert_eq!(growths.iter().sum::<i64>(), number(&answer, "growth"), "{answer:#}");
            let metric = if options.contains(&"blocks") { "blocks" } else { "bytes" };
            let total = |side: &str| number(&answer[side]["total"], metric);
            assert_eq!(total("after") - total("before"), number(&answer, "growth"));
            let back = self::answer(&large, &small, &[options, &["--by", by]].concat());
            let mut negated: Vec<i64> = rows(&back).iter().map(|row| -number(row, "growth")).collect();
            negated.reverse();
            assert_eq!(negated, growths);
            // Thread and process numbers differ from those of the other run.
            if matches!(by, "thread" | "process") {
                assert_eq!((growths.len(), &rows(&answer)[0]["part"]), (1, &"perl".into()), "{answer:#}");
            }
        }
    }
    let leaked = answer(&small, &large, &["--at", "end"]);
    assert!(number(&leaked, "growth") > 4900 * 1000, "{leaked:#}");

    // The exit status can be used in tests of changes.
    assert_eq!(diff(&small, &large, &["--at", "end", "--fail-above", "1MiB"]).status, exited(104));
    assert_eq!(diff(&small, &large, &["--at", "end", "--fail-above", "10%", "--markdown"]).status, exited(104));
    assert_eq!(diff(&small, &large, &["--at", "end", "--fail-above", "1GiB"]).status, exited(0));
    assert_eq!(diff(&large, &small, &["--at", "end", "--fail-above", "0%"]).status, exited(0));
    assert_eq!(diff(&small, &large, &["--fail-above", "much"]).status, exited(2));
    let markdown = diff(&small, &large, &["--markdown", "-n", "1"]).text();
    assert!(markdown.starts_with("**Memory: +") && markdown.contains("\n| **+"), "{markdown}");
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn moments_of_one_run() {
    let scratch = Scratch::new();
    let script = "our @kept = map { 'x' x 1000 } 1..3000; select undef, undef, undef, 0.3; @kept = ();";
    let run = Job::new(["perl", "-e", script]).recorded(&scratch).1;
    let file = run.path.to_str().unwrap();
    let ask = |options: &[&str]| -> Value {
        let outcome = heapledger(["diff", "--json"].iter().chain(options).copied());
        assert!(outcome.status.success(), "{outcome:?}");
        serde_json::from_slice(&outcome.stdout).unwrap()
    };
    let peak = run.summary["bytes_live_max_time_seconds"].as_f64().unwrap();
    let later = peak + 0.1;
    let grown = ask(&[&format!("{file}@0.001s"), &format!("{file}@{later}s")]);
    assert!(number(&grown, "growth") > 3_000_000, "{grown:#}");
    assert_eq!(grown, ask(&[file, "--at", "0.001s", "--at", &format!("{later}s")]));
    let shrunk = ask(&[file, "--at", "peak", "--at", "end"]);
    assert!(number(&shrunk, "growth") < -2_000_000, "{shrunk:#}");
    assert_eq!(heapledger(["diff", file]).status, exited(2));
    assert_eq!(heapledger(["diff", file, "--at", "peak"]).status, exited(2));
}
