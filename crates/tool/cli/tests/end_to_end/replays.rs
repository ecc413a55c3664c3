//! `heapledger replay`: the calls of logs and recordings, made again with other allocators.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{HEAPLEDGER, Job, Scratch, exited, heapledger, installed, number, program};

/// An allocator of which everything is known: a usable size is a multiple of 64, nothing is given
/// back. It writes what it is asked about arenas and purges to the file `ASKED`.
const COUNTED: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#define ROOM (8UL << 30)
static _Atomic(uintptr_t) next, end;
void *memalign(size_t alignment, size_t size) {
    size_t usable = (size + 63) / 64 * 64;
    if (usable < size || usable > ROOM / 8) return NULL;
    if (!next) { next = (uintptr_t)mmap(NULL, ROOM, 3, 0x4022, -1, 0); end = next + ROOM; }
    uintptr_t start, after;
    do {
        start = next;
        after = (start + 64 + alignment - 1) / alignment * alignment + usable;
        if (after > end) return NULL;
    } while (!__atomic_compare_exchange_n((uintptr_t *)&next, &start, after, 0, 5, 5));
    ((size_t *)(after - usable))[-1] = usable;
    return (void *)(after - usable);
}
void *malloc(size_t size) { return memalign(64, size); }
size_t malloc_usable_size(void *block) { return block ? ((size_t *)block)[-1] : 0; }
void *calloc(size_t count, size_t size) { return malloc(count * size); }
void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }
void *valloc(size_t size) { return memalign(4096, size); }
void free(void *block) { }
int posix_memalign(void **out, size_t alignment, size_t size) { *out = memalign(alignment, size); return !*out; }
void *realloc(void *old, size_t size) {
    void *block = malloc(size);
    if (block && old) memcpy(block, old, size < malloc_usable_size(old) ? size : malloc_usable_size(old));
    return block;
}
static void asked(const char *what, const char *label) {
    const char *file = getenv("ASKED");
    int to = file ? open(file, O_WRONLY | O_CREAT | O_APPEND, 0600) : -1;
    if (to < 0) return;
    char line[200] = "";
    strncat(strncat(line, what, 60), label, 120);
    strcat(line, "\n");
    if (write(to, line, strlen(line)) < 0) abort();
    close(to);
}
struct params { uint32_t size, flags; const char *label; };
static uint64_t arenas;
uint64_t heapledger_arena_create(const struct params *params) { asked("create ", params->label); return ++arenas; }
void heapledger_arena_dispose(uint64_t arena) { asked("dispose ", arena <= arenas ? "" : "wrong"); }
void *heapledger_arena_malloc(uint64_t arena, size_t size) { asked("malloc", ""); return malloc(size); }
void *heapledger_arena_calloc(uint64_t arena, size_t n, size_t size) { asked("calloc", ""); return malloc(n * size); }
void *heapledger_arena_memalign(uint64_t arena, size_t a, size_t size) { asked("memalign", ""); return memalign(a, size); }
size_t heapledger_purge_all(void) { asked("purge all", ""); return 0; }
size_t heapledger_purge_excess(void) { asked("purge excess", ""); return 0; }
"#;

fn counted(scratch: &Scratch) -> PathBuf {
    let (source, file) = (scratch.write("counted.c", COUNTED), scratch.file("libcounted.so"));
    let done = Command::new("cc").args(["-O2", "-shared", "-fPIC", "-o"]).arg(&file).arg(source).status().unwrap();
    assert!(done.success());
    file
}

fn replayed(file: &Path, options: &[&str]) -> Value {
    let words = ["replay", "--json", "--rounds", "1"].into_iter().chain(options.iter().copied());
    let outcome = heapledger(words.map(AsRef::as_ref).chain([file.as_os_str()]));
    assert!(outcome.status.success(), "{options:?}: {outcome:?}");
    serde_json::from_slice(&outcome.stdout).unwrap()
}

