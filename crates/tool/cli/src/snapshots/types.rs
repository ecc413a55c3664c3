//! The types of blocks, and blocks one by one.

use super::{declared, printed};

#[test]
fn types_that_nobody_knows() {
    assert_eq!(
        printed("types FILE"),
        "
7.8 KiB in 6 blocks live at the peak (2.0 s)

blocks    share    bytes    share  confidence
     6  100.0 %  7.8 KiB  100.0 %     unknown  [unknown]
     6  100.0 %  7.8 KiB  100.0 %              [totals]

7.8 KiB  unknown in  /nonexistent/server  build id abababababababab…, nothing
                     server: /nonexistent/server is not there; --symbols DIR searches a directory for it
"
    );
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
    assert_eq!(
        declared("types FILE"),
        "
7.8 KiB in 6 blocks live at the peak (2.0 s)

blocks    share    bytes    share  confidence
     5   83.3 %  4.9 KiB   62.5 %     unknown  [unknown]
     1   16.7 %  2.9 KiB   37.5 %     stamped  Page
     6  100.0 %  7.8 KiB  100.0 %              [totals]

2.9 KiB  stamped by  the program
4.9 KiB  unknown in  /nonexistent/server  build id abababababababab…, nothing
                     server: /nonexistent/server is not there; --symbols DIR searches a directory for it
"
    );
    assert_eq!(
        declared("types FILE --type Page"),
        "
2.9 KiB in 1 block live at the peak (2.0 s)
only: type Page (leaves out 4.9 KiB in 5 blocks)

blocks    share    bytes    share  confidence
     1  100.0 %  2.9 KiB  100.0 %     stamped  Page
     1  100.0 %  2.9 KiB  100.0 %     stamped  └─ server+0x50
                                                  of heap arena
                                                  stamped Page at src/pages.rs:8: spare
                                                  ← [2 in libx.so] ← server+0x10
     1  100.0 %  2.9 KiB  100.0 %              [totals]

2.9 KiB  stamped by  the program
"
    );
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
    assert_eq!(
        declared("top FILE --by type -n 1"),
        "
7.8 KiB in 6 blocks live at the peak (2.0 s)

  bytes   share  blocks
4.9 KiB  62.5 %       5  [unknown]
and 1 more with 2.9 KiB in all: -n 0 shows them
"
    );
    assert_eq!(
        declared("tree FILE --by type,stack --depth 1"),
        "
7.8 KiB in 6 blocks live at the peak (2.0 s)

  bytes   share  blocks
4.9 KiB  62.5 %       5  [unknown]
                         server+0x10
                         server+0x20
2.9 KiB  37.5 %       1  Page
                         server+0x10
                         [2 in libx.so]
                         server+0x50
"
    );
    assert_eq!(
        declared("diff FILE@1s FILE@peak --by type"),
        "
+2.9 KiB (+60.0 %)
before: 4.9 KiB live at 1.0 s of FILE
after:  7.8 KiB live at the peak (2.0 s) of FILE

  change       before    after
+2.9 KiB  new     0 B  2.9 KiB  Page
"
    );
    assert!(declared("timeline FILE --by type -n 1").contains("max 4.9 KiB  [unknown]\n"));
    assert!(declared("flame FILE --by type,stack --collapsed -o -").contains("\nPage;server+0x10;libx.so+0x30;"));
    let json: serde_json::Value = serde_json::from_str(&declared("top FILE --by type --json")).unwrap();
    assert_eq!((&json["rows"][1]["type"], &json["rows"][1]["bytes"]), (&"Page".into(), &3000.into()));
}

#[test]
fn blocks() {
    assert_eq!(
        printed("blocks FILE -n 3"),
        "
7.8 KiB in 6 blocks live at the peak (2.0 s)

block  bytes    age  thread  stack
   10  3,000   0 µs  server     #1  [unknown]
    1  1,000  2.0 s  server     #2  [unknown]
    3  1,000  2.0 s  server     #2  [unknown]
and 3 more with 2.9 KiB in all: -n 0 shows them

#1  server+0x50
    [2 in libx.so]
    server+0x10
#2  server+0x20
    server+0x10
"
    );
    let json: serde_json::Value = serde_json::from_str(&printed("blocks FILE --at 13ms --size ..1000 --json")).unwrap();
    assert_eq!((&json["rows_all"], &json["total"]["bytes"]), (&serde_json::json!(2), &serde_json::json!(2000)));
    let block = &json["rows"][1];
    assert_eq!((&block["block"], &block["pid"], &block["tid"]), (&3.into(), &4411.into(), &4411.into()));
    assert_eq!((&block["allocated_seconds"], &block["age_seconds"]), (&0.013.into(), &0.0.into()));
    assert_eq!(json["stacks"], serde_json::json!([{ "stack": 1, "frame": 1 }]));
    let frame = |at: usize| (&json["frames"][at]["function"], &json["frames"][at]["caller"]);
    assert_eq!((frame(1), frame(0).1), ((&"server+0x20".into(), &0.into()), &serde_json::Value::Null));
}
