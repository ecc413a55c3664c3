//! The heap checker, at a rate at which every block is sampled: each error is caught, with its
//! stacks, and the program ends as it would at such a fault; correct programs are not changed.

use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::documents;
use crate::harness::{HEAPLEDGER, Job, Outcome, Recording, Scratch, exited, headers, heapledger, installed, program};

/// Options with which every block is sampled.
const ALL: &[&str] = &["--phc", "--phc-first", "1", "--phc-normal", "1", "--phc-min-memory", "0"];

/// Runs a job with the heap checker. Returns the outcome, and the files of reports.
fn checked(job: Job, options: &[&str]) -> (Outcome, Vec<PathBuf>, Scratch) {
    let scratch = Scratch::new();
    let words = ["run"].iter().chain(ALL).chain(options).map(|word| OsStr::new(*word));
    let outcome = job.directory(scratch.path()).through(words).outcome();
    let entries = std::fs::read_dir(scratch.path()).unwrap().map(|entry| entry.unwrap().path());
    let files = entries.filter(|path| path.extension().is_some_and(|extension| extension == "phc")).collect();
    (outcome, files, scratch)
}

fn read(file: &Path) -> Value {
    let outcome = heapledger(["phc".as_ref(), "--json".as_ref(), file.as_os_str()]);
    assert_eq!(outcome.status, exited(0), "{outcome:?}");
    documents::read(&outcome.stdout)
}

/// Runs a fixture that commits one error. Returns the outcome, and the error.
fn error_of(fixture: &str, kind: &str, options: &[&str]) -> (Outcome, Value) {
    let (outcome, files, _scratch) = checked(Job::fixture(fixture, kind), options);
    assert_eq!(files.len(), 1, "{kind}: {outcome:?}");
    let report = read(&files[0]);
    let errors = report["errors"].as_array().unwrap();
    assert_eq!(errors.len(), 1, "{kind}: {report:#}");
    (outcome, errors[0].clone())
}

/// Returns the role of each stack, and its functions that are the fixture's own.
fn stacks(error: &Value) -> Vec<(String, Vec<String>)> {
    let stacks = error["stacks"].as_array().unwrap().iter();
    let functions = |stack: &Value| {
        let frames = stack["frames"].as_array().unwrap().iter();
        let own = frames.filter(|frame| frame["module"].as_str().is_some_and(|path| path.contains("/heap_errors")));
        let names = own.map(|frame| frame["function"].as_str().unwrap().to_owned());
        names.filter(|name| name != "_start").collect()
    };
    stacks.map(|stack| (stack["role"].as_str().unwrap().to_owned(), functions(stack))).collect()
}

fn stack(role: &str, functions: &[&str]) -> (String, Vec<String>) {
    (role.to_owned(), functions.iter().map(|&function| function.to_owned()).collect())
}

