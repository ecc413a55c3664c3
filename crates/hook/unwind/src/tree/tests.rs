use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::vec::Vec;

use super::*;
use crate::modules::Module;

/// One test at a time: there is one tree, and while another thread replaces its table a new
/// node may not be found.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps the announced nodes.
#[derive(Default)]
struct Announced(Vec<(u32, u32, u64)>);

impl Sink for Announced {
    fn node(&mut self, id: StackId, parent: StackId, _: NodeKind, address: u64) -> bool {
        self.0.push((id.0, parent.0, address));
        true
    }

    fn module(&mut self, _: &Module<'_>) -> bool {
        true
    }
}

/// An entry returns its id, and its tag fits one of 64 hashes.
#[test]
fn tags_distinguish_entries() {
    for id in [1, 77, StackId::PROGRAM_END.0, StackId::MAX.0].map(StackId) {
        for tag in 0..64_u64 {
            let entry = Entry::new(id, tag << 58 | 0x3ff_ffff << 32);
            assert_eq!(entry.id(), id.0);
            let fitting: Vec<u64> = (0..64).filter(|other| entry.may_be(other << 58)).collect();
            assert_eq!(fitting, [tag]);
        }
    }
}

/// The situation while the recorder is stalled: the node is announced when it is needed next.
#[test]
fn a_node_that_could_not_be_announced_has_not_been_seen() {
    struct Refusing;
    impl Sink for Refusing {
        fn node(&mut self, _: StackId, _: StackId, _: NodeKind, _: u64) -> bool {
            false
        }

        fn module(&mut self, _: &Module<'_>) -> bool {
            false
        }
    }
    const ADDRESS: u64 = 0x7fff_1234_5678;
    let _alone = alone();
    assert!(initialise());
    assert_eq!(child(NodeRef::ROOT, NodeKind::Frame, ADDRESS, &mut Refusing), NodeRef::ROOT);
    let mut announced = Announced::default();
    let node = child(NodeRef::ROOT, NodeKind::Frame, ADDRESS, &mut announced);
    assert_eq!(announced.0, [(node.id().0, 0, ADDRESS)]);
    assert_eq!(child(NodeRef::ROOT, NodeKind::Frame, ADDRESS, &mut Refusing), node);
}

/// The situation of a thread that gets no processor between reading the table and inserting.
#[test]
fn a_table_that_is_replaced_meanwhile_is_not_a_full_one() {
    let _alone = alone();
    assert!(initialise());
    let old = View::now().unwrap();
    for address in 1 << 40.. {
        child(NodeRef::ROOT, NodeKind::Frame, address, &mut Announced::default());
        if !ptr::eq(View::now().unwrap().0, old.0) {
            break;
        }
    }
    let mut announced = Announced::default();
    let made = insert_from(old, NodeRef::ROOT, NodeKind::Frame, 0x7fff_8765_4321, &mut announced).unwrap();
    assert_eq!(announced.0, [(made.id().0, 0, 0x7fff_8765_4321)]);
}

/// The situation while the thread that makes a larger table gets no processor: nodes have no
/// entries then, and the next table has room for all.
#[test]
fn a_table_that_others_fill_while_it_grows_is_not_a_full_one() {
    let _alone = alone();
    assert!(initialise());
    let growing = GROWING.lock();
    let (table, mut announced) = (View::now().unwrap().0, Announced::default());
    let mut make = |addresses: core::ops::Range<u64>| {
        for address in addresses {
            assert_ne!(child(NodeRef::ROOT, NodeKind::Frame, address, &mut announced), NodeRef::ROOT, "{address}");
        }
    };
    make(1 << 41..(1 << 41) + table.slots() * 2);
    drop(growing);
    make(1 << 42..(1 << 42) + 1);
    let now = View::now().unwrap().0;
    assert!(!is_crowded(next_id().0, now), "{} of {}", next_id().0, now.slots());
}

/// Paths from the root, interned by several threads at once, through several growths: every id
/// given out leads back to its own path, and no id is announced twice.
#[test]
fn ids_lead_back_to_their_paths() {
    const THREADS: u64 = 4;
    const PATHS: u64 = if cfg!(miri) { 50 } else { 20_000 };
    let _alone = alone();
    assert!(initialise());
    let all = Mutex::new((Announced::default(), Vec::new()));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let all = &all;
            scope.spawn(move || {
                let (mut announced, mut given) = (Announced::default(), Vec::new());
                for number in 0..PATHS {
                    // Half of the paths are shared by all threads.
                    let salt = if number % 2 == 0 { 0 } else { thread + 1 };
                    let path: Vec<u64> = (0..6_u64)
                        .map(|depth| 4096 + (number >> (10 - 2 * depth.min(5))) * 64 + salt * 7 + depth)
                        .collect();
                    let leaf = path
                        .iter()
                        .fold(NodeRef::ROOT, |at, &address| child(at, NodeKind::Frame, address, &mut announced));
                    given.push((leaf.id().0, path));
                }
                let mut all = all.lock().unwrap();
                all.0.0.extend(announced.0);
                all.1.extend(given);
            });
        }
    });
    let (announced, given) = all.into_inner().unwrap();
    let nodes: HashMap<u32, (u32, u64)> =
        announced.0.iter().map(|&(id, parent, address)| (id, (parent, address))).collect();
    assert_eq!(nodes.len(), announced.0.len(), "an id was given twice");
    for (mut id, path) in given {
        let mut back = Vec::new();
        while id != 0 {
            let (parent, address) = nodes[&id];
            back.push(address);
            id = parent;
        }
        back.reverse();
        assert_eq!(back, path);
    }
}
