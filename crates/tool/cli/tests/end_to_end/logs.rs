//! Logs of allocator calls: `heapledger log`, and the hook library that writes them.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use heapledger_alloc_log::Line;
use serde_json::Value;

use crate::harness::{HEAPLEDGER, Job, Outcome, Scratch, exited, heapledger, installed, number, program};

fn with_log(job: &Job, file: &Path) -> Outcome {
    let words = ["log", "record", "--quiet", "--force", "-o"].map(OsStr::new);
    job.through(words.into_iter().chain([file.as_os_str()])).outcome()
}

/// Runs a job without and with a log, and asserts that nothing else differs.
fn logged(job: &Job, scratch: &Scratch) -> (Outcome, PathBuf) {
    let (bare, file) = (job.bare(), scratch.file("calls.log"));
    let outcome = with_log(job, &file);
    assert!(bare == outcome, "the log changed {job:?}\n=== without: {bare:?}\n=== with: {outcome:?}");
    (outcome, file)
}

fn asked(verb: &str, file: &Path) -> Value {
    let outcome = heapledger(["log".as_ref(), verb.as_ref(), "--json".as_ref(), file.as_os_str()]);
    assert!(outcome.status.success(), "{outcome:?}");
    serde_json::from_slice(&outcome.stdout).unwrap()
}

/// Returns the calls of a function: calls, failed.
fn calls(info: &Value, function: &str) -> [i64; 2] {
    let rows = info["rows"].as_array().unwrap();
    let row = rows.iter().find(|row| row["function"] == function);
    row.map_or([0, 0], |row| [number(row, "calls"), number(row, "failed")])
}

/// The programs know what they did.
#[test]
fn every_call_is_in_the_log() {
    let scratch = Scratch::new();
    for job in [Job::fixture("mix", "3000"), Job::fixture("mix_threads", "500")] {
        let (outcome, file) = logged(&job, &scratch);
        let (truth, info) = (&outcome.printed_objects()[0], asked("info", &file));
        let failed: i64 = info["rows"].as_array().unwrap().iter().map(|row| number(row, "failed")).sum();
        assert_eq!(failed, number(truth, "failed"), "{info:#}");
        let gaps = ["frees_unknown", "allocations_of_live", "lines_other"].map(|name| number(&info, name));
        assert_eq!(gaps, [0, 0, 0], "{info:#}");
        // For a thread, the C library allocates, too.
        if number(&info, "threads") == 1 {
            for name in ["bytes_live_max", "blocks_live_max", "bytes_live_end", "blocks_live_end"] {
                assert_eq!(number(&info, name), number(truth, name), "{name}: {info:#}");
            }
        }
    }
}

/// A killed process keeps what it has not written yet in a file of its own.
#[test]
fn no_call_is_lost_however_the_program_ends() {
    let scratch = Scratch::new();
    for how in ["return", "exit", "_exit", "quick_exit", "exit_group", "abort", "KILL", "SEGV", "TERM"] {
        let (_, file) = logged(&Job::fixture("dies", &format!("5000 {how}")), &scratch);
        let info = asked("info", &file);
        let (malloc, [free, _]) = (calls(&info, "malloc"), calls(&info, "free"));
        // Ways to end that run functions of the C library free some of its own blocks.
        assert!(malloc[0] >= 5000 && (1000..1100).contains(&free), "{how}: {info:#}");
    }
}

