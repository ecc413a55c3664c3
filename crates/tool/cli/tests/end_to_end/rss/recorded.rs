//! Resident snapshots in recordings, compared with what the programs know of their blocks.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::{Waiting, redis};
use crate::documents;
use crate::harness::*;
use crate::own_allocator::{linked, own_jemalloc};

/// A program that is being recorded, and waits.
pub(crate) struct Recorded {
    pub(super) waiting: Waiting,
    file: PathBuf,
    pid: String,
}

impl Recorded {
    pub(crate) fn begin(scratch: &Scratch, options: &[&str], line: &[&str]) -> Recorded {
        let file = scratch.file("recorded.hl");
        let mut command = plain_command(HEAPLEDGER);
        command.args(["record", "--quiet", "--names=none", "-o"]).arg(&file).args(options).arg("--").args(line);
        let waiting = Waiting::begin(command.current_dir(scratch.path()));
        let pid = waiting.numbers("pid ")[0].to_string();
        Recorded { waiting, file, pid }
    }

    /// Has a snapshot made, and returns it.
    pub(crate) fn ask(&self, by: &str) -> Value {
        let outcome = heapledger(["rss", &self.pid, "--by", by, "-n", "0", "--json"]);
        assert!(outcome.status.success(), "{outcome:?}");
        let answer = documents::read(&outcome.stdout);
        adds_up(&answer);
        assert_eq!((&answer["cause"], answer["process"].to_string()), (&"somebody asked".into(), self.pid.clone()));
        answer
    }

    pub(crate) fn end(self) -> Recording {
        self.waiting.end();
        Recording::open(self.file)
    }
}

/// Checks the sums of a snapshot.
#[track_caller]
pub(super) fn adds_up(answer: &Value) {
    let sum = |list: &str, field: &str| -> i64 {
        answer[list].as_array().unwrap().iter().map(|row| number(row, field)).sum()
    };
    assert_eq!(sum("parts", "bytes_resident"), number(answer, "bytes_found"), "{answer:#}");
    let (found, difference) = (number(answer, "bytes_found"), number(answer, "bytes_difference"));
    assert_eq!(found + difference, number(answer, "bytes_resident"), "{answer:#}");
    let fields = ["blocks", "bytes", "bytes_resident", "bytes_kept", "pages_alone", "pages_sparse"];
    for field in fields {
        assert_eq!(sum("rows", field), number(&answer["total"], field), "{field} {answer:#}");
    }
    // The rows have all live blocks, and all pages with live bytes.
    assert_eq!(number(&answer["total"], "blocks"), number(answer, "blocks_live"), "{answer:#}");
    let by_fill = answer["pages"]["by_fill"].as_array().unwrap();
    let kept: i64 = by_fill.iter().map(|pages| pages.as_i64().unwrap()).sum();
    assert_eq!(kept * number(&answer["pages"], "page_bytes"), number(&answer["total"], "bytes_kept"), "{answer:#}");
    assert_eq!(by_fill[0].as_i64().unwrap(), number(&answer["total"], "pages_sparse"), "{answer:#}");
    assert_eq!(kept + number(&answer["pages"], "empty"), number(&answer["pages"], "heap"), "{answer:#}");
    let live = sum("parts", "bytes_live") + number(answer, "bytes_freed");
    assert!(live >= number(&answer["total"], "bytes_resident"), "{answer:#}");
    for part in answer["parts"].as_array().unwrap() {
        assert!(number(part, "bytes_live") <= number(part, "bytes_resident"), "{part:#}");
    }
}

fn live_in(answer: &Value, kind: &str) -> i64 {
    let parts = answer["parts"].as_array().unwrap().iter().filter(|part| part["kind"] == kind);
    parts.map(|part| number(part, "bytes_live")).sum()
}