/// Returns the sum of a figure over the size classes of the first allocator.
fn sum(replay: &Value, figure: &str) -> i64 {
    replay["rows"][0]["classes"].as_array().unwrap().iter().map(|class| number(class, figure)).sum()
}

fn last_sample(replay: &Value) -> &Value {
    replay["rows"][0]["samples"].as_array().unwrap().last().unwrap()
}

/// The log, the recording and the program agree; the allocator is given each request once.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn every_call_is_made_once() {
    let scratch = Scratch::new();
    let allocator = counted(&scratch);
    let own = ["--allocator", allocator.to_str().unwrap()];
    for (job, options) in [
        (Job::fixture("mix", "20480"), &[][..]),
        (Job::fixture("mix_threads", "3000"), &["--threads"]),
        (Job::fixture("mix_threads", "3000"), &[]),
    ] {
        let options = [&own[..], options].concat();
        let (log, recording) = (scratch.file("calls.log"), scratch.file("calls.hl"));
        let words = ["log", "record", "--quiet", "--force", "-o", log.to_str().unwrap()];
        assert!(job.through(words.map(AsRef::as_ref)).outcome().status.success());
        let words = ["record", "--quiet", "--force", "-o", recording.to_str().unwrap()];
        assert!(job.through(words.map(AsRef::as_ref)).outcome().status.success());
        let info = heapledger(["log".as_ref(), "info".as_ref(), "--json".as_ref(), log.as_os_str()]);
        let info: Value = serde_json::from_slice(&info.stdout).unwrap();
        let from_log = replayed(&log, &options);
        assert_eq!(number(&from_log, "bytes_requested_max"), number(&info, "bytes_live_max"), "{options:?}");
        let row = &from_log["rows"][0];
        assert_eq!((number(row, "failed"), number(&from_log, "frees_unknown")), (0, 0), "{row:#}");
        // Each block of the log, and what the allocator makes of it.
        let text = fs::read_to_string(&log).unwrap();
        let size = |line: &str| {
            let (call, result) = line.rsplit_once(")=")?;
            let arguments = call.split_once('(')?.1;
            let numbers: Vec<i64> = arguments.split(',').map(|word| word.parse().unwrap_or(0)).collect();
            let size = if line.contains(" calloc(") { numbers.iter().product() } else { *numbers.last()? };
            (result != "0x0").then_some(size)
        };
        let sizes: Vec<i64> = text.lines().filter_map(size).collect();
        let usable = sizes.iter().map(|size| (size + 63) / 64 * 64).sum();
        let found = ["blocks", "bytes_requested", "bytes_usable"].map(|figure| sum(&from_log, figure));
        assert_eq!(found, [sizes.len() as i64, sizes.iter().sum(), usable], "{options:?}");
        // With threads, requests are counted in the order of the log, and answered in another.
        let end = last_sample(&from_log);
        let is_enough = number(end, "bytes_usable") >= number(end, "bytes_requested");
        assert!(is_enough || options.contains(&"--threads"), "{end:#}");

        // Threads call in another order each time, and the C library makes blocks for them.
        let from_recording = replayed(&recording, &options);
        if number(&info, "threads") == 1 {
            for name in ["calls", "bytes_requested_max", "frees_unknown"] {
                assert_eq!(from_recording[name], from_log[name], "{name}");
            }
            assert_eq!(from_recording["rows"][0]["classes"], from_log["rows"][0]["classes"]);
        }
        assert_eq!(number(&from_recording["rows"][0], "failed"), 0);
    }
}

