//! The types of blocks in the reading verbs: the same answer in each.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::harness::{Job, Recording, Scratch, heapledger, number};

/// Blocks and bytes of each type.
type Sums = BTreeMap<String, (i64, i64)>;

fn figures(row: &Value) -> (i64, i64) {
    (number(row, "blocks"), number(row, "bytes"))
}

fn sum<'v>(rows: impl IntoIterator<Item = &'v Value>) -> (i64, i64) {
    rows.into_iter().map(figures).fold((0, 0), |sum, row| (sum.0 + row.0, sum.1 + row.1))
}

fn list(answer: &Value) -> &[Value] {
    answer.as_array().unwrap_or_else(|| panic!("no list: {answer:#}"))
}

fn name(row: &Value) -> String {
    row["type"].as_str().unwrap_or_else(|| panic!("no type: {row:#}")).to_owned()
}

/// Returns the rows of `types`, which must be in order and have the sums of their sites.
fn types(recording: &Recording, options: &[&str]) -> Sums {
    let answer = recording.ask("types", options);
    assert!(list(&answer["rows"]).is_sorted_by_key(|row| -number(row, "bytes")), "{answer:#}");
    let sums: Sums = list(&answer["rows"]).iter().map(|row| (name(row), figures(row))).collect();
    assert_eq!(sums.len(), list(&answer["rows"]).len());
    for row in list(&answer["rows"]) {
        assert_eq!(figures(row), sum(list(&row["sites"])), "{row:#}");
    }
    sums
}

/// At any moment the types add up to the total, in every verb; and each type has the same figures
/// in all.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn verbs_agree() {
    let scratch = Scratch::new();
    let recording = Job::fixture("growth", "20").recorded(&scratch).1;
    let time = recording.summary["bytes_live_max_time_seconds"].as_f64().unwrap();
    let earlier = format!("{}s", time / 2.0);
    for moment in [&["--at", "peak"][..], &["--at", "end"], &["--at", &earlier], &["--total"]] {
        let with =
            |more: &[&'static str]| -> Vec<&str> { moment.iter().copied().chain(more.iter().copied()).collect() };
        let known = types(&recording, &with(&[]));
        let top = recording.ask("top", &with(&[]));
        let whole = figures(&top["total"]);
        for by in ["block", "element", "container"] {
            let sums = types(&recording, &with(&["--by", by]));
            let all = sums.values().fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
            assert_eq!(all, whole, "{moment:?} by {by}");
        }
        let by_type = recording.ask("top", &with(&["--by", "type", "-n", "0"]));
        let rows = list(&by_type["rows"]).iter().map(|row| (name(row), figures(row)));
        assert_eq!(rows.collect::<Sums>(), known, "{moment:?}");

        let tree = recording.ask("tree", &with(&["--by", "type,stack", "--threshold", "0"]));
        let roots = list(&tree["nodes"]).iter().filter(|node| node["depth"] == 0);
        let called = |root: &Value| root["full"].as_str().or(root["function"].as_str()).unwrap().to_owned();
        assert_eq!(roots.map(|root| (called(root), figures(root))).collect::<Sums>(), known, "{moment:?}");

        if moment != ["--total"] {
            let blocks = recording.ask("blocks", &with(&["-n", "0"]));
            let mut sums = Sums::new();
            for block in list(&blocks["rows"]) {
                let entry = sums.entry(name(block)).or_default();
                *entry = (entry.0 + 1, entry.1 + number(block, "bytes"));
            }
            assert_eq!((sums, figures(&blocks["total"])), (known.clone(), whole), "{moment:?}");
        }
    }
    let peak = types(&recording, &[]);
    let of_peak: i64 = peak.values().map(|figures| figures.1).sum();
    assert_eq!(of_peak, recording.total("bytes_live_max"));

    let path = recording.path.to_str().unwrap();
    let growth = heapledger(["diff", path, "--at", &earlier, "--at", "peak", "--by", "type", "-n", "0", "--json"]);
    let growth: Value = serde_json::from_slice(&growth.stdout).unwrap();
    let before = types(&recording, &["--at", &earlier]);
    for row in list(&growth["rows"]) {
        let bytes = |sums: &Sums| sums.get(&name(row)).map_or(0, |figures| figures.1);
        assert_eq!(number(row, "growth"), bytes(&peak) - bytes(&before), "{row:#}");
    }
}

