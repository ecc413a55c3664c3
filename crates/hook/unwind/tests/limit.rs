//! Checks the stack tree at its limit, and its memory before that.

use heapledger_core::{NodeKind, StackId};
use heapledger_unwind::Sink;
use heapledger_unwind::modules::Module;
use heapledger_unwind::tree::{self, Place};

/// Counts announcements.
#[derive(Default)]
struct Told {
    nodes: u64,
    folded: u64,
}

impl Sink for Told {
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

fn child(parent: Place, number: u64, told: &mut Told) -> Place {
    tree::child(parent, NodeKind::Frame, 0x5555_0000_0000 + number * 16, told)
}

#[test]
fn a_full_tree_answers_with_what_it_has() {
    const LIMIT: u64 = 256 << 10;
    let many = if cfg!(miri) { 10_000 } else { 300_000 };
    assert!(tree::initialise());
    tree::limit(LIMIT);
    let mut told = Told::default();
    let first: Vec<Place> = (0..100).map(|number| child(Place::ROOT, number, &mut told)).collect();
    for number in 100..20_000 {
        child(Place::ROOT, number, &mut told);
    }
    assert!(told.folded > 0 && told.nodes + told.folded == 20_000 && tree::bytes() <= LIMIT);
    // For a child that the tree does not take, the parent is returned; existing nodes are found.
    let nodes = told.nodes;
    assert_eq!(child(first[7], 1, &mut told), first[7]);
    for (number, &place) in (0..).zip(&first) {
        assert_eq!(child(Place::ROOT, number, &mut told), place);
    }
    assert_eq!(told.nodes, nodes);
    // With a higher limit the tree grows again.
    tree::limit(u64::MAX);
    for number in 0..many {
        child(Place::ROOT, number, &mut told);
        let length = u64::from(tree::next_id().0);
        if length > 10_000 {
            assert!(tree::bytes() <= 48 * length, "{} bytes of {length} nodes", tree::bytes());
        }
    }
    assert_eq!(told.nodes, many);
    assert_ne!(child(first[7], 1, &mut told), first[7]);
}
