//! Snapshots that Node.js makes on the spot, and what Node.js itself finds in them.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use heapledger_census::graph::{AllocationStack, CoarseType, EdgeKind, Graph, NodeIndex, Origin};
use heapledger_census::read::{Format, detect, read};
use heapledger_census::{ReadError, fuzzing, heapsnapshot};
use serde_json::Value;
use tempfile::TempDir;

/// The heap of each test: objects, closures that keep them, an entry of a `WeakMap`, strings.
const HEAP: &str = "
class Leak { constructor(i) { this.name = 'leak-' + i; } }
globalThis.keep = [];
function make(count) {
    for (let i = 0; i < count; i++) { const it = new Leak(i); keep.push(it); }
}
function closures(count) {
    for (let i = 0; i < count; i++) { const it = { i }; keep.push(function counter() { return it; }); }
}
globalThis.key = {};
globalThis.map = new WeakMap([[key, { value: 1 }]]);
globalThis.rope = 'a long text '.repeat(20) + Math.random();
globalThis.wide = 'not ASCII: \\u00e9 \\u20ac \\n';
make(500);
closures(70);
";

/// Node.js's own count of a file: nodes and bytes by type, and all edges by type.
const COUNT: &str = "
const { snapshot, nodes, edges } = JSON.parse(require('fs').readFileSync(process.argv[2]));
const { node_fields, node_types, edge_fields, edge_types } = snapshot.meta;
const [type, size] = ['type', 'self_size'].map(it => node_fields.indexOf(it));
const result = { nodes: {}, edges: {} };
for (let at = 0; at < nodes.length; at += node_fields.length) {
    const of_type = result.nodes[node_types[type][nodes[at + type]]] ??= [0, 0];
    of_type[0] += 1;
    of_type[1] += nodes[at + size];
}
for (let at = 0; at < edges.length; at += edge_fields.length) {
    const name = edge_types[0][edges[at]];
    result.edges[name] = (result.edges[name] ?? 0) + 1;
}
console.log(JSON.stringify(result));
";

