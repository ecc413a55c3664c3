//! Files that verbs write: none replaces another one without `--force`, and none is left
//! incomplete.

use std::fs;
use std::path::Path;

use crate::harness::{HEAPLEDGER, Job, Outcome, Recording, Scratch, exited};

/// Every verb that writes a file, whose name is `OUT`; and an input of it, if it has one.
const WRITERS: &[(&str, Option<&str>)] = &[
    ("flame a.hl -o OUT", Some("a.hl")),
    ("flame --collapsed a.hl -o OUT", Some("a.hl")),
    ("export --to pprof a.hl -o OUT", Some("a.hl")),
    ("export --to firefox a.hl -o OUT", Some("a.hl")),
    ("timeline a.hl --svg -o OUT", Some("a.hl")),
    ("merge a.hl b.hl -o OUT", Some("b.hl")),
    ("trim --from 0s a.hl -o OUT", Some("a.hl")),
    ("anonymize a.hl -o OUT", Some("a.hl")),
    ("import heap -o OUT", Some("heap")),
    ("reports save --to json reports.json -o OUT", Some("reports.json")),
    ("reports merge --to json reports.json reports.json -o OUT", Some("reports.json")),
    ("dmd log.json -o OUT", Some("log.json")),
    ("dmd log.json --save OUT", Some("log.json")),
    ("check -o OUT -- true", None),
    ("record -q -o OUT -- true", None),
];