/// The row of a function.
pub(super) fn row<'a>(answer: &'a Value, function: &str) -> &'a Value {
    let rows = answer["rows"].as_array().unwrap();
    let named = |row: &&Value| row["function"].as_str().is_some_and(|name| name.contains(function));
    rows.iter().find(named).unwrap_or_else(|| panic!("{function} in {answer:#}"))
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn few_bytes_that_keep_many_pages() {
    let scratch = Scratch::new();
    let program = program("fragmented");
    let recorded = Recorded::begin(&scratch, &[], &[program.to_str().unwrap()]);
    let [blocks, pages] = recorded.waiting.numbers("kept ")[..].try_into().map(|both: [u64; 2]| both).unwrap();
    let answer = recorded.ask("function");
    if answer["knows_zeroes"] == true {
        assert_eq!(number(&answer, "bytes_difference"), 0, "{answer:#}");
    }
    // The program has counted its pages by itself. At most the first and the last of them have
    // other blocks, too.
    let keep = row(&answer, "keep");
    assert_eq!((number(keep, "blocks"), number(keep, "bytes")), (blocks as i64, blocks as i64 * 400));
    assert_eq!(number(keep, "bytes_resident"), blocks as i64 * 400);
    for field in ["pages_alone", "pages_sparse"] {
        assert!((pages as i64 - 2..=pages as i64).contains(&number(keep, field)), "{pages} {keep:#}");
    }
    assert!((number(keep, "bytes_kept") - pages as i64 * 4096).abs() <= 2 * 4096, "{pages} {keep:#}");
    assert_eq!(live_in(&answer, "glibc-used"), number(&answer["total"], "bytes_resident"));
    // Forty blocks are four pages.
    assert!(number(&answer["pages"], "empty") > 2 * pages as i64, "{answer:#}");
    assert!(number(&answer, "bytes_trimmable") > 2 * pages as i64 * 4096, "{answer:#}");
    // The account of the process is the same, and says where the live blocks are.
    let text = heapledger(["rss", &recorded.pid]);
    let said = String::from_utf8_lossy(&text.stderr).into_owned() + &text.text();
    assert!(said.contains("a snapshot with the live blocks is in its recording: heapledger rss "), "{said}");

    let recording = recorded.end();
    let file = recording.path.to_str().unwrap();
    let peak = recording.ask("rss", &["-n", "0"]);
    adds_up(&peak);
    let snapshots = peak["snapshots"].as_array().unwrap();
    let most = snapshots.iter().map(|snapshot| number(snapshot, "bytes_resident")).max().unwrap();
    assert_eq!(number(&peak, "bytes_resident"), most, "{peak:#}");
    assert!(snapshots.iter().all(|snapshot| snapshot["process"] == peak["process"]), "{peak:#}");
    assert!(snapshots.is_sorted_by_key(|snapshot| snapshot["time_seconds"].as_f64().map(|time| (time * 1e9) as u64)));
    let asked = snapshots.iter().find(|snapshot| snapshot["cause"] == "somebody asked").unwrap();
    let at = format!("{}s", asked["time_seconds"]);
    let there = recording.ask("rss", &["--at", &at, "--by", "function", "-n", "0"]);
    assert_eq!(row(&there, "keep"), keep);
    let trim = there["advice"].as_array().unwrap().iter().find(|advice| advice["rule"] == "trim").unwrap();
    assert_eq!(trim["bytes"], there["bytes_trimmable"], "{there:#}");
    let free = there["parts"].as_array().unwrap().iter().find(|part| part["kind"] == "glibc-free").unwrap();
    assert_eq!(trim["evidence"]["chunks_free"], free["count"], "{there:#}");
    assert_eq!(trim["evidence"]["bytes_free"], free["bytes_resident"], "{there:#}");
    let text = heapledger(["rss", &format!("{file}@{at}"), "--by", "site"]).text();
    for part in ["├─ live blocks", "pages of heaps", "└─ fuller", "less than a quarter full"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(text.contains("live blocks and the pages that they keep, by site:\n"), "{text}");

    // The parts over time end with those of the last snapshot. The process has it while it runs.
    let last = snapshots.last().unwrap();
    let during = format!("0s..{}s", last["time_seconds"].as_f64().unwrap() + 1e-6);
    let timeline = recording.ask("timeline", &["--resident", "--during", &during]);
    let groups = timeline["groups"].as_array().unwrap();
    let at_end = |group: &Value| group["bytes"].as_array().unwrap().last().unwrap().as_i64().unwrap();
    let sum: i64 = groups.iter().map(at_end).sum();
    assert!((sum - number(last, "bytes_resident")).abs() <= 64 << 10, "{sum} {last:#}");
    assert_eq!(groups[0]["name"], "live blocks");
    let drawn = heapledger(["timeline", file, "--resident", "--svg", "-o", "-"]).text();
    assert!(drawn.contains("free memory of allocators") && drawn.contains("in use, beside live blocks"), "{drawn}");
    let plot = heapledger(["timeline", file, "--resident"]).text();
    assert!(plot.contains("free memory of allocators"), "{plot}");
    kept_by_rewriting(&scratch, file, &there);
}

/// The heap map of a recorded program, by its live blocks. The program has counted its pages.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn pages_by_owner_and_by_age() {
    let scratch = Scratch::new();
    let program = program("fragmented");
    let recorded = Recorded::begin(&scratch, &[], &[program.to_str().unwrap()]);
    let [blocks, pages] = recorded.waiting.numbers("kept ")[..].try_into().map(|both: [u64; 2]| both).unwrap();
    let map = |by: &str| documents::read(&heapledger(["heap-map", &recorded.pid, "--by", by, "--json"]).stdout);
    let row_of = |map: &Value, name: &str| {
        let rows = map["rows"].as_array().unwrap();
        rows.iter().find(|row| row["name"].as_str().unwrap().contains(name)).cloned().unwrap_or_default()["pages"]
            .clone()
    };
    let owners = map("owner");
    assert_eq!(owners["grouping"], "owner");
    let keep = row_of(&owners, "keep");
    let [all, alone] = ["all", "alone"].map(|what| number(&keep[what], "pages"));
    assert!((pages as i64 - 2..=pages as i64).contains(&all) && alone >= all - 2, "{pages} {keep:#}");
    assert!((number(&keep["all"], "bytes_used") - blocks as i64 * 400).abs() <= 800, "{keep:#}");
    // Forty blocks are four pages, of which the rest is free.
    let empty = row_of(&owners, "no live block");
    assert!(number(&empty["empty"], "pages") > 2 * pages as i64, "{empty:#}");

    let ages = map("age");
    assert_eq!([&ages["pages"]["all"], &ages["grouping"]], [&owners["pages"]["all"], &"age".into()]);
    // All of them are of one time.
    let rows = ages["rows"].as_array().unwrap();
    let oldest = rows.iter().filter(|row| row["name"] != "no live block");
    assert!(oldest.map(|row| number(&row["pages"]["alone"], "pages")).sum::<i64>() >= alone, "{ages:#}");

    let text = heapledger(["heap-map", &recorded.pid, "--by", "owner"]).text();
    assert!(text.contains(" keep\n") && text.contains(" no live block\n"), "{text}");
    let svg = heapledger(["heap-map", &recorded.pid, "--by", "age", "--svg"]).text();
    assert!(svg.contains(">no live block: "), "{svg}");
    recorded.end();
}

