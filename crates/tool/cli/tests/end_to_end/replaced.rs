//! Libraries of Firefox's replace-malloc protocol, as hooks: `fixtures/programs/replace_malloc.c`
//! counts the calls that come through its table; `replace_bridge.cpp` replaces all of the table,
//! and has a bridge, which `replace_host.cpp` asks.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::arenas::allocator;
use crate::harness::{Build, Job, Scratch, build, exited, installed, number};
use crate::hooks;
use crate::truth::agrees;

/// Returns the counts that the library wrote: one process's.
fn written(file: &Path) -> Value {
    let text = fs::read_to_string(file).unwrap();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// The program runs as without the library, and the library sees the calls that the recorder
/// records.
#[test]
fn a_library_that_counts_sees_the_recorders_calls() {
    let scratch = Scratch::new();
    let library = build("replace_malloc", Build::Module);
    let file = scratch.file("counts");
    let job = Job::fixture("mix", "5000").variable("COUNTS", &file).option("--hook").option(library.to_str().unwrap());
    let bare = job.bare();
    let (outcome, recording) = job.recorded(&scratch);
    assert_eq!(outcome, bare);
    recording.assert_whole().assert_adds_up();
    let counts = written(&file);
    let seen = ["allocations", "reallocations", "aligned"].map(|name| number(&counts, name));
    assert!(seen.iter().all(|&calls| calls > 100), "{counts}");
    // The recorder counts a reallocation of null as an allocation, and does not count failed calls.
    // They are at most a few hundred each in this program; the library sees each of them once.
    let (all, failed) = (recording.total("allocations"), recording.total("failed"));
    let most = all + recording.total("failed") + recording.total("reallocations");
    let sum: i64 = seen.iter().sum();
    assert!(sum >= all - 10 && sum <= most + 10, "{counts} {all} {failed}");
    // A reallocation frees by itself, of which the library sees one call.
    let (frees, seen) = (recording.total("frees"), number(&counts, "frees"));
    assert!(seen <= frees + 10 && seen + number(&counts, "reallocations") >= frees - 10, "{counts}: {frees}");
}

/// A library that replaces the functions for arenas gets these; to one that does not, arenas are
/// dummies over its plain functions.
#[test]
fn arenas_go_to_the_library_or_are_dummies() {
    let scratch = Scratch::new();
    let library = build("replace_malloc", Build::Module);
    let run = |what: &str, how: &str| {
        let file = scratch.file(&format!("counts.{what}"));
        let job = Job::fixture("labelled_arenas", how).variable("COUNTS", &file).variable("REPLACE", what);
        let outcome = job.launched("run", &[&library]).outcome();
        (outcome, file)
    };
    let (outcome, file) = run("all", "");
    assert_eq!(outcome.status, exited(0), "{outcome:?}");
    let counts = written(&file);
    assert_eq!(number(&counts, "arenas"), 3, "{counts}");
    // 4 threads with 200 blocks each; 5 of `images`; `limited` is asked for 3.
    assert_eq!(number(&counts, "arena_blocks"), 4 * 200 + 5 + 3, "{counts}");

    // All arenas are one: a block of one may be passed as one of another.
    let (outcome, file) = run("base", "dummies");
    assert_eq!(outcome.status, exited(0), "{outcome:?}");
    let counts = written(&file);
    assert_eq!(number(&counts, "arenas"), 0, "{counts}");
    assert!(number(&counts, "allocations") >= 2, "{counts}");

    // A library that leaves its table as it is is not installed.
    let (outcome, file) = run("none", "");
    assert_eq!(outcome.status, exited(0), "{outcome:?}");
    let counts = written(&file);
    assert_eq!((number(&counts, "allocations"), number(&counts, "frees")), (0, 0), "{counts}");
}

/// The functions that the library finds in its table are those of the program's allocator: over
/// ours, blocks are in its arenas.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_library_over_our_allocator() {
    let scratch = Scratch::new();
    let (library, file) = (build("replace_malloc", Build::Module), scratch.file("counts"));
    let job = Job::fixture("labelled_arenas", "").variable("COUNTS", &file).variable("LD_PRELOAD", allocator());
    let outcome = job.launched("run", &[&library]).outcome();
    assert_eq!(outcome.status, exited(0), "{outcome:?}");
    let counts = written(&file);
    assert_eq!((number(&counts, "arenas"), number(&counts, "arena_blocks")), (3, 4 * 200 + 5 + 3), "{counts}");
}

/// Returns a job of a program that is built with replace-malloc, over our allocator, and that asks
/// the preload library for functions.
fn asking(work: &str) -> Job {
    Job::fixture("replace_built", work).variable("ALLOCATOR", allocator())
}

/// The program's malloc is not ours, and its entries are redirected as well: each call is one
/// event.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_program_that_asks_is_recorded() {
    agrees(asking, "5000");
}

