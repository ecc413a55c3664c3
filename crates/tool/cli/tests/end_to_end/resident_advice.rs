//! Advice on resident memory: what it promises, and what comes out if it is followed.

use std::process::Command;

use serde_json::Value;

use crate::harness::*;
use crate::rss::{Recorded, Waiting};

/// Starts the program with memory that is of no use, and waits until it has it.
fn begin(arguments: &[&str], environment: &[(&str, &str)]) -> Waiting {
    let mut command = Command::new(program("resident_advice"));
    Waiting::begin(command.args(arguments).envs(environment.iter().copied()))
}

/// Returns the text of `rss` about the program.
fn text(waiting: &Waiting) -> String {
    heapledger(["rss", &waiting.child.id().to_string()]).text()
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
    let mut wasteful = begin(&["trim"], &[]);
    let before = wasteful.ask();
    let text = text(&wasteful);
    assert!(text.contains("1 piece of advice, computed and not tried\n\n1. trim, "), "{text}");
    assert!(text.contains("   try: call malloc_trim(0) when"), "{text}");
    assert_eq!(wasteful.tell(), "trimmed\n");
    expect_kept(promised(&before, "trim"), &before, &wasteful.ask(), 2);
    wasteful.end();
}

#[test]
fn fewer_arenas_keep_less_free_memory() {
    // As many arenas as threads, however many processors there are.
    let wasteful = begin(&["arenas"], &[("MALLOC_ARENA_MAX", "64")]);
    let few = begin(&["arenas"], &[("MALLOC_ARENA_MAX", "2")]);
    let (before, after) = (wasteful.ask(), few.ask());
    expect_kept(promised(&before, "arenas"), &before, &after, 10);
    assert_eq!(promised(&after, "arenas"), 0, "{after:#}");
    let text = text(&wasteful);
    assert!(text.contains("   try: run it with MALLOC_ARENA_MAX=2, or call"), "{text}");
    wasteful.end();
    few.end();
}

#[test]
fn caches_of_threads_keep_memory() {
    let environment = ("MALLOC_ARENA_MAX", "64");
    let wasteful = begin(&["caches"], &[environment]);
    let none = begin(&["caches"], &[environment, ("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0")]);
    let (before, after) = (wasteful.ask(), none.ask());
    expect_kept(promised(&before, "thread-caches"), &before, &after, 25);
    assert_eq!(promised(&after, "thread-caches"), 0, "{after:#}");
    wasteful.end();
    none.end();
}

#[test]
fn small_pages_have_no_padding() {
    let wasteful = begin(&["huge"], &[]);
    let before = wasteful.ask();
    // Too little memory in one piece, a setting of the machine, or a kernel before 6.7.
    if number(&before, "bytes_huge") < 48 << 20 || before["knows_zeroes"] == false {
        println!("skipped: no huge pages here");
        return wasteful.end();
    }
    let small = begin(&["huge", "off"], &[]);
    let after = small.ask();
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
    let wasteful = begin(&["trim"], &environment);
    let at_once = "narenas:1,dirty_decay_ms:0,muzzy_decay_ms:0";
    let small = begin(&["trim"], &[environment[0], ("MALLOC_CONF", at_once)]);
    let (before, after) = (wasteful.ask(), small.ask());
    expect_kept(promised(&before, "free-pages"), &before, &after, 5);
    assert_eq!(promised(&after, "free-pages"), 0, "{after:#}");
    let text = text(&wasteful);
    assert!(text.contains("of jemalloc's heap are free pages") && text.contains("MALLOC_CONF="), "{text}");
    wasteful.end();
    small.end();
}

/// A mapping that is never touched again, beside a heap that is.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn memory_that_nobody_touches_is_not_needed() {
    let wasteful = begin(&["idle"], &[]);
    let pid = wasteful.child.id().to_string();
    // The thread that touches the heap may have to wait for a processor.
    let mut before = Value::Null;
    wait_until("the heap is touched", || {
        before = crate::documents::read(&heapledger(["rss", &pid, "--idle", "300ms", "--json"]).stdout);
        let heap = before["idle"]["rows"].as_array().unwrap().iter().find(|row| row["name"] == "[heap]");
        heap.is_none_or(|heap| number(heap, "bytes_idle") < number(heap, "bytes_resident") / 2)
    });
    let small = begin(&["idle", "off"], &[]);
    expect_kept(promised(&before, "idle"), &before, &small.ask(), 5);
    let evidence = before["advice"].as_array().unwrap().iter().find(|advice| advice["rule"] == "idle").unwrap();
    assert_eq!(number(&evidence["evidence"], "mappings"), 1, "{before:#}");
    let text = heapledger(["rss", &pid, "--idle", "100ms"]).text();
    assert!(text.contains("not touched in ") && text.contains("idle, ") && text.contains("at 0x"), "{text}");
    let refused = heapledger(["rss", "--idle", "1s"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("hint: heapledger rss PID --idle"), "{refused:?}");
    wasteful.end();
    small.end();
}

/// A recording has the owners of blocks.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_pool_keeps_fewer_pages() {
    let scratch = Scratch::new();
    let program = program("fragmented");
    let record = |arguments: &[&str]| {
        let line: Vec<&str> = [program.to_str().unwrap()].into_iter().chain(arguments.iter().copied()).collect();
        let recorded = Recorded::begin(&scratch, &["--force"], &line);
        // Has a snapshot written into the recording.
        recorded.ask("owner");
        recorded.end()
    };
    let recording = record(&[]);
    let answer = recording.ask("advise", &[]);
    let advice = answer["advice"].as_array().unwrap().iter().find(|advice| advice["rule"] == "pool");
    let advice = advice.unwrap_or_else(|| panic!("{answer:#}"));
    assert_eq!(advice["owner"]["function"], "keep", "{advice:#}");
    assert_eq!(number(&advice["evidence"], "blocks"), 4_000, "{advice:#}");
    let of_function = recording.ask("advise", &["--function", "keep"]);
    assert!(!of_function["advice"].to_string().contains("\"pool\""), "{of_function:#}");
    let why = "snapshots do not tell the selected blocks apart";
    assert!(of_function["skipped"].to_string().contains(why), "{of_function:#}");
    // The free memory between them is given back in both.
    let [before, after] = [&[][..], &["pool"]].map(|arguments| {
        let mut waiting = Waiting::begin(Command::new(&program).args(arguments));
        assert_eq!(waiting.tell(), "trimmed\n");
        let answer = waiting.ask();
        waiting.end();
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
    let answer = record(&["pool"]).ask("advise", &[]);
    assert!(!answer["advice"].as_array().unwrap().iter().any(|advice| advice["rule"] == "pool"), "{answer:#}");
}

#[test]
fn memory_in_use_is_no_matter_for_advice() {
    let wasteful = begin(&["none"], &[]);
    let answer = wasteful.ask();
    assert_eq!(answer["advice"].as_array().unwrap().len(), 0, "{answer:#}");
    assert!(!text(&wasteful).contains("computed and not tried"));
    wasteful.end();
}