/// The calls of threads that give blocks to each other, with every allocator that is here.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn threads_and_allocators() {
    let scratch = Scratch::new();
    let file = scratch.file("calls.hl");
    let job = Job::fixture("exchange", "20000");
    let words = ["record", "--quiet", "-o", file.to_str().unwrap()];
    assert!(job.through(words.map(AsRef::as_ref)).outcome().status.success());
    for options in [&["--threads"][..], &[], &["--no-touch"], &["--time", "--scale", "0.1", "--threads"]] {
        let replay = replayed(&file, options);
        let rows = replay["rows"].as_array().unwrap();
        assert!(rows.len() >= 2 && rows[0]["allocator"] == "system" && rows[1]["allocator"] == "heapledger");
        for row in rows {
            assert_eq!(number(row, "failed"), 0, "{options:?}: {row:#}");
            // With gaps, most of the time is that of the player, which is subtracted.
            assert!(number(row, "cpu_ns") > 0 || options.contains(&"--time"), "{options:?}: {row:#}");
            // An allocator has some memory before the first call.
            let resident = number(row, "bytes_resident_max") + (1 << 20);
            let is_enough = resident > number(&replay, "bytes_requested_max");
            assert!(is_enough || options == ["--no-touch"], "{options:?}: {row:#}");
        }
    }
    // The wishes for pictures and tables.
    let picture = scratch.file("picture.svg");
    let words = ["replay", "--rounds", "1", "--svg", "-o", picture.to_str().unwrap(), file.to_str().unwrap()];
    assert!(heapledger(words).status.success());
    let text = fs::read_to_string(picture).unwrap();
    assert!(text.starts_with("<svg") && text.contains(">heapledger</text>"), "{text}");
    let outcome = heapledger(["replay", "--sizes", "--rounds", "1", "-a", "system", file.to_str().unwrap()]);
    assert!(outcome.status.success() && outcome.text().contains("slop of system"), "{outcome:?}");
}

/// A program that nobody here wrote needs as much memory in the replay as by itself.
#[test]
fn memory_is_that_of_the_program() {
    let Some(lua) = installed("lua5.4") else { return };
    let scratch = Scratch::new();
    let file = scratch.file("calls.hl");
    let script = "local t = {} for i = 1, 200000 do t[i] = {i, tostring(i)} end \
        for line in io.lines('/proc/self/status') do print(line) end";
    let words = ["record", "--quiet", "-o", file.to_str().unwrap(), "--"];
    let words = words.iter().map(AsRef::as_ref).chain([lua.as_os_str(), "-e".as_ref(), script.as_ref()]);
    assert!(Job::new([HEAPLEDGER.as_ref()].into_iter().chain(words)).bare().status.success());
    let outcome = Job::new([lua.as_os_str(), "-e".as_ref(), script.as_ref()]).bare();
    let text = outcome.text();
    let kibibytes = text.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    let anonymous: i64 = kibibytes.trim().trim_end_matches(" kB").parse::<i64>().unwrap() * 1024;
    let replay = replayed(&file, &["-a", "system"]);
    let resident = number(&replay["rows"][0], "bytes_resident_max");
    // The program has stacks and data of libraries besides its heap: less than 1 MiB.
    assert!((anonymous - 1_500_000..=anonymous + 500_000).contains(&resident), "{resident} of {anonymous}");
}

