//! The stack tree that begins anew: for another reader, all nodes are unknown.

use heapledger_core::context::Name;
use heapledger_core::{NodeKind, StackId};
use heapledger_unwind::modules::Module;
use heapledger_unwind::tree::{self, NodeRef};
use heapledger_unwind::{Sink, nodes};

/// Keeps the announced nodes.
#[derive(Default)]
struct Announced(Vec<(u32, u32, u64)>);

impl Sink for Announced {
    fn node(&mut self, id: StackId, parent: StackId, _: NodeKind, address: u64) -> bool {
        self.0.push((id.0, parent.0, address));
        true
    }

    fn folded(&mut self) {
        panic!("there is room");
    }

    fn text(&mut self, _: &'static Name) {}

    fn module(&mut self, _: &Module<'_>) -> bool {
        true
    }
}

/// Interns a thousand stacks of three frames, and returns what was announced for them.
fn intern(from: u64) -> Vec<(u32, u32, u64)> {
    let mut sink = Announced::default();
    for at in from..from + 1000 {
        let mut node = NodeRef::ROOT;
        for frame in [1, 2 + at % 10, 100 + at] {
            node = tree::child(node, NodeKind::Frame, 0x1000 * frame, &mut sink);
        }
    }
    sink.0
}

#[test]
fn nodes_are_announced_anew() {
    assert!(tree::initialise());
    let first = intern(0);
    assert_eq!(first.len(), 1 + 10 + 1000);
    assert_eq!(intern(0), []);
    for _ in 0..100 {
        // SAFETY: `restart` requires that no other thread uses the tree: this is the only test of
        // this program.
        assert!(unsafe { tree::restart() });
        assert_eq!(tree::next_id(), StackId(1));
        assert_eq!(nodes::get(StackId(1)), None);
        assert_eq!(intern(0), first);
        // More than the first table holds: it grows.
        assert_eq!(intern(50_000).len(), 1000);
        assert_eq!(intern(0), []);
    }
}