/// The fields of the error of each kind, and the signal that ends the program.
fn faults() -> Vec<(&'static str, &'static [&'static str], Value, Option<i32>)> {
    let overflow = |access, size, offset| json!({"error": "overflow", "access": access, "block": {"bytes_requested": size, "offset": offset, "freed": false}});
    let freed = |error, access, size, offset| {
        json!({"error": error, "access": access, "kind": "FreedPage",
               "block": {"bytes_requested": size, "bytes_usable": size, "offset": offset, "freed": true}})
    };
    let after_free = |access, offset| freed("use-after-free", access, 32, offset);
    let segv = Some(11);
    let start: &[&str] = &["--phc-placement", "start"];
    vec![
        ("overflow-read", &[], overflow("read", 32, 32), segv),
        ("overflow-write", &[], overflow("write", 48, 48), segv),
        ("overflow-far", &[], overflow("write", 48, 2048), segv),
        ("overflow-large", &[], overflow("write", 10000, 10000), segv),
        ("overflow-calloc", &[], overflow("write", 64, 64), segv),
        ("overflow-aligned", &[], overflow("write", 8192, 8192), segv),
        ("overflow-string", &[], overflow("write", 16, 16), segv),
        ("overflow-realloc", &[], overflow("write", 64, 64), segv),
        (
            "underflow-write",
            start,
            json!({"error": "underflow", "access": "write", "block": {"bytes_requested": 32, "offset": -1}}),
            segv,
        ),
        ("use-after-free-read", &[], after_free("read", 5), segv),
        ("use-after-free-write", &[], after_free("write", 31), segv),
        ("use-after-free-read", start, after_free("read", 5), segv),
        ("use-after-realloc", &[], after_free("read", 0), segv),
        ("thread-free", &[], after_free("read", 0), segv),
        ("thread-read", &[], after_free("read", 0), segv),
        ("signal", &[], after_free("read", 0), segv),
        ("library", &[], freed("use-after-free", "read", 40, 0), segv),
        ("double-free", &[], freed("double-free", "call", 32, 0), segv),
        ("realloc-after-free", &[], freed("realloc-after-free", "call", 32, 0), segv),
        (
            "invalid-free",
            &[],
            json!({"error": "invalid-free", "kind": "InUsePage", "block": {"bytes_requested": 32, "offset": 16}}),
            Some(6),
        ),
        ("overflow-shrunk", &[], overflow("write", 96, 96), segv),
        ("blocked-abort", &[], json!({"error": "invalid-free", "kind": "InUsePage"}), Some(6)),
        ("together", &[], after_free("read", 0), segv),
        ("wild-free", &[], json!({"error": "wild-free", "kind": "GuardPage", "access": "call"}), segv),
        ("overwritten-behind", &[], json!({"error": "overwritten", "overwritten": [22, 22]}), None),
        ("overwritten-before", &[], json!({"error": "overwritten", "overwritten": [-3, -3]}), None),
        ("overwritten-aligned", &[], json!({"error": "overwritten", "overwritten": [100, 100]}), None),
    ]
}

/// True if each field of `expected`, also of objects in it, is the same in `found`.
fn has(found: &Value, expected: &Value) -> bool {
    match expected.as_object() {
        Some(fields) => fields.iter().all(|(name, value)| has(&found[name], value)),
        None => found == expected,
    }
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn each_error_is_caught() {
    each_error_is_caught_with(&[]);
}

/// Heapledger's allocator counts at its refills, and gets the checker's blocks back itself.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn each_error_is_caught_by_the_allocator_itself() {
    each_error_is_caught_with(&["--allocator", "heapledger"]);
}

fn each_error_is_caught_with(allocator: &[&str]) {
    for (kind, options, expected, signal) in faults() {
        let (outcome, error) = error_of("heap_errors", kind, &[allocator, options].concat());
        assert_eq!(outcome.status.signal(), signal, "{kind}: {outcome:?}");
        let text = if signal.is_none() { "done\n" } else { "" };
        assert_eq!(outcome.text(), text, "{kind}");
        assert!(has(&error, &expected), "{kind}: {error:#}");
        let allocated = error["stacks"].as_array().unwrap().last().unwrap();
        assert_eq!(allocated["role"], "allocated", "{kind}: {error:#}");
        let said = String::from_utf8(outcome.stderr).unwrap();
        assert!(said.starts_with("heapledger: heap error in process "), "{kind}: {said}");
        assert!(said.contains("\nwarning[HL0086]: 1 error on the heap of process "), "{kind}: {said}");
    }
}

#[test]
fn an_error_has_the_stacks_of_the_access_the_free_and_the_allocation() {
    let (_, error) = error_of("heap_errors", "thread-free", &[]);
    let expected = [
        stack("error", &["read_at", "commit", "main"]),
        stack("freed", &["drop", "free_in_thread"]),
        stack("allocated", &["make", "commit", "main"]),
    ];
    assert_eq!(stacks(&error), expected, "{error:#}");
    let threads: Vec<&Value> = error["stacks"].as_array().unwrap().iter().map(|stack| &stack["thread"]).collect();
    assert!(threads[0] == threads[2] && threads[0] != threads[1], "{error:#}");

    let (outcome, error) = error_of("heap_errors", "double-free", &[]);
    let expected = [
        stack("error", &["drop", "commit", "main"]),
        stack("freed", &["drop", "commit", "main"]),
        stack("allocated", &["make", "commit", "main"]),
    ];
    assert_eq!(stacks(&error), expected, "{error:#}");
    let said = String::from_utf8(outcome.stderr).unwrap();
    assert!(said.contains("\ndouble free of a block of 32 bytes (process "), "{said}");
    assert!(said.contains("        drop  …/fixtures/programs/heap_errors.c:"), "{said}");
}

/// The file has the keys of Mozilla's crash annotations.
#[test]
fn the_file_has_the_annotations_of_crash_reporters() {
    let (_, files, _scratch) = checked(Job::fixture("heap_errors", "use-after-free-read"), &["--quiet"]);
    let text = std::fs::read_to_string(&files[0]).unwrap();
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name}=")));
        line.unwrap_or_else(|| panic!("no {name}: {text}"))
    };
    let number = |name: &str| value(name).parse::<u64>().unwrap();
    assert_eq!((value("PHCKind"), number("PHCUsableSize")), ("FreedPage", 32));
    assert_eq!(number("Address") - number("PHCBaseAddress"), 5);
    for name in ["PHCAllocStack", "PHCFreeStack"] {
        assert!(value(name).split(',').count() >= 3, "{text}");
        assert!(value(name).split(',').all(|address| address.parse::<u64>().is_ok()), "{text}");
    }
}

