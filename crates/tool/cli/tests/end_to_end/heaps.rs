//! `heapledger heap`: snapshots that Node.js and Firefox have just made, compared with what the
//! engines' own tools say of them, to the number.

mod page;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::browser::marionette::Firefox;
use crate::browser::webdriver::Chromium;
use crate::documents;
use crate::harness::{Job, Outcome, Scratch, exited, heapledger, installed, number};

/// A program that keeps a closure, and what it holds, for each user; and a large string behind a
/// short one.
const LEAK: &str = "
const { EventEmitter } = require('events');
const { writeHeapSnapshot } = require('v8');
const bus = new EventEmitter();
bus.setMaxListeners(0);
class Session { constructor(user) { this.user = user; this.log = new Array(100).fill(0.5); } }
function handle(user) {
    const session = new Session(user);
    bus.on('shutdown', () => session.log.push(user));
}
global.short = ('x'.repeat(100000) + process.pid).slice(10, 40);
for (let i = 0; i < 300; i++) handle('user' + i);
writeHeapSnapshot('1.heapsnapshot');
for (let i = 300; i < 1000; i++) handle('user' + i);
writeHeapSnapshot('2.heapsnapshot');
";

/// Returns the two snapshots of the program, or `None` after printing that there is no Node.js.
fn leak(scratch: &Scratch) -> Option<[PathBuf; 2]> {
    let node = installed("node")?;
    let script = scratch.write("leak.js", LEAK);
    let done = Command::new(node).arg(script).current_dir(scratch.path()).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    Some(["1.heapsnapshot", "2.heapsnapshot"].map(|name| scratch.file(name)))
}

fn heap(words: &[&str]) -> Outcome {
    heapledger([&["heap"], words].concat())
}

/// Returns the output, if the command succeeds.
#[track_caller]
fn printed(words: &[&str]) -> Vec<u8> {
    let outcome = heap(words);
    assert!(outcome.status.success() && outcome.stderr.is_empty(), "{words:?}: {outcome:?}");
    outcome.stdout
}

/// Returns the document that `--json` prints.
#[track_caller]
fn document(words: &[&str]) -> Value {
    documents::read(&printed(&[words, &["--json"]].concat()))
}

/// Returns the result of a census, which is in the engine's own form.
#[track_caller]
fn census(file: &Path, words: &[&str]) -> Value {
    let all = [&["census", file.to_str().unwrap(), "--json"], words].concat();
    serde_json::from_slice(&printed(&all)).unwrap()
}

/// Writes a snapshot in the format of the other file's name. Returns everything that is said to be
/// lost.
#[track_caller]
fn export(file: &Path, target: &Path) -> Vec<String> {
    let outcome = heap(&["export", file.to_str().unwrap(), "-o", target.to_str().unwrap(), "--json"]);
    assert!(outcome.status.success(), "{outcome:?}");
    let answer = documents::read(&outcome.stdout);
    answer["lost"].as_array().unwrap().iter().map(|it| it["what"].as_str().unwrap().to_owned()).collect()
}

/// A snapshot of V8, read without any of the code under test.
struct Raw {
    file: Value,
    /// The positions of the fields of a node, by name.
    fields: HashMap<String, usize>,
}

impl Raw {
    fn read(file: &Path) -> Raw {
        let file: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        let fields = file["snapshot"]["meta"]["node_fields"].as_array().unwrap();
        let fields = fields.iter().enumerate().map(|(at, name)| (name.as_str().unwrap().to_owned(), at)).collect();
        Raw { file, fields }
    }

    /// Returns a field of all nodes.
    fn column(&self, name: &str) -> Vec<u64> {
        let nodes = self.file["nodes"].as_array().unwrap();
        nodes.iter().skip(self.fields[name]).step_by(self.fields.len()).map(|it| it.as_u64().unwrap()).collect()
    }
}

