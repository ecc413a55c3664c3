//! `heapledger replay`: the calls of logs and recordings, made again with other allocators.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::harness::{HEAPLEDGER, Job, Scratch, exited, heapledger, installed, number, program};

/// An allocator of which everything is known: a usable size is a multiple of 64, nothing is given
/// back.
const COUNTED: &str = r#"
#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
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
            assert!(number(row, "cpu_ns") > 0, "{options:?}: {row:#}");
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
    failed(&["--keep-going", "--process", "3"], &file, 102, "has no call of an allocator");
    let replay = replayed(&file, &["--keep-going", "-a", "system"]);
    let figures = ["process", "calls", "frees_unknown", "bytes_requested_max"].map(|name| number(&replay, name));
    assert_eq!(figures, [1, 2, 1, 50]);
    let replay = replayed(&file, &["--keep-going", "-a", "system", "--process", "2"]);
    assert_eq!(["process", "calls"].map(|name| number(&replay, name)), [2, 1]);
    // Points at which the program asked for statistics.
    let asks =
        scratch.write("asks.log", "1 1 malloc(50)=#1\n1 1 jemalloc_stats()\n1 1 free(#1)\n1 1 jemalloc_stats()\n");
    let outcome = heapledger(["replay", "-a", "system", asks.to_str().unwrap()]);
    let lines = |word: &str| {
        outcome.text().lines().filter(|line| line.starts_with(word)).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(lines("Objects:"), ["Objects:               1", "Objects:               0"], "{outcome:?}");
    assert_eq!(lines("allocated:"), ["allocated:            56", "allocated:             0"], "{outcome:?}");
    // A few calls, of which one is a reallocation to nothing that has returned a block.
    let few = scratch
        .write("few.log", "1 1 malloc(1000000)=#1\n1 1 realloc(#1,0)=#1\n1 1 malloc(5000000)=#2\n1 1 free(#1)\n");
    for options in [&["-a", "system"][..], &["-a", "system", "--threads"]] {
        let replay = replayed(&few, options);
        let row = &replay["rows"][0];
        assert!(number(row, "bytes_resident_max") >= 4_800_000, "{row:#}");
        assert_eq!(
            (number(row, "bytes_resident_max"), 4),
            (number(row, "bytes_resident_end"), number(last_sample(&replay), "calls"))
        );
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
        failed(&["--process", "1"], &recording, 2, if option == "--aggregate" { "is not in" } else { says });
    }
}
