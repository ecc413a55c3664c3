//! Checks contexts in the stack tree against a model: a leaf leads back to its stack and to the
//! scopes that the thread was in.

use std::collections::{HashMap, HashSet};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Mutex;

use heapledger_core::context::{self, Category, Name, ScopeFrame, ScopeStackCell};
use heapledger_core::{NodeKind, StackId};
use heapledger_unwind::context::Contexts;
use heapledger_unwind::modules::{self, Module};
use heapledger_unwind::{Sink, rules, tree};
use proptest::prelude::*;

static CATEGORY: Category = Category::new("category");
static NAMES: [Name; 3] = [Name::new("one"), Name::new("two").of_task(), Name::new("three").in_category(&CATEGORY)];
static VALUES: [Name; 2] = [Name::new("k=1"), Name::new("k=2")];

/// The announced nodes and names; the tree is shared by the whole process.
#[derive(Default)]
struct Announced {
    nodes: HashMap<StackId, (StackId, NodeKind, u64)>,
    texts: HashSet<u64>,
}

impl Sink for Announced {
    fn node(&mut self, id: StackId, parent: StackId, kind: NodeKind, address: u64) -> bool {
        assert!(parent == StackId::ROOT || self.nodes.contains_key(&parent), "announced before its parent");
        assert!(!kind.has_text() || self.texts.contains(&address), "announced before its text");
        if kind == NodeKind::Context {
            assert!(self.nodes.contains_key(&StackId(address as u32)), "announced before its context");
        }
        assert!(self.nodes.insert(id, (parent, kind, address)).is_none(), "given out twice");
        true
    }

    fn text(&mut self, name: &'static Name) {
        self.texts.insert(ptr::from_ref(name) as u64);
    }

    fn module(&mut self, _: &Module<'_>) -> bool {
        true
    }
}

static ANNOUNCED: Mutex<Option<Announced>> = Mutex::new(None);

impl Announced {
    /// Returns the addresses on the path from the root to a path's innermost node, outermost first.
    fn path(&self, mut id: StackId) -> Vec<(NodeKind, u64)> {
        let mut path = Vec::new();
        while id != StackId::ROOT {
            let (parent, kind, address) = self.nodes[&id];
            if kind == NodeKind::Epoch {
                assert_eq!((parent, address), (StackId::ROOT, u64::from(modules::epoch())));
            } else {
                path.push((kind, address));
            }
            id = parent;
        }
        path.reverse();
        path
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Enter(usize, Option<usize>),
    Barrier,
    /// Leaves this number of scopes at once.
    Leave(usize),
    /// An allocation of this stack, by one of two threads that are in the same scopes.
    Take(u64, usize),
    /// A thread forgets what it remembers.
    Forget(usize),
    /// A module may have been unloaded: everything is announced again.
    Unload,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0_usize..3, prop::option::of(0_usize..2)).prop_map(|(name, value)| Step::Enter(name, value)),
        1 => Just(Step::Barrier),
        3 => (1_usize..4).prop_map(Step::Leave),
        8 => (1_u64..6, 0_usize..2).prop_map(|(stack, thread)| Step::Take(stack, thread)),
        1 => (0_usize..2).prop_map(Step::Forget),
        1 => Just(Step::Unload),
    ];
    prop::collection::vec(step, 1..300)
}

fn memory() -> Box<Contexts> {
    // SAFETY: `assume_init` requires a valid value: zeroed memory is a valid `Contexts`, as its
    // documentation says.
    unsafe { Box::new(MaybeUninit::<Contexts>::zeroed().assume_init()) }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 80, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn leaves_lead_back(steps in steps()) {
        prop_assert!(rules::initialise() && tree::initialise());
        let mut announced = ANNOUNCED.lock().unwrap();
        let announced = announced.get_or_insert_default();
        let (stack, mut memories, mut model) = (ScopeStackCell::new(), [memory(), memory()], Vec::new());
        for step in steps {
            let mut enter = |frame| {
                // SAFETY: `enter` requires the calling thread's own stack: `stack` is a local,
                // which only this thread uses, through its address.
                let depth = unsafe { context::enter(stack.get(), frame) };
                model.push((frame, depth));
            };
            match step {
                Step::Enter(name, None) => enter(ScopeFrame::new(&NAMES[name])),
                Step::Enter(name, Some(value)) => enter(ScopeFrame::with_value(&NAMES[name], &VALUES[value])),
                Step::Barrier => enter(ScopeFrame::BARRIER),
                Step::Leave(count) => {
                    let left = model.split_off(model.len().saturating_sub(count));
                    if let Some((_, depth)) = left.first() {
                        // SAFETY: `leave` requires the calling thread's own stack: `stack` is a
                        // local, which only this thread uses, through its address.
                        unsafe { context::leave(stack.get(), *depth) };
                    }
                }
                Step::Forget(thread) => memories[thread].forget(),
                Step::Unload => modules::advance_epoch(),
                Step::Take(number, thread) => {
                    let id = tree::child(tree::NodeRef::ROOT, NodeKind::Frame, 0x1000 + number, announced).id();
                    // SAFETY: `leaf` requires the calling thread's own stack, in which all names
                    // are static: `stack` is a local, and its frames are from `NAMES` and `VALUES`.
                    let leaf = unsafe { memories[thread].leaf(stack.get(), id, announced) };
                    let kept = &model[..model.len().min(context::DEPTH_MAX)];
                    let from = kept.iter().rposition(|(frame, _)| *frame == ScopeFrame::BARRIER).map_or(0, |at| at + 1);
                    let expected: Vec<_> = kept[from..]
                        .iter()
                        .flat_map(|(frame, _)| [(NodeKind::Scope, frame.name), (NodeKind::Value, frame.value)])
                        .filter(|(_, name)| !name.is_null())
                        .map(|(kind, name)| (kind, name as u64))
                        .collect();
                    if expected.is_empty() {
                        prop_assert_eq!(leaf, id);
                    } else {
                        let (parent, kind, innermost) = announced.nodes[&leaf];
                        prop_assert_eq!((parent, kind), (id, NodeKind::Context));
                        prop_assert_eq!(announced.path(StackId(innermost as u32)), expected);
                    }
                }
            }
        }
        // One leaf for a stack and a context, one node for a scope in a scope, whichever thread
        // made it.
        let mut distinct = HashSet::new();
        prop_assert!(announced.nodes.values().all(|node| distinct.insert((node.0, node.1 as u8, node.2))));
        prop_assert!(announced.texts.len() <= NAMES.len() + VALUES.len() + 1);
    }
}