/// Copies of a recording have its snapshots.
fn kept_by_rewriting(scratch: &Scratch, file: &str, there: &Value) {
    let [trimmed, public] = ["trimmed.hl", "public.hl"].map(|name| scratch.file(name));
    let time = there["time_seconds"].as_f64().unwrap();
    let during = format!("{}s..", time - 0.001);
    let trim = heapledger(["trim", file, "--during", &during, "-o", trimmed.to_str().unwrap()]);
    assert!(trim.status.success(), "{trim:?}");
    let hidden = heapledger(["anonymize", file, "--keep-functions", "-o", public.to_str().unwrap()]);
    assert!(hidden.status.success(), "{hidden:?}");
    for copy in [trimmed, public] {
        let at = format!("{}s", time + 1e-6);
        let copied = Recording::open(copy).ask("rss", &["--at", &at, "--by", "module", "-n", "0"]);
        adds_up(&copied);
        for field in ["total", "pages", "bytes_resident"] {
            assert_eq!(copied[field], there[field], "{field}");
        }
    }
    let text = heapledger(["rss", scratch.file("public.hl").to_str().unwrap(), "-n", "0"]).text();
    assert!(!text.contains("/fragmented") && text.contains("/own/"), "{text}");
}

/// Two processes of one recording: each is asked for, whichever has more memory.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn one_process_of_several() {
    let program = program("fragmented");
    let script = "