/// Each process has a file of its own, and a forked child is checked like its parent.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_forked_child_is_checked() {
    let (outcome, error) = error_of("heap_errors", "child", &[]);
    assert_eq!((outcome.status, outcome.text().as_str()), (exited(7), "child 11\ndone\n"), "{outcome:?}");
    assert_eq!(stacks(&error)[1], stack("freed", &["drop", "commit", "main"]), "{error:#}");
}

/// The program sees its own handlers only, and they are called as without the checker.
#[test]
fn handlers_of_the_program_come_after_the_report() {
    let (outcome, error) = error_of("heap_errors", "handler", &[]);
    let expected = "before 1\nnow 1 1\nhandler 11 0\nhandler 11 0\nhandler 11 0\nhandler 11 1\ndone\n";
    assert_eq!((outcome.status, outcome.text().as_str()), (exited(7), expected), "{outcome:?}");
    assert_eq!(error["error"], "use-after-free");
    let (outcome, _) = error_of("heap_errors", "handler-dies", &[]);
    assert_eq!((outcome.status, outcome.text().as_str()), (exited(42), "died\n"), "{outcome:?}");
    // Not the checker's memory: no report.
    let (outcome, files, _scratch) = checked(Job::fixture("heap_errors", "null"), &["--quiet"]);
    assert_eq!((outcome.status.signal(), files.len(), outcome.stderr.len()), (Some(11), 0, 0), "{outcome:?}");
    let (outcome, ..) = checked(Job::fixture("ends", "dispositions"), &["--quiet"]);
    assert_eq!((outcome.status, outcome.text().as_str()), (exited(0), "all default\n"), "{outcome:?}");
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn errors_of_cxx_and_rust_are_caught() {
    const STRING: &str = "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char>>";
    for (fixture, kind, error, allocated, block_type) in [
        ("heap_errors_cxx", "virtual-call", "use-after-free", "make_node", ["Node", "exact"]),
        ("heap_errors_cxx", "double-delete", "double-free", "make_node", ["Node", "exact"]),
        ("heap_errors_cxx", "dangling-iterator", "use-after-free", "main", ["[int]", "exact"]),
        ("heap_errors_cxx", "dangling-view", "use-after-free", "main", ["[char]", "size-consistent"]),
        ("heap_errors_cxx", "array-overflow", "overflow", "make_numbers", ["[long]", "size-consistent"]),
        ("heap_errors_cxx", "exception", "use-after-free", "main", [STRING, "exact"]),
        // The standard library of Rust has a handler of SIGSEGV, on a stack of its own.
        ("heap_errors_rust", "overflow", "overflow", "heap_errors_rust::make", ["[u8]", "exact"]),
        ("heap_errors_rust", "use-after-free", "use-after-free", "heap_errors_rust::make", ["[u8]", "exact"]),
        ("heap_errors_rust", "thread", "use-after-free", "heap_errors_rust::make", ["[u8]", "exact"]),
        ("heap_errors_rust", "double-free", "double-free", "heap_errors_rust::make", ["[u8]", "exact"]),
    ] {
        let (outcome, found) = error_of(fixture, kind, &[]);
        assert_eq!(found["error"], error, "{kind}: {found:#}");
        assert_eq!(outcome.status.signal(), Some(11), "{kind}: {outcome:?}");
        let (_, functions) = stacks(&found).pop().unwrap();
        assert!(functions.iter().any(|function| function == allocated), "{kind}: {found:#}");
        let found_type = [&found["block"]["type"], &found["block"]["confidence"]];
        assert_eq!(found_type, block_type, "{kind}: {found:#}");
        let short = if block_type[0] == STRING { "std::string" } else { block_type[0] };
        let said = String::from_utf8(outcome.stderr).unwrap();
        assert!(said.contains(&format!("\n    type of the block: {short} ({})\n", block_type[1])), "{kind}: {said}");
    }
}

/// Results of the malloc functions are those that C asks for.
#[test]
fn correct_calls_have_correct_results() {
    let (outcome, files, _scratch) = checked(Job::fixture("heap_errors", "usable"), &["--quiet"]);
    // The usable size of a sampled block is that which was asked for.
    assert_eq!((outcome.status, outcome.text().as_str()), (exited(7), "33 33\n1\n0 0\n0\ndone\n"), "{outcome:?}");
    assert!(files.is_empty() && outcome.stderr.is_empty(), "{outcome:?}");
}

/// Memory that the system does not take back is zero for `calloc`, and a block of no bytes may be
/// aligned.
#[test]
fn slots_that_are_used_again_hold_correct_blocks() {
    let (outcome, files, _scratch) =
        checked(Job::fixture("heap_errors", "locked"), &["--quiet", "--phc-size", "64k", "--phc-reuse", "2"]);
    assert_eq!((outcome.status, outcome.text().as_str()), (exited(7), "dirty 0\ndone\n"), "{outcome:?}");
    assert!(files.is_empty(), "{outcome:?}");
    let (outcome, files, _scratch) = checked(Job::fixture("heap_errors", "empty-aligned"), &["--quiet"]);
    assert_eq!((outcome.status, outcome.text().as_str()), (exited(7), "done\n"), "{outcome:?}");
    assert!(files.is_empty(), "{outcome:?}");
}

/// The program's handlers are called also in a sandbox, after a child of vfork(2) has changed its
/// own, and if they are set by relatives of `signal`.
#[test]
fn handlers_of_the_program_survive() {
    const SET: &str = "before 1\nnow 1 1\n";
    let (outcome, files, _scratch) = checked(Job::fixture("heap_errors", "sandbox-handler"), &["--quiet"]);
    let expected = format!("{SET}handler 11 0\nhandler 11 0\nhandler 11 0\ndone\n");
    assert_eq!((outcome.status, outcome.text()), (exited(7), expected), "{outcome:?}");
    assert!(files.is_empty(), "{outcome:?}");

    let (outcome, error) = error_of("heap_errors", "vfork-handler", &[]);
    let expected = format!("{SET}handler 11 1\ndone\n");
    assert_eq!((outcome.status, outcome.text()), (exited(7), expected), "{outcome:?}");
    assert_eq!(error["error"], "use-after-free");

    let (outcome, error) = error_of("heap_errors", "sysv-handler", &[]);
    let expected = "once 11\nonce 11\nrelatives 1111\n";
    assert_eq!((outcome.status.signal(), outcome.text().as_str()), (Some(11), expected), "{outcome:?}");
    assert_eq!(error["error"], "use-after-free");
}

/// An address that was freed twice, which the program survives, is still checked.
#[test]
fn an_error_after_a_double_free_is_reported() {
    let (outcome, files, _scratch) = checked(Job::fixture("heap_errors", "twice"), &["--quiet"]);
    let expected = "before 1\nnow 1 1\nhandler 11 1\nhandler 11 1\ndone\n";
    assert_eq!((outcome.status, outcome.text().as_str()), (exited(7), expected), "{outcome:?}");
    let report = read(&files[0]);
    let errors: Vec<&Value> = report["errors"].as_array().unwrap().iter().map(|error| &error["error"]).collect();
    assert_eq!(errors, ["double-free", "use-after-free"], "{report:#}");
}

/// An access to a guard page that is nearest to a slot which was never used has no block.
#[test]
fn an_access_beside_no_block_is_wild() {
    let (outcome, error) = error_of("heap_errors", "wild-read", &[]);
    assert_eq!(outcome.status.signal(), Some(11), "{outcome:?}");
    assert!(has(&error, &json!({"error": "wild-access", "kind": "GuardPage", "block": null})), "{error:#}");
}

/// Blocks are counted once, in the process that has allocated them.
#[test]
fn a_program_that_fails_to_become_another_is_counted_once() {
    let (outcome, ..) = checked(Job::fixture("heap_errors", "failed-execs"), &[]);
    assert_eq!((outcome.status, outcome.text().as_str()), (exited(7), "done\n"), "{outcome:?}");
    let said = String::from_utf8(outcome.stderr).unwrap();
    let words: Vec<&str> = said.split(' ').collect();
    let blocks: u64 = words[words.iter().position(|&word| word == "sampled").unwrap() + 1].parse().unwrap();
    assert!((100..200).contains(&blocks), "{said}");
    assert!(said.contains(" blocks in 6 processes"), "{said}");
}

/// Correct programs run as without the checker, whatever of their blocks is sampled.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn programs_that_people_use_are_the_same_and_clean() {
    let jobs = || {
        let mut jobs = vec![
            Job::fixture("heap_errors_cxx", "nothing"),
            Job::fixture("heap_errors_rust", "nothing"),
            Job::fixture("operators", "50"),
            Job::fixture("mix_threads", "300"),
            Job::fixture("own_malloc", ""),
            Job::fixture("crew", "2"),
        ];
        if let Some(git) = installed("git") {
            let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
            jobs.push(Job::new([git.as_os_str(), "hash-object".as_ref(), root.join("ARCHITECTURE.md").as_os_str()]));
        }
        if let Some(python) = installed("python3") {
            let script = "import json, decimal; print(len(json.dumps([{'key%d' % i: 'x' * i} for i in range(300)])))";
            let words = [python.as_os_str(), "-c".as_ref(), script.as_ref()];
            jobs.push(Job::new(words).variable("PYTHONMALLOC", "malloc").variable("PYTHONHASHSEED", "0"));
        }
        if let Some(sqlite) = installed("sqlite3") {
            let sql = "with recursive n(i) as (select 1 union all select i + 1 from n where i < 3000) select count(*), max(i) from n;";
            jobs.push(Job::new([sqlite.as_os_str(), ":memory:".as_ref()]).stdin(sql));
        }
        jobs
    };
    let all = [ALL, &["--quiet"]].concat();
    let words = "--phc --quiet --phc-normal 7 --phc-placement drawn --phc-adaptive --phc-min-memory 0";
    let words: Vec<&str> = words.split(' ').collect();
    let own = |options: &[&'static str]| [options, &["--allocator", "heapledger"]].concat();
    for options in [own(&all), own(&words), all, words] {
        for job in jobs() {
            let words = ["run"].iter().chain(&options).map(|word| OsStr::new(*word));
            assert_eq!(job.bare(), job.through(words).outcome(), "{options:?}");
        }
    }
}

/// Blocks are sampled by the functions in their stacks, whose names are found in the files of the
/// program: of C, C++ and Rust.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn sites_are_chosen_by_functions() {
    let sampled = |options: &[&str], fixture: &str, kind: &str| {
        let (outcome, files, _scratch) = checked(Job::fixture(fixture, kind), options);
        (files.len(), String::from_utf8(outcome.stderr).unwrap())
    };
    for (fixture, kind, function) in [
        ("heap_errors", "use-after-free-read", "make"),
        ("heap_errors_cxx", "virtual-call", "make_node"),
        ("heap_errors_rust", "use-after-free", "heap_errors_rust::make"),
    ] {
        for allocator in ["system", "heapledger"] {
            let with = |option: &str, name: &str| sampled(&["--allocator", allocator, option, name], fixture, kind);
            assert_eq!(with("--phc-only", function).0, 1, "{fixture} {allocator}");
            assert_eq!(with("--phc-never", "no_such_function").0, 1, "{fixture} {allocator}");
            let (reports, said) = with("--phc-never", function);
            assert_eq!(reports, 0, "{fixture} {allocator}: {said}");
        }
    }
    let (reports, said) = sampled(&["--phc-only", "no_such_function"], "heap_errors", "nothing");
    assert!(reports == 0 && said.contains(" sampled 0 blocks in 1 process"), "{said}");

    let scratch = Scratch::new();
    let list = scratch.file("never");
    std::fs::write(&list, "# what is known\nmake_other\nmake()   # and this\n").unwrap();
    let path = list.to_str().unwrap();
    assert_eq!(sampled(&["--phc-never-from", path], "heap_errors", "use-after-free-read").0, 0);
    std::fs::write(&list, "make\nmake<int>\n").unwrap();
    let (_, said) = sampled(&["--phc-never-from", path], "heap_errors", "nothing");
    assert!(said.contains("line 2: expected a name without arguments and types"), "{said}");
}

