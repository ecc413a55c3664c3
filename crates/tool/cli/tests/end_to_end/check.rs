//! `heapledger check`: finds each kind of misuse, with its stacks, and nothing else; and the
//! checked program goes on as usual.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use serde_json::{Value, json};

use crate::documents;
use crate::harness::{Build, Job, Outcome, Scratch, build, exited, heapledger, installed, program, shared_library};
use crate::hooks;

/// Runs the fixture under the checks; returns its outcome and the findings.
fn checked(arguments: &[&str]) -> (Outcome, Value) {
    checked_with(&[], "misuse", arguments)
}

/// Does the same with another fixture, and with options.
fn checked_with(options: &[&str], fixture: &str, arguments: &[&str]) -> (Outcome, Value) {
    let scratch = Scratch::new();
    let (report, fixture) = (scratch.file("report.json"), program(fixture));
    let mut line = vec!["check", "--json", "-o", report.to_str().unwrap()];
    line.extend(options);
    line.extend(["--", fixture.to_str().unwrap()]);
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
            frame["module"]
                .as_str()
                .is_some_and(|path| ["/misuse", "/ends", "/heap_errors_cxx"].iter().any(|end| path.ends_with(end)))
        });
        own.map(|frame| text(&frame["function"])).filter(|name| name != "_start").collect()
    };
    let stacks = misuse["stacks"].as_array().unwrap().iter();
    stacks.map(|stack| (text(&stack["role"]), text(&stack["by"]), functions(stack))).collect()
}

fn stack(role: &str, by: &str, functions: &[&str]) -> (String, String, Vec<String>) {
    (role.to_owned(), by.to_owned(), functions.iter().map(|&function| function.to_owned()).collect())
}