/// A census without groups counts all nodes except the root, which nobody holds, and all bytes.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn everything_of_node_is_counted() {
    let scratch = Scratch::new();
    let Some([first, _]) = leak(&scratch) else { return };
    let sizes = Raw::read(&first).column("self_size");
    let counted = census(&first, &["--by", "count"]);
    let (nodes, bytes) = (sizes.len() as u64 - 1, sizes.iter().sum::<u64>());
    assert_eq!(counted, json!({"count": nodes, "bytes": bytes}));
    let by_class = census(&first, &["--by", "objectClass"]);
    assert_eq!(number(&by_class["Session"], "count"), 300);
    // Groups add up, and so do lists of nodes.
    for by in ["coarseType", "internalType", "objectClass", "filename"] {
        let groups = census(&first, &["--by", by]);
        let sum = |name| groups.as_object().unwrap().values().map(|group| number(group, name)).sum::<i64>();
        assert_eq!((sum("count"), sum("bytes")), (nodes as i64, bytes as i64), "{by}");
    }
    let bucket = census(&first, &["--breakdown", r#"{"by": "objectClass", "then": {"by": "bucket"}}"#]);
    assert_eq!(bucket["Session"].as_array().unwrap().len(), 300);
}

/// Makes objects in two contexts of Node.js, each with a global object of its own.
const TWO_GLOBALS: &str = "
const vm = require('vm');
const context = vm.createContext({});
globalThis.theirs = vm.runInContext(
    'class Leaf {}; const all = []; for (let i = 0; i < 500; i++) all.push(new Leaf()); all', context);
class Own {}
globalThis.own = [];
for (let i = 0; i < 300; i++) own.push(new Own());
require('v8').writeHeapSnapshot('vm.heapsnapshot');
";

/// Objects count with the global object in whose context they were made, wherever they are held.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn objects_belong_to_global_objects() {
    let scratch = Scratch::new();
    let Some(node) = installed("node") else { return };
    let script = scratch.write("vm.js", TWO_GLOBALS);
    let done = Command::new(node).arg(script).current_dir(scratch.path()).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    let file = scratch.file("vm.heapsnapshot");
    let found = document(&["find", file.to_str().unwrap(), "globals"]);
    let globals = found["findings"][0]["rows"].as_array().unwrap();
    assert_eq!(globals.len(), 2, "{found:#}");
    for (global, expected) in globals.iter().zip([(json!(300), Value::Null), (Value::Null, json!(500))]) {
        let id = global["node"]["id"].to_string();
        let classes = census(&file, &["--by", "objectClass", "--global", &id]);
        assert_eq!((classes["Own"]["count"].clone(), classes["Leaf"]["count"].clone()), expected, "{classes:#}");
    }
    let string =
        census(&file, &["--breakdown", r#"{"by": "internalType", "then": {"by": "bucket"}}"#])["string"][0].to_string();
    let refused = heap(&["census", file.to_str().unwrap(), "--global", &string]);
    assert_eq!(refused.status, exited(2), "{refused:?}");
}

/// The leak is found in three commands.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_leak_of_node_is_found() {
    let scratch = Scratch::new();
    let Some([first, second]) = leak(&scratch) else { return };
    let [before, after] = [&first, &second].map(|file| file.to_str().unwrap());
    let grown = document(&["diff", before, after, "--by", "objectClass"]);
    assert_eq!(number(&grown["difference"]["Session"], "count"), 700, "{grown:#}");
    let newer = census(&second, &["--newer-than", before, "--by", "objectClass"]);
    assert_eq!(number(&newer["Session"], "count"), 700);
    let text = String::from_utf8(printed(&["diff", before, after])).unwrap();
    assert!(text.contains("Session"), "{text}");
    let sessions = census(&second, &["--breakdown", r#"{"by": "objectClass", "then": {"by": "bucket"}}"#]);
    let session = sessions["Session"][500].to_string();
    let paths = document(&["paths", after, &session]);
    let edges = paths["nodes"][0]["paths"][0].as_array().unwrap();
    assert!(edges.iter().any(|step| step["edge"] == "context"), "{paths:#}");
    let node = document(&["node", after, &session]);
    assert_eq!(node["class"], "Session");
    assert!(node["edges"].as_array().unwrap().iter().any(|edge| edge["name"] == "log"), "{node:#}");
    let found = document(&["find", after, "closures", "slices", "detached", "-n", "0"]);
    let rows = |at: usize| found["findings"][at]["rows"].as_array().unwrap();
    let leaks: Vec<&Value> = rows(0).iter().filter(|row| row["count"] == 1000).collect();
    assert_eq!(leaks.len(), 1, "{leaks:#?}");
    assert_eq!((&leaks[0]["contexts"], &leaks[0]["variables"][0]["name"]), (&json!(1000), &json!("session")));
    assert!(rows(1)[0]["node"]["label"].as_str().unwrap().starts_with("xxx"), "{:#}", rows(1)[0]);
    assert!(number(&rows(1)[0], "bytes") >= 100_000 && rows(2).is_empty(), "{:#}", rows(1)[0]);
}

/// Retained sizes and dominators are those of DevTools, which read the same file, another one that
/// `heap export` makes of it, and one that was Firefox's in between.
///
/// DevTools then counts the arrays that one object alone holds as a part of that object; this is
/// switched off.
#[test]
#[ignore = "needs Chromium and Node.js; in .ci/run"]
fn retained_sizes_are_those_of_devtools() {
    let scratch = Scratch::new();
    let Some([first, _]) = leak(&scratch) else { return };
    let Some(chromium) = Chromium::start(&scratch) else { return };
    chromium.open(&format!("{}/devtools_app.html", chromium.devtools));
    let [written, firefox, back] =
        ["written.heapsnapshot", "firefox.fxsnapshot", "back.heapsnapshot"].map(|name| scratch.file(name));
    assert_eq!(export(&first, &written), [""; 0]);
    export(&first, &firefox);
    export(&firefox, &back);
    let mut answers = Vec::new();
    for file in [&first, &written, &back] {
        let text = Value::from(std::fs::read_to_string(file).unwrap());
        let found = chromium.eval(&format!(
            "(async () => {{
                const worker = await import('/devtools/entrypoints/heap_snapshot_worker/heap_snapshot_worker.js');
                worker.HeapSnapshot.JSHeapSnapshot.prototype.calculateShallowSizes = () => {{}};
                const loader = new worker.HeapSnapshotLoader.HeapSnapshotLoader({{sendEvent() {{}}}});
                loader.write({text});
                loader.close();
                const channel = new MessageChannel();
                new worker.HeapSnapshot.SecondaryInitManager(channel.port2);
                const snapshot = await loader.buildSnapshot(channel.port1);
                const fields = snapshot.nodeFieldCount;
                const id = (ordinal) => snapshot.nodes.getValue(ordinal * fields + 2);
                const all = [];
                // All but the root.
                for (let ordinal = 1; ordinal < snapshot.retainedSizes.length; ordinal++) {{
                    all.push([id(ordinal), snapshot.retainedSizes[ordinal], id(snapshot.dominatorsTree[ordinal])]);
                }}
                return all;
            }})()"
        ));
        assert_eq!(Raw::read(file).fields["id"], 2);
        let is_large = |node: &Value| node[1].as_f64().unwrap() > 20_000.0;
        let all = found.as_array().unwrap().iter().enumerate();
        let chosen: Vec<&Value> =
            all.filter(|(at, node)| at % 7 == 1 || is_large(node)).map(|(_, node)| node).collect();
        compare_dominators(file, &chosen);
        answers.push(found);
    }
    assert!(answers[0] == answers[1], "our writer changes the answers");
}