/// Points at which the program asked for statistics have the lines of logalloc-replay.
#[test]
fn statistics_are_printed_where_the_program_asked() {
    let scratch = Scratch::new();
    let asks =
        scratch.write("asks.log", "1 1 malloc(50)=#1\n1 1 jemalloc_stats()\n1 1 free(#1)\n1 1 jemalloc_stats()\n");
    let outcome = heapledger(["replay", "-a", "system", asks.to_str().unwrap()]);
    let lines = |word: &str| {
        outcome.text().lines().filter(|line| line.starts_with(word)).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(lines("Objects:"), ["Objects:               1", "Objects:               0"], "{outcome:?}");
    assert_eq!(lines("allocated:"), ["allocated:            56", "allocated:             0"], "{outcome:?}");
    assert_eq!(lines("Total slop:"), ["Total slop: 6", "Total slop: 6"]);
    assert_eq!(lines("Live sloppy objects:"), ["Live sloppy objects: 1", "Live sloppy objects: 0"]);
    assert_eq!(lines("Live sloppy bytes:"), ["Live sloppy bytes: 6", "Live sloppy bytes: 0"]);
    // The block of 56 bytes is in the bin of 64.
    let bins = outcome.text().lines().filter(|line| line.ends_with(" 64 B") && line.contains(" 12 %")).count();
    assert_eq!(bins, 1, "{outcome:?}");
    // The same points are in a recording of the log, and in each of several processes.
    let converted = scratch.file("asks.hl");
    let words = ["log", "convert", asks.to_str().unwrap(), "-o", converted.to_str().unwrap()];
    assert_eq!(heapledger(words).status, exited(0));
    let two =
        scratch.write("two.log", "1 1 malloc(50)=#1\n2 1 malloc(8)=#2\n1 1 jemalloc_stats()\n2 1 jemalloc_stats()\n");
    for (file, expected) in [(&converted, [1, 0]), (&two, [1, 1])] {
        let text = heapledger(["replay", "-a", "system", file.to_str().unwrap()]).text();
        let objects = text.lines().filter_map(|line| line.strip_prefix("Objects:")?.trim().parse().ok());
        assert_eq!(objects.collect::<Vec<u64>>(), expected, "{text}");
    }
    let own = heapledger(["replay", "-a", "heapledger", asks.to_str().unwrap()]).text();
    let labels =
        ["dirty:", "fresh:", "madvised:", "bookkeep:", "bin-unused:", "quantum-max:", "small-max:", "large-max:"];
    for label in labels {
        assert_eq!(own.lines().filter(|line| line.starts_with(label)).count(), 2, "{label} {own}");
    }
    // The same in JSON: the block is in a bin of the allocator, and freed at the second point.
    let replay = replayed(&asks, &["-a", "heapledger", "-a", "system"]);
    let [own, system] = [0, 1].map(|row| &replay["rows"][row]["points"]);
    assert_eq!([&own[0]["requests"], &own[1]["requests"]], [&json!([{"size_min": 50, "blocks": 1}]), &json!([])]);
    let slop = number(&own[0], "bytes_usable") - 50;
    assert_eq!(["bytes_slop_all", "calls", "blocks", "slots"].map(|name| number(&own[1], name)), [slop, 2, 0, 1]);
    let bin = own[0]["own"]["bins"].as_array().unwrap().iter().find(|bin| number(bin, "size") == 50 + slop);
    assert!(bin.is_some_and(|bin| number(bin, "blocks") > 0 && number(bin, "runs") > 0), "{own:#}");
    assert!(number(&own[0]["own"], "quantum_max") < number(&own[0]["own"], "large_max"), "{own:#}");
    assert!(system[0].get("own").is_none() && number(&system[0], "bytes_usable") == 56, "{system:#}");
}

/// Returns the log of four threads that free each other's blocks, and that ask for statistics after
/// every few calls, often two at once.
fn log_with_points() -> String {
    let (mut text, mut live, mut random) = (String::new(), Vec::new(), 1_u64);
    let mut below = |limit: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % limit
    };
    for call in 1..=1500_u64 {
        let (thread, is_free) = (1 + below(4), below(3) == 0 && !live.is_empty());
        if is_free {
            let block: u64 = live.swap_remove(below(live.len() as u64) as usize);
            text += &format!("1 {thread} free({block:#x})\n");
        } else {
            live.push(call * 16);
            text += &format!("1 {thread} malloc({})={:#x}\n", 1 + below(900), call * 16);
        }
        for _ in 0..if call % 9 == 0 { 1 + below(2) } else { 0 } {
            text += &format!("1 {} jemalloc_stats()\n", 1 + below(4));
        }
    }
    text
}