/// A place that is the only one to be sampled is sampled far more often.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_rare_site_is_found_if_it_is_chosen() {
    let options = ["run", "--phc", "--phc-min-memory", "0", "--phc-first", "512", "--phc-normal", "512", "--phc-only"];
    let words = options.iter().chain(&["make_rare"]).map(OsStr::new);
    let scratch = Scratch::new();
    let run = || Job::fixture("heap_errors", "rare").directory(scratch.path()).through(words.clone()).outcome();
    // Each of the 39 blocks is sampled with a probability of about 1/33: seven in ten runs find the
    // error.
    assert!((0..30).any(|_| run().status.signal() == Some(11)));
}

/// Calls are reported with the scopes that the program has declared, which no recorder observes.
#[test]
fn reports_have_the_scopes_of_the_program() {
    const SCOPES: &str = r#"
#include "heapledger/heapledger.h"
static const heapledger_name route = HEAPLEDGER_NAME("/users");
__attribute__((noinline)) static char *make(void) { HEAPLEDGER_SCOPE("render"); return (char *)malloc(32); }
int main(void) {
    HEAPLEDGER_SCOPE_VALUE("request", &route);
    char *volatile text = make();
    { HEAPLEDGER_SCOPE("tidy"); free(text); }
    return text[5];
}
"#;
    let scratch = Scratch::new();
    let (source, fixture) = (scratch.write("scopes.c", SCOPES), scratch.file("scopes"));
    let include = format!("-I{}", headers().display());
    let built = Command::new("cc").args(["-g", "-fno-builtin", &include]).arg(&source).arg("-o").arg(&fixture).status();
    assert!(built.unwrap().success());
    let (outcome, files, _scratch) = checked(Job::new([fixture.as_os_str()]), &[]);
    let said = String::from_utf8(outcome.stderr).unwrap();
    assert!(said.contains(", in request{/users} > render at\n        make  "), "{said}");
    let report = read(&files[0]);
    let stacks = report["errors"][0]["stacks"].as_array().unwrap().iter();
    let contexts: Vec<&Value> = stacks.map(|stack| &stack["context"]).collect();
    assert_eq!(contexts, ["request{/users}", "request{/users} > tidy", "request{/users} > render"], "{report:#}");
}