/// Compares `[id, retained size, dominator]` of many nodes with ours.
#[track_caller]
fn compare_dominators(file: &Path, chosen: &[&Value]) {
    assert!(chosen.len() > 1000);
    compare_dominators_of(file, chosen);
}

#[track_caller]
fn compare_dominators_of(file: &Path, chosen: &[&Value]) {
    let mut wrong = Vec::new();
    for part in chosen.chunks(2000) {
        let ids: Vec<String> = part.iter().map(|node| node[0].to_string()).collect();
        let words = [
            &["dominators", file.to_str().unwrap(), "--depth", "0"],
            &ids.iter().map(|id| &**id).collect::<Vec<_>>()[..],
        ];
        let answer = document(&words.concat());
        for (node, found) in part.iter().zip(answer["nodes"].as_array().unwrap()) {
            let found = json!([found["id"], found["retained"], found["dominator"]]);
            if found != **node {
                wrong.push((found, (*node).clone()));
            }
        }
    }
    let shown = &wrong[..wrong.len().min(20)];
    assert!(wrong.is_empty(), "{} of {} (ours, theirs): {shown:#?}", wrong.len(), chosen.len());
}

/// Returns JSON without the white space between its tokens.
fn minified(json: &[u8]) -> String {
    let (mut is_text, mut is_escaped) = (false, false);
    let kept = std::str::from_utf8(json).unwrap().chars().filter(|&character| {
        let is_kept = is_text || !character.is_whitespace();
        is_text ^= character == '"' && !is_escaped;
        is_escaped = character == '\\' && !is_escaped;
        is_kept
    });
    kept.collect()
}