/// A recording has the calls of a log.
#[test]
fn a_recording_becomes_a_log() {
    let scratch = Scratch::new();
    let file = scratch.file("converted.log");
    for job in [Job::fixture("mix", "3000"), Job::fixture("mix_threads", "500"), Job::fixture("forks", "")] {
        let (outcome, recording) = job.recorded(&scratch);
        let words = ["log", "convert", "--force", "-o"].map(OsStr::new);
        let converted = heapledger(words.into_iter().chain([file.as_os_str(), recording.path.as_os_str()]));
        assert!(converted.status.success(), "{converted:?}");
        let info = asked("info", &file);
        let gaps = ["allocations_of_live", "lines_other"].map(|name| number(&info, name));
        assert_eq!(gaps, [0, 0], "{info:#}");
        let truths = outcome.printed_objects();
        if let ([truth], 1) = (&truths[..], number(&info, "threads")) {
            for name in ["bytes_live_max", "blocks_live_max", "bytes_live_end", "blocks_live_end"] {
                assert_eq!(number(&info, name), number(truth, name), "{name}: {info:#}");
            }
        }
        assert_eq!(number(&info, "processes"), truths.len() as i64, "{info:#}");
        // It is a log like any other.
        let munged = heapledger(["log".as_ref(), "munge".as_ref(), file.as_os_str()]);
        let ignored = String::from_utf8_lossy(&munged.stderr).into_owned();
        assert!(munged.status.success(), "{munged:?}");
        // Calls that failed, and reallocations to nothing; a child frees blocks of its parent.
        let reasons = ["\": Result is NULL", "free(#0)\": Did not see an alloc for pointer"];
        assert!(ignored.lines().all(|line| reasons.iter().any(|reason| line.ends_with(reason))), "{ignored}");
        let lines = |text: &str| text.lines().count();
        assert_eq!(lines(&munged.text()) + lines(&ignored), lines(&fs::read_to_string(&file).unwrap()));
    }
    let (_, recording) = Job::fixture("mix", "100").option("--sample=4KiB").recorded(&scratch);
    let refused = heapledger(["log".as_ref(), "convert".as_ref(), recording.path.as_os_str()]);
    assert!(refused.status == exited(2) && refused.stdout.is_empty(), "{refused:?}");
}

fn converted(from: &Path, to: &Path, options: &[&str]) -> Outcome {
    let words = ["log", "convert", "--force", "-o"].map(OsStr::new).into_iter().chain([to.as_os_str()]);
    let outcome = heapledger(words.chain(options.iter().map(OsStr::new)).chain([from.as_os_str()]));
    assert!(outcome.status.success(), "{outcome:?}");
    outcome
}

/// Log, recording, log, recording: all have the same calls, and the recording answers questions.
#[test]
fn a_log_becomes_a_recording() {
    let scratch = Scratch::new();
    let [recording, log, again] = ["calls.hl", "again.log", "again.hl"].map(|name| scratch.file(name));
    for job in [Job::fixture("mix", "2000"), Job::fixture("mix_threads", "300"), Job::fixture("forks", "")] {
        let file = scratch.file("calls.log");
        with_log(&job, &file);
        let outcome = converted(&file, &recording, &[]);
        let said = String::from_utf8_lossy(&outcome.stderr).into_owned();
        assert_eq!(said.matches("no stacks, and no times").count(), 1, "{said}");
        converted(&recording, &log, &[]);
        converted(&log, &again, &[]);
        let [first, second, third, fourth] = [&file, &recording, &log, &again].map(|file| asked("info", file));
        let keys =
            ["calls", "processes", "frees_unknown", "bytes_live_max", "blocks_live_max", "bytes_live_end", "rows"];
        for key in keys {
            for other in [&second, &third, &fourth] {
                assert_eq!(first[key], other[key], "{key}: {job:?}");
            }
        }
        assert_eq!([&second["recording"], &third["recording"]], [true, false]);
        // Verbs read both.
        for file in [&file, &recording] {
            let summary = heapledger(["summary".as_ref(), "--json".as_ref(), file.as_os_str()]);
            let summary: Value = serde_json::from_slice(&summary.stdout).unwrap();
            assert_eq!(summary["blocks_live_end"], first["blocks_live_end"], "{summary:#}");
        }
    }
}