exec 3<&0
\"$0\" <&3 > first & \"$0\" <&3 > second &
until grep -q end first && grep -q end second; do :; done
cat first second | grep pid; echo end; wait
";
    let scratch = Scratch::new();
    let mut recorded = Recorded::begin(&scratch, &[], &["sh", "-c", script, program.to_str().unwrap()]);
    let pids: Vec<String> =
        recorded.waiting.lines.iter().filter_map(|line| line.strip_prefix("pid ").map(str::to_owned)).collect();
    let mut asked = Vec::new();
    for pid in &pids {
        recorded.pid.clone_from(pid);
        // It is checked there that the answer is about this process.
        asked.push(recorded.ask("function"));
    }
    let said = heapledger(["rss", &pids[0]]);
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.contains(&format!("@end -p {}", pids[0])), "{said}");
    let refused = heapledger(["rss", &pids[0], "-p", &pids[1]]);
    assert_eq!(refused.status, exited(2), "{refused:?}");
    let recording = recorded.end();
    for (pid, asked) in pids.iter().zip(&asked) {
        let end = recording.ask("rss", &["--at", "end", "-p", pid]);
        assert_eq!(end["process"].to_string(), *pid, "{end:#}");
        let time = asked["time_seconds"].as_f64().unwrap();
        let at = recording.ask("rss", &["--at", &format!("{}s", time + 1e-6), "-p", pid]);
        assert_eq!((&at["process"], &at["time_seconds"]), (&asked["process"], &asked["time_seconds"]), "{at:#}");
    }
    // The process of a moment is that of the highest snapshot, and no later one stands for it.
    let peak = recording.ask("rss", &[]);
    let last = recording.ask("rss", &["--at", "1h"]);
    assert_eq!(last["process"], peak["process"], "{last:#}");
    let early = heapledger(["rss", recording.path.to_str().unwrap(), "--at", "1us"]);
    let said = String::from_utf8_lossy(&early.stderr).into_owned();
    assert_eq!(early.status, exited(2), "{early:?}");
    assert!(said.contains("has no resident snapshot up to 1 µs") && said.contains("the first one is at "), "{said}");
}

/// The live blocks of an interpreter, by what allocated them.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn an_interpreter() {
    let Some(python) = installed("python3") else { return };
    let scratch = Scratch::new();
    let script = "
import os, sys
kept = [str(number) * 500 for number in range(10_000)]
del kept[::2]
print('pid', os.getpid())
print('end', flush=True)
sys.stdin.read()
";
    let line = [python.to_str().unwrap(), "-c", script];
    let recorded = Recorded::begin(&scratch, &["--resident-every=20ms"], &line);
    let answer = recorded.ask("module");
    if answer["knows_zeroes"] == true {
        assert_eq!(number(&answer, "bytes_difference"), 0, "{answer:#}");
    }
    assert!(live_in(&answer, "glibc-used") > 5 << 20, "{answer:#}");
    let recording = recorded.end();
    let peak = recording.ask("rss", &["--by", "context"]);
    assert_eq!(peak["rows_all"], 1, "a program without contexts: {peak:#}");
    for by in ["owner", "type", "line", "stack"] {
        adds_up(&recording.ask("rss", &["--by", by, "-n", "0"]));
    }
}

/// A server whose allocator is jemalloc: its live blocks are in the heap of that.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_server() {
    let Some(script) = redis("") else { return };
    let scratch = Scratch::new();
    let recorded = Recorded::begin(&scratch, &["--wait"], &["sh", "-c", &script]);
    let answer = recorded.ask("owner");
    assert_eq!(answer["program"].as_str().map(|name| name.starts_with("redis")), Some(true), "{answer:#}");
    // Its timers allocate and free meanwhile.
    let live = live_in(&answer, "allocator-used") + live_in(&answer, "glibc-used");
    assert!(live > 1 << 20 && number(&answer["total"], "blocks") > 40_000, "{answer:#}");
    let (whole, difference) = (number(&answer, "bytes_resident"), number(&answer, "bytes_difference"));
    assert!(difference.abs() < whole / 20, "{answer:#}");
    recorded.end();
}