/// With threads, the figures of each point are those of the calls before it, whoever runs first.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn statistics_of_threads_are_those_of_one() {
    let scratch = Scratch::new();
    let (allocator, log) = (counted(&scratch), scratch.write("points.log", log_with_points()));
    let figures = |options: &[&str]| {
        let words = ["replay", "--rounds", "1", "-a", allocator.to_str().unwrap(), log.to_str().unwrap()];
        let outcome = heapledger(words.iter().chain(options));
        assert!(outcome.status.success(), "{outcome:?}");
        // Not the slots, which are taken again later if there are threads.
        let names = ["Objects:", "Ops:", "allocated:", "Total slop:", "Live sloppy"];
        let is_exact = |line: &&str| names.iter().any(|name| line.starts_with(name));
        outcome.text().lines().filter(is_exact).map(str::to_owned).collect::<Vec<String>>()
    };
    let alone = figures(&[]);
    assert!(alone.len() > 6 * 200, "{}", alone.len());
    for _ in 0..15 {
        assert!(figures(&["--threads"]) == alone);
    }
}

#[test]
fn wrong_works_and_allocators_are_told() {
    let scratch = Scratch::new();
    let file =
        scratch.write("calls.log", "1 1 malloc(50)=0x10\n2 2 malloc(7)=0x20\n\noops\n1 1 free(0x10)\n1 1 free(0x30)\n");
    let failed = |options: &[&str], file: &Path, status: i32, says: &str| {
        let words = ["replay"].iter().chain(options).map(|word| (*word).as_ref());
        let outcome = heapledger(words.chain([file.as_os_str()]));
        let said = String::from_utf8_lossy(&outcome.stderr).into_owned();
        assert!(outcome.status == exited(status) && said.contains(says), "{options:?}: {outcome:?}");
    };
    failed(&[], &file, 102, "line 4 of");
    failed(&["--keep-going", "--time"], &file, 2, "does not say when");
    let timed = scratch.write("timed.log", "1 1 malloc(50)=0x10 time=1\n1 1 free(0x10) time=200000001\n");
    let replay = replayed(&timed, &["-a", "system", "--time"]);
    assert!(number(&replay["rows"][0], "wall_ns") >= 200_000_000, "{replay:#}");
    failed(&["--keep-going", "--process", "3"], &file, 102, "has no call of an allocator");
    let replay = replayed(&file, &["--keep-going", "-a", "system", "--process", "1"]);
    let figures = ["process", "calls", "frees_unknown", "bytes_requested_max"].map(|name| number(&replay, name));
    assert_eq!(figures, [1, 2, 1, 50]);
    let replay = replayed(&file, &["--keep-going", "-a", "system"]);
    let figures = ["calls", "frees_unknown", "bytes_requested_max"].map(|name| number(&replay, name));
    assert_eq!((figures, replay["processes"].as_array().unwrap().len()), ([3, 1, 7], 2), "{replay:#}");
    let replay = replayed(&file, &["--keep-going", "-a", "system", "--process", "2"]);
    assert_eq!(["process", "calls"].map(|name| number(&replay, name)), [2, 1]);
    // A few calls, of which one is a reallocation to nothing that has returned a block.
    let few = scratch
        .write("few.log", "1 1 malloc(1000000)=#1\n1 1 realloc(#1,0)=#1\n1 1 malloc(5000000)=#2\n1 1 free(#1)\n");
    for options in [&["-a", "system"][..], &["-a", "system", "--threads"]] {
        let replay = replayed(&few, options);
        let row = &replay["rows"][0];
        assert!(number(row, "bytes_resident_max") >= 4_800_000, "{row:#}");
        // The small block has a page of its own until it is freed.
        let freed = number(row, "bytes_resident_max") - number(row, "bytes_resident_end");
        assert!((0..=8192).contains(&freed), "{row:#}");
        assert_eq!(number(last_sample(&replay), "calls"), 4);
    }
    // Allocators that are none, and one that ends the process.
    let text = scratch.write("text.so", "no library");
    failed(&["--keep-going", "-a", text.to_str().unwrap()], &file, 101, "cannot use the allocator");
    let source = scratch.write(
        "dies.c",
        "#include <stdlib.h>\nvoid *malloc(size_t s) { abort(); }\nvoid free(void *b) {}\n\
             void *calloc(size_t n, size_t s) { abort(); }\nvoid *realloc(void *b, size_t s) { abort(); }\n",
    );
    let all = fs::read_to_string(&source).unwrap()
        + "void *memalign(size_t a, size_t s) { abort(); }\n\
        int posix_memalign(void **o, size_t a, size_t s) { abort(); }\n\
        void *aligned_alloc(size_t a, size_t s) { abort(); }\nsize_t malloc_usable_size(void *b) { return 0; }\n";
    let few = scratch.file("libfew.so");
    let compile = |to: &Path| {
        let done = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(to).arg(&source).status();
        assert!(done.unwrap().success());
    };
    compile(&few);
    failed(&["--keep-going", "-a", few.to_str().unwrap()], &file, 101, "exports no `memalign`");
    fs::write(&source, all).unwrap();
    let dies = scratch.file("libdies.so");
    compile(&dies);
    failed(&["--keep-going", "-a", dies.to_str().unwrap()], &file, 101, "signal 6");
    // Recordings without all calls.
    let mix = program("mix");
    for (option, says) in [("--sample=4KiB", "has a sample of the blocks"), ("--aggregate", "has no events")] {
        let recording = scratch.file("calls.hl");
        let words = ["record", "--quiet", "--force", option, "-o", recording.to_str().unwrap(), "--"];
        let words = words.iter().map(|word| (*word).as_ref()).chain([mix.as_os_str(), "1000".as_ref()]);
        assert!(heapledger(words).status.success());
        failed(&[], &recording, 2, says);
        failed(&["--process", "1"], &recording, 2, if option == "--aggregate" { "has no process 1" } else { says });
    }
}