/// A kind of the fixture's misuse, with fields of the finding, and its stacks.
type Case = (&'static str, Value, Vec<(String, String, Vec<String>)>);

fn cases() -> Vec<Case> {
    let (main, make, drop) = (["main"], ["make", "main"], ["drop", "main"]);
    vec![
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
        (
            "underwrite",
            json!({"kind": "underwrite", "bytes": 32, "overwritten": [-1, -1], "found": "07"}),
            vec![stack("freed", "free", &drop), stack("allocated", "malloc", &make)],
        ),
        (
            "underwrite-live",
            json!({"kind": "underwrite", "bytes": 32, "overwritten": [-16, -16], "found": "07"}),
            vec![stack("allocated", "malloc", &make)],
        ),
        (
            "underwrite-aligned",
            json!({"kind": "underwrite", "bytes": 100, "overwritten": [-2, -2], "found": "07"}),
            vec![stack("freed", "free", &drop), stack("allocated", "aligned_alloc", &main)],
        ),
        (
            "after-free",
            json!({"kind": "after-free", "bytes": 100, "overwritten": [5, 8], "found": "6c617465"}),
            vec![stack("freed", "free", &drop), stack("allocated", "malloc", &make)],
        ),
        (
            "after-realloc",
            json!({"kind": "after-free", "bytes": 100, "overwritten": [99, 99], "found": "07"}),
            vec![stack("freed", "realloc", &main), stack("allocated", "malloc", &make)],
        ),
        (
            "realloc-freed",
            json!({"kind": "double-free", "bytes": 100}),
            vec![stack("freed", "realloc", &main), stack("first", "free", &drop), stack("allocated", "malloc", &make)],
        ),
    ]
}

/// One misuse of each kind is found, with its fields and its stacks.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn each_kind_of_misuse_is_found_with_its_stacks() {
    // Each under the C library's allocator, and under Heapledger's.
    for (kind, fields, expected) in cases() {
        for options in [&[][..], &["--allocator", "heapledger"]] {
            let (outcome, report) = checked_with(options, "misuse", &[kind]);
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
}

/// A write to a freed block is found when the block leaves the quarantine, even if the process is
/// killed; without a quarantine it is not.
#[test]
fn a_write_to_a_freed_block_is_found_when_it_leaves_the_quarantine() {
    let (outcome, report) = checked_with(&["--quarantine", "64k"], "misuse", &["after-free-killed"]);
    assert_eq!(outcome.status.signal(), Some(9), "{outcome:?}");
    let misuses = report["misuses"].as_array().unwrap();
    assert_eq!((misuses.len(), &misuses[0]["kind"]), (1, &json!("after-free")), "{report:#}");
    assert_eq!((&misuses[0]["overwritten"], &misuses[0]["found"]), (&json!([0, 0]), &json!("07")), "{report:#}");
    let (outcome, report) = checked_with(&["--quarantine", "0"], "misuse", &["after-free"]);
    assert_eq!((outcome.status, &report["misuses"]), (exited(7), &json!([])), "{outcome:?}");
}

/// A pointer into a freed block is named as such, and is not passed on.
#[test]
fn a_free_inside_a_freed_block_has_both_stacks() {
    let (outcome, report) = checked(&["inside-freed"]);
    assert_eq!((outcome.status, outcome.text()), (exited(7), "done\n".to_owned()), "{outcome:?}");
    let misuses = report["misuses"].as_array().unwrap();
    assert_eq!((misuses.len(), &misuses[0]["kind"], &misuses[0]["inside"]), (1, &json!("no-block"), &json!(16)));
    let expected = [
        stack("freed", "free", &["drop", "main"]),
        stack("first", "free", &["drop", "main"]),
        stack("allocated", "malloc", &["make", "main"]),
    ];
    assert_eq!(stacks(&misuses[0]), expected, "{report:#}");
}

/// The errors that the heap checker is tried with, and the kind of misuse as which the checks find
/// each: the table in docs/phc.md.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn the_errors_of_the_heap_checker() {
    let kinds = [
        ("heap_errors", "overflow-read", None),
        ("heap_errors", "overflow-write", Some("overwrite")),
        ("heap_errors", "overflow-far", None),
        ("heap_errors", "overflow-large", Some("overwrite")),
        ("heap_errors", "overflow-calloc", Some("overwrite")),
        ("heap_errors", "overflow-aligned", Some("overwrite")),
        ("heap_errors", "overflow-string", Some("overwrite")),
        ("heap_errors", "overflow-realloc", Some("overwrite")),
        ("heap_errors", "underflow-write", Some("underwrite")),
        ("heap_errors", "use-after-free-read", None),
        ("heap_errors", "use-after-free-write", Some("after-free")),
        ("heap_errors", "use-after-realloc", None),
        ("heap_errors", "thread-free", None),
        ("heap_errors", "thread-read", None),
        ("heap_errors", "signal", None),
        ("heap_errors", "child", None),
        ("heap_errors", "library", None),
        ("heap_errors", "double-free", Some("double-free")),
        ("heap_errors", "realloc-after-free", Some("double-free")),
        ("heap_errors", "invalid-free", Some("no-block")),
        ("heap_errors", "wild-free", Some("no-block")),
        ("heap_errors", "overwritten-behind", Some("overwrite")),
        ("heap_errors", "overwritten-before", Some("underwrite")),
        ("heap_errors", "overwritten-aligned", Some("overwrite")),
        ("heap_errors", "handler", None),
        ("heap_errors_cxx", "virtual-call", Some("followed-freed")),
        ("heap_errors_cxx", "double-delete", Some("double-free")),
        ("heap_errors_cxx", "dangling-iterator", None),
        ("heap_errors_cxx", "dangling-view", None),
        ("heap_errors_cxx", "array-overflow", Some("overwrite")),
        ("heap_errors_cxx", "exception", None),
    ];
    for (fixture, kind, expected) in kinds {
        let (_, report) = checked_with(&[], fixture, &[kind]);
        let misuses = report["misuses"].as_array().unwrap();
        let found: Vec<Option<&str>> = misuses.iter().map(|misuse| misuse["kind"].as_str()).collect();
        let expected: Vec<Option<&str>> = expected.into_iter().map(Some).collect();
        assert_eq!(found, expected, "{kind}: {report:#}");
    }
    // A write 2,000 bytes past the end is found with a canary of that length.
    let (_, report) = checked_with(&["--past-end", "4k"], "heap_errors", &["overflow-far"]);
    assert_eq!(report["misuses"].as_array().map(Vec::len), Some(1), "{report:#}");
    let misuse = &report["misuses"][0];
    assert_eq!((&misuse["kind"], &misuse["bytes"]), (&json!("overwrite"), &json!(48)), "{report:#}");
    assert_eq!(misuse["overwritten"], json!([2048, 2048]), "{report:#}");
    // The stack of the fault comes first.
    let (outcome, report) = checked_with(&[], "heap_errors_cxx", &["virtual-call"]);
    assert_eq!(outcome.status.signal(), Some(11), "{outcome:?}");
    let (role, by, functions) = stacks(&report["misuses"][0]).swap_remove(0);
    assert_eq!((role.as_str(), by.as_str()), ("accessed", "the signal"), "{report:#}");
    assert_eq!(functions.last().map(String::as_str), Some("main"), "{report:#}");
    assert_eq!(report["misuses"][0]["bytes"], 56, "{report:#}");
}

/// With a shared jemalloc, C programs are checked like any others, since they get all blocks by the
/// malloc functions. A program that calls another of jemalloc's functions is not checked.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_shared_allocator_of_a_c_program() {
    let (Some(jemalloc), Some(compiler)) = (shared_library("libjemalloc.so.2"), installed("cc")) else { return };
    let scratch = Scratch::new();
    let mut preload = OsString::from("LD_PRELOAD=");
    preload.push(&jemalloc);
    let checked = |line: &[&OsStr]| {
        let words = ["check", "--", "/usr/bin/env"].map(OsString::from).into_iter().chain([preload.clone()]);
        String::from_utf8(heapledger(words.chain(line.iter().map(OsString::from))).stderr).unwrap()
    };
    let fixture = program("heap_errors");
    for (kind, title) in [
        ("overflow-write", "\nwrite past the end of a block of "),
        ("underflow-write", "\nwrite in front of a block of "),
        ("use-after-free-write", "\nwrite after the free of a block of "),
        ("double-free", "\ndouble free of a block of "),
        ("nothing", "heapledger: no misuse of the allocator was found\n"),
    ] {
        let said = checked(&[fixture.as_os_str(), kind.as_ref()]);
        assert!(said.contains(title) && !said.contains("not checked"), "{kind}: {said}");
    }
    let source = scratch.write(
        "own.c",
        "#include <stddef.h>\nvoid *mallocx(size_t, int); void dallocx(void *, int);\n\
         int main(void) { dallocx(mallocx(100, 0), 0); return 0; }\n",
    );
    let own = scratch.file("own");
    let words = [compiler.as_os_str(), source.as_os_str(), jemalloc.as_os_str(), "-o".as_ref(), own.as_os_str()];
    assert!(Job::new(words).bare().status.success());
    let said = checked(&[own.as_os_str()]);
    assert!(said.contains("\n1 process not checked: ") && said.contains("\nhint: "), "{said}");
}

