//! The types of blocks, and blocks one by one.

use super::{declared, golden, printed};

#[test]
fn types_that_nobody_knows() {
    golden("types_that_nobody_knows");
    let sites = printed("types FILE --type [unknown] --total -n 1");
    assert_eq!(
        sites.split("\n\n").nth(1).unwrap(),
        "allocations    share     bytes    share  confidence
         11  100.0 %  12.7 KiB  100.0 %     unknown  [unknown]
         10   90.9 %   9.8 KiB   76.9 %     unknown  ├─ server+0x20
                                                     │  ← server+0x10
          1    9.1 %   2.9 KiB   23.1 %              └─ … 1 more site
         11  100.0 %  12.7 KiB  100.0 %              [totals]"
    );
}

#[test]
fn types_that_the_program_tells() {
    golden("types_that_the_program_tells");
    let types: serde_json::Value = serde_json::from_str(&declared("types FILE --json")).unwrap();
    let page = &types["rows"][1];
    assert_eq!((&page["type"], &page["bytes"], &page["blocks"]), (&"Page".into(), &3000.into(), &1.into()));
    assert_eq!((&page["confidence"], &page["share"]), (&"stamped".into(), &0.375.into()));
    let stamp = serde_json::json!({ "type": "Page", "file": "src/pages.rs", "line": 8, "label": "spare" });
    let site = &page["sites"][0];
    assert_eq!((&site["stamp"], &site["heap"], &site["function"]), (&stamp, &"arena".into(), &"server+0x50".into()));
    assert!(site["inferred"].is_null() && site.get("stack").is_none());
}

#[test]
fn type_is_a_breakdown_like_others() {
    golden("type_is_a_breakdown_like_others");
    assert!(declared("timeline FILE --by type -n 1").contains("max 4.9 KiB  [unknown]\n"));
    assert!(declared("flame FILE --by type,stack --collapsed -o -").contains("\nPage;server+0x10;libx.so+0x30;"));
    let json: serde_json::Value = serde_json::from_str(&declared("top FILE --by type --json")).unwrap();
    assert_eq!((&json["rows"][1]["type"], &json["rows"][1]["bytes"]), (&"Page".into(), &3000.into()));
}

#[test]
fn blocks() {
    golden("blocks");
    let json: serde_json::Value = serde_json::from_str(&printed("blocks FILE --at 13ms --size ..1000 --json")).unwrap();
    assert_eq!((&json["rows_all"], &json["total"]["bytes"]), (&serde_json::json!(2), &serde_json::json!(2000)));
    let block = &json["rows"][1];
    assert_eq!((&block["block"], &block["pid"], &block["tid"]), (&3.into(), &4411.into(), &4411.into()));
    assert_eq!((&block["allocated_seconds"], &block["age_seconds"]), (&0.013.into(), &0.0.into()));
    assert_eq!(json["stacks"], serde_json::json!([{ "stack": 1, "frame": 1 }]));
    let frame = |at: usize| (&json["frames"][at]["function"], &json["frames"][at]["caller"]);
    assert_eq!((frame(1), frame(0).1), ((&"server+0x20".into(), &0.into()), &serde_json::Value::Null));
}