#[test]
fn lines_that_are_no_calls_are_named() {
    let scratch = Scratch::new();
    let log = scratch.write("calls.log", "1 1 malloc(9)=0x10\n1 1 malloc(x)=0x20\n1 1 free(0x10)\nend\n");
    let recording = scratch.file("calls.hl");
    let convert = |options: &[&str]| {
        let words = ["log", "convert", "-o"].map(OsStr::new).into_iter().chain([recording.as_os_str()]);
        heapledger(words.chain(options.iter().map(OsStr::new)).chain([log.as_os_str()]))
    };
    let refused = convert(&[]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status == exited(102) && !recording.exists(), "{refused:?}");
    assert!(said.contains("line 2 is no call: Malformed input: \"1 1 malloc(x)=0x20\""), "{said}");
    assert!(said.starts_with("error[HL0096]") && said.contains("log convert --keep-going"), "{said}");
    let top = heapledger(["top".as_ref(), log.as_os_str()]);
    assert!(top.status == exited(102) && top.stdout.is_empty(), "{top:?}");
    let kept = convert(&["--keep-going"]);
    let said = String::from_utf8_lossy(&kept.stderr).into_owned();
    assert!(kept.status.success() && said.contains("2 lines are left out; line 2 is no call"), "{said}");
    assert_eq!(number(&asked("info", &recording), "calls"), 2);
}

/// Times, usable sizes and arenas, and the points at which a program asks for statistics.
#[test]
fn fields_and_statistics_points_are_in_the_log() {
    const ASKS: &str = r#"
#define HEAPLEDGER_ARENAS_WEAK
#include <heapledger/arena.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
int main(void) {
    char *block = malloc(1000);
    printf("%zu\n", malloc_usable_size(block));
    heapledger_arena_params params = {.size = sizeof params, .label = "two words"};
    heapledger_arena arena = heapledger_arena_create(&params);
    void *inside = heapledger_arena_malloc(arena, 50);
    malloc_stats();
    block = realloc(block, 3000);
    printf("%zu\n", malloc_usable_size(block));
    FILE *nothing = fopen("/dev/null", "w");
    malloc_info(0, nothing);
    heapledger_arena_free(arena, inside);
    free(block);
    return fclose(nothing);
}
"#;
    let scratch = Scratch::new();
    let (source, asks) = (scratch.write("asks.c", ASKS), scratch.file("asks"));
    let headers = crate::readme::root().join("include");
    let built = Command::new("cc").arg("-I").arg(headers).arg("-o").arg(&asks).arg(source).status().unwrap();
    assert!(built.success());
    let [log, recording, back] = ["asks.log", "asks.hl", "back.log"].map(|name| scratch.file(name));
    let words = ["log", "record", "--quiet", "--times", "--usable", "--arenas", "--allocator", "heapledger", "-o"];
    let outcome =
        heapledger(words.map(OsStr::new).into_iter().chain([&log, Path::new("--"), &asks].map(Path::as_os_str)));
    assert!(outcome.status.success(), "{outcome:?}");
    let printed = outcome.text();
    let mut usable = printed.lines();
    let text = fs::read_to_string(&log).unwrap();
    let position = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what} is not in {text}"));
    let places = [
        position(" malloc(1000)=0x"),
        position(" malloc(50)=0x"),
        position(" jemalloc_stats() time="),
        position(",3000)=0x"),
        text.rfind(" jemalloc_stats() time=").unwrap(),
    ];
    assert!(places.is_sorted_by(|a, b| a < b), "{text}");
    for (call, bytes) in [(" malloc(1000)=", usable.next()), (",3000)=", usable.next())] {
        let line = text.lines().find(|line| line.contains(call)).unwrap();
        assert!(line.contains(&format!(" usable={} time=", bytes.unwrap())), "{line}");
    }
    assert!(text.lines().any(|line| line.contains(" malloc(50)=") && line.ends_with(" arena=two%20words")), "{text}");
    let times: Vec<u64> = text
        .lines()
        .map(|line| line.split("time=").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap())
        .collect();
    assert!(times.is_sorted(), "{times:?}");
    // The recording holds all of it.
    converted(&log, &recording, &[]);
    converted(&recording, &back, &["--times", "--usable", "--arenas"]);
    let fields = |text: &str| {
        let field = |line: &str| line.split_once(' ').unwrap().1.split(" usable=").nth(1).map(str::to_owned);
        text.lines().map(field).collect::<Vec<_>>()
    };
    assert_eq!(fields(&text), fields(&fs::read_to_string(&back).unwrap()));
    let [before, after] = [&log, &recording].map(|file| asked("info", file));
    for key in ["calls", "usable_bytes", "usable_bytes_requested", "arenas", "rows", "duration_ns"] {
        assert_eq!(before[key], after[key], "{key}");
    }
    assert_eq!(calls(&after, "jemalloc_stats"), [2, 0]);
    let by_heap = heapledger(["top".as_ref(), "--by".as_ref(), "heap".as_ref(), recording.as_os_str()]);
    assert!(by_heap.text().contains("two words"), "{by_heap:?}");
    // Munged, it is a log as any other.
    let munged = heapledger(["log".as_ref(), "munge".as_ref(), log.as_os_str()]).text();
    assert!(!munged.contains("time=") && munged.contains("1 1 jemalloc_stats()\n"), "{munged}");
}