/// Each process is replayed by itself, begins with what it has inherited, and the sums add up.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn processes_begin_with_what_they_inherit() {
    let scratch = Scratch::new();
    let file = scratch.file("calls.hl");
    let job = Job::fixture("inherits", "");
    let words = ["record", "--quiet", "-o", file.to_str().unwrap()];
    let outcome = job.through(words.map(AsRef::as_ref)).outcome();
    assert!(outcome.status.success(), "{outcome:?}");
    let told: Vec<(i64, i64)> =
        outcome.printed_objects().iter().map(|told| (number(told, "process"), number(told, "calls"))).collect();
    let [grandchild, first, second, parent] = told[..] else { panic!("{told:?}") };

    let replay = replayed(&file, &["-a", "system", "-a", "heapledger"]);
    let of = |replay: &Value, process: i64| -> Value {
        let processes = replay["processes"].as_array().unwrap();
        processes.iter().find(|it| number(it, "process") == process).unwrap().clone()
    };
    let mut calls = 0;
    for ((process, made), inherited) in [(parent, 0), (first, 2000), (grandchild, 6000), (second, 2000)] {
        let figures = of(&replay, process);
        // The C library may make a few calls of its own before `main`.
        assert!((made..=made + 20).contains(&number(&figures, "calls")), "{made}: {figures:#}");
        assert!((inherited..=inherited + 20).contains(&number(&figures, "blocks_inherited")), "{inherited}");
        assert_eq!(figures["program"], "inherits");
        calls += number(&figures, "calls");
    }
    assert_eq!(
        (number(&replay, "calls"), number(&replay, "frees_unknown"), number(&replay, "frees_missing")),
        (calls, 0, 0)
    );
    for at in [0, 1] {
        let sum = |figure: &str| -> i64 {
            let rows = replay["processes"].as_array().unwrap().iter().map(|process| &process["rows"][at]);
            rows.map(|row| number(row, figure)).sum()
        };
        let row = &replay["rows"][at];
        assert_eq!(
            ["cpu_ns", "faults_minor", "failed"].map(|name| number(row, name)),
            ["cpu_ns", "faults_minor", "failed"].map(sum)
        );
        // A child has 10 MB, and has freed 1 MB that it had inherited; its parent has 2 MB.
        for child in [first, second] {
            let peak = number(&of(&replay, child.0)["rows"][at], "bytes_resident_max");
            assert!((8_500_000..11_000_000).contains(&peak), "{peak}");
        }
        assert!(number(&of(&replay, grandchild.0)["rows"][at], "bytes_resident_max") < 100_000);
        let peak = number(row, "bytes_resident_max");
        assert!((10_500_000..13_000_000).contains(&peak), "{peak}");
    }
    let text = heapledger(["replay", "--rounds", "1", "-a", "system", "--over-time", file.to_str().unwrap()]).text();
    assert!(text.contains("in 4 processes;") && text.contains(&format!("process {} inherits: ", first.0)), "{text}");

    // One process, and several at their times: the parent waits twice for 200 ms.
    let alone = replayed(&file, &["-a", "system", "--process", &parent.0.to_string()]);
    assert_eq!((number(&alone, "process"), &alone["processes"]), (parent.0, &Value::Array(Vec::new())));
    let named = replayed(&file, &["-a", "system", "--process", "inherits"]);
    assert_eq!((&named["calls"], &named["processes"].as_array().unwrap().len()), (&replay["calls"], &4), "{named:#}");
    let wall = |options: &[&str]| {
        let replay = replayed(&file, &[&["-a", "system", "--time"], options].concat());
        assert_eq!(number(&replay["rows"][0], "failed"), 0);
        number(&of(&replay, parent.0)["rows"][0], "wall_ns")
    };
    assert!(wall(&[]) >= 400_000_000);
    assert!(wall(&["--scale", "0.1"]) >= 40_000_000);
    assert!(wall(&["--scale", "0.5", "--threads"]) >= 200_000_000);
}

