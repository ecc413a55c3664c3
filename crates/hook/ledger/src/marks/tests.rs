extern crate std;

use std::boxed::Box;
use std::collections::BTreeMap;
use std::vec::Vec;

use heapledger_core::ThreadId;
use heapledger_core::sample::Rate;
use heapledger_core::totals::Time;
use proptest::prelude::*;

use super::*;
use crate::shared::{Allocation, SharedLedger};

const THREAD: ThreadId = ThreadId(1);

fn allocation(key: Key, size: u64) -> Allocation {
    let (size, usable, stack) = (Bytes(size), Bytes(size + 8), StackId(7));
    Allocation { key, size, rate: Rate::EXACT, usable, stack, thread: THREAD, time: Time(0), stamp: TypeId::NONE }
}

fn mark(number: u32, is_kept: bool) -> Mark {
    Mark { reporter: TypeId(number % 3 + 1), stack: StackId(number), is_kept }
}

#[derive(Clone, Debug)]
enum Step {
    Allocate(u64),
    Free(u64),
    Mark(u64, u32, bool),
    Unmark(u64, u32),
    MoveTo(u64, u64),
    FailToMove(u64),
    Ignore(u64),
    Clear,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0_u64..40).prop_map(Step::Allocate),
        3 => (0_u64..40).prop_map(Step::Free),
        8 => (0_u64..40, 0_u32..500, prop::bool::weighted(0.4)).prop_map(|(key, number, kept)| Step::Mark(key, number, kept)),
        3 => (0_u64..40, 1_u32..4).prop_map(|(key, reporter)| Step::Unmark(key, reporter)),
        1 => (0_u64..40, 0_u64..40).prop_map(|(from, to)| Step::MoveTo(from, to)),
        1 => (0_u64..40).prop_map(Step::FailToMove),
        1 => (0_u64..40).prop_map(Step::Ignore),
        1 => Just(Step::Clear),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 128 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Marks are those of the live block, in the order in which they were made, and of nothing
    /// else.
    #[test]
    fn marks_are_of_live_blocks(steps in prop::collection::vec(step(), 0..if cfg!(miri) { 20 } else { 300 })) {
        let ledger = Box::new(SharedLedger::new());
        let mut model: BTreeMap<u64, Vec<Mark>> = BTreeMap::new();
        let key = |number: u64| Key(0x1000 + number * 64);
        for step in steps {
            match step {
                Step::Allocate(at) => {
                    // If a block is live there already, it was freed unseen.
                    let _ = ledger.allocate(&allocation(key(at), at)).unwrap();
                    model.insert(at, Vec::new());
                }
                Step::Free(at) => {
                    let _ = ledger.free(THREAD, key(at));
                    model.remove(&at);
                }
                Step::Mark(at, number, is_kept) => {
                    let new = mark(number, is_kept);
                    let expected = match model.get_mut(&at) {
                        None => Marked::NoBlock,
                        Some(marks) => {
                            marks.push(new);
                            if marks.len() == 1 { Marked::Once } else { Marked::Again }
                        }
                    };
                    prop_assert_eq!(ledger.mark(key(at), new, 0), Ok(expected));
                    if let Some(marks) = model.get_mut(&at) {
                        marks.truncate(2);
                    }
                }
                Step::Unmark(at, reporter) => {
                    let is_it = |mark: &Mark| mark.is_kept && mark.reporter.0 == reporter;
                    let known = model.get(&at).and_then(|marks| marks.iter().position(is_it));
                    prop_assert_eq!(ledger.unmark(key(at), TypeId(reporter)), known.is_some());
                    if let (Some(marks), Some(known)) = (model.get_mut(&at), known) {
                        marks.remove(known);
                    }
                }
                Step::MoveTo(from, to) => {
                    let pending = ledger.begin_realloc(THREAD, key(from));
                    model.remove(&from);
                    let _ = ledger.finish_realloc(pending, &allocation(key(to), to)).unwrap();
                    model.insert(to, Vec::new());
                }
                Step::FailToMove(at) => {
                    let pending = ledger.begin_realloc(THREAD, key(at));
                    prop_assert_eq!(ledger.marks(key(at)), [None; 2]);
                    ledger.cancel_realloc(pending);
                }
                Step::Ignore(at) => {
                    let _ = ledger.ignore(key(at)).unwrap();
                    model.remove(&at);
                }
                Step::Clear => {
                    ledger.clear_marks();
                    model.values_mut().for_each(|marks| marks.retain(|mark| mark.is_kept));
                }
            }
            let mut expected = Reported::default();
            for block in ledger.blocks() {
                let marks = model.get(&((block.key.0 - 0x1000) / 64)).cloned().unwrap_or_default();
                prop_assert_eq!(ledger.marks(block.key), [marks.first().copied(), marks.get(1).copied()]);
                expected.add(&block, ledger.marks(block.key));
            }
            prop_assert_eq!(ledger.reported(), expected);
        }
        // Freed blocks leave nothing behind.
        ledger.clear();
        prop_assert_eq!((ledger.bytes_mapped(), ledger.reported()), (Bytes(0), Reported::default()));
    }
}

#[test]
fn no_mark_takes_no_memory_and_no_memory_is_no_mark() {
    let ledger = Box::new(SharedLedger::new());
    for number in 0..100 {
        let _ = ledger.allocate(&allocation(Key(0x1000 + number * 16), 16)).unwrap();
    }
    let before = ledger.bytes_mapped();
    ledger.clear_marks();
    assert_eq!(ledger.marks(Key(0x1000)), [None; 2]);
    assert_eq!(ledger.bytes_mapped(), before);

    ledger.set_bytes_max(before);
    assert_eq!(ledger.mark(Key(0x1000), mark(1, false), 0), Err(OutOfMemory));
    assert_eq!((ledger.marks(Key(0x1000)), ledger.reported().unreported.blocks), ([None; 2], Blocks(100)));
    ledger.set_bytes_max(Bytes(u64::MAX));
    assert_eq!(ledger.mark(Key(0x1000), mark(1, false), 0), Ok(Marked::Once));
    assert!(ledger.bytes_mapped() > before);
    ledger.clear_marks();
    assert_eq!(ledger.bytes_mapped(), before);
}
