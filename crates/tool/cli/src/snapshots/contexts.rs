//! The groups that a program declares: contexts, tasks and heaps.

use super::{declared, golden, printed};

#[test]
fn groups_that_the_program_declares() {
    golden("groups_that_the_program_declares");
    let json = |line: &str| serde_json::from_str::<serde_json::Value>(&declared(line)).unwrap();
    let context = |at: usize| json("top FILE --by context --json")["rows"][at]["context"].clone();
    assert_eq!(context(0), serde_json::json!([]));
    let outer = serde_json::json!({ "name": "request", "value": "route=/b" });
    assert_eq!(context(2), serde_json::json!([outer, { "name": "par\u{1b}se", "value": null }]));
    assert_eq!(json("top FILE --by task --json")["rows"][0]["task"], serde_json::Value::Null);
    assert_eq!(json("top FILE --by task --json")["rows"][2]["task"], outer);
    assert_eq!(json("top FILE --by scope --json")["rows"][1]["scope"], "request");
    assert_eq!(json("top FILE --by heap --json")["rows"][1]["heap"], "arena");
    // Rows not grouped by context do not have one, but stacks do.
    assert_eq!(json("top FILE --json")["rows"][0].get("context"), None);
    let leaks = json("leaks FILE --json");
    assert_eq!((leaks["rows"][0].get("context"), &leaks["rows"][0]["heap"]), (None, &serde_json::json!("arena")));
    assert_eq!(leaks["rows"][1]["context"][0]["value"], "route=/a");
}

/// If contexts are not asked for, only the verbs that list stacks show them.
#[test]
fn stacks_say_their_context_and_heap() {
    golden("stacks_say_their_context_and_heap");
    for line in ["top FILE", "top FILE --by module", "tree FILE", "sizes FILE", "timeline FILE", "callers 0x20 FILE"] {
        assert_eq!(declared(line), printed(line));
    }
    assert!(declared("temporary FILE --context route=/b").contains("2 of 3 allocations were temporary (67 %)"));
    assert!(declared("sizes FILE --heap arena").contains("only: heap arena (leaves out 4.9 KiB in 5 blocks)"));
    assert!(declared("callers 0x20 FILE --context /a.$/").contains("2.0 KiB in 2 blocks"));
    assert!(declared("top FILE --by size --heap arena").contains("3,000 bytes (2.9 KiB)"));
}

#[test]
fn trees_of_contexts() {
    golden("trees_of_contexts");
    let tree: serde_json::Value = serde_json::from_str(&declared("tree FILE --by context --json")).unwrap();
    assert_eq!(tree["nodes"][3]["function"], "par\u{1b}se");
    assert_eq!((&tree["nodes"][3]["declared"], &tree["nodes"][3]["depth"]), (&serde_json::json!(true), &1.into()));
}

#[test]
fn contexts_over_time() {
    golden("contexts_over_time");
    let diff = declared("diff FILE@11ms FILE --by context");
    assert!(diff.contains("+4.9 KiB       new     0 B  4.9 KiB  (no context)"), "{diff}");
    // The same stack in two contexts is two sites.
    let sites = declared("diff FILE@11ms FILE --by site");
    assert!(sites.contains("+1000 B  +100.0 %  1000 B  2.0 KiB  server+0x20"), "{sites}");
    assert!(sites.contains("+1000 B       new     0 B   1000 B  server+0x20"), "{sites}");
    let timeline: serde_json::Value = serde_json::from_str(&declared("timeline FILE --by context --json")).unwrap();
    let groups = timeline["groups"].as_array().unwrap();
    let most = |at: usize| groups[at]["bytes"].as_array().unwrap().iter().map(|it| it.as_u64().unwrap()).max().unwrap();
    assert_eq!((&groups[1]["name"], most(1), most(0)), (&serde_json::json!("request{route=/a}"), 2000, 5000));
}

#[test]
fn what_was_declared_is_summed_up() {
    let summary = declared("summary FILE");
    let lines = summary.lines().skip_while(|line| !line.contains("contexts")).take(4).collect::<Vec<_>>().join("\n");
    assert_eq!(
        lines,
        "  contexts at the peak  4.9 KiB  62.5 % (no context)
                        2.0 KiB  25.0 % request{route=/a}
                        1000 B  12.5 % request{route=/b} > par\\u{1b}se
      heaps at the end  2.9 KiB  in 1 block of arena, 2.9 KiB at the peak"
    );
    let json: serde_json::Value = serde_json::from_str(&declared("summary FILE --json")).unwrap();
    assert_eq!(
        (&json["contexts"][1]["context"], &json["heaps"][0]["bytes_live_end"]),
        (&"request{route=/a}".into(), &3000.into())
    );
    let json: serde_json::Value = serde_json::from_str(&printed("summary FILE --json")).unwrap();
    assert_eq!((json.get("contexts"), json.get("heaps")), (None, None));
    let info = declared("info FILE");
    let table = info.split("contexts, heaps and stamps\n").nth(1).unwrap().split("\n\n").next().unwrap();
    assert_eq!(
        table,
        " is a  category
 task            request
scope       cpu  par\\u{1b}se
 heap            arena
value            route=/a
value            route=/b
stamp            Page  src/pages.rs:8  spare"
    );
}
