//! The same selection in every verb, for the recording of [`super::recording`].

use serde_json::{Value, json};

use super::{declared, golden, printed};

fn asked(line: &str) -> Value {
    serde_json::from_str(&printed(&format!("{line} --json"))).unwrap()
}

/// The verbs that have a moment.
const MOMENTS: [&str; 10] =
    ["summary", "top", "types", "blocks", "tree", "leaks", "callers 0x10 ", "callees 0x10 ", "sizes", "flame"];

#[test]
fn a_moment_beside_the_name_is_that_of_at() {
    for verb in MOMENTS {
        // Half of the blocks are live then, and the last one is not there yet.
        let beside = asked(&format!("{verb} FILE@1s"));
        assert_eq!(beside, asked(&format!("{verb} FILE --at 1s")), "{verb}");
        assert_ne!(beside, asked(&format!("{verb} FILE@end")), "{verb}");
        assert!(beside.to_string().contains("5000"), "{verb}: {beside}");
    }
    assert_eq!(asked("diff FILE@1s FILE@end")["growth"], 3000);
    // Verbs that count over time end at the moment.
    assert_eq!(asked("temporary FILE@11ms")["total"]["blocks"], 2);
    assert_eq!(asked("temporary FILE --during ..11ms")["total"]["blocks"], 2);
    assert_eq!(asked("timeline FILE@1s")["to_seconds"], 1.0);
    let log = |options: &str| asked(&format!("dmd --mode live {options}")).to_string();
    assert_eq!(log("FILE@1s"), log("--at 1s FILE"));
}

#[test]
fn leaks_of_another_moment() {
    golden("leaks_of_another_moment");
}

#[test]
fn dark_matter_at_the_peak_and_at_the_end() {
    let bytes = |options: &str| asked(&format!("dmd --mode live FILE {options}"))["heap"].clone();
    assert_eq!(bytes("--at peak"), bytes("--at end"));
    assert_ne!(bytes("--at peak"), bytes("--at 1s"));
}

#[test]
fn the_largest_rows_of_a_tree() {
    golden("the_largest_rows_of_a_tree");
    assert_eq!(asked("tree FILE -n 1")["nodes"].as_array().unwrap().len(), 1);
    assert_eq!(printed("tree FILE -n 3"), printed("tree FILE"));
}

#[test]
fn sizes_of_groups() {
    golden("sizes_of_groups");
    let sizes = asked("sizes FILE --by function -n 1 --total");
    assert_eq!(
        (&sizes["by"], &sizes["rows_all"], &sizes["rows"][0]["bytes"]),
        (&"function".into(), &json!(2), &json!(10_000))
    );
    assert_eq!(sizes["rows"][0]["classes"][0]["blocks"], 10);
    assert_eq!(sizes["rows"][0]["classes"][0]["size_max"], 1024);
}

#[test]
fn flame_graphs_as_a_tree() {
    let flame = asked("flame FILE");
    assert_eq!(flame["nodes"], asked("tree FILE --threshold 0")["nodes"]);
    assert_eq!(flame["total"]["bytes"], 8000);
}

#[test]
fn timelines_of_some_blocks() {
    let held = |timeline: &Value, group: usize| {
        let groups = timeline["groups"][group]["bytes"].as_array().unwrap();
        groups.iter().map(|bytes| bytes.as_u64().unwrap()).max().unwrap()
    };
    let threads = asked("timeline FILE --by thread");
    assert_eq!((&threads["groups"][0]["name"], held(&threads, 0)), (&"server (4411)".into(), 8000));
    let processes = asked("timeline FILE --by process");
    assert!(processes["groups"][0]["name"].as_str().unwrap().starts_with("4411"), "{processes:#}");
    assert_eq!((held(&processes, 0), held(&processes, 1)), (8000, 0));
    let sizes = asked("timeline FILE --by size -n 1");
    assert_eq!((held(&sizes, 0), held(&sizes, 1)), (5000, 3000));

    let ends = asked("timeline FILE --function 0x20");
    assert_eq!((&ends["peak"]["bytes"], &ends["peak"]["blocks"]), (&json!(5000), &json!(5)));
    assert_eq!(ends["memory"], json!([]), "the system does not tell blocks apart");
    assert_eq!(asked("timeline FILE --size 3000")["peak"]["time_seconds"], 2.0);
    let grouped = asked("timeline FILE --function 0x50 --by thread");
    assert_eq!((held(&grouped, 0), held(&grouped, 1)), (3000, 0));
    assert!(printed("timeline FILE --size 3000").contains("\nonly: size 2.9 KiB\n"));

    // Blocks that are attributed to a context later, and stamped.
    let contexts: Value = serde_json::from_str(&declared("timeline FILE --context route=/a --json")).unwrap();
    assert_eq!(contexts["peak"]["bytes"], 2000);
}

/// Times of events are rounded, but that of the peak is not: its printed time means the peak.
#[test]
fn the_time_of_the_peak_is_the_peak() {
    assert_eq!(asked("top FILE --at 2.0s"), asked("top FILE"));
    assert_eq!(asked("top FILE --at 2.1s")["at"], 2.1);
}
