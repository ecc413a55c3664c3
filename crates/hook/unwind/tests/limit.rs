//! Checks the stack tree at its limit, and its memory before that.

use heapledger_core::{NodeKind, StackId};
use heapledger_unwind::Sink;
use heapledger_unwind::modules::Module;
use heapledger_unwind::tree::{self, NodeRef};

/// Counts announcements.
#[derive(Default)]
struct Announcements {
    nodes: u64,
    folded: u64,
}

impl Sink for Announcements {
    fn node(&mut self, _: StackId, _: StackId, _: NodeKind, _: u64) -> bool {
        self.nodes += 1;
        true
    }

    fn folded(&mut self) {
        self.folded += 1;
    }

    fn module(&mut self, _: &Module<'_>) -> bool {
        true
    }
}

fn child(parent: NodeRef, number: u64, announced: &mut Announcements) -> NodeRef {
    tree::child(parent, NodeKind::Frame, 0x5555_0000_0000 + number * 16, announced)
}

#[test]
fn a_full_tree_answers_with_what_it_has() {
    const LIMIT: u64 = 256 << 10;
    let many = if cfg!(miri) { 10_000 } else { 300_000 };
    assert!(tree::initialise());
    tree::limit(LIMIT);
    let mut announced = Announcements::default();
    let first: Vec<NodeRef> = (0..100).map(|number| child(NodeRef::ROOT, number, &mut announced)).collect();
    for number in 100..20_000 {
        child(NodeRef::ROOT, number, &mut announced);
    }
    assert!(announced.folded > 0 && announced.nodes + announced.folded == 20_000 && tree::bytes() <= LIMIT);
    // For a child that the tree does not take, the parent is returned; existing nodes are found.
    let nodes = announced.nodes;
    assert_eq!(child(first[7], 1, &mut announced), first[7]);
    for (number, &node) in (0..).zip(&first) {
        assert_eq!(child(NodeRef::ROOT, number, &mut announced), node);
    }
    assert_eq!(announced.nodes, nodes);
    // With a higher limit the tree grows again.
    tree::limit(u64::MAX);
    for number in 0..many {
        child(NodeRef::ROOT, number, &mut announced);
        let length = u64::from(tree::next_id().0);
        if length > 10_000 {
            assert!(tree::bytes() <= 48 * length, "{} bytes of {length} nodes", tree::bytes());
        }
    }
    assert_eq!(announced.nodes, many);
    assert_ne!(child(first[7], 1, &mut announced), first[7]);
}