/// Hooks run in such a program, where no entry is redirected: a library of the protocol sees each
/// call once, also if the user has preloaded it, and the program would have asked it without us.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn hooks_run_in_a_program_that_asks() {
    let scratch = Scratch::new();
    let (library, work) = (build("replace_malloc", Build::Module), 1000);
    let job = asking("1000");
    let bare = job.bare();
    let check = |file: &Path, what: &str| {
        // The command itself may have the library, and write its own counts at its end.
        let text = fs::read_to_string(file).unwrap();
        let counts: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        // `posix_memalign` is derived from `memalign`; blocks of arenas are counted apart.
        let seen = ["allocations", "reallocations", "aligned", "frees", "arena_blocks", "arenas"];
        let seen = seen.map(|name| number(&counts, name));
        assert_eq!(seen, [2 * work, work, work, 3 * work, work, 1], "{what}: {counts}");
    };
    let file = scratch.file("hook");
    let outcome = job.clone().variable("COUNTS", &file).launched("run", &[&library]).outcome();
    assert_eq!(outcome, bare);
    check(&file, "as a hook");

    let file = scratch.file("preloaded");
    let preloaded = |file: &Path| asking("1000").variable("COUNTS", file).variable("LD_PRELOAD", &library);
    assert_eq!(preloaded(&file).bare(), bare);
    check(&file, "by itself");
    let file = scratch.file("recorded");
    let (outcome, recording) = preloaded(&file).recorded(&scratch);
    assert_eq!(outcome, bare);
    recording.assert_whole().assert_adds_up();
    check(&file, "recorded");
    assert_eq!(recording.total("reallocations"), work, "{recording:?}");
}

/// The checks run in such a program, and find nothing wrong.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_program_that_asks_is_checked() {
    let bare = asking("1000").bare();
    let checked = asking("1000").launched("check", &[]).outcome();
    assert_eq!((checked.status, &checked.stdout), (bare.status, &bare.stdout), "{checked:?}");
}

/// A process hosts one such library.
#[test]
fn a_second_library_is_refused() {
    let scratch = Scratch::new();
    let library = build("replace_malloc", Build::Module);
    let other = scratch.file("libother.so");
    fs::copy(&library, &other).unwrap();
    let refused = Job::new(["/bin/echo", "it ran"]).launched("run", &[&library, &other]).outcome();
    assert_eq!((refused.status, &*refused.stdout), (exited(101), &b""[..]), "{refused:?}");
    let text = String::from_utf8_lossy(&refused.stderr);
    assert!(text.contains("HL0021") && text.contains("\nhint: "), "{refused:?}");
}

/// Runs a job of `replace_host` with a library, and returns what it printed.
fn hosted(job: &Job) -> String {
    let outcome = job.launched("run", &[&build("replace_bridge", Build::Module)]).outcome();
    let text = String::from_utf8_lossy(&outcome.stdout).into_owned();
    assert_eq!(outcome.status, exited(0), "{outcome:?}");
    text
}

/// A bridge that a C++ compiler has laid out is handed to the program, and every entry of the table
/// reaches the library.
#[test]
fn a_bridge_is_asked_and_every_entry_is_called() {
    assert_eq!(hosted(&Job::fixture("replace_host", "entries")), "done\n");
}

/// A library that replaces nothing may have a bridge all the same, and a program without a library
/// gets none.
#[test]
fn a_bridge_alone_or_none() {
    assert_eq!(hosted(&Job::fixture("replace_host", "bridge").variable("REPLACE", "none")), "done\n");
    let outcome = Job::fixture("replace_host", "none").launched("run", &[&hooks::examples().0]).outcome();
    assert_eq!((outcome.status, &*outcome.stdout), (exited(0), &b"done\n"[..]), "{outcome:?}");
}

/// A library that has a function `get_bridge` of another meaning calls its own, as without us.
#[test]
fn a_function_of_the_bridges_name_stays_the_programs() {
    let scratch = Scratch::new();
    let source = "double get_bridge(int number, double more);\n\
                  double get_bridge(int number, double more) { return number + more; }\n\
                  double calls_get_bridge(int number, double more);\n\
                  double calls_get_bridge(int number, double more) { return get_bridge(number, more); }\n";
    let own = hooks::library(&scratch.write("own.c", source), &scratch.file("libown.so"));
    assert_eq!(hosted(&Job::fixture("replace_host", &format!("own {}", own.display()))), "done\n");
}

/// The table is replaced at run time, again and again, while threads allocate: without a library,
/// and with one. The recorder sees the program's calls, once each.
#[test]
fn the_table_is_replaced_at_run_time() {
    let scratch = Scratch::new();
    let (outcome, recording) = Job::fixture("replace_host", "dynamic").recorded(&scratch);
    assert_eq!((outcome.status, &*outcome.stdout), (exited(0), &b"done\n"[..]), "{outcome:?}");
    recording.assert_whole().assert_adds_up();
    assert_eq!(hosted(&Job::fixture("replace_host", "dynamic")), "done\n");
}

/// Over our allocator, the same holds; and programs that people use print the same with a library
/// that replaces the whole table.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_whole_table_over_our_allocator() {
    for how in ["entries", "dynamic"] {
        assert_eq!(hosted(&Job::fixture("replace_host", how).variable("LD_PRELOAD", allocator())), "done\n", "{how}");
    }
    let library = build("replace_bridge", Build::Module);
    for command in [
        &["git", "log", "--oneline", "-5"][..],
        &["python3", "-c", "print(sum(len(str(n)) for n in range(20000)))"],
        &["sqlite3", ":memory:", "create table t(a); insert into t values(1),(2); select sum(a) from t"],
    ] {
        if installed(command[0]).is_none() {
            continue;
        }
        let job = Job::new(command.iter().copied()).variable("LD_PRELOAD", allocator());
        let bare = job.bare();
        assert_eq!(job.launched("run", &[&library]).outcome(), bare, "{command:?}");
    }
}