/// C++ programs with a preloaded allocator that has operators of its own: the C++ library's
/// operators are used in their place, so that all blocks are seen. A program without misuse does
/// the same as without checks.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_shared_allocator_of_a_cxx_program() {
    for library in ["libjemalloc.so.2", "libtcmalloc_minimal.so.4", "libmimalloc.so.2"] {
        let Some(library) = shared_library(library) else { continue };
        let mut jobs = vec![Job::fixture("indexer", "50")];
        if let Some(apt) = installed("apt-config") {
            jobs.push(Job::new([apt.as_os_str(), "dump".as_ref()]));
        }
        for job in jobs {
            let job = job.variable("LD_PRELOAD", &library);
            let checked = job.launched("check", &[]).outcome();
            assert_eq!(checked, job.bare(), "{library:?}");
        }
        let mut preload = OsString::from("LD_PRELOAD=");
        preload.push(&library);
        let checked = |fixture: &str, kind: &str| {
            let words = ["check", "--", "/usr/bin/env"].map(OsString::from).into_iter();
            let line = words.chain([preload.clone(), program(fixture).into(), kind.into()]);
            String::from_utf8(heapledger(line).stderr).unwrap()
        };
        for (fixture, kind, title) in [
            ("heap_errors_cxx", "array-overflow", "\nwrite past the end of a block of "),
            ("heap_errors_cxx", "double-delete", "\ndouble free of a block of "),
            ("misuse", "new-free", "\nmismatched free of a block of 100 bytes: free after operator new\n"),
            ("indexer", "5", "heapledger: no misuse of the allocator was found\n"),
        ] {
            let said = checked(fixture, kind);
            assert!(said.contains(title) && !said.contains("not checked"), "{library:?}, {kind}: {said}");
        }
        let said = checked("heap_errors_cxx", "array-overflow");
        assert!(said.contains("allocated by operator new[] at\n"), "{library:?}: {said}");
    }
}