/// The kernel's core file of a process has the report that its file has.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_core_file_has_the_same_reports() {
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    if pattern.trim() != "core" {
        eprintln!("skipped: the kernel does not write core files to the current directory ({})", pattern.trim());
        return;
    }
    let scratch = Scratch::new();
    let words = |rest: &[&str]| [&["run"], ALL, rest].concat().join(" ");
    let fixture = program("heap_errors");
    let run = |options: &[&str], kind: &str| {
        let command =
            format!("ulimit -c unlimited; exec {HEAPLEDGER} {} -- {} {kind}", words(options), fixture.display());
        let mut shell = Command::new("sh");
        let done = shell.args(["-c", &command]).current_dir(scratch.path()).output().unwrap();
        let mut cores = Vec::new();
        let mut files = Vec::new();
        for entry in std::fs::read_dir(scratch.path()).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if name.starts_with("core") {
                cores.push(path);
            } else if name.ends_with(".phc") {
                files.push(path);
            }
        }
        (done, cores, files)
    };
    for options in [&["--quiet"][..], &["--quiet", "--allocator", "heapledger"]] {
        for kind in ["thread-free", "overflow-write", "invalid-free"] {
            let (done, cores, files) = run(options, kind);
            assert!(done.status.signal().is_some(), "{done:?}");
            assert_eq!((cores.len(), files.len()), (1, 1), "{kind}: {done:?}");
            let (from_core, from_file) = (read(&cores[0]), read(&files[0]));
            assert_eq!(from_core["errors"], from_file["errors"], "{kind}");
            assert_eq!(from_core["errors"].as_array().unwrap().len(), 1, "{kind}");
            cores.iter().chain(&files).for_each(|path| std::fs::remove_file(path).unwrap());
        }
    }
    // Without the checker, there is nothing; with it and without an error, no report.
    let command = format!("ulimit -c unlimited; exec {} null", fixture.display());
    let _ = Command::new("sh").args(["-c", &command]).current_dir(scratch.path()).output().unwrap();
    let core = std::fs::read_dir(scratch.path()).unwrap().map(|entry| entry.unwrap().path());
    let core: Vec<PathBuf> = core.filter(|path| path.to_string_lossy().contains("core")).collect();
    let said = String::from_utf8(heapledger(["phc".as_ref(), core[0].as_os_str()]).stderr).unwrap();
    assert!(said.contains("the process did not run with the heap checker"), "{said}");
    std::fs::remove_file(&core[0]).unwrap();
    let (_, cores, _) = run(&["--quiet"], "null");
    assert_eq!(read(&cores[0])["errors"], json!([]));
}