/// The usable size of a block of a replacement is what the program is told: the allocator below
/// does not know the block.
#[test]
fn usable_sizes_are_those_that_the_program_sees() {
    const REPLACES: &str = r#"
#include <heapledger/hooks.h>
#include <stdlib.h>
#include <string.h>
static _Alignas(16) char memory[1 << 16];
static size_t used;
static void *take(size_t size) {
    void *block = memory + used;
    used += (size + 15) / 16 * 16;
    return block;
}
static int owns(void *block) { return (char *)block >= memory && (char *)block < memory + sizeof memory; }
static void drop(void *block) { (void)block; }
static void *move(void *old, size_t size) { return memcpy(take(size), old, 1); }
static size_t usable(void *block) { (void)block; return 7777; }
static const heapledger_functions *below;
int main(void) {
    static heapledger_replacement own = HEAPLEDGER_REPLACEMENT(0, "own", &below);
    own.owns = owns;
    own.functions.malloc = take;
    own.functions.free = drop;
    own.functions.realloc = move;
    own.functions.malloc_usable_size = usable;
    const heapledger_hooks *hooks = heapledger_find_hooks();
    if (hooks == NULL || hooks->install_replacement(&own) != 0) return 1;
    void *volatile block = malloc(1234);
    free(block);
    return hooks->remove_replacement(&own);
}
"#;
    let scratch = Scratch::new();
    let (source, replaces, log) =
        (scratch.write("replaces.c", REPLACES), scratch.file("replaces"), scratch.file("replaces.log"));
    let headers = crate::readme::root().join("include");
    let built = Command::new("cc").arg("-I").arg(headers).arg("-o").arg(&replaces).arg(source).arg("-ldl").status();
    assert!(built.unwrap().success());
    let words = ["log", "record", "--quiet", "--usable", "-o"].map(OsStr::new).into_iter();
    let outcome = heapledger(words.chain([&log, Path::new("--"), &replaces].map(Path::as_os_str)));
    assert!(outcome.status.success(), "{outcome:?}");
    let text = fs::read_to_string(&log).unwrap();
    let line = text.lines().find(|line| line.contains(" malloc(1234)=")).unwrap_or_else(|| panic!("{text}"));
    assert!(line.ends_with(" usable=7777"), "{line}");
}

/// A process for which there is no log gets the C library's statistics all the same.
#[test]
fn statistics_are_printed_without_a_log() {
    const ASKS: &str = "#include <malloc.h>\n#include <stdio.h>\nint main(void) { return malloc_info(0, stdout); }\n";
    let scratch = Scratch::new();
    let (source, asks) = (scratch.write("asks.c", ASKS), scratch.file("asks"));
    assert!(Command::new("cc").arg("-o").arg(&asks).arg(source).status().unwrap().success());
    let library = scratch.write("liblog.so", include_bytes!(env!("HEAPLEDGER_LOG_LIBRARY")));
    let outcome = Job::new([asks.to_str().unwrap()]).launched("run", &[&library]).outcome();
    let text = String::from_utf8_lossy(&outcome.stdout);
    assert!(outcome.status.success() && text.contains("<malloc version="), "{outcome:?}");
}

