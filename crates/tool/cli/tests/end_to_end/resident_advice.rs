//! Advice on resident memory: what it promises, and what comes out if it is followed.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::Value;

use crate::documents;
use crate::harness::*;

/// The program with memory that is of no use, waiting.
struct Wasteful {
    child: Child,
    stdout: BufReader<ChildStdout>,
    /// The program itself, if the child is its recorder.
    pid: String,
}

impl Wasteful {
    /// Starts it, and waits until it has its memory.
    fn begin(arguments: &[&str], environment: &[(&str, &str)]) -> Wasteful {
        let mut command = Command::new(program("resident_advice"));
        command.args(arguments).envs(environment.iter().copied());
        Wasteful::of(command)
    }

    /// Starts it under a recorder.
    fn recorded(arguments: &[&str], file: &Path) -> Wasteful {
        let mut command = plain_command(HEAPLEDGER);
        command.args(["record", "--quiet", "--names=none", "-o"]).arg(file).arg("--");
        command.arg(program("resident_advice")).args(arguments);
        Wasteful::of(command)
    }

    fn of(mut command: Command) -> Wasteful {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let mut wasteful = Wasteful { child, stdout, pid: String::new() };
        wasteful.pid = wasteful.line().strip_prefix("end ").unwrap().trim().to_owned();
        wasteful
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line
    }

    fn rss(&self) -> Value {
        let outcome = heapledger(["rss", &self.pid, "--json"]);
        assert!(outcome.status.success(), "{outcome:?}");
        documents::read(&outcome.stdout)
    }

    fn text(&self) -> String {
        heapledger(["rss", &self.pid]).text()
    }

    fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }
}

/// Returns the bytes that a rule promises; 0 if it says nothing.
fn promised(answer: &Value, rule: &str) -> i64 {
    let advice = answer["advice"].as_array().unwrap().iter().find(|advice| advice["rule"] == rule);
    advice.map_or(0, |advice| number(advice, "bytes"))
}

/// Checks that following the advice gave as much back as was promised, give or take a percentage.
fn expect_kept(promised: i64, before: &Value, after: &Value, percent: i64) {
    let given_back = number(before, "bytes_resident") - number(after, "bytes_resident");
    println!("promised {promised}, given back {given_back}");
    let tolerance = promised / 100 * percent;
    assert!(promised > 1 << 20, "{before:#}");
    assert!((promised - given_back).abs() <= tolerance, "{promised} {given_back} {before:#} {after:#}");
}

#[test]
fn trimming_gives_back_what_is_promised() {
    let mut wasteful = Wasteful::begin(&["trim"], &[]);
    let before = wasteful.rss();
    let text = wasteful.text();
    assert!(text.contains("1 piece of advice, computed and not tried\n\n1. trim, "), "{text}");
    assert!(text.contains("   try: call malloc_trim(0) when"), "{text}");
    wasteful.child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
    assert_eq!(wasteful.line(), "trimmed\n");
    expect_kept(promised(&before, "trim"), &before, &wasteful.rss(), 2);
    wasteful.end();
}

#[test]
fn fewer_arenas_keep_less_free_memory() {
    // As many arenas as threads, however many processors there are.
    let wasteful = Wasteful::begin(&["arenas"], &[("MALLOC_ARENA_MAX", "64")]);
    let few = Wasteful::begin(&["arenas"], &[("MALLOC_ARENA_MAX", "2")]);
    let (before, after) = (wasteful.rss(), few.rss());
    expect_kept(promised(&before, "arenas"), &before, &after, 10);
    assert_eq!(promised(&after, "arenas"), 0, "{after:#}");
    let text = wasteful.text();
    assert!(text.contains("   try: run it with MALLOC_ARENA_MAX=2, or call"), "{text}");
    wasteful.end();
    few.end();
}

#[test]
fn caches_of_threads_keep_memory() {
    let environment = ("MALLOC_ARENA_MAX", "64");
    let wasteful = Wasteful::begin(&["caches"], &[environment]);
    let none = Wasteful::begin(&["caches"], &[environment, ("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0")]);
    let (before, after) = (wasteful.rss(), none.rss());
    expect_kept(promised(&before, "thread-caches"), &before, &after, 25);
    assert_eq!(promised(&after, "thread-caches"), 0, "{after:#}");
    wasteful.end();
    none.end();
}