/// A recording and the checker observe the same program.
#[test]
fn a_program_is_recorded_and_checked_at_once() {
    let scratch = Scratch::new();
    let file = scratch.file("both.hl");
    let words = ["record", "-o", file.to_str().unwrap()];
    let words = words.iter().chain(ALL).map(|word| OsStr::new(*word));
    let job = Job::fixture("heap_errors", "use-after-free-read").directory(scratch.path());
    let outcome = job.through(words).outcome();
    assert_eq!(outcome.status.signal(), Some(11), "{outcome:?}");
    let recording = Recording::open(file);
    assert_eq!((recording.total("allocations"), recording.total("blocks_live_end")), (1, 0), "{recording:?}");
    let said = String::from_utf8(outcome.stderr).unwrap();
    assert!(said.contains("\nuse after free: read at byte 5 of a block of 32 bytes (process "), "{said}");
}

/// At the default rates nothing is found in a short program, and the command says how much was
/// looked at; on a small machine it says that nothing was.
#[test]
fn the_command_says_what_was_looked_at() {
    let fixture = program("heap_errors");
    let said = |options: &[&str]| {
        let words = ["run", "--phc"].iter().chain(options).map(|word| OsStr::new(*word));
        let outcome = heapledger(words.chain(["--".as_ref(), fixture.as_os_str(), "nothing".as_ref()]));
        assert_eq!((outcome.status, outcome.text().as_str()), (exited(7), "done\n"), "{outcome:?}");
        String::from_utf8(outcome.stderr).unwrap()
    };
    assert_eq!(
        said(&["--phc-min-memory", "0"]),
        "heapledger: the heap checker sampled 0 blocks in 1 process, and found no error\n"
    );
    let off = said(&["--phc-min-memory", "1000TiB"]);
    assert!(
        off.starts_with("warning[HL0087]: the heap checker did not run in 1 process: the machine has less"),
        "{off}"
    );
    let none = heapledger(["phc", "/dev/null"]);
    let none = String::from_utf8(none.stderr).unwrap();
    assert!(none.contains("line 1: this is no line of a report of the heap checker"), "{none}");
}
