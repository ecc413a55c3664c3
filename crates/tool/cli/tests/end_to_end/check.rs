//! `heapledger check`: finds each kind of misuse, with its stacks, and nothing else; and the
//! checked program goes on as usual.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use serde_json::{Value, json};

use crate::documents;
use crate::harness::{Job, Outcome, Scratch, exited, heapledger, installed, program, shared_library};

/// Runs the fixture under the checks; returns its outcome and the findings.
fn checked(arguments: &[&str]) -> (Outcome, Value) {
    let scratch = Scratch::new();
    let (report, fixture) = (scratch.file("report.json"), program("misuse"));
    let mut line = vec!["check", "--json", "-o", report.to_str().unwrap(), "--", fixture.to_str().unwrap()];
    line.extend(arguments);
    let outcome = heapledger(line);
    (outcome, documents::read(&std::fs::read(report).unwrap()))
}

/// Returns the role, the call, and the program's own functions, of each stack.
pub(crate) fn stacks(misuse: &Value) -> Vec<(String, String, Vec<String>)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let functions = |stack: &Value| {
        let frames = stack["frames"].as_array().unwrap().iter();
        let own = frames.filter(|frame| {
            frame["module"].as_str().is_some_and(|path| path.ends_with("/misuse") || path.ends_with("/ends"))
        });
        own.map(|frame| text(&frame["function"])).filter(|name| name != "_start").collect()
    };
    let stacks = misuse["stacks"].as_array().unwrap().iter();
    stacks.map(|stack| (text(&stack["role"]), text(&stack["by"]), functions(stack))).collect()
}

fn stack(role: &str, by: &str, functions: &[&str]) -> (String, String, Vec<String>) {
    (role.to_owned(), by.to_owned(), functions.iter().map(|&function| function.to_owned()).collect())
}

/// One misuse of each kind is found, with its fields and its stacks.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn each_kind_of_misuse_is_found_with_its_stacks() {
    let (main, make, drop) = (["main"], ["make", "main"], ["drop", "main"]);
    let cases = [
        (
            "new-free",
            json!({"kind": "mismatch", "bytes": 100}),
            vec![stack("freed", "free", &main), stack("allocated", "operator new", &main)],
        ),
        (
            "malloc-delete",
            json!({"kind": "mismatch", "bytes": 20}),
            vec![stack("freed", "operator delete", &main), stack("allocated", "malloc", &make)],
        ),
        (
            "array-delete",
            json!({"kind": "mismatch", "bytes": 30}),
            vec![stack("freed", "operator delete", &main), stack("allocated", "operator new[]", &main)],
        ),
        (
            "delete-array",
            json!({"kind": "mismatch", "bytes": 1}),
            vec![stack("freed", "operator delete[]", &main), stack("allocated", "operator new", &main)],
        ),
        (
            "size",
            json!({"kind": "wrong-size", "bytes": 100, "said": 12}),
            vec![stack("freed", "operator delete", &main), stack("allocated", "operator new", &main)],
        ),
        (
            "overwrite",
            json!({"kind": "overwrite", "bytes": 10, "overwritten": [10, 10]}),
            vec![stack("freed", "free", &drop), stack("allocated", "malloc", &make)],
        ),
        (
            "overwrite-realloc",
            json!({"kind": "overwrite", "bytes": 33, "overwritten": [33, 36]}),
            vec![stack("freed", "realloc", &main), stack("allocated", "malloc", &make)],
        ),
        (
            "overwrite-live",
            json!({"kind": "overwrite", "bytes": 40, "overwritten": [45, 45]}),
            vec![stack("allocated", "malloc", &make)],
        ),
    ];
    for (kind, fields, expected) in cases {
        let (outcome, report) = checked(&[kind]);
        assert_eq!((outcome.status, outcome.text()), (exited(7), "done\n".to_owned()), "{kind}: {outcome:?}");
        assert!(outcome.stderr.is_empty(), "{kind}: {outcome:?}");
        let misuses = report["misuses"].as_array().unwrap();
        assert_eq!(misuses.len(), 1, "{kind}: {report:#}");
        for (name, value) in fields.as_object().unwrap() {
            assert_eq!(&misuses[0][name], value, "{kind}: {report:#}");
        }
        assert_eq!(stacks(&misuses[0]), expected, "{kind}: {report:#}");
        assert_eq!(misuses[0]["times"], 1, "{kind}: {report:#}");
    }
}

