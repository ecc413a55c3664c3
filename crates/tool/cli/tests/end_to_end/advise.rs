//! Advice: each rule fires on a program with its defect, and is silent on the same program without
//! it.

use serde_json::Value;

use crate::harness::{Job, Recording, Scratch, heapledger, number};

/// Returns the rules that fired with their functions, and the whole answer.
fn advice(recording: &Recording) -> (Vec<(String, String)>, Value) {
    let answer = recording.ask("advise", &[]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let advice = answer["advice"].as_array().unwrap().iter();
    (advice.map(|advice| (text(&advice["rule"]), text(&advice["owner"]["function"]))).collect(), answer)
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn is_given_where_there_is_a_defect_and_nowhere_else() {
    let scratch = Scratch::new();
    let of = |defect: &str| advice(&Job::fixture("advice", defect).recorded(&scratch).1);
    let expected = |rule: &str, owner: &str| vec![(rule.to_owned(), owner.to_owned())];
    assert_eq!(of("none").0, []);
    assert_eq!(of("reserve").0, expected("reserve", "reserve"));
    let (steps, answer) = of("steps");
    assert_eq!(steps, expected("reserve", "steps"));
    assert_eq!(answer["advice"][0]["evidence"]["small_steps"], true, "{answer:#}");
    let (temporary, answer) = of("temporary");
    assert_eq!(temporary, expected("temporary", "temporary"));
    assert_eq!(number(&answer["advice"][0], "bytes"), 10_000_000, "{answer:#}");
    let (slop, answer) = of("slop");
    assert_eq!(slop, expected("slop", ""));
    // One byte takes 32.
    assert_eq!(number(&answer["advice"][0], "bytes"), 40_000 * 31, "{answer:#}");
    assert_eq!(answer["skipped"][0]["rule"], "leak", "{answer:#}");
    let (class, answer_of_class) = of("size-class");
    assert_eq!(class, expected("size-class", "size_class"));
    // glibc has 120 usable bytes for 105, and 104 for 104.
    let advice = &answer_of_class["advice"][0];
    assert_eq!(number(advice, "bytes"), 40_000 * 16, "{answer_of_class:#}");
    assert_eq!(number(&advice["evidence"], "size_below"), 104, "{answer_of_class:#}");

    // The command that a rule names shows the same.
    let proof = answer["advice"][0]["proof"].as_str().unwrap();
    let shown = heapledger(proof.split(' ').skip(1)).text();
    assert!(shown.contains("40,000") && shown.contains("slop"), "{proof}: {shown}");
}

/// A leak needs a recording of at least ten seconds.
#[test]
#[ignore = "takes eleven seconds; `.ci/run` runs it"]
fn a_leak_is_named() {
    let scratch = Scratch::new();
    let (_, recording) = Job::fixture("grows", "11000").recorded(&scratch);
    let (advice, answer) = advice(&recording);
    assert!(advice.contains(&("leak".to_owned(), "leak".to_owned())), "{answer:#}");
    let leaks = advice.iter().filter(|(rule, _)| rule == "leak").count();
    assert_eq!(leaks, 1, "{answer:#}");
    let text = heapledger(["advise".as_ref(), recording.path.as_os_str()]).text();
    assert!(text.contains(". leak, ") && text.contains("see: heapledger growth "), "{text}");
}