/// Compiles a program that frees what it has, and then gives it back to the system.
fn trimming(scratch: &Scratch) -> PathBuf {
    let text = "#include <malloc.h>\n#include <string.h>\nstatic void *blocks[500];\nint main(void) {\n\
        for (int i = 0; i < 500; i++) memset(blocks[i] = malloc(2000), 1, 2000);\n\
        for (int i = 0; i < 500; i++) free(blocks[i]);\nreturn !malloc_trim(0);\n}\n";
    let text = format!("#include <stdlib.h>\n{text}");
    let (source, file) = (scratch.write("trims.c", &text), scratch.file("trims"));
    let done = Command::new("cc").args(["-O0", "-o"]).arg(&file).arg(source).status().unwrap();
    assert!(done.success());
    file
}

/// Blocks of arenas are asked for in arenas of the same labels, by an allocator that has arenas,
/// and purges are repeated.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn arenas_and_purges_are_the_programs() {
    let scratch = Scratch::new();
    let (allocator, file) = (counted(&scratch), scratch.file("calls.hl"));
    for (argument, threads, expected) in [
        ("", "", &[("create images", 1), ("create parsers", 1), ("create limited", 1), ("dispose ", 1)][..]),
        ("", "--threads", &[("create images", 1), ("create parsers", 1), ("create limited", 1), ("dispose ", 0)]),
        ("trims", "", &[("purge all", 1)]),
    ] {
        let trims = Job::new([trimming(&scratch)]);
        let job = if argument == "trims" { trims } else { Job::fixture("labelled_arenas", argument) };
        let words = ["record", "--quiet", "--force", "--allocator", "heapledger", "-o", file.to_str().unwrap()];
        assert!(job.through(words.map(AsRef::as_ref)).outcome().status.success());
        let asked = scratch.file("asked");
        let _ = fs::remove_file(&asked);
        let own = format!("ASKED={} {}", asked.display(), allocator.display());
        let options = ["-a", &own, "-a", "heapledger", "-a", "system", threads];
        let replay = replayed(&file, &options[..if threads.is_empty() { 6 } else { 7 }]);
        let text = fs::read_to_string(&asked).unwrap();
        // For time, memory and system calls.
        for (line, times) in expected {
            assert_eq!(text.lines().filter(|asked| asked == line).count(), 3 * times, "{argument} {line}: {text}");
        }
        if argument.is_empty() {
            assert_eq!(text.lines().filter(|asked| *asked == "calloc").count(), 3);
            assert_eq!(text.lines().filter(|asked| *asked == "memalign").count(), 3);
            assert_eq!(replay["arenas"].to_string(), r#"["images","limited","parsers"]"#);
        }
        for row in replay["rows"].as_array().unwrap() {
            assert_eq!(number(row, "failed"), 0, "{row:#}");
        }
    }
}