/// A library whose copies of the operators are hidden, as one with a static C++ library has them:
/// the call of malloc that they make is no mismatch with an operator `delete`, unless that is
/// another one.
#[test]
fn hidden_operators_of_a_library() {
    let Some(compiler) = installed("c++") else { return };
    let scratch = Scratch::new();
    let library = scratch.write(
        "library.cpp",
        "#include <cstdlib>\n#include <new>\n\
         void *operator new(std::size_t size) { return std::malloc(size); }\n\
         void operator delete(void *block) noexcept { std::free(block); }\n\
         extern \"C\" int *make() { return new int(7); }\n",
    );
    let script = scratch.write("exports", "{ global: make; local: *; };\n");
    let (shared, source) = (scratch.file("libhidden.so"), scratch.file("hidden.cpp"));
    let mut option = OsString::from("-Wl,--version-script=");
    option.push(&script);
    let words = ["-g", "-O0", "-shared", "-fPIC", "-o"].map(OsString::from).into_iter();
    let words = words.chain([shared.clone().into(), library.into(), option]);
    assert!(Job::new(std::iter::once(compiler.clone().into_os_string()).chain(words)).bare().status.success());
    for (delete, found) in [("delete", 0), ("delete[]", 1)] {
        let text = format!("extern \"C\" int *make();\nint main() {{ {delete} make(); }}\n");
        std::fs::write(&source, text).unwrap();
        let program = scratch.file("hidden");
        let words = ["-g", "-O0", "-w", "-o"].map(OsString::from).into_iter();
        let words = words.chain([program.clone().into(), source.clone().into(), shared.clone().into()]);
        assert!(Job::new(std::iter::once(compiler.clone().into_os_string()).chain(words)).bare().status.success());
        let outcome = heapledger(["check", "--json", "--", program.to_str().unwrap()]);
        let report = documents::read(&outcome.stdout);
        assert_eq!(report["misuses"].as_array().unwrap().len(), found, "{delete}: {report:#}");
    }
}

/// Debian's redis links a shared jemalloc, whose `malloc_usable_size`, `mallctl` and `nallocx` it
/// calls: the checks and the heap checker find nothing in it, and change nothing.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_server_with_another_allocator() {
    let (Some(_), Some(_)) = (installed("redis-server"), installed("redis-cli")) else { return };
    let script = "
redis-server --port 0 --unixsocket ./socket --save '' --appendonly no > /dev/null & server=$!
ask() { redis-cli -s ./socket \"$@\"; }
until ask ping 2> /dev/null | grep -q PONG; do kill -0 $server || exit 1; sleep 0.02; done
i=0; while [ $i -lt 3000 ]; do echo \"set key$i value$i$i$i$i$i$i$i\"; i=$((i+1)); done | ask | sort | uniq -c
ask append large \"$(head -c 100000 /dev/zero | tr '\\0' x)\"
ask rpush list a b c
ask memory malloc-stats | grep -c 'jemalloc statistics'
ask memory purge
ask get key77; ask dbsize; ask flushall; ask dbsize
ask shutdown nosave
wait $server; echo ended $?
";
    for verb in [
        &["check"][..],
        &["check", "--quarantine", "256k"],
        &["run", "--phc", "--phc-first", "1", "--phc-normal", "50"],
    ] {
        let scratch = Scratch::new();
        let job = Job::shell(script).directory(scratch.path());
        let outcome = job.through(verb.iter().map(OsStr::new));
        let outcome = outcome.outcome();
        let said = String::from_utf8(outcome.stderr.clone()).unwrap();
        let ends = "2\nOK\nvalue77777777777777\n3002\nOK\n0\nended 0\n";
        assert!(outcome.text().ends_with(ends), "{verb:?}: {outcome:?}");
        let found_nothing = ["no misuse of the allocator was found\n", "and found no error"];
        assert!(found_nothing.iter().any(|nothing| said.contains(nothing)), "{verb:?}: {said}");
    }
}

