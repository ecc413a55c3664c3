//! Invalid command lines and incomplete files: the messages and the exit status.

use std::ffi::OsStr;
use std::fs;

use crate::harness::{Job, Outcome, Recording, Scratch, exited, heapledger};

/// Verbs that select blocks.
const VERBS: &[&[&str]] = &[
    &["summary"],
    &["top"],
    &["top", "--by", "thread"],
    &["top", "--by", "size"],
    &["types"],
    &["blocks"],
    &["tree"],
    &["leaks"],
    &["temporary"],
    &["temporary", "--within", "10"],
    &["reallocations"],
    &["callers", "main"],
    &["callees", "main"],
    &["sizes"],
    &["flame", "-o", "-"],
    &["export", "--to", "pprof", "-o", "-"],
    &["export", "--to", "pprof", "--at", "1ms", "-o", "-"],
    &["export", "--to", "heaptrack", "-o", "-"],
    &["diff", "--at", "peak", "--at", "end"],
];

fn ask(verb: &[&str], recording: &Recording, options: &[&str]) -> Outcome {
    let words = verb.iter().copied().chain([recording.path.to_str().unwrap()]).chain(options.iter().copied());
    heapledger(words.map(OsStr::new))
}

/// A filter that matches nothing has the same answer everywhere.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn what_fits_nothing_is_said_the_same_way() {
    let scratch = Scratch::new();
    let (_, recording) = Job::fixture("mix", "2000").recorded(&scratch);
    for (options, says, near) in [
        (["--function", "mian"], "no block of the recording fits: function mian", "did you mean --function main?"),
        (["--module", "mxi"], "no block of the recording fits: module mxi", "did you mean --module mix?"),
        (["--function", "nowhere_at_all"], "fits: function nowhere_at_all", "heapledger tree --total"),
        (["--type", "Nothing"], "no block of the recording fits: type Nothing", "heapledger types --total"),
        (["--size", "1T.."], "no block of the recording fits: size 1.0 TiB or more", "heapledger top --total"),
        (["--thread", "mixx"], "the recording has no thread mixx", "did you mean --thread mix?"),
        (["--process", "mxi"], "the recording has no process mxi", "did you mean --process mix?"),
    ] {
        for verb in VERBS {
            let outcome = ask(verb, &recording, &options);
            let said = String::from_utf8_lossy(&outcome.stderr).into_owned();
            assert_eq!(outcome.status, exited(2), "{verb:?} {options:?}: {outcome:?}");
            assert!(
                outcome.stdout.is_empty() && said.contains(says) && said.contains(near),
                "{verb:?} {options:?}: {said}"
            );
        }
    }
    for verb in ["callers", "callees"] {
        let outcome = ask(&[verb, "mian"], &recording, &[]);
        let said = String::from_utf8_lossy(&outcome.stderr).into_owned();
        assert!(outcome.status == exited(2) && said.contains("did you mean --function main?"), "{verb}: {outcome:?}");
    }
    // A module that only one of two recordings has is a difference.
    let (_, other) = Job::fixture("dies", "10 exit").recorded(&scratch);
    let both = ["diff", recording.path.to_str().unwrap(), other.path.to_str().unwrap(), "--module"];
    assert!(heapledger(both.iter().chain(&["mix"])).status.success());
    assert_eq!(heapledger(both.iter().chain(&["nowhere"])).status, exited(2));
}

#[test]
fn a_directory_that_is_not_there_is_an_error() {
    let scratch = Scratch::new();
    let (_, recording) = Job::fixture("dies", "10 exit").recorded(&scratch);
    for option in ["--debug-dir", "--symbols", "--sysroot"] {
        let outcome = ask(&["top"], &recording, &[option, "/nonexistent/place"]);
        let said = String::from_utf8_lossy(&outcome.stderr).into_owned();
        assert_eq!(outcome.status, exited(2), "{option}: {outcome:?}");
        assert!(said.contains("/nonexistent/place") && said.contains("No such file"), "{option}: {said}");
    }
    let outcome = Job::new(["true"]).start(Some(&scratch.file("no/x.hl"))).outcome();
    let said = String::from_utf8_lossy(&outcome.stderr).into_owned();
    assert!(outcome.status == exited(101) && said.contains("mkdir -p"), "{outcome:?}");
    let outcome = ask(&["flame", "-o", scratch.file("no/x.svg").to_str().unwrap()], &recording, &[]);
    let said = String::from_utf8_lossy(&outcome.stderr).into_owned();
    assert!(outcome.status == exited(1) && said.starts_with("error[HL0095]"), "{outcome:?}");
    // No file can be made there, not even by root: the message says what to do instead.
    let outcome = Job::new(["true"]).directory("/proc/self".as_ref()).start(None).outcome();
    let said = String::from_utf8_lossy(&outcome.stderr).into_owned();
    assert!(outcome.status == exited(101) && said.contains("heapledger record -o FILE"), "{outcome:?}");
}

/// For a file whose end is missing, the message says from which time on nothing is known, and how
/// much of the file is useless.
#[test]
fn the_rest_of_a_recording_says_what_is_lost() {
    let scratch = Scratch::new();
    let (_, recording) = Job::fixture("mix", "200000").recorded(&scratch);
    let whole = fs::read(&recording.path).unwrap();
    let rest = scratch.write("rest.hl", &whole[..3000]);
    for verb in ["summary", "top", "tree", "sizes"] {
        let outcome = heapledger([OsStr::new(verb), rest.as_os_str()]);
        let said = String::from_utf8_lossy(&outcome.stderr).into_owned();
        assert!(outcome.status == exited(103) && outcome.stdout.is_empty(), "{verb}: {outcome:?}");
        assert!(said.contains("nothing that the program allocated is in it (its last "), "{verb}: {said}");
        assert!(said.contains("ends before its first allocation"), "{verb}: {said}");
    }
    let most = scratch.write("most.hl", &whole[..whole.len() * 3 / 4]);
    let outcome = heapledger([OsStr::new("top"), most.as_os_str()]);
    let said = String::from_utf8_lossy(&outcome.stderr).into_owned();
    assert!(outcome.status.success() && said.contains("what happened after "), "{outcome:?}");
}