#[test]
fn children_have_lines_of_their_own() {
    let scratch = Scratch::new();
    for how in ["", "raw"] {
        let file = scratch.file("calls.log");
        let outcome = with_log(&Job::fixture("forks", how), &file);
        assert_eq!(outcome.status, exited(10), "{outcome:?}");
        let processes = outcome.printed_objects();
        let info = asked("info", &file);
        let sum = |name: &str| processes.iter().map(|process| number(process, name)).sum::<i64>();
        assert_eq!(number(&info, "processes"), processes.len() as i64, "{how}: {info:#}");
        assert_eq!(number(&info, "frees_unknown"), sum("frees_inherited"), "{how}: {info:#}");
        let text = fs::read_to_string(&file).unwrap();
        for process in &processes {
            let pid = format!("{} ", number(process, "pid"));
            let allocations = text.lines().filter(|line| line.starts_with(&pid) && line.contains("alloc(")).count();
            assert_eq!(allocations as i64, number(process, "allocations"), "{how}: {process}");
        }
    }
    // Programs that a program starts.
    let (_, file) = logged(&Job::shell("ls / | cat; (ls /; exec ls /etc) | wc -l; exit 3"), &scratch);
    assert!(number(&asked("info", &file), "processes") >= 4);
}

#[test]
fn a_log_goes_anywhere() {
    let scratch = Scratch::new();
    let (file, pipe, mix) = (scratch.file("calls.log"), scratch.file("pipe"), program("mix"));
    let shell = |line: String| Job::shell(&line).directory(scratch.path()).bare();
    // Standard output, behind what the program has written.
    let outcome = shell(format!("{HEAPLEDGER} log record -q -o - -- ls / | grep -c 'malloc('"));
    assert!(outcome.status.success() && outcome.text().trim().parse::<u32>().unwrap() > 10, "{outcome:?}");
    // As logalloc does: a descriptor, and a file, to which the log is appended.
    let command = format!("{HEAPLEDGER} log record -q -- ls /");
    let outcome = shell(format!("MALLOC_LOG=7 {command} 7>{} >/dev/null", file.display()));
    assert!(outcome.status.success(), "{outcome:?}");
    let once = number(&asked("info", &file), "calls");
    let outcome = shell(format!("MALLOC_LOG={} {command} >/dev/null", file.display()));
    assert!(outcome.status.success(), "{outcome:?}");
    assert_eq!(number(&asked("info", &file), "calls"), 2 * once);
    // Without a destination, and with one that is there.
    assert_eq!(heapledger(["log", "record", "--", "ls"]).status, exited(2));
    let outcome = heapledger(["log", "record", "-o", file.to_str().unwrap(), "--", "ls"]);
    assert!(outcome.status == exited(1) && outcome.stdout.is_empty(), "{outcome:?}");
    // A reader that goes away does not end the program; the calls are counted.
    let line = format!(
        "mkfifo {0} && (head -c 9 {0} >/dev/null &) && {HEAPLEDGER} log record -o {0} -- {1} 20000",
        pipe.display(),
        mix.display()
    );
    let bare = Job::fixture("mix", "20000").bare();
    for line in [line, format!("{HEAPLEDGER} log record -o /dev/full -- {} 20000", mix.display())] {
        let outcome = shell(line);
        assert!(outcome.status == bare.status && outcome.stdout == bare.stdout, "{outcome:?}");
        assert!(String::from_utf8_lossy(&outcome.stderr).contains("calls are not in the log"), "{outcome:?}");
    }
}

/// Programs that are dangerous to observe do the same with a log.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn dangerous_programs_do_the_same() {
    let scratch = Scratch::new();
    let jobs = [
        Job::fixture("signals", "2000"),
        Job::fixture("escapes", "2000"),
        Job::fixture("sandbox", ""),
        Job::fixture("confined", "strict"),
        Job::fixture("confined", "filter"),
        Job::fixture("confined", "threads"),
        Job::fixture("confined", "fork"),
        Job::fixture("confined", "exec"),
        Job::fixture("limits", "FSIZE 0"),
        Job::fixture("limits", "NOFILE 3"),
        Job::fixture("closes", ""),
        Job::fixture("tiny_stacks", "50"),
        Job::fixture("short_threads", "500"),
    ];
    for job in jobs {
        let (bare, logged) = (job.bare(), with_log(&job, &scratch.file("calls.log")));
        assert!((bare.status, &bare.stdout) == (logged.status, &logged.stdout), "{bare:?}\n{logged:?}");
        // A few lose calls, and say so.
        let said = String::from_utf8_lossy(&logged.stderr).into_owned();
        let is_told = said
            .strip_prefix(&*String::from_utf8_lossy(&bare.stderr))
            .is_some_and(|rest| rest.is_empty() || rest.starts_with("warning[HL0082]"));
        assert!(is_told, "{bare:?}\n{logged:?}");
    }
}