/// Asks Firefox for a snapshot of its own process, and for its own answers to it.
const FIREFOX: &str = r#"
    const done = arguments[arguments.length - 1];
    const [breakdowns] = arguments;
    const file = ChromeUtils.saveHeapSnapshot({runtime: true});
    const snapshot = ChromeUtils.readHeapSnapshot(file);
    const censuses = breakdowns.map((breakdown) => JSON.stringify(snapshot.takeCensus({breakdown})));
    const all = snapshot.takeCensus({breakdown: {by: "bucket"}});
    const tree = snapshot.computeDominatorTree();
    const nodes = all
        .map((id) => [id, tree.getRetainedSize(id), tree.getImmediateDominator(id)])
        .filter((node, at) => at % 97 === 3 || node[1] > 100000);
    const targets = all.filter((id, at) => at % 9973 === 3);
    const paths = [];
    snapshot.computeShortestPaths(tree.root, targets, 4).forEach((found, target) => {
        paths.push([target, found.map((path) => path.map((step) => [step.predecessor, step.edge ?? null]))]);
    });
    const root = [tree.root, tree.getRetainedSize(tree.root)];
    done(JSON.stringify({file, censuses, nodes, root, paths}));
"#;

/// Censuses, retained sizes, dominators and paths are those of Firefox, which read the same file.
#[test]
#[ignore = "needs Firefox ESR; in .ci/run"]
fn answers_are_those_of_firefox() {
    let scratch = Scratch::new();
    let Some(mut firefox) = Firefox::start(&scratch) else { return };
    firefox.open("about:memory");
    let breakdowns = [
        json!({"by": "count"}),
        json!({"by": "coarseType", "objects": {"by": "objectClass"}, "other": {"by": "internalType"}}),
        json!({"by": "internalType", "then": {"by": "bucket"}}),
        json!({"by": "objectClass", "then": {"by": "filename"}, "other": {"by": "internalType"}}),
        json!({"by": "filename", "noFilename": {"by": "count", "bytes": false}}),
        json!({"by": "coarseType", "domNode": {"by": "descriptiveType"}}),
    ];
    let answers: Value = serde_json::from_str(firefox.run(FIREFOX, &[json!(breakdowns)]).as_str().unwrap()).unwrap();
    let file = Path::new(answers["file"].as_str().unwrap());
    for (breakdown, expected) in breakdowns.iter().zip(answers["censuses"].as_array().unwrap()) {
        let found = printed(&["census", file.to_str().unwrap(), "--json", "--breakdown", &breakdown.to_string()]);
        // The texts have the order of the keys, too.
        assert!(minified(&found) == expected.as_str().unwrap(), "{breakdown}: {expected}");
    }
    compare_dominators(file, &answers["nodes"].as_array().unwrap().iter().collect::<Vec<_>>());
    // Firefox says the same of the file that `heap export` makes of it.
    let written = scratch.file("written.fxsnapshot");
    assert_eq!(export(file, &written), [""; 0]);
    let ids: Vec<&Value> = answers["nodes"].as_array().unwrap().iter().map(|node| &node[0]).collect();
    let again = asked_of_firefox(&mut firefox, &written, &breakdowns[1], &ids);
    assert!(again["census"] == answers["censuses"][1], "{}", again["census"]);
    assert_eq!(again["nodes"], answers["nodes"]);
    if let Some([of_node, _]) = leak(&scratch) {
        firefox_reads_a_snapshot_of_node(&mut firefox, &scratch, &of_node);
    }
    let root = document(&["dominators", file.to_str().unwrap(), &answers["root"][0].to_string()]);
    assert_eq!(root["retained_root"], answers["root"][1]);
    let expected = answers["paths"].as_array().unwrap();
    let ids: Vec<String> = expected.iter().map(|target| target[0].to_string()).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let found = document(&[&["paths", file.to_str().unwrap(), "--max", "4"], &ids[..]].concat());
    let found: HashMap<u64, &Value> =
        found["nodes"].as_array().unwrap().iter().map(|node| (node["id"].as_u64().unwrap(), &node["paths"])).collect();
    for target in expected {
        let paths = found[&target[0].as_u64().unwrap()].as_array().unwrap().iter().map(|path| {
            let steps = path.as_array().unwrap().iter().map(|step| json!([step["predecessor"], step["edge"]]));
            steps.collect::<Value>()
        });
        assert_eq!(paths.collect::<Value>(), target[1], "{}", target[0]);
    }
}

/// Returns Firefox's census of a file, and `[id, retained size, dominator]` of some nodes.
fn asked_of_firefox(firefox: &mut Firefox, file: &Path, breakdown: &Value, ids: &[&Value]) -> Value {
    let answer = firefox.run(
        "const [file, breakdown, ids, done] = arguments;
         const snapshot = ChromeUtils.readHeapSnapshot(file);
         const tree = snapshot.computeDominatorTree();
         const nodes = ids.map((id) => [id, tree.getRetainedSize(id), tree.getImmediateDominator(id)]);
         done(JSON.stringify({census: JSON.stringify(snapshot.takeCensus({breakdown})), nodes}));",
        &[json!(file), breakdown.clone(), json!(ids)],
    );
    serde_json::from_str(answer.as_str().unwrap()).unwrap()
}

