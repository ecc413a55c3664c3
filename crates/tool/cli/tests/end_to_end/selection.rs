//! The selection of what is shown, and the output file, work the same in every verb that reads a
//! recording.

use std::fs;

use serde_json::Value;

use crate::harness::{HEAPLEDGER, Job, Scratch, exited, heapledger, number};
use crate::owners::OF_EVENTS;

/// Verbs that answer with text.
const VERBS: [&str; 15] = [
    "summary",
    "top",
    "top --by thread",
    "types",
    "blocks",
    "tree",
    "leaks",
    "temporary",
    "reallocations",
    "callers main",
    "callees main",
    "sizes",
    "timeline",
    "info",
    "flame --collapsed",
];

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn every_verb_writes_to_a_file() {
    let scratch = Scratch::new();
    let (_, recording) = Job::fixture("mix", "2000").recorded(&scratch);
    let path = recording.path.to_str().unwrap();
    let out = scratch.file("answer");
    for verb in VERBS {
        for json in ["", " --json"] {
            if verb.starts_with("flame") && !json.is_empty() {
                continue;
            }
            let line = format!("{verb} {path}{json}");
            let shown = heapledger(line.split(' ')).text();
            let written = heapledger(format!("{line} -o {}", out.display()).split(' '));
            assert!(written.status.success() && written.stdout.is_empty(), "{line}: {written:?}");
            assert_eq!(fs::read_to_string(&out).unwrap(), shown, "{line}");
            let again = heapledger(format!("{line} -o {}", out.display()).split(' '));
            assert_eq!(again.status, exited(1), "{line}: {again:?}");
            fs::remove_file(&out).unwrap();
        }
    }
    // A command that fails leaves no file behind.
    let failed = heapledger(format!("top {path} --function nowhere -o {}", out.display()).split(' '));
    assert!(failed.status == exited(2) && !out.exists(), "{failed:?}");
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn pictures_have_names() {
    let scratch = Scratch::new();
    let recorded = Job::fixture("mix", "2000").start(Some(&scratch.file("run.hl"))).outcome();
    assert!(recorded.status.success(), "{recorded:?}");
    let draw = |line: &str| {
        let words = [HEAPLEDGER].into_iter().chain(line.split(' ')).map(str::to_owned);
        Job::new(words.collect::<Vec<_>>()).directory(scratch.path()).bare()
    };
    for (line, name) in [("flame run.hl", "run.flame.svg"), ("timeline run.hl --svg", "run.timeline.svg")] {
        let outcome = draw(line);
        let said = String::from_utf8_lossy(&outcome.stderr).into_owned();
        assert!(outcome.status.success() && said.contains(&format!("wrote {name}")), "{line}: {outcome:?}");
        assert!(fs::read_to_string(scratch.file(name)).unwrap().contains("<svg"), "{line}");
        assert_eq!(draw(line).status, exited(1), "{line}");
        assert!(draw(&format!("{line} --force")).status.success(), "{line}");
    }
    let outcome = draw("timeline --svg live.svg");
    assert!(String::from_utf8_lossy(&outcome.stderr).contains("--svg -o live.svg"), "{outcome:?}");
}

/// A printed time is the moment that `--at` shows; in every verb, also with the file's name.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_printed_time_can_be_asked_for() {
    let scratch = Scratch::new();
    let (_, recording) = Job::fixture("mix", "20000").recorded(&scratch);
    let path = recording.path.to_str().unwrap();
    let summary = heapledger(["summary", path]).text();
    let line = summary.lines().find(|line| line.trim_start().starts_with("peak")).unwrap();
    let time = line.split_once(" at ").unwrap().1.split_once(" in ").unwrap().0;
    let at = |time: &str| recording.ask("top", &["--at", time]);
    assert_eq!(number(&at(time)["total"], "bytes"), number(&recording.summary, "bytes_live_max"), "{line}");
    assert_eq!(at(time), at("peak"));
    // The end, as `info` and error messages print it, is in the recording.
    let seconds = recording.summary["duration_seconds"].as_f64().unwrap();
    let said = heapledger(["timeline", path, "--from", "9h"]);
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    let end = said.trim_end().rsplit_once(" to ").unwrap().1.to_owned();
    let part: Value = recording.ask("timeline", &["--to", &end]);
    assert!((part["to_seconds"].as_f64().unwrap() - seconds).abs() < 1e-9, "{end} {seconds}");
    let moment = format!("{path}@{}", time.replace(' ', ""));
    let beside: Value = serde_json::from_str(&heapledger(["top", &moment, "--json"]).text()).unwrap();
    assert_eq!(beside, at("peak"));
    // Two moments are one too many; a question about the whole recording takes none.
    assert_eq!(heapledger(["top", &moment, "--at", "end"]).status, exited(2));
    assert_eq!(heapledger(["info", &moment]).status, exited(2));
    let merged = heapledger(["anonymize", &moment, "-o", scratch.file("x.hl").to_str().unwrap()]);
    let said = String::from_utf8_lossy(&merged.stderr).into_owned();
    assert!(merged.status == exited(102) && said.contains("the whole recording is needed here"), "{said}");
}

/// The first level of a tree has the same rows as other verbs with the same word; so have the boxes
/// of a flame graph.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn levels_of_a_tree_are_rows_of_a_table() {
    let scratch = Scratch::new();
    let (_, recording) = Job::fixture("forks", "").recorded(&scratch);
    let sorted = |mut amounts: Vec<(i64, i64)>| {
        amounts.sort_unstable();
        amounts
    };
    let amount = |row: &Value| (number(row, "bytes"), number(row, "blocks"));
    let tree = |verb: &str, by: &str| recording.ask(verb, &["--by", by, "--total"])["nodes"].clone();
    let of_sites = ["owner", "line", "file", "function", "module", "type", "heap", "context"];
    for by in of_sites.into_iter().chain(OF_EVENTS) {
        let table = recording.ask("top", &["--by", by, "--total", "-n", "0"]);
        let rows = sorted(table["rows"].as_array().unwrap().iter().map(amount).collect());
        assert!(!rows.is_empty(), "{table:#}");
        for verb in ["tree", "flame"] {
            let nodes = tree(verb, by);
            let level = sorted(nodes.as_array().unwrap().iter().map(amount).collect());
            assert_eq!(level, rows, "{verb} --by {by}");
        }
    }
    // Each level has its own parts.
    let nodes = tree("tree", "process,owner,type");
    let nodes = nodes.as_array().unwrap();
    for node in nodes.iter().filter(|node| number(node, "depth") < 2) {
        let parts = nodes.iter().filter(|part| part["parent"] == node["id"]);
        let sum = parts.map(amount).fold((0, 0), |sum, part| (sum.0 + part.0, sum.1 + part.1));
        assert_eq!(sum, amount(node), "{nodes:#?}");
    }
    let path = recording.path.to_str().unwrap();
    let two = heapledger(["tree", path, "--by", "process,thread"]);
    assert_eq!(two.status, exited(2), "{two:?}");
}