/// By itself the program ends at the second free; under the checks that is not passed on.
#[test]
fn a_double_free_is_found_in_threads_and_children_and_swallowed() {
    assert_eq!(Job::new([program("misuse")]).argument("twice").bare().status.signal(), Some(6));
    for (kind, callers, rounds) in [
        ("twice", &["twice", "main"][..], "5"),
        ("thread", &["twice", "in_thread"], "5"),
        ("child", &["twice", "main"], "3"),
    ] {
        let (outcome, report) = checked(&[kind, rounds]);
        assert_eq!((outcome.status, outcome.text()), (exited(7), "done\n".to_owned()), "{kind}: {outcome:?}");
        let misuses = report["misuses"].as_array().unwrap();
        assert_eq!(misuses.len(), 1, "{kind}: {report:#}");
        let within = |function| [&[function], callers].concat();
        let expected = [
            stack("freed", "free", &within("drop")),
            stack("first", "free", &within("drop")),
            stack("allocated", "malloc", &within("make")),
        ];
        assert_eq!(stacks(&misuses[0]), expected, "{kind}: {report:#}");
        assert_eq!(misuses[0]["kind"], "double-free");
        assert_eq!(misuses[0]["times"], rounds.parse::<u64>().unwrap(), "{kind}: {report:#}");
        let line = |at: usize| misuses[0]["stacks"][at]["frames"][1]["line"].as_u64().unwrap();
        assert_eq!([line(0) - line(1), line(1) - line(2)], [1, 1], "{report:#}");
    }
}

/// The allocator ends the program for it, as usual; earlier findings are reported.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn what_is_no_block_is_passed_on_and_told() {
    for (kind, inside) in [("inside", json!(16)), ("no-block", json!(null))] {
        let bare = Job::new([program("misuse")]).argument(kind).bare();
        let (outcome, report) = checked(&[kind]);
        assert_eq!((bare.status.signal(), outcome.status.signal()), (Some(6), Some(6)), "{kind}: {outcome:?}");
        assert_eq!(bare.stderr, outcome.stderr, "{kind}");
        let misuses = report["misuses"].as_array().unwrap();
        assert_eq!(
            (misuses.len(), &misuses[0]["kind"], &misuses[0]["inside"]),
            (1, &json!("no-block"), &inside),
            "{report:#}"
        );
        assert_eq!(stacks(&misuses[0])[0], stack("freed", "free", &["drop", "main"]));
    }
}

#[test]
fn the_report_and_the_exit_status() {
    let fixture = program("misuse");
    let fixture = fixture.to_str().unwrap();
    let found = heapledger(["check", "--error-exitcode", "9", "--", fixture, "malloc-delete", "2"]);
    assert_eq!((found.status, found.text()), (exited(9), "done\n".to_owned()), "{found:?}");
    let told = String::from_utf8(found.stderr).unwrap();
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines[0], "heapledger: misuse of the allocator: 1 thing, found 2 times in all", "{told}");
    assert_eq!(lines[2], "mismatched free of a block of 20 bytes: operator delete after malloc (2 times)", "{told}");
    assert_eq!(lines[3], "    freed by operator delete at", "{told}");
    assert!(lines[4].starts_with("        main  ") && lines[4].contains("misuse.cpp:"), "{told}");
    let clean = heapledger(["check", "--error-exitcode", "9", "--", fixture, "nothing"]);
    assert_eq!((clean.status, clean.text()), (exited(7), "done\n".to_owned()), "{clean:?}");
    assert_eq!(
        String::from_utf8(clean.stderr).unwrap(),
        "heapledger: no misuse of the allocator was found (looked for: wrong frees, writes up to 16 bytes past a block)\n"
    );
}

/// A write past a block that is live when the process ends is found at every observable end, with
/// the same status; at other ends a message says that the blocks were not examined.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn the_live_blocks_at_every_end() {
    let fixture = program("ends");
    let of = |how: &str| {
        let bare = Job::fixture("ends", how).bare();
        let scratch = Scratch::new();
        let report = scratch.file("report.json");
        let line = ["check", "--json", "-o", report.to_str().unwrap(), "--", fixture.to_str().unwrap(), how];
        let outcome = heapledger(line);
        assert_eq!((outcome.status, outcome.text()), (bare.status, bare.text()), "{how}: {outcome:?}");
        assert_eq!(outcome.stderr, bare.stderr, "{how}");
        let report: Value = serde_json::from_slice(&std::fs::read(report).unwrap()).unwrap();
        (bare.status, report)
    };
    let ends = ["return", "_exit", "exec", "abort", "top", "fault", "sent", "handler", "thread", "fork", "failed-exec"];
    for how in ends {
        let (status, report) = of(how);
        let misuses = report["misuses"].as_array().unwrap();
        assert_eq!(misuses.len(), 1, "{how}: {report:#}");
        assert_eq!(misuses[0]["kind"], "overwrite", "{how}: {report:#}");
        let own = stacks(&misuses[0]);
        let function = if how == "top" { "spoil_top" } else { "spoil" };
        assert_eq!(own[0], stack("allocated", "malloc", &[function, "main"]), "{how}: {report:#}");
        assert_eq!(report["unverified"], json!([]), "{how}: {report:#}");
        let expected = match how {
            "abort" | "top" | "thread" => Some(6),
            "fault" | "sent" | "handler" => Some(11),
            _ => None,
        };
        assert_eq!(status.signal(), expected, "{how}");
    }
    for (how, signal) in [("kill", Some(9)), ("term", Some(15)), ("raw-exit", None), ("own-handler", None)] {
        let (status, report) = of(how);
        assert_eq!(status.signal(), signal, "{how}");
        assert_eq!(report["misuses"], json!([]), "{how}: {report:#}");
        assert_eq!(report["unverified"][0]["name"], "ends", "{how}: {report:#}");
    }
    let killed = heapledger(["check".as_ref(), "--".as_ref(), fixture.as_os_str(), "kill".as_ref()]);
    let said = String::from_utf8(killed.stderr).unwrap();
    assert!(
        said.starts_with("heapledger: no misuse of the allocator was found, but not all was looked at\n"),
        "{said}"
    );
    assert!(said.contains("the command died of signal 9"), "{said}");
}

