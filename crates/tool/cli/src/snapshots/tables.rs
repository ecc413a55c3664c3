//! Tables, trees and totals of what is live or was allocated.

use super::{golden, printed};

#[test]
fn summary() {
    assert_eq!(printed("FILE").lines().nth(1).map(|line| line.starts_with("FILE (")), Some(true));
    assert_eq!(
        printed("summary FILE").lines().skip(3).collect::<Vec<_>>().join("\n"),
        "                  peak  7.8 KiB  at 2.0 s in 6 blocks
     resident, at most  683.6 KiB  at 10.0 ms, 341.8 KiB of it of no file
       live at the end  7.8 KiB  in 6 blocks
           allocations  11  of 12.7 KiB in all, 45 % temporary
of these reallocations  0
                 frees  5
   most blocks at once  6
               threads  1

 pid     peak  live at end  allocations  temporary   ended
4411  7.8 KiB      7.8 KiB           11       45 %  exit 3  ./server a\\u{1b}[2Jb"
    );
}

#[test]
fn summary_as_json() {
    let summary: serde_json::Value = serde_json::from_str(&printed("summary FILE --json")).unwrap();
    assert_eq!(summary["allocations"], 11);
    assert_eq!(summary["bytes_live_max_time_seconds"], 2.0);
    assert_eq!(summary["complete"], true);
    assert_eq!(summary["damage"], serde_json::json!([]));
    assert_eq!(summary["processes"][0]["exit"], serde_json::json!({ "code": 3 }));
    assert_eq!(summary["processes"][0]["command"], "./server a\u{1b}[2Jb");
    assert_eq!(summary["processes"][0]["images"][0]["how"], "launched");
}

#[test]
fn top() {
    golden("top");
}

#[test]
fn top_from_the_events() {
    golden("top_from_the_events");
}

#[test]
fn a_selection_is_told() {
    golden("a_selection_is_told");
    let leaks: serde_json::Value = serde_json::from_str(&printed("leaks FILE --thread #0 --size 3000 --json")).unwrap();
    assert_eq!(leaks["only"], serde_json::json!({ "threads": ["#0"], "size": { "min": 3000, "max": 3000 } }));
    assert_eq!((&leaks["total"]["bytes"], &leaks["left_out"]["bytes"]), (&3000.into(), &5000.into()));
}

#[test]
fn tree() {
    golden("tree");
    let tree: serde_json::Value = serde_json::from_str(&printed("tree FILE --json")).unwrap();
    let nodes = tree["nodes"].as_array().unwrap();
    let parents: Vec<Option<u64>> = nodes.iter().map(|node| node["parent"].as_u64()).collect();
    assert_eq!(parents, [None, Some(0), Some(0), Some(2), Some(3)]);
    assert_eq!(nodes[4]["own"]["bytes"], 3000);
    assert_eq!(nodes[4]["depth"], 3);
}

#[test]
fn leaks() {
    golden("leaks");
}

#[test]
fn temporary() {
    golden("temporary");
}

#[test]
fn temporary_within() {
    golden("temporary_within");
}

#[test]
fn sizes() {
    golden("sizes");
}

#[test]
fn callers_and_callees() {
    golden("callers_and_callees");
}

#[test]
fn reallocations() {
    golden("reallocations");
}

#[test]
fn info() {
    let text = printed("info FILE");
    let start = "
session
       file  FILE, format 2.8
    command  ./server --port 80
  directory  /srv
      began  2026-11-21 01:52:35 UTC
recorded by  heapledger 0.1.0
       took  2.6 s
   complete  yes

processes
image   pid      by    from     to  ended  threads  events
    0  4411  launch  1.0 ms  2.5 s   exit        1      16  ./server a\\u{1b}[2Jb

modules
names from       build id
   nothing  abababababab…  /nonexistent/server  /nonexistent/server is not there
   nothing                 /nonexistent/libx.so  /nonexistent/libx.so is not there

contents
";
    assert_eq!(&text[..start.len().min(text.len())], start);
    assert!(text.contains("stack nodes") && text.contains(" for 16 events: "), "{text}");
}

#[test]
fn flame() {
    golden("flame");
    assert!(printed("flame FILE -o -").contains("<svg"));
}

#[test]
fn self_documentation() {
    let page = printed("man");
    assert!(page.contains(".TH heapledger 1") && page.contains("\n.nf\n $ heapledger record "), "{page}");
    assert!(page.contains("what nobody reports\n.fi\n"), "{page}");
    assert!(printed("completions bash").contains("complete-words"));
    assert!(printed("completions elvish").contains("temporary"));
    assert!(printed("help top").contains("Usage: heapledger top"));
}