/// The saving that `advise` promises comes true when the program runs with that allocator.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn advice_by_a_replay_comes_true() {
    let Some(lua) = installed("lua5.4") else { return };
    let scratch = Scratch::new();
    let (file, result) = (scratch.file("calls.hl"), scratch.file("replay.json"));
    // Blocks of 16 bytes, of which glibc makes 32.
    let script = "local t = {} for i = 1, 400000 do t[i] = {i} end \
        for line in io.lines('/proc/self/status') do print(line) end";
    let program = [lua.as_os_str(), "-e".as_ref(), script.as_ref()];
    let words = ["record", "--quiet", "-o", file.to_str().unwrap(), "--"];
    let words = words.iter().map(AsRef::as_ref).chain(program);
    assert!(Job::new([HEAPLEDGER.as_ref()].into_iter().chain(words)).bare().status.success());
    let saves = ["replay", "--json", "--rounds", "1", "-a", "system", "-a", "heapledger", "-o"];
    let saved = heapledger(saves.iter().map(AsRef::as_ref).chain([result.as_os_str(), file.as_os_str()]));
    assert!(saved.status.success(), "{saved:?}");
    let advise = |result: &Path| {
        let words = ["advise", "--json", "--replay"];
        heapledger(words.iter().map(AsRef::as_ref).chain([result.as_os_str(), file.as_os_str()]))
    };
    let answer: Value = serde_json::from_slice(&advise(&result).stdout).unwrap();
    let advice = answer["advice"].as_array().unwrap().iter().find(|advice| advice["rule"] == "allocator").unwrap();
    assert_eq!(advice["evidence"]["other"]["allocator"], "heapledger", "{advice:#}");
    let promised = number(advice, "bytes");
    let anonymous = |allocator: &str| {
        let words = ["run", "--allocator", allocator, "--"];
        let words = words.iter().map(AsRef::as_ref).chain(program);
        let outcome = Job::new([HEAPLEDGER.as_ref()].into_iter().chain(words)).bare();
        let text = outcome.text();
        let kibibytes = text.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        kibibytes.trim().trim_end_matches(" kB").parse::<i64>().unwrap() * 1024
    };
    let saved = anonymous("system") - anonymous("heapledger");
    // The program without its blocks has 1 MiB more or less, depending on the allocator.
    assert!((saved - promised).abs() <= promised / 20 + (1 << 20), "{saved} of {promised}");
    // The proof is a command.
    let proof = advice["proof"].as_str().unwrap();
    assert!(proof.starts_with("heapledger replay ") && proof.ends_with(" -a system -a heapledger"), "{proof}");

    // Results of other programs, and other documents.
    let text = fs::read_to_string(&result).unwrap();
    let changed = text.replacen("\"process\": ", "\"process\": 1", 1);
    let other = scratch.write("other.json", &changed);
    let empty = scratch.write("empty.json", "{}");
    for (file, says) in
        [(&other, "the recording has no process 1"), (&empty, "it is not the JSON of"), (&file, "HL0099")]
    {
        let outcome = advise(file);
        let said = String::from_utf8_lossy(&outcome.stderr);
        assert!(outcome.status == exited(102) && said.contains(says), "{outcome:?}");
    }
}