/// A jump out of the library, which leaves its lock locked, loses the calls of that moment only.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn jumps_out_of_the_library_lose_few_calls() {
    let scratch = Scratch::new();
    let file = scratch.file("calls.log");
    let outcome = with_log(&Job::fixture("escapes", "2000"), &file);
    assert!(outcome.status.success(), "{outcome:?}");
    let calls = fs::read_to_string(&file).unwrap().matches(" malloc(777)=").count();
    assert!((1995..=2000).contains(&calls), "{calls}: {outcome:?}");
}

/// A child that was forked in a signal handler, in the middle of a line, changes nothing of its
/// parent's.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn forks_within_the_library_change_no_line() {
    let scratch = Scratch::new();
    let (_, file) = logged(&Job::fixture("forks_anywhere", ""), &scratch);
    let text = String::from_utf8(fs::read(&file).unwrap()).unwrap();
    let mut processes: HashMap<&str, Vec<&str>> = HashMap::new();
    let mut threads = HashSet::new();
    for line in text.lines() {
        let mut words = line.splitn(3, ' ');
        let [process, thread, call] = [(); 3].map(|()| words.next().unwrap_or_else(|| panic!("{line:?}")));
        assert!(Line::parse(line.as_bytes()).is_ok(), "{line:?}");
        processes.entry(process).or_default().push(call);
        threads.insert(thread);
    }
    assert_eq!(threads.len(), 1);
    let (&parent, _) = processes.iter().max_by_key(|(_, calls)| calls.len()).unwrap();
    let calls = processes.remove(parent).unwrap();
    let mut calls = calls.iter().skip_while(|call| !call.starts_with("malloc(1000)="));
    // Each once, in order, up to the largest.
    for size in 1000.. {
        let (allocation, free) = (calls.next().unwrap(), calls.next().unwrap());
        let (call, block) = allocation.split_once('=').unwrap();
        if call == "malloc(1048576)" {
            break;
        }
        let ends = [format!("free({block})"), format!("realloc({block},0)=0x0")];
        assert!(call == format!("malloc({size})") && ends.iter().any(|end| end == free), "{size}: {allocation} {free}");
    }
    assert!(processes.len() > 300, "{} children", processes.len());
    for (process, calls) in processes {
        let own = calls.iter().filter(|call| call.starts_with("malloc(77)=0x")).count();
        // Two may have had the same number.
        assert!(own > 0 && own.is_multiple_of(4), "{process}: {calls:?}");
    }
}

/// The hook library by itself, with logalloc's environment variables.
#[test]
fn the_library_is_told_by_the_environment() {
    let scratch = Scratch::new();
    let library = scratch.write("liblog.so", include_bytes!(env!("HEAPLEDGER_LOG_LIBRARY")));
    let file = scratch.file("calls.log");
    let job = Job::fixture("mix", "1000").variable("MALLOC_LOG", &file);
    let outcome = job.launched("run", &[&library]).outcome();
    let (truth, info) = (&outcome.printed_objects()[0], asked("info", &file));
    assert_eq!(number(&info, "bytes_live_max"), number(truth, "bytes_live_max"));
    let aligned = ["posix_memalign", "aligned_alloc", "valloc"];
    assert!(aligned.iter().all(|function| calls(&info, function)[0] > 0), "{info:#}");
    fs::remove_file(&file).unwrap();
    let outcome = job.variable("MALLOC_LOG_MINIMAL", "1").launched("run", &[&library]).outcome();
    assert_eq!(&outcome.printed_objects()[0], truth);
    let minimal = asked("info", &file);
    assert!(aligned.iter().all(|function| calls(&minimal, function)[0] == 0), "{minimal:#}");
    let sum = aligned.iter().map(|function| calls(&info, function)[0]).sum::<i64>() + calls(&info, "memalign")[0];
    assert_eq!(calls(&minimal, "memalign")[0], sum);
    // Off, and no destination at all.
    for value in ["0", ""] {
        let outcome = Job::fixture("mix", "10").variable("MALLOC_LOG", value).launched("run", &[&library]).outcome();
        assert!(outcome.status.success() && outcome.printed_objects().len() == 1, "{outcome:?}");
    }
}

