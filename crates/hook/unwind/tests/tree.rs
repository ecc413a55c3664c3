//! Checks the stack tree against a map of whole paths: one id per path, and each id leads back to
//! its path.

use std::collections::HashMap;
use std::sync::Mutex;

use heapledger_core::{NodeKind, StackId};
use heapledger_unwind::modules::Module;
use heapledger_unwind::tree::{self, NodeRef};
use heapledger_unwind::{Sink, rules};
use proptest::prelude::*;

/// The announced nodes, and the model; the tree is shared by the whole process, so both live as
/// long.
#[derive(Default)]
struct State {
    nodes: HashMap<StackId, (StackId, u64)>,
    model: HashMap<Vec<u64>, StackId>,
}

impl Sink for State {
    fn node(&mut self, id: StackId, parent: StackId, kind: NodeKind, address: u64) -> bool {
        assert_eq!(kind, NodeKind::Frame);
        assert!(parent == StackId::ROOT || self.nodes.contains_key(&parent), "announced before its parent");
        assert!(self.nodes.insert(id, (parent, address)).is_none(), "given out twice");
        true
    }

    fn module(&mut self, _: &Module<'_>) -> bool {
        true
    }
}

static STATE: Mutex<Option<State>> = Mutex::new(None);

/// Returns paths with few addresses, so that they share prefixes, but so many paths that the table
/// grows.
fn paths() -> impl Strategy<Value = Vec<Vec<u64>>> {
    let address = (1_u64..40).prop_map(|number| 0x5555_0000_0000 + number * 0x1003);
    prop::collection::vec(prop::collection::vec(address, 1..12), 1..400)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn one_id_per_path(paths in paths()) {
        prop_assert!(rules::initialise() && tree::initialise());
        let mut state = STATE.lock().unwrap();
        let state = state.get_or_insert_default();
        for path in paths {
            let mut node = NodeRef::ROOT;
            for (depth, &address) in path.iter().enumerate() {
                node = tree::child(node, NodeKind::Frame, address, state);
                let known = state.model.insert(path[..=depth].to_vec(), node.id());
                prop_assert!(known.is_none_or(|known| known == node.id()), "two ids for one path");
            }
            let (mut id, mut back) = (node.id(), Vec::new());
            while id != StackId::ROOT {
                let (parent, address) = state.nodes[&id];
                back.push(address);
                id = parent;
            }
            back.reverse();
            prop_assert_eq!(back, path);
        }
        prop_assert_eq!(state.nodes.len(), state.model.len());
    }
}
