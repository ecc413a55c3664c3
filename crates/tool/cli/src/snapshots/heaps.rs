//! The verbs about heap snapshots, for two small snapshots of V8 and one of Firefox.
//!
//! BEFORE and AFTER are a service with two and with five sessions, each held by the closure of a
//! listener. FIREFOX is AFTER as Firefox would write it.

use std::fs::File;
use std::path::{Path, PathBuf};

use heapledger_census::graph::{
    AllocationStack, CoarseType, Detachedness, EdgeData, EdgeKind, EdgeName, Frame, FrameIndex, Graph, GraphBuilder,
    NodeData, NodeId, Origin,
};
use heapledger_census::{fxsnapshot, heapsnapshot};

use super::{answered, golden_of};

/// The snapshots, in a directory that is removed when dropped.
struct Heaps {
    directory: tempfile::TempDir,
}

impl Heaps {
    fn new() -> Heaps {
        let heaps = Heaps { directory: tempfile::tempdir().unwrap() };
        let file = |name| File::create(heaps.path(name)).unwrap();
        heapsnapshot::write(&heap(2, true), file("BEFORE")).unwrap();
        heapsnapshot::write(&heap(5, true), file("AFTER")).unwrap();
        fxsnapshot::write(&heap(5, true), file("FIREFOX")).unwrap();
        heaps
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn files(&self) -> [(&'static str, PathBuf); 3] {
        ["BEFORE", "AFTER", "FIREFOX"].map(|name| (name, self.path(name)))
    }
}

/// Checks that the commands of a golden file print what stands there.
fn golden(name: &str) {
    let heaps = Heaps::new();
    golden_of(name, |line| answered(line, &heaps.files()));
}

/// The ids of nodes; those of sessions are above.
mod ids {
    pub(super) const ROOT: u64 = 1;
    pub(super) const GLOBAL: u64 = 3;
    pub(super) const HANDLES: u64 = 5;
    pub(super) const BUS: u64 = 7;
    pub(super) const LISTENERS: u64 = 9;
    pub(super) const SHORT: u64 = 11;
    pub(super) const LONG: u64 = 13;
    pub(super) const CODE: u64 = 15;
    pub(super) const LIST: u64 = 17;
    pub(super) const ITEM: u64 = 19;
    pub(super) const LOST: u64 = 21;
    pub(super) const SESSIONS: u64 = 101;
}

/// A graph under construction.
struct Draft(GraphBuilder);

impl Draft {
    fn node(&mut self, id: u64, type_name: &str, label: &str, size: u64, change: impl FnOnce(&mut NodeData)) {
        let type_name = self.0.intern(type_name).unwrap();
        let mut node = NodeData::new(NodeId(id), type_name, Some(size));
        node.label = Some(self.0.intern(label).unwrap());
        change(&mut node);
        self.0.add_node(node).unwrap();
    }

    fn object(&mut self, id: u64, class: &str, size: u64, stack: Option<FrameIndex>) {
        let name = self.0.intern(class).unwrap();
        self.node(id, "object", class, size, |node| {
            (node.coarse_type, node.class) = (CoarseType::Object, Some(name));
            node.stack = stack.map(AllocationStack::At);
        });
    }

    fn string(&mut self, id: u64, type_name: &str, text: &str, size: u64) {
        self.node(id, type_name, text, size, |node| node.coarse_type = CoarseType::String);
    }

    fn dom(&mut self, id: u64, name: &str, size: u64) {
        let tag = self.0.intern(name).unwrap();
        self.node(id, "native", name, size, |node| {
            (node.coarse_type, node.descriptive_name) = (CoarseType::DomNode, Some(tag));
            node.detachedness = Detachedness::Detached;
        });
    }

    fn edge(&mut self, target: u64, kind: EdgeKind, name: &str) {
        let name = Some(EdgeName::Name(self.0.intern(name).unwrap()));
        self.0.add_edge_to_id(NodeId(target), EdgeData { name, kind }).unwrap();
    }

    fn element(&mut self, target: u64, index: u32) {
        let data = EdgeData { name: Some(EdgeName::Index(index)), kind: EdgeKind::Element };
        self.0.add_edge_to_id(NodeId(target), data).unwrap();
    }

    fn frame(&mut self, parent: Option<FrameIndex>, function: &str, line: u32) -> FrameIndex {
        let (source, function) = (self.0.intern("server.js").unwrap(), self.0.intern(function).unwrap());
        let frame = Frame {
            id: u64::from(line),
            parent,
            source: Some(source),
            line,
            column: 5,
            function: Some(function),
            is_system: false,
            is_self_hosted: false,
        };
        self.0.add_frame(frame).unwrap()
    }
}

/// Returns the heap of the service, with or without the stacks that allocated nodes.
fn heap(sessions: u64, has_stacks: bool) -> Graph {
    let mut draft = Draft(GraphBuilder::new());
    draft.0.about.origin = Origin::V8;
    let serve = has_stacks.then(|| draft.frame(None, "serve", 10));
    let handle = has_stacks.then(|| draft.frame(serve, "handle", 20));
    draft.node(ids::ROOT, "synthetic", "", 0, |_| {});
    draft.element(ids::GLOBAL, 1);
    draft.element(ids::HANDLES, 2);
    draft.object(ids::GLOBAL, "global", 32, None);
    draft.edge(ids::BUS, EdgeKind::Property, "bus");
    draft.edge(ids::SHORT, EdgeKind::Property, "short");
    draft.edge(ids::LIST, EdgeKind::Property, "list");
    draft.node(ids::HANDLES, "synthetic", "(Handle scope)", 0, |_| {});
    draft.element(ids::CODE, 1);
    draft.edge(ids::LOST, EdgeKind::Weak, "2");
    draft.object(ids::BUS, "EventEmitter", 40, serve);
    draft.edge(ids::LISTENERS, EdgeKind::Property, "now");
    draft.node(ids::LISTENERS, "array", "", 16 + 8 * sessions, |_| {});
    for at in 0..sessions {
        draft.element(ids::SESSIONS + 10 * at, at as u32);
    }
    draft.string(ids::SHORT, "sliced string", "a word", 32);
    draft.edge(ids::LONG, EdgeKind::Internal, "parent");
    draft.string(ids::LONG, "string", "a word, and many more", 100_000);
    draft.node(ids::CODE, "code", "handle", 400, |node| node.coarse_type = CoarseType::Script);
    draft.dom(ids::LIST, "<ul>", 120);
    draft.edge(ids::ITEM, EdgeKind::Element, "first");
    draft.dom(ids::ITEM, "<li>", 120);
    draft.object(ids::LOST, "Lost", 56, None);
    for at in 0..sessions {
        session(&mut draft, ids::SESSIONS + 10 * at, handle);
    }
    draft.0.finish().unwrap()
}

/// Adds a listener with its context, its session, and what that holds.
fn session(draft: &mut Draft, id: u64, handle: Option<FrameIndex>) {
    let class = draft.0.intern("Function").unwrap();
    draft.node(id, "closure", "listener", 64, |node| {
        (node.coarse_type, node.class) = (CoarseType::Object, Some(class));
        node.stack = handle.map(AllocationStack::At);
    });
    draft.edge(id + 2, EdgeKind::Internal, "context");
    draft.object(id + 2, "system / Context", 40, None);
    draft.edge(id + 4, EdgeKind::Context, "session");
    draft.object(id + 4, "Session", 48, handle);
    draft.edge(id + 6, EdgeKind::Property, "user");
    draft.edge(id + 8, EdgeKind::Property, "history");
    draft.string(id + 6, "string", "a user", 24);
    draft.node(id + 8, "array", "", 816, |_| {});
}

/// Writes a snapshot of a root and one object of 8 bytes.
fn write_object(path: &Path, class: &str, edge: &str) {
    let mut draft = Draft(GraphBuilder::new());
    draft.0.about.origin = Origin::V8;
    draft.node(1, "synthetic", "", 0, |_| {});
    draft.edge(3, EdgeKind::Property, edge);
    draft.object(3, class, 8, None);
    heapsnapshot::write(&draft.0.finish().unwrap(), File::create(path).unwrap()).unwrap();
}

#[test]
fn texts_of_the_heap_cannot_control_the_terminal() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ODD");
    write_object(&path, "Odd\x1b[2J", "a\x1b[2Jb");
    for line in ["heap node ODD @3", "heap paths ODD @3", "heap dominators ODD", "heap census ODD --list 9"] {
        let text = answered(line, &[("ODD", path.clone())]);
        assert!(text.contains("Odd\\u{1b}[2J") && !text.contains('\x1b'), "{text}");
    }
}

#[test]
fn changes_that_cancel_each_other_out_are_shown() {
    let directory = tempfile::tempdir().unwrap();
    let files = [("OLD", "First"), ("NEW", "Second")].map(|(name, class)| {
        let path = directory.path().join(name);
        write_object(&path, class, "it");
        (name, path)
    });
    let text = answered("heap diff OLD NEW --by coarseType,objectClass", &files);
    for row in ["0 B      0  objects", "-8 B     -1  ├─ First", "+8 B     +1  └─ Second"] {
        assert!(text.contains(row), "{text}");
    }
}

#[test]
fn heap_census() {
    golden("heap_census");
}

#[test]
fn heap_diff() {
    golden("heap_diff");
}

#[test]
fn heap_find() {
    golden("heap_find");
}

#[test]
fn heap_dominators() {
    golden("heap_dominators");
}

#[test]
fn heap_node() {
    golden("heap_node");
}

#[test]
fn heap_paths() {
    golden("heap_paths");
}

#[test]
fn heap_export() {
    golden("heap_export");
}

/// A snapshot that goes to the other format and back answers as before, as far as it can.
#[test]
fn exported_snapshots_are_read_by_all_verbs() {
    let heaps = Heaps::new();
    let there = heaps.path("there.fxsnapshot");
    let back = heaps.path("back.heapsnapshot");
    answered(&format!("heap export AFTER -o {}", there.display()), &heaps.files());
    answered(&format!("heap export {} -o {}", there.display(), back.display()), &heaps.files());
    let files = [("AFTER", heaps.path("AFTER")), ("THERE", there), ("BACK", back)];
    // The copies have neither what only weak edges hold, nor that the size of the root is 0.
    let census = |name: &str| {
        let text = answered(&format!("heap census {name} --by objectClass --only-retained"), &files);
        text.lines().filter(|line| !line.starts_with("without a known size")).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(census("THERE"), census("AFTER"));
    assert_eq!(census("BACK"), census("AFTER"));
    let retained = |name: &str| {
        let document: serde_json::Value =
            serde_json::from_str(&answered(&format!("heap dominators {name} 7 101 19 --json"), &files)).unwrap();
        document["nodes"].as_array().unwrap().iter().map(|node| node["retained"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(retained("THERE"), retained("AFTER"));
    assert_eq!(retained("BACK"), retained("AFTER"));
    // Only the owner may read the texts of a program.
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(heaps.path("there.fxsnapshot")).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0);
}

#[test]
fn a_format_must_be_known() {
    let heaps = Heaps::new();
    let target = heaps.path("out.bin");
    let (file, target) = (heaps.path("AFTER"), target.to_str().unwrap().to_owned());
    let words = |more: &[&str]| {
        let words = ["heapledger", "heap", "export", file.to_str().unwrap()];
        words.iter().chain(more).map(|word| std::ffi::OsString::from(*word)).collect::<Vec<_>>()
    };
    for (more, expected) in [
        (vec!["-o", target.as_str()], "does not say in which format to write"),
        (vec!["-o", "-", "--to", "fxsnapshot", "--json"], "cannot both go to stdout"),
        (vec!["-o", file.to_str().unwrap(), "--to", "fxsnapshot", "--force"], "read"),
    ] {
        let arguments = crate::args::parse(words(&more)).unwrap();
        let said = super::answer(&arguments.verb, &mut super::Output::into(Vec::new())).unwrap_err().to_string();
        assert!(said.contains(expected), "{more:?}: {said}");
    }
}

/// Verbs for recordings read snapshots, with stacks or not; those about time refuse them.
#[test]
fn a_snapshot_is_read_by_verbs_without_time() {
    let heaps = Heaps::new();
    heapsnapshot::write(&heap(5, false), File::create(heaps.path("PLAIN")).unwrap()).unwrap();
    for name in ["PLAIN", "FIREFOX", "AFTER"] {
        let input = crate::input::Input::map(&heaps.path(name)).unwrap();
        assert!(input.is_converted() && input.recording().is_ok());
        let refused = input.needs_history("see: heapledger heap census FILE").unwrap_err().to_string();
        assert!(refused.contains("HL0088") && refused.contains(&format!("heap census {}", input.path.display())));
    }
}