/// A program with an allocator of its own cannot be checked: that is not reported as a clean run.
#[test]
fn a_program_with_its_own_allocator_is_not_checked() {
    let own = heapledger(["check".as_ref(), "--".as_ref(), program("own_malloc").as_os_str()]);
    let said = String::from_utf8(own.stderr).unwrap();
    assert!(said.contains("heapledger: no misuse of the allocator was found, but not all was looked at\n"), "{said}");
    assert!(said.contains("\n1 process not checked: "), "{said}");
}

/// The program sees the default signal actions, and core dumps and its own handlers work as usual.
#[test]
fn the_program_does_not_see_the_handlers() {
    let job = Job::fixture("ends", "dispositions");
    let bare = job.bare();
    assert_eq!((bare.status, bare.text().as_str()), (exited(0), "all default\n"), "{bare:?}");
    assert_eq!(job.launched("check", &[]).outcome(), bare);
}

/// Correct programs in C, C++ and Python: nothing is found, and nothing is different.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn programs_that_people_use_are_the_same_and_clean() {
    let mut jobs = vec![
        Job::fixture("misuse", "nothing"),
        Job::fixture("operators", "50"),
        Job::fixture("mix_threads", "300"),
        Job::fixture("own_malloc", ""),
    ];
    if let Some(git) = installed("git") {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
        jobs.push(Job::new([git.as_os_str(), "--version".as_ref()]));
        jobs.push(Job::new([git.as_os_str(), "hash-object".as_ref(), root.join("ARCHITECTURE.md").as_os_str()]));
    }
    if let Some(python) = installed("python3") {
        let script =
            "import json, ctypes, decimal; print(len(json.dumps([{'key%d' % i: 'x' * i} for i in range(700)])))";
        let words = [python.as_os_str(), "-c".as_ref(), script.as_ref()];
        jobs.push(Job::new(words).variable("PYTHONMALLOC", "malloc").variable("PYTHONHASHSEED", "0"));
    }
    if let Some(sqlite) = installed("sqlite3") {
        let sql = "with recursive n(i) as (select 1 union all select i + 1 from n where i < 3000) select count(*), max(i) from n;";
        jobs.push(Job::new([sqlite.as_os_str(), ":memory:".as_ref()]).stdin(sql));
    }
    if let Some(compiler) = installed("c++") {
        let text = "#include <map>\n#include <string>\nint main() { std::map<std::string, int> m; m[\"a\"] = 1; return m.size(); }";
        let words = ["-x", "c++", "-O1", "-S", "-o", "-", "-"].map(std::ffi::OsStr::new);
        jobs.push(Job::new(std::iter::once(compiler.as_os_str()).chain(words)).stdin(text));
    }
    for job in jobs {
        let (bare, checked) = (job.bare(), job.launched("check", &[]).outcome());
        assert_eq!(bare, checked);
    }
    // Allocators with operators of their own, whose calls are not observed.
    for library in ["libjemalloc.so.2", "libtcmalloc_minimal.so.4"] {
        if let Some(library) = shared_library(library) {
            let mut preload = OsString::from("LD_PRELOAD=");
            preload.push(&library);
            let job = Job::fixture("operators", "50").variable("LD_PRELOAD", library);
            assert_eq!(job.launched("check", &[]).outcome(), job.bare());
            let words = ["check", "--", "/usr/bin/env"].map(OsString::from).into_iter();
            let line = words.chain([preload, program("operators").into(), "5".into()]);
            let told = String::from_utf8(heapledger(line).stderr).unwrap();
            assert!(told.contains("\n1 process not checked: "), "{told}");
        }
    }
    // The program prints the ids of its processes.
    let forks = Job::fixture("forks", "").launched("check", &[]).outcome();
    assert_eq!((forks.status, forks.stderr.as_slice()), (exited(10), &[][..]), "{forks:?}");
}