/// Firefox reads the file that `heap export` makes of a snapshot of Node.js, with the same nodes.
#[track_caller]
fn firefox_reads_a_snapshot_of_node(firefox: &mut Firefox, scratch: &Scratch, of_node: &Path) {
    let written = scratch.file("node.fxsnapshot");
    let lost = export(of_node, &written);
    assert!(lost.iter().any(|what| what.starts_with("texts of strings")), "{lost:?}");
    let sessions = census(of_node, &["--breakdown", r#"{"by": "objectClass", "then": {"by": "bucket"}}"#]);
    let ids: Vec<&Value> = sessions["Session"].as_array().unwrap().iter().collect();
    let breakdown = json!({"by": "objectClass"});
    let answer = asked_of_firefox(firefox, &written, &breakdown, &ids);
    // All edges in Firefox's format retain: the others are not there.
    let expected = census(of_node, &["--by", "objectClass", "--only-retained"]);
    let found: Value = serde_json::from_str(answer["census"].as_str().unwrap()).unwrap();
    assert_eq!(found, expected);
    compare_dominators_of(of_node, &answer["nodes"].as_array().unwrap().iter().collect::<Vec<_>>());
}

/// The verbs for recordings read snapshots, and their figures are those of a census. Verbs about
/// time refuse them, and `heap` refuses profiles; each says which verb has the answer.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn other_verbs_read_snapshots() {
    let scratch = Scratch::new();
    let Some([first, second]) = leak(&scratch) else { return };
    let name = first.to_str().unwrap();
    let told = heapledger(["top", name, "--by", "type", "-n", "0", "--json"]);
    assert!(String::from_utf8_lossy(&told.stderr).contains("it has no stacks"), "{told:?}");
    let top = documents::read(&told.stdout);
    let whole = census(&first, &["--by", "count"]);
    assert_eq!((&top["total"]["bytes"], &top["total"]["blocks"]), (&whole["bytes"], &whole["count"]));
    let rows = top["rows"].as_array().unwrap();
    let sessions = rows.iter().find(|row| row["type"] == "Session").unwrap();
    assert_eq!(sessions["bytes"], census(&first, &["--by", "objectClass"])["Session"]["bytes"]);
    let other = second.to_str().unwrap();
    let diff = heapledger(["diff", name, other, "--by", "type", "-n", "0", "--json"]);
    let diff = documents::read(&diff.stdout);
    let rows = diff["rows"].as_array().unwrap();
    assert!(rows.iter().any(|row| row["type"] == "Session"), "{diff:#}");
    for (verb, options) in [
        ("tree", &[][..]),
        ("summary", &[]),
        ("flame", &["-o", "a.svg"]),
        ("export", &["--to", "collapsed", "-o", "a.txt"]),
    ] {
        let words = [&[env!("CARGO_BIN_EXE_heapledger"), verb, name], options].concat();
        let outcome = Job::new(words).directory(scratch.path()).bare();
        assert!(outcome.status.success(), "{verb}: {outcome:?}");
    }
    for verb in ["timeline", "leaks", "growth", "temporary", "reallocations", "blocks", "sizes", "advise"] {
        let outcome = heapledger([verb, name]);
        let said = String::from_utf8_lossy(&outcome.stderr).into_owned();
        assert_eq!(outcome.status, exited(2), "{verb}: {outcome:?}");
        assert!(said.contains("HL0088") && said.contains("hint: "), "{verb}: {said}");
    }
    let profile = r#"{"head":{"callFrame":{"functionName":"(root)","scriptId":"0","url":"","lineNumber":-1,"columnNumber":-1},"selfSize":0,"id":1,"children":[]},"samples":[]}"#;
    let profile = scratch.write("a.heapprofile", profile);
    let outcome = heap(&["census", profile.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&outcome.stderr).into_owned();
    assert_eq!(outcome.status, exited(102), "{outcome:?}");
    assert!(said.contains("heapledger top "), "{said}");
    let cut = std::fs::read(&first).unwrap();
    let cut = scratch.write("cut.heapsnapshot", &cut[..cut.len() / 2]);
    let outcome = heap(&["census", cut.to_str().unwrap()]);
    assert_eq!(outcome.status, exited(102), "{outcome:?}");
    assert!(String::from_utf8_lossy(&outcome.stderr).contains("cut.heapsnapshot"), "{outcome:?}");
}
