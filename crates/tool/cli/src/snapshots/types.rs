//! The types of blocks, and blocks one by one.

use super::printed;

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
          1    9.1 %   2.9 KiB   23.1 %              └─ … 1 more site
         11  100.0 %  12.7 KiB  100.0 %              [totals]"
    );
    assert!(printed("types FILE --type Token").ends_with("(leaves out 7.8 KiB in 6 blocks)\n"));
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
    assert_eq!(json["stacks"][0]["frames"][0]["function"], "server+0x20");
}