/// A program that is linked with the libraries needs no `LD_PRELOAD`: to a file, to a descriptor
/// that is a pipe, and with the functions of a minimal log.
#[test]
fn a_linked_program_logs_as_a_preloaded_one() {
    const ALLOCATES: &str = r#"
#include <malloc.h>
#include <stdlib.h>
int main(void) {
    void *block;
    if (posix_memalign(&block, 256, 1024)) return 1;
    free(block);
    free(aligned_alloc(256, 1024));
    free(valloc(1024));
    free(memalign(256, 1024));
    free(realloc(calloc(123, 4), 9223372036854770000));
    malloc_stats();
    return 0;
}
"#;
    const CALLS: [&str; 11] = [
        "posix_memalign(256,1024)=A",
        "free(A)",
        "aligned_alloc(256,1024)=A",
        "free(A)",
        "valloc(1024)=A",
        "free(A)",
        "memalign(256,1024)=A",
        "free(A)",
        "calloc(123,4)=A",
        "realloc(A,9223372036854770000)=0x0",
        "jemalloc_stats()",
    ];
    let scratch = Scratch::new();
    let hook = scratch.write("liblog.so", include_bytes!(env!("HEAPLEDGER_LOG_LIBRARY")));
    let preload = scratch.write("libpreload.so", include_bytes!(env!("HEAPLEDGER_PRELOAD_LIBRARY")));
    let (source, file) = (scratch.write("allocates.c", ALLOCATES), scratch.file("calls.log"));
    let programs = ["linked", "plain"].map(|name| scratch.file(name));
    let built = |program: &Path, libraries: &[&Path]| {
        let mut cc = Command::new("cc");
        cc.args(["-O0", "-fno-builtin", "-Wl,--no-as-needed", "-o"]).arg(program).arg(&source).args(libraries);
        assert!(cc.status().unwrap().success());
    };
    built(&programs[0], &[&preload, &hook]);
    built(&programs[1], &[]);
    let minimal: Vec<String> = CALLS
        .map(|call| {
            let call = call.replace("posix_memalign", "memalign").replace("aligned_alloc", "memalign");
            call.replace("valloc(", "memalign(4096,")
        })
        .to_vec();
    for program in &programs {
        let mut variables = format!("HEAPLEDGER_HOOKS={}", hook.display());
        if program == &programs[1] {
            variables += &format!(" LD_PRELOAD={}:{}", preload.display(), hook.display());
        }
        let run = |how: String| Job::shell(&how).directory(scratch.path()).bare();
        let program = program.display();
        let outcome = run(format!("MALLOC_LOG=calls.log {variables} {program}"));
        assert!(outcome.status.success(), "{outcome:?}");
        let whole = fs::read_to_string(&file).unwrap();
        fs::remove_file(&file).unwrap();
        let piped =
            run(format!("{{ MALLOC_LOG=7 MALLOC_LOG_MINIMAL=1 {variables} {program} 7>&1 >&2 2>/dev/null; }} | cat"));
        for (text, expected) in [(&whole, CALLS.map(str::to_owned).to_vec()), (&piped.text(), minimal.clone())] {
            // Without what the C library allocates for itself before and after.
            let calls = text.lines().map(|line| line.splitn(3, ' ').nth(2).unwrap());
            let calls: Vec<String> =
                calls.skip_while(|call| !call.contains("memalign(256,1024)=")).map(named).collect();
            assert_eq!(calls.get(..expected.len()), Some(&expected[..]), "{text}");
        }
    }
}

/// Returns a call with `A` for all addresses but the null pointer.
fn named(call: &str) -> String {
    let mut parts = call.split("0x");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        let (digits, rest) = part.split_at(part.find(|sign: char| !sign.is_ascii_hexdigit()).unwrap_or(part.len()));
        text + if digits == "0" { "0x0" } else { "A" } + rest
    })
}