/// The types that a program has stamped are shown, whatever its code looks like.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn stamps_are_types() {
    let scratch = Scratch::new();
    let (outcome, recording) = Job::fixture("stamps", "50").recorded(&scratch);
    let truth = outcome.printed_objects().pop().unwrap();
    for (moment, at) in [(&["--total"][..], 0), (&["--at", "end"], 2)] {
        let mut expected = Sums::new();
        for (stamp, figures) in truth["stamps"].as_object().unwrap() {
            let (blocks, bytes) = (figures[at].as_i64().unwrap(), figures[at + 1].as_i64().unwrap());
            // Names of types have one spelling.
            let name = stamp.split('|').next().unwrap().replace(" *", "*");
            let sum = expected.entry(name).or_default();
            *sum = (sum.0 + blocks, sum.1 + bytes);
        }
        expected.retain(|_, figures| figures.0 > 0);
        let known = recording.ask("types", moment);
        let stamped = list(&known["rows"]).iter().filter(|row| row["confidence"] == "stamped");
        assert_eq!(stamped.map(|row| (name(row), figures(row))).collect::<Sums>(), expected, "{moment:?}");
        let blocks: i64 = expected.values().map(|figures| figures.0).sum();
        if at == 2 {
            let types: Vec<&str> = expected.keys().flat_map(|name| ["--type", name]).collect();
            let answer = recording.ask("blocks", &[moment, &types].concat());
            assert_eq!(number(&answer["total"], "blocks"), blocks, "{answer:#}");
        }
    }
}
/// A program with known allocations: `growth`, in three rounds of four threads.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn types_of_a_rust_program() {
    let scratch = Scratch::new();
    let recording = Job::fixture("growth", "3").recorded(&scratch).1;
    let answer = recording.ask("types", &["--total", "--function", "growth::round"]);
    let (rounds, doublings) = (12, 4 + 8 + 16 + 32 + 64 + 128 + 256 + 512 + 1024);
    for (type_name, blocks, bytes) in [
        ("growth::Wide", rounds, rounds * 512),
        ("[u64]", rounds * 9, rounds * 8 * doublings),
        ("[u8]", rounds * 2, rounds * (3000 + 11)),
    ] {
        let row = list(&answer["rows"]).iter().find(|row| row["type"] == type_name);
        let row = row.unwrap_or_else(|| panic!("no {type_name}: {answer:#}"));
        assert_eq!((figures(row), row["confidence"].as_str()), ((blocks, bytes), Some("exact")), "{row:#}");
        for site in list(&row["sites"]) {
            assert_eq!(site["inferred"]["size_check"], "consistent", "{site:#}");
            assert!(site["inferred"]["binary"]["path"].as_str().unwrap().ends_with("/growth"), "{site:#}");
        }
    }
    assert_eq!(list(&answer["rows"]).len(), 3, "{answer:#}");

    // The same type selects its blocks in other verbs.
    let top = recording.ask("top", &["--total", "--type", "growth::Wide", "--by", "type"]);
    assert_eq!((figures(&top["total"]), list(&top["rows"]).len()), ((rounds, rounds * 512), 1));
    let path = recording.path.to_str().unwrap();
    let text = heapledger(["types", path, "--total", "--type", "Wide", "--stacks"]).text();
    for part in ["exact  Wide\n", "exact  └─ growth::round  ", "512 bytes each: sizes agree", "← growth::main"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let lines = heapledger(["flame", path, "--total", "--by", "type,stack", "--collapsed", "-o", "-"]).text();
    assert!(
        lines.lines().any(|line| line.starts_with("Wide;") && line.ends_with(&format!(" {}", rounds * 512))),
        "{lines}"
    );
}