/// Makes a directory with all inputs.
fn prepared() -> Scratch {
    let scratch = Scratch::new();
    for name in ["a.hl", "b.hl"] {
        let outcome = Job::fixture("mix", "2000").start(Some(&scratch.file(name))).outcome();
        assert!(outcome.status.success(), "{outcome:?}");
    }
    scratch.write("heap", "heap_v2/524288\n  t*: 1: 8 [0: 0]\n@ 0x1000 0x2000\n  t*: 1: 8 [0: 0]\n");
    let report =
        r#"{"process": "p (pid 7)", "path": "explicit/a", "kind": 1, "units": 0, "amount": 5, "description": "D."}"#;
    let reports = vec![report; 50].join(",");
    scratch
        .write("reports.json", format!(r#"{{"version": 1, "hasMozMallocUsableSize": true, "reports": [{reports}]}}"#));
    let frames: Vec<String> = (0..200).map(|frame| format!(r##""F{frame}": "#00: f{frame} (a.c:{frame})""##)).collect();
    let log = format!(
        r#"{{"version": 5, "invocation": {{"dmdEnvVar": null, "mode": "live"}}, "blockList": [{{"req": 100, "alloc": "A"}}],
            "traceTable": {{"A": ["F0"]}}, "frameTable": {{{}}}}}"#,
        frames.join(",")
    );
    scratch.write("log.json", log);
    scratch
}

fn line(writer: &str, out: &str) -> Vec<String> {
    [HEAPLEDGER].into_iter().chain(writer.split(' ')).map(|word| word.replace("OUT", out)).collect()
}

fn run(scratch: &Scratch, writer: &str, out: &str, force: bool) -> Outcome {
    let mut line = line(writer, out);
    if force {
        // For verbs that start a program, before its name.
        line.insert(if writer.starts_with("reports") { 3 } else { 2 }, "--force".to_owned());
    }
    Job::new(line).directory(scratch.path()).bare()
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_file_is_replaced_only_by_force_and_an_input_never() {
    let scratch = prepared();
    for (writer, input) in WRITERS {
        let outcome = run(&scratch, writer, "out", false);
        assert!(outcome.status.success() && scratch.file("out").exists(), "{writer}: {outcome:?}");
        scratch.write("out", "precious");
        let outcome = run(&scratch, writer, "out", false);
        let said = String::from_utf8_lossy(&outcome.stderr).into_owned();
        assert!(outcome.status == exited(1) && said.contains("add --force"), "{writer}: {outcome:?}");
        assert!(said.starts_with("error[HL0094]") || said.contains("\nerror[HL0094]"), "{writer}: {said}");
        assert_eq!(fs::read(scratch.file("out")).unwrap(), b"precious", "{writer}");
        let outcome = run(&scratch, writer, "out", true);
        assert!(outcome.status.success(), "{writer}: {outcome:?}");
        assert_ne!(fs::read(scratch.file("out")).unwrap(), b"precious", "{writer}");
        fs::remove_file(scratch.file("out")).unwrap();

        let Some(input) = input else { continue };
        let before = fs::read(scratch.file(input)).unwrap();
        fs::hard_link(scratch.file(input), scratch.file("same")).unwrap();
        for out in [*input, "same"] {
            for force in [false, true] {
                let outcome = run(&scratch, writer, out, force);
                assert!(outcome.status == exited(2) && outcome.stdout.is_empty(), "{writer}: {outcome:?}");
                assert!(fs::read(scratch.file(input)).unwrap() == before, "{writer} wrote its input");
            }
        }
        fs::remove_file(scratch.file("same")).unwrap();
    }
    assert_eq!(names(scratch.path()), ["a.hl", "b.hl", "heap", "log.json", "reports.json"]);
    // Either all manual pages are written, or none.
    let man = |force: &[&str]| {
        Job::new([HEAPLEDGER, "man", "--dir", "pages"].iter().chain(force)).directory(scratch.path()).bare()
    };
    assert!(man(&[]).status.success());
    fs::remove_file(scratch.file("pages/heapledger.1")).unwrap();
    scratch.write("pages/heapledger-top.1", "precious");
    assert_eq!(man(&[]).status, exited(1));
    assert!(!scratch.file("pages/heapledger.1").exists());
    assert!(man(&["--force"]).status.success() && scratch.file("pages/heapledger.1").exists());
    assert!(fs::metadata(scratch.file("pages/heapledger-top.1")).unwrap().len() > 100);
}

/// A verb that dies while it writes leaves no new file, and keeps the old one. (The kernel ends it
/// when its file would become too long.)
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn nothing_is_half_written() {
    let scratch = prepared();
    let before = names(scratch.path());
    // A recording grows under its name, and can be read at every moment; `check` writes files of
    // its own first.
    for (writer, _) in
        WRITERS.iter().filter(|(writer, _)| !writer.starts_with("record") && !writer.starts_with("check"))
    {
        // In units of 512 bytes.
        let is_short = ["--collapsed", "heap ", "log.json", "reports"].iter().any(|word| writer.contains(word));
        let limit = if is_short { 0 } else { 1 };
        for force in [false, true] {
            if force {
                scratch.write("out", "precious");
            }
            let option = if force { " --force" } else { "" };
            let line = format!("ulimit -f {limit}; exec '{HEAPLEDGER}' {}{option}", writer.replace("OUT", "out"));
            let outcome = Job::shell(&line).directory(scratch.path()).bare();
            assert!(!outcome.status.success(), "{writer}: {outcome:?}");
            if force {
                assert_eq!(fs::read(scratch.file("out")).unwrap(), b"precious", "{writer}");
                fs::remove_file(scratch.file("out")).unwrap();
            }
            assert_eq!(names(scratch.path()), before, "{writer}");
        }
    }
}

/// If a program does not start, the recording that it was to replace is kept.
#[test]
fn a_program_that_does_not_start_replaces_nothing() {
    let scratch = Scratch::new();
    let file = scratch.write("a.hl", "precious");
    let outcome = Job::new(["/nonexistent"]).option("--force").start(Some(&file)).outcome();
    assert_eq!(outcome.status, exited(127), "{outcome:?}");
    assert_eq!(fs::read(&file).unwrap(), b"precious");
    assert_eq!(names(scratch.path()), ["a.hl"]);
    let outcome = Job::new(["true"]).start(Some(Path::new("-"))).outcome();
    assert_eq!(outcome.status, exited(2), "{outcome:?}");
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn pipes_and_descriptors_are_written_directly() {
    let scratch = prepared();
    for (writer, _) in WRITERS {
        let command = format!("'{HEAPLEDGER}' {}", writer.replace("OUT", "/dev/fd/3"));
        let outcome = Job::shell(&format!("{command} 3> written")).directory(scratch.path()).bare();
        let written = fs::read(scratch.file("written")).unwrap();
        assert!(outcome.status.success() && !written.is_empty(), "{writer}: {outcome:?}");
        let outcome = Job::shell(&format!("{command} 3>&1 | cat > piped")).directory(scratch.path()).bare();
        let piped = fs::read(scratch.file("piped")).unwrap();
        assert!(outcome.status.success() && !piped.is_empty(), "{writer}: {outcome:?}");
        if writer.starts_with("record") {
            Recording::open(scratch.file("written")).assert_whole();
        }
        if writer.starts_with("check") || writer.starts_with("record") {
            continue;
        }
        let outcome = run(&scratch, writer, "-", false);
        assert!(outcome.status.success() && !outcome.stdout.is_empty(), "{writer}: {outcome:?}");
        // The output of these contains a random key, or the name of the file.
        if !writer.starts_with("anonymize") && !writer.starts_with("dmd") {
            assert!(outcome.stdout == written && piped == written, "{writer}");
        }
    }
}