/// A Rust program with jemalloc inside: one of twenty vectors is live, in pages of twenty others.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_rust_program_with_jemalloc() {
    let Some(library) = own_jemalloc() else { return };
    let program = linked("kept_rust.rs", &library, "kept_rust");
    let scratch = Scratch::new();
    let recorded = Recorded::begin(&scratch, &[], &[program.to_str().unwrap()]);
    let kept = recorded.waiting.numbers("kept ")[0] as i64;
    let answer = recorded.ask("site");
    let vectors = answer["rows"].as_array().unwrap().iter().max_by_key(|row| number(row, "blocks")).unwrap();
    assert_eq!(number(vectors, "blocks"), kept, "{answer:#}");
    assert_eq!(number(vectors, "bytes_resident"), kept * 1000, "{answer:#}");
    // jemalloc puts blocks of 1,024 bytes into runs: none of these is in a full page.
    assert!(number(vectors, "pages_sparse") + number(vectors, "pages_alone") >= kept, "{vectors:#}");
    assert!(live_in(&answer, "allocator-used") >= kept * 1000, "{answer:#}");
    if answer["knows_zeroes"] == true {
        assert_eq!(number(&answer, "bytes_difference"), 0, "{answer:#}");
    }
    recorded.end();
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn recordings_without_snapshots_or_sites() {
    let scratch = Scratch::new();
    let program = program("fragmented");
    let program = program.to_str().unwrap();
    let file = scratch.file("without.hl");
    let record = |options: &[&str]| {
        let mut command = Command::new(HEAPLEDGER);
        command.args(["record", "--quiet", "--names=none", "--force", "-o"]).arg(&file).args(options);
        let status = command.args(["--", program]).stdin(Stdio::null()).output().unwrap();
        assert!(status.status.success(), "{status:?}");
        let outcome = heapledger(["rss", file.to_str().unwrap()]);
        (outcome.status, String::from_utf8_lossy(&outcome.stderr).into_owned())
    };
    let (status, said) = record(&["--no-resident"]);
    assert_eq!(status, exited(2), "{said}");
    assert!(said.contains("HL0129") && said.contains("has no resident snapshot\n\nhint: record again: "), "{said}");

    let recorded = Recorded::begin(&scratch, &["--sample=64KiB"], &[program]);
    let text = heapledger(["rss", &recorded.pid, "--by", "owner"]);
    let said = String::from_utf8_lossy(&text.stderr).into_owned();
    assert!(text.status.success() && said.contains("HL0130"), "{text:?}");
    let shown = text.text();
    assert!(shown.contains("free, in bins") && !shown.contains("live blocks"), "{shown}");
    recorded.end();

    // A process that is not recorded has no live blocks that anybody knows.
    let mut waiting = Waiting::begin(&mut Command::new(program));
    let outcome = heapledger(["rss", &waiting.child.id().to_string(), "--by", "owner"]);
    assert_eq!(outcome.status, exited(2), "{outcome:?}");
    assert!(String::from_utf8_lossy(&outcome.stderr).contains("is not being recorded"), "{outcome:?}");
    waiting.child.kill().unwrap();
    waiting.child.wait().unwrap();

    // And a command is recorded first.
    let mut command = plain_command(HEAPLEDGER);
    let line = ["sh", "-c", "\"$0\"; exit 7", program];
    command.args(["rss", "-n", "3", "--"]).args(line).current_dir(scratch.path()).stderr(Stdio::piped());
    let mut waiting = Waiting::begin(&mut command);
    // It has a snapshot in any case.
    let asked = heapledger(["rss", &waiting.numbers("pid ")[0].to_string()]);
    assert!(asked.status.success(), "{asked:?}");
    drop(waiting.child.stdin.take());
    let (mut out, mut said) = (String::new(), String::new());
    waiting.stdout.read_to_string(&mut out).unwrap();
    waiting.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(out.contains("live blocks and the pages that they keep"), "{out} {said}");
    let name = said.lines().find_map(|line| line.strip_prefix("heapledger: recorded into ")).unwrap();
    assert!(scratch.path().join(Path::new(name)).exists(), "{said}");
    assert_eq!(waiting.child.wait().unwrap(), exited(7), "{said}");
}