#[test]
fn logs_are_read_packed_or_not() {
    let scratch = Scratch::new();
    let log = "1 1 malloc(5000)=0x10\n1 2 malloc(7)=0x20\n1 1 free(0x30)\nnot a line\n1 1 free(0x10)\n";
    let file = scratch.write("calls.log", log);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(log.as_bytes()).unwrap();
    let packed = scratch.write("calls.log.gz", gzip.finish().unwrap());
    assert_eq!(asked("info", &file), asked("info", &packed));
    assert_eq!(asked("stats", &file)["rows"][1]["requests"], 1);
    let stats = heapledger(["log".as_ref(), "stats".as_ref(), packed.as_os_str()]);
    assert_eq!(stats.text(), "Small:            1  50.00%\nLarge:            1  50.00%\nHuge :            0   0.00%\n");
    let munged = heapledger(["log".as_ref(), "munge".as_ref(), file.as_os_str()]);
    assert_eq!(munged.text(), "1 1 malloc(5000)=#1\n1 2 malloc(7)=#2\n1 1 free(#1)\n");
    let ignored =
        "Ignored \"1 1 free(0x30)\": Did not see an alloc for pointer\nIgnored \"not a line\": Malformed input\n";
    assert_eq!(String::from_utf8_lossy(&munged.stderr), ignored);
    let from_stdin = Job::new([HEAPLEDGER, "log", "munge", "-"]).stdin(log).bare();
    assert!(from_stdin == munged, "{from_stdin:?}");
    for (name, content, why) in [("empty", "", "is empty"), ("text", "hello\nworld\n", "has no call of an allocator")] {
        let file = scratch.write(name, content);
        for verb in ["info", "stats", "munge"] {
            let outcome = heapledger(["log".as_ref(), verb.as_ref(), file.as_os_str()]);
            let said = String::from_utf8_lossy(&outcome.stderr).into_owned();
            assert!(outcome.status == exited(102) && said.contains(why), "{verb}: {outcome:?}");
        }
    }
}

/// Programs that nobody here wrote do the same under a log, and a munged log is the same work.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn logs_of_real_programs() {
    let scratch = Scratch::new();
    let data = (0..20_000).map(|number| format!("{{\"id\":{number},\"name\":\"n{number}\"}}\n")).collect::<String>();
    let data = scratch.write("data.json", data);
    let perl = "my %h; $h{$_ % 977} .= \"x$_\" for 1..50000; print length(join(\"\", values %h)), \"\\n\"";
    let source = crate::readme::root().join("examples/life.c");
    let jobs = [
        ("jq", Job::new(["jq".as_ref(), "-s".as_ref(), "map(.id) | add".as_ref(), data.as_os_str()])),
        ("perl", Job::new(["perl", "-e", perl])),
        (
            "cc",
            Job::new([
                "cc".as_ref(),
                "-O2".as_ref(),
                "-c".as_ref(),
                "-o".as_ref(),
                "life.o".as_ref(),
                source.as_os_str(),
            ]),
        ),
        (
            "sqlite3",
            Job::new([
                "sqlite3",
                ":memory:",
                "with recursive n(x) as (select 1 union all select x+1 from n where x<50000) select sum(x), count(distinct x % 977) from n",
            ]),
        ),
    ];
    for (name, job) in jobs {
        if installed(name).is_none() {
            continue;
        }
        let (_, file) = logged(&job.directory(scratch.path()), &scratch);
        let munged = scratch.file("calls.munged");
        let words = ["log", "munge", "--force", "-o"].map(OsStr::new);
        let outcome = heapledger(words.into_iter().chain([munged.as_os_str(), file.as_os_str()]));
        assert!(outcome.status.success(), "{outcome:?}");
        let (before, after) = (asked("info", &file), asked("info", &munged));
        assert_eq!(
            (&before["frees_unknown"], &before["allocations_of_live"]),
            (&0.into(), &0.into()),
            "{name}: {before:#}"
        );
        for key in ["calls", "processes", "threads", "bytes_live_max", "blocks_live_max", "bytes_live_end", "rows"] {
            assert_eq!(before[key], after[key], "{name}: {key}");
        }
    }
}