#[test]
fn small_pages_have_no_padding() {
    let wasteful = Wasteful::begin(&["huge"], &[]);
    let before = wasteful.rss();
    // Too little memory in one piece, a setting of the machine, or a kernel before 6.7.
    if number(&before, "bytes_huge") < 48 << 20 || before["knows_zeroes"] == false {
        println!("skipped: no huge pages here");
        return wasteful.end();
    }
    let small = Wasteful::begin(&["huge", "off"], &[]);
    let after = small.rss();
    expect_kept(promised(&before, "huge-pages"), &before, &after, 5);
    assert_eq!((promised(&after, "huge-pages"), number(&after, "bytes_huge")), (0, 0), "{after:#}");
    wasteful.end();
    small.end();
}

/// Pages decay when the program allocates or frees. This one does nothing, and keeps them.
#[test]
fn jemalloc_gives_free_pages_back() {
    let Some(library) = shared_library("libjemalloc.so.2") else { return };
    let environment = [("LD_PRELOAD", library.to_str().unwrap()), ("MALLOC_CONF", "narenas:1")];
    let wasteful = Wasteful::begin(&["trim"], &environment);
    let at_once = "narenas:1,dirty_decay_ms:0,muzzy_decay_ms:0";
    let small = Wasteful::begin(&["trim"], &[environment[0], ("MALLOC_CONF", at_once)]);
    let (before, after) = (wasteful.rss(), small.rss());
    expect_kept(promised(&before, "free-pages"), &before, &after, 5);
    assert_eq!(promised(&after, "free-pages"), 0, "{after:#}");
    let text = wasteful.text();
    assert!(text.contains("of jemalloc's heap are free pages") && text.contains("MALLOC_CONF="), "{text}");
    wasteful.end();
    small.end();
}

/// A recording has the owners of blocks.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_pool_keeps_fewer_pages() {
    let scratch = Scratch::new();
    let ask = |arguments: &[&str], name: &str| {
        let file = scratch.file(name);
        let recorded = Wasteful::recorded(arguments, &file);
        // Has a snapshot written into the recording.
        let outcome = heapledger(["rss", &recorded.pid]);
        assert!(outcome.status.success(), "{outcome:?}");
        recorded.end();
        Recording::open(file).ask("advise", &[])
    };
    let answer = ask(&["fragmented"], "fragmented.hl");
    let advice = answer["advice"].as_array().unwrap().iter().find(|advice| advice["rule"] == "pool");
    let advice = advice.unwrap_or_else(|| panic!("{answer:#}"));
    assert_eq!(advice["owner"]["function"], "keep", "{advice:#}");
    assert_eq!(number(&advice["evidence"], "blocks"), 4_000, "{advice:#}");
    let of_function = Recording::open(scratch.file("fragmented.hl")).ask("advise", &["--function", "keep"]);
    assert!(!of_function["advice"].to_string().contains("\"pool\""), "{of_function:#}");
    let why = "snapshots do not tell the selected blocks apart";
    assert!(of_function["skipped"].to_string().contains(why), "{of_function:#}");
    // The free memory between them is given back in both.
    let [before, after] = [&["fragmented"][..], &["fragmented", "pool"]].map(|arguments| {
        let mut wasteful = Wasteful::begin(arguments, &[]);
        wasteful.child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        assert_eq!(wasteful.line(), "trimmed\n");
        let answer = wasteful.rss();
        wasteful.end();
        answer
    });
    expect_kept(number(advice, "bytes"), &before, &after, 10);
    let proof = advice["proof"].as_str().unwrap();
    let shown = heapledger(proof.split(' ').skip(1)).text();
    assert!(shown.contains("keep"), "{proof}: {shown}");
    let there = heapledger(proof.split(' ').skip(1).chain(["--json"])).text();
    let there: Value = serde_json::from_str(&there).unwrap();
    assert_eq!(there["time_seconds"], advice["evidence"]["at_seconds"], "{proof}: {there:#}");
    assert_eq!(there["process"], advice["evidence"]["process"], "{proof}: {there:#}");
    let answer = ask(&["fragmented", "pool"], "pooled.hl");
    assert!(!answer["advice"].as_array().unwrap().iter().any(|advice| advice["rule"] == "pool"), "{answer:#}");
}

#[test]
fn memory_in_use_is_no_matter_for_advice() {
    let wasteful = Wasteful::begin(&["none"], &[]);
    let answer = wasteful.rss();
    assert_eq!(answer["advice"].as_array().unwrap().len(), 0, "{answer:#}");
    assert!(!wasteful.text().contains("computed and not tried"));
    wasteful.end();
}