/// Hook libraries run beside the checks: observers, replacements and those of the replace-malloc
/// protocol, whose blocks are the checks' with their canaries. The findings are the same, and a
/// program without misuse does the same.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn hook_libraries_beside_the_checks() {
    let (histogram, fences) = hooks::examples();
    let replacing = build("replace_malloc", Build::Module);
    let scratch = Scratch::new();
    let (counts, clean) = (scratch.file("counts"), Job::fixture("mix", "5000"));
    let bare = clean.bare();
    for libraries in [&[histogram.as_path()][..], &[fences, histogram], &[&replacing], &[&replacing, fences]] {
        let outcome = clean.launched("check", libraries).outcome();
        // The example that observes prints what it has seen.
        assert_eq!((outcome.status, &outcome.stdout), (bare.status, &bare.stdout), "{libraries:?}: {outcome:?}");
        let options = libraries.iter().flat_map(|library| ["--hook", library.to_str().unwrap()]);
        let options: Vec<&str> = options.chain(["--quarantine", "1M"]).collect();
        for (kind, expected) in [
            ("overflow-write", "overwrite"),
            ("underflow-write", "underwrite"),
            ("use-after-free-write", "after-free"),
            ("double-free", "double-free"),
        ] {
            let (_, report) = checked_with(&options, "heap_errors", &[kind]);
            let misuses = report["misuses"].as_array().unwrap();
            let found: Vec<&str> = misuses.iter().filter_map(|misuse| misuse["kind"].as_str()).collect();
            assert_eq!(found, [expected], "{libraries:?} {kind}: {report:#}");
        }
    }
    // The library's table is in use.
    let job = clean.variable("COUNTS", &counts);
    assert_eq!(job.launched("check", &[&replacing]).outcome().status, bare.status);
    assert!(std::fs::read_to_string(&counts).unwrap().contains("\"allocations\""));
    let refused = heapledger(["check", "--hook", "/etc/passwd", "--", "true"]);
    assert!(String::from_utf8(refused.stderr).unwrap().contains("cannot use the hook library"));
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
        "heapledger: no misuse of the allocator was found\n\
         looked for: wrong frees, writes within 16 bytes of a block, writes to the last 16.0 MiB that were freed\n\
         not seen: reads, and writes elsewhere (in a few blocks: heapledger run --phc -- COMMAND)\n"
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
    if let Some(python) = installed("python3") {
        // The interpreter's own tests of modules that are written in C.
        let script = "import io, unittest\n\
            names = ['test.test_json', 'test.test_struct', 'test.test_array', 'test.test_zlib', 'test.test_list']\n\
            suite = unittest.defaultTestLoader.loadTestsFromNames(names)\n\
            result = unittest.TextTestRunner(io.StringIO()).run(suite)\n\
            print(result.testsRun, len(result.errors), len(result.failures))";
        let words = [python.as_os_str(), "-c".as_ref(), script.as_ref()];
        jobs.push(Job::new(words).variable("PYTHONMALLOC", "malloc").variable("PYTHONHASHSEED", "0"));
    }
    if let Some(perl) = installed("perl") {
        let script = "my %h; $h{$_ % 97} .= \"x$_\" for 1..9000; print join(',', map { length $h{$_} } sort keys %h);";
        jobs.push(Job::new([perl.as_os_str(), "-e".as_ref(), script.as_ref()]));
    }
    if let Some(jq) = installed("jq") {
        let program = "[range(3000) | {key: \"k\\(.)\", value: .}] | from_entries | length";
        jobs.push(Job::new([jq.as_os_str(), "-n".as_ref(), program.as_ref()]));
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
        let bare = job.bare();
        assert_eq!(bare, job.launched("check", &[]).outcome());
        // With a quarantine that most blocks leave, and on Heapledger's allocator.
        for options in [["--quarantine", "256k"], ["--allocator", "heapledger"], ["--past-end", "1000"]] {
            let words = ["check", "--quiet"].iter().chain(&options).map(OsStr::new);
            assert_eq!(bare, job.through(words).outcome(), "{options:?}");
        }
    }
    // The program prints the ids of its processes.
    let forks = Job::fixture("forks", "").launched("check", &[]).outcome();
    assert_eq!((forks.status, forks.stderr.as_slice()), (exited(10), &[][..]), "{forks:?}");
}
