//! Growth, distinguished from memory that does not grow.

use serde_json::Value;

use crate::harness::{Job, Scratch, exited, heapledger, number};

fn row<'a>(answer: &'a Value, name: &str) -> Option<&'a Value> {
    answer["rows"].as_array().unwrap().iter().find(|row| row["name"] == name)
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_leak_is_told_from_all_else() {
    let scratch = Scratch::new();
    let (_, recording) = Job::fixture("grows", "2000").recorded(&scratch);
    let answer = recording.ask("growth", &[]);
    let kind = |name: &str| row(&answer, name).map_or("", |row| row["kind"].as_str().unwrap());
    assert_eq!(kind("leak"), "steady", "{answer:#}");
    // A cache of 500 entries is full after 4,000 requests of 20,000. The machine's speed decides
    // whether the doublings of an array fall into different windows.
    assert!(["slowing", ""].contains(&kind("look_up")) && ["steps", ""].contains(&kind("add")), "{answer:#}");
    for name in ["enqueue", "request", "main"] {
        assert!(row(&answer, name).is_none(), "{name}: {answer:#}");
    }
    // A hundred bytes, ten times a millisecond.
    let leak = row(&answer, "leak").unwrap();
    let rate = |name: &str| leak[name].as_f64().unwrap();
    assert!((500_000.0..2_000_000.0).contains(&rate("bytes_per_second")), "{leak:#}");
    assert!(rate("bytes_per_second_least") <= rate("bytes_per_second"), "{leak:#}");
    assert!(rate("bytes_per_second") <= rate("bytes_per_second_most"), "{leak:#}");
    assert!((1_900_000..=2_000_000).contains(&number(leak, "bytes_live")), "{leak:#}");

    let path = recording.path.to_str().unwrap();
    let text = heapledger(["growth", path]).text();
    assert!(text.contains("1 of ") && text.contains("leak") && !text.contains("look_up"), "{text}");
    // The same blocks by other names, and their remaining bytes.
    let by_type = recording.ask("growth", &["--by", "file"]);
    assert_eq!(number(&by_type, "groups"), 1, "{by_type:#}");
    let without = recording.ask("growth", &["--not-function", "leak"]);
    assert!(row(&without, "leak").is_none(), "{without:#}");
    // Each block that leaks is 100 bytes, and glibc has none that is less than 104.
    let slop = recording.ask("growth", &["--slop"]);
    assert_eq!(slop["metric"], "slop", "{slop:#}");
    assert!(slop["usable_sizes"].as_str().unwrap().starts_with("computed for glibc"), "{slop:#}");
    let sloppy = row(&slop, "leak").unwrap();
    assert_eq!(sloppy["kind"], "steady", "{sloppy:#}");
    assert!((76_000..=80_000).contains(&number(sloppy, "slop")), "{sloppy:#}");
    assert_eq!(number(sloppy, "slop") * 25, number(leak, "bytes_live"), "{sloppy:#}");
    let ratio = rate("bytes_per_second") / sloppy["bytes_per_second"].as_f64().unwrap();
    assert!((24.0..26.0).contains(&ratio), "{ratio}: {sloppy:#}");
    let text = heapledger(["growth", path, "--slop"]).text();
    assert!(text.contains("slop: computed for glibc") && text.contains(" slop "), "{text}");
    // Nothing grew before the beginning, and there is nothing after the end.
    assert_eq!(heapledger(["growth", path, "--function", "nowhere"]).status, exited(2));
}
