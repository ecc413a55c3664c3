//! Heapledger under Heapledger: the inner one records the program, and the outer one records the
//! inner.

use std::path::Path;

use crate::harness::{HEAPLEDGER, Job, Outcome, Recording, Scratch, exited, heapledger, program};
use crate::hooks::library;

/// Returns a shell line that runs a program of ours and ends with a status of its own.
fn line() -> String {
    format!("'{}' 100; exit 7", program("mix").display())
}

/// Runs `heapledger VERB OPTIONS -- heapledger INNER -- sh -c …`.
fn nested(outer: &[&str], inner: &[&str]) -> Outcome {
    let line = line();
    heapledger([outer, &["--", HEAPLEDGER], inner, &["--", "sh", "-c", &line]].concat())
}

/// Returns the allocations of the program, in a recording of the shell that runs it.
#[track_caller]
fn allocations(file: &Path) -> i64 {
    let recording = Recording::open(file.to_owned());
    recording.assert_whole();
    crate::harness::number(recording.process_named("/mix 100"), "allocations")
}

/// Returns the command lines of a recording's processes.
fn programs(recording: &Recording) -> impl Iterator<Item = &str> {
    recording.processes().iter().filter_map(|process| process["command"].as_str())
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn the_inner_one_records() {
    let scratch = Scratch::new();
    let text = |name: &str| scratch.file(name).to_str().unwrap().to_owned();
    let (bare, alone) = Job::shell(&line()).both(&scratch);
    assert_eq!(bare.status, exited(7));
    let truth = allocations(&alone.path);
    let histogram = scratch.file("libhistogram.so");
    library(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples/hooks/histogram.c"), &histogram);

    let outer_file = text("outer.hl");
    let outers: [&[&str]; 3] =
        [&["record", "-f", "-o", &outer_file], &["check"], &["run", "--hook", histogram.to_str().unwrap()]];
    for outer in outers {
        let inner_file = text(&format!("inner-{}.hl", outer[0]));
        let outcome = nested(outer, &["record", "-o", &inner_file]);
        let told = String::from_utf8_lossy(&outcome.stderr).into_owned();
        assert_eq!((outcome.status, &outcome.stdout), (bare.status, &bare.stdout), "{told}");
        assert_eq!(allocations(Path::new(&inner_file)), truth, "{told}");
        // The warning is printed once, and nothing misleading is.
        assert_eq!(told.matches("warning[HL0093]: ").count(), 1, "{told}");
        assert!(!told.contains("nothing was recorded") && told.contains("wrote "), "{told}");
        let quiet = nested(&[outer, &["-q"]].concat(), &["record", "-q", "-f", "-o", &inner_file]);
        let told = String::from_utf8_lossy(&quiet.stderr).into_owned();
        assert!(!told.contains("heapledger") && quiet.status == bare.status, "{quiet:?}");
    }
    // The outer recording has the inner command, and nothing of the program.
    let outer = Recording::open(scratch.file("outer.hl"));
    outer.assert_whole();
    assert!(
        outer.total("allocations") > 0 && programs(&outer).all(|command| command.starts_with(HEAPLEDGER)),
        "{outer:?}"
    );
    assert_lists_another_sessions(&outer);
}

/// Asserts that the processes of the inner session are listed in the recording of the outer one.
#[track_caller]
fn assert_lists_another_sessions(outer: &Recording) {
    let list = outer.summary["unrecorded"].as_array().unwrap();
    assert!(
        list.iter().any(|one| one["code"] == "HL0093" && one["path"].as_str().unwrap().ends_with("/sh")),
        "{list:?}"
    );
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn the_inner_one_checks() {
    let scratch = Scratch::new();
    let misuse = program("misuse");
    let (file, report) = (scratch.file("outer.hl"), scratch.file("report.json"));
    let words = ["record", "-q", "-o", file.to_str().unwrap(), "--", HEAPLEDGER, "check", "--json", "-o"];
    let words = words.into_iter().chain([report.to_str().unwrap(), "--", misuse.to_str().unwrap(), "new-free"]);
    let outcome = heapledger(words);
    let found = std::fs::read_to_string(report).unwrap();
    assert!(found.contains("\"mismatch\""), "{found} {outcome:?}");
    let outer = Recording::open(file);
    assert!(
        outer.total("allocations") > 0 && programs(&outer).all(|command| command.starts_with(HEAPLEDGER)),
        "{outer:?}"
    );
}

/// With other programs between the two, some of which change the environment.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn through_other_programs() {
    let scratch = Scratch::new();
    let (_, alone) = Job::shell(&line()).recorded(&scratch);
    let truth = allocations(&alone.path);
    let inner_file = scratch.file("inner.hl");
    for around in ["sh -c", "env A=B sh -c", "exec sh -c"] {
        let inner = Job::shell(&line()).option("-f").with_report().recording_words(&inner_file).replace('\'', r"'\''");
        let line = format!("{around} '{inner}'");
        let is_said = |outcome: &Outcome| {
            let told = String::from_utf8_lossy(&outcome.stderr).into_owned();
            assert_eq!(told.matches("warning[HL0093]: ").count(), 1, "{around}: {told}");
        };
        let checked = heapledger(["check", "--", "sh", "-c", &line]);
        assert_eq!((checked.status, allocations(&inner_file)), (exited(7), truth), "{around}: {checked:?}");
        is_said(&checked);
        let (outcome, outer) = Job::shell(&line).recorded(&scratch);
        assert_eq!(outcome.status, exited(7), "{outcome:?}");
        assert_eq!(allocations(&inner_file), truth, "{around}: {outcome:?}");
        is_said(&outcome);
        assert_lists_another_sessions(&outer);
        outer.assert_whole();
        assert!(!programs(&outer).any(|command| command.ends_with("/mix 100")), "{around}: {outer:?}");
    }
}