/// Runs a script with Node.js, in a directory. Returns what it prints, or nothing if there is no
/// Node.js.
fn node(directory: &Path, name: &str, script: &str, argument: &str) -> Option<String> {
    let path = directory.join(name);
    fs::write(&path, script).unwrap();
    let output = match Command::new("node").arg(&path).arg(argument).current_dir(directory).output() {
        Ok(output) => output,
        Err(error) => {
            let why = format!("node cannot be run: {error}");
            assert!(std::env::var_os("HEAPLEDGER_NO_SKIP").is_none_or(|it| it != "1"), "may not be skipped: {why}");
            // eprintln! is not used, because the test runner captures its output.
            std::io::stderr().write_all(format!("skipped: {why}\n").as_bytes()).unwrap();
            return None;
        }
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

/// Returns the same count as [`COUNT`], from a graph.
fn count(graph: &Graph) -> Value {
    let mut result = serde_json::json!({"nodes": {}, "edges": {}});
    for node in graph.nodes() {
        let of_type = &mut result["nodes"][graph.text(graph.type_name(node))];
        let (nodes, bytes) = (of_type[0].as_u64().unwrap_or(0) + 1, of_type[1].as_u64().unwrap_or(0));
        *of_type = serde_json::json!([nodes, bytes + graph.size(node)]);
        for edge in graph.edges(node) {
            let kind = match edge.kind {
                EdgeKind::WeakMapTable => "internal".to_owned(),
                kind => format!("{kind:?}").to_lowercase(),
            };
            let of_kind = &mut result["edges"][kind];
            *of_kind = (of_kind.as_u64().unwrap_or(0) + 1).into();
        }
    }
    result
}

fn of_class(graph: &Graph, class: &str) -> Vec<NodeIndex> {
    graph.nodes().filter(|&it| graph.class(it).is_some_and(|it| graph.text(it) == class)).collect()
}

#[test]
fn a_snapshot_is_as_node_counts_it() {
    let directory = TempDir::new().unwrap();
    let directory = directory.path();
    let script = format!("{HEAP} require('v8').writeHeapSnapshot('made.heapsnapshot');");
    if node(directory, "heap.js", &script, "").is_none() {
        return;
    }
    let file = fs::read(directory.join("made.heapsnapshot")).unwrap();
    assert_eq!(detect(&file), Some(Format::V8));
    let graph = read(file.as_slice()).unwrap();
    let counted: Value =
        serde_json::from_str(&node(directory, "count.js", COUNT, "made.heapsnapshot").unwrap()).unwrap();
    assert_eq!(count(&graph), counted);

    assert_eq!(graph.about().origin, Origin::V8);
    assert_eq!(of_class(&graph, "Leak").len(), 500);
    let label = |it: NodeIndex| graph.label(it).map(|it| graph.text(it));
    let counters: Vec<NodeIndex> =
        of_class(&graph, "Function").into_iter().filter(|&it| label(it) == Some("counter")).collect();
    assert_eq!(counters.len(), 70);
    let path = directory.join("heap.js");
    for counter in counters {
        let file = graph.script_file(counter).map(|it| graph.text(it));
        assert_eq!(file, path.to_str());
        assert!(graph.location(counter).is_some());
    }
    let texts = graph.nodes().filter(|&it| graph.coarse_type(it) == CoarseType::String);
    assert_eq!(texts.filter(|&it| label(it) == Some("not ASCII: é € \n")).count(), 1);
    let edges: Vec<_> = graph.nodes().flat_map(|it| graph.edges(it)).collect();
    // Two edges lead to the value: from the key, and from the table.
    assert_eq!(edges.iter().filter(|it| it.kind == EdgeKind::WeakMapTable).count(), 1);

    fs::write(directory.join("written.heapsnapshot"), heapsnapshot::write(&graph, Vec::new()).unwrap()).unwrap();
    let again = node(directory, "count.js", COUNT, "written.heapsnapshot").unwrap();
    assert_eq!(serde_json::from_str::<Value>(&again).unwrap(), counted);
    // Panics if it differs after it was written in either format.
    fuzzing::heapsnapshot(&file);
}

#[test]
fn a_timeline_has_the_stacks_of_objects() {
    let directory = TempDir::new().unwrap();
    let directory = directory.path();
    let script = format!(
        "const session = new (require('inspector').Session)();
        session.connect();
        const chunks = [];
        session.on('HeapProfiler.addHeapSnapshotChunk', it => chunks.push(it.params.chunk));
        session.post('HeapProfiler.startTrackingHeapObjects', {{ trackAllocations: true }});
        {HEAP}
        session.post('HeapProfiler.stopTrackingHeapObjects', {{ reportProgress: false }});
        require('fs').writeFileSync('made.heaptimeline', chunks.join(''));"
    );
    if node(directory, "heap.js", &script, "").is_none() {
        return;
    }
    let file = fs::read(directory.join("made.heaptimeline")).unwrap();
    let graph = read(file.as_slice()).unwrap();
    assert!(!graph.about().moments.is_empty());
    assert!(graph.about().moments.windows(2).all(|it| it[0].time_us <= it[1].time_us));
    let leaks = of_class(&graph, "Leak");
    assert_eq!(leaks.len(), 500);
    let path = directory.join("heap.js");
    for leak in leaks {
        let Some(AllocationStack::At(innermost)) = graph.stack(leak) else { panic!("{leak:?} has no stack") };
        let stack: Vec<_> = graph.frames().stack(innermost).map(|it| graph.frame(it)).collect();
        assert!(stack.len() > 2, "{stack:?}");
        assert_eq!(stack[0].function.map(|it| graph.text(it)), Some("make"));
        assert_eq!(stack[0].source.map(|it| graph.text(it)), path.to_str());

        assert!(stack[0].line > 0);
    }
    fuzzing::heapsnapshot(&file);
}

#[test]
fn a_sampling_profile_is_no_snapshot() {
    let directory = TempDir::new().unwrap();
    let directory = directory.path();
    let script = format!(
        "const session = new (require('inspector').Session)();
        session.connect();
        session.post('HeapProfiler.startSampling', {{ samplingInterval: 512 }});
        {HEAP}
        session.post('HeapProfiler.stopSampling', (error, {{ profile }}) =>
            require('fs').writeFileSync('made.heapprofile', JSON.stringify(profile)));"
    );
    if node(directory, "heap.js", &script, "").is_none() {
        return;
    }
    let file = fs::read(directory.join("made.heapprofile")).unwrap();
    assert_eq!(detect(&file), Some(Format::V8Profile));
    assert!(matches!(read(file.as_slice()), Err(ReadError::Profile)));
}
