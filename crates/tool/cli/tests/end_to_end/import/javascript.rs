//! Files of V8's sampling heap profiler, and line formats of other tools that are recognised only
//! by their form.

use std::ffi::OsStr;
use std::fs;

use super::{functions, imported, newest};
use crate::harness::{Job, Scratch, heapledger, installed};

/// Keeps objects, and adds up a profile as DevTools does.
const KEEPS: &str = r#"
globalThis.kept = [];
function keep() { for (let i = 0; i < 50000; i++) kept.push({ i, text: 'x'.repeat(100) + i }); }
keep();
"#;
const SUMS: &str = r#"
const { head } = JSON.parse(require('fs').readFileSync(process.argv[1], 'utf8'));
const sum = (node) => node.selfSize + node.children.reduce((all, child) => all + sum(child), 0);
console.log(sum(head));
"#;

#[test]
#[ignore = "`.ci/run` runs it"]
fn of_v8() {
    let scratch = Scratch::new();
    let Some(node) = installed("node") else { return };
    let program = scratch.write("keeps.js", KEEPS);
    let words = [node.as_os_str(), "--heap-prof".as_ref(), "--heap-prof-interval=4096".as_ref(), program.as_os_str()];
    let done = Job::new(words).directory(scratch.path()).bare();
    assert!(done.status.success(), "{done:?}");
    let file = newest(&scratch, "Heap.");
    let theirs = Job::new([node.as_os_str(), "-e".as_ref(), SUMS.as_ref(), file.as_os_str()]).bare();
    let theirs: i64 = theirs.text().trim().parse().unwrap_or_else(|error| panic!("{error}: {theirs:?}"));
    let recording = imported(&scratch, &file);
    assert!(theirs > 1_000_000);
    assert_eq!((recording.total("bytes_live_max"), recording.total("bytes_live_end")), (theirs, theirs));
    let names = functions(&recording, &["--by", "function"]);
    assert!(names[..2].iter().any(|name| name == "keep"), "{names:?}");
}

/// Tracks allocations, and adds up the snapshot's objects.
const TRACKS: &str = r#"
const inspector = require('inspector');
const session = new inspector.Session();
session.connect();
const chunks = [];
session.on('HeapProfiler.addHeapSnapshotChunk', (message) => chunks.push(message.params.chunk));
session.post('HeapProfiler.startTrackingHeapObjects', { trackAllocations: true });
globalThis.kept = [];
function keep() { for (let i = 0; i < 20000; i++) kept.push({ i, text: 'x'.repeat(100) + i }); }
keep();
session.post('HeapProfiler.stopTrackingHeapObjects', { reportProgress: false });
const file = chunks.join('');
require('fs').writeFileSync(process.argv[2], file);
const { snapshot, nodes } = JSON.parse(file);
const width = snapshot.meta.node_fields.length, size = snapshot.meta.node_fields.indexOf('self_size');
let live = 0, objects = 0;
for (let at = 0; at < nodes.length; at += width) {
    live += nodes[at + size];
    // Not the root.
    objects += at > 0;
}
console.log(live, objects);
"#;

#[test]
#[ignore = "`.ci/run` runs it"]
fn of_v8s_timeline() {
    let scratch = Scratch::new();
    let Some(node) = installed("node") else { return };
    let (program, file) = (scratch.write("tracks.js", TRACKS), scratch.file("a.heaptimeline"));
    let theirs = Job::new([node.as_os_str(), program.as_os_str(), file.as_os_str()]).bare();
    assert!(theirs.status.success(), "{theirs:?}");
    let theirs: Vec<i64> = theirs.text().split_whitespace().map(|figure| figure.parse().unwrap()).collect();
    let recording = imported(&scratch, &file);
    assert_eq!([recording.total("bytes_live_end"), recording.total("blocks_live_end")], theirs[..]);
    assert!(recording.total("bytes_allocated") >= theirs[0]);
    let names = functions(&recording, &["--by", "function"]);
    assert!(names[..3].iter().any(|name| name == "keep"), "{names:?}");
    let types = recording.ask("top", &["--by", "type"]);
    assert!(types["rows"].as_array().unwrap().iter().any(|row| row["type"] == "Array"), "{types:#}");
}

/// Names with spaces, and a semicolon at the end of each stack.
#[test]
#[ignore = "`.ci/run` runs it"]
fn of_heaptracks_stacks() {
    let scratch = Scratch::new();
    let (Some(_), Some(print)) = (installed("heaptrack"), installed("heaptrack_print")) else { return };
    let program = crate::harness::program("growth").display().to_string();
    let words = ["heaptrack", "-o", "theirs", &program, "20"];
    let done = Job::new(words).directory(scratch.path()).bare();
    assert!(done.status.success(), "{done:?}");
    let file = newest(&scratch, "theirs");
    let options = ["--flamegraph-cost-type", "peak", "-p0", "-a0", "-T0", "-l0", "-F", "stacks", "-f"].map(OsStr::new);
    let words = [print.as_os_str()].into_iter().chain(options).chain([file.as_os_str()]);
    assert!(Job::new(words).directory(scratch.path()).bare().status.success());
    let stacks = scratch.file("stacks");
    let text = fs::read(&stacks).unwrap();
    let text = String::from_utf8_lossy(&text);
    let sum: i64 = text.lines().map(|line| line.rsplit(' ').next().unwrap().parse::<i64>().unwrap()).sum();
    let recording = imported(&scratch, &stacks);
    assert!(sum > 0 && text.contains("; "), "{text}");
    assert_eq!(recording.total("bytes_live_max"), sum);
    let told = heapledger([OsStr::new("top"), stacks.as_os_str()]);
    assert!(String::from_utf8_lossy(&told.stderr).contains("is a file of collapsed stacks"), "{told:?}");
}
