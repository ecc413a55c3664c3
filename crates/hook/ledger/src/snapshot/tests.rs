extern crate std;

use std::boxed::Box;
use std::collections::BTreeMap;
use std::vec::Vec;

use heapledger_core::sample::Rate;
use heapledger_core::totals::Time;
use heapledger_core::{StackId, ThreadId, TypeId};

use super::*;
use crate::mapped::source::standard::with_mappings;
use crate::marks::Mark;
use crate::shared::Allocation;

const THREAD: ThreadId = ThreadId(1);

fn allocate(ledger: &SharedLedger, key: u64, size: u64) -> Result<(), OutOfMemory> {
    let new = Allocation {
        key: Key(key),
        size: Bytes(size),
        rate: Rate::EXACT,
        usable: Bytes(size + 8),
        stack: StackId(7),
        thread: THREAD,
        time: Time(0),
        stamp: TypeId(3),
    };
    ledger.allocate(&new).map(drop)
}

fn mark(number: u32) -> Mark {
    Mark { reporter: TypeId(number), stack: StackId(number), is_kept: false }
}

/// Later events are not in a snapshot.
#[test]
fn a_snapshot_has_what_was_live_and_stays_as_it_is() {
    let ledger = Box::new(SharedLedger::new());
    let count = if cfg!(miri) { 100 } else { 20_000 };
    for number in 0..count {
        allocate(&ledger, 0x1000 + number * 48, number).unwrap();
        if number % 3 == 0 {
            let _ = ledger.mark(Key(0x1000 + number * 48), mark(number as u32 + 1), 0).unwrap();
        }
        if number % 5 == 0 {
            ledger.free(THREAD, Key(0x1000 + number * 48));
        }
    }
    let _ = ledger.ignore(Key(0x10)).unwrap();
    let expected: BTreeMap<Key, _> =
        ledger.blocks().map(|block| (block.key, (block, ledger.marks(block.key)))).collect();
    let snapshot = ledger.snapshot(|| 0, None).unwrap();
    ledger.clear();
    allocate(&ledger, 0x1000, 1).unwrap();

    let found: Vec<_> = snapshot.blocks().collect();
    assert_eq!((found.len(), expected.len() as u64), (expected.len(), count - count.div_ceil(5)));
    for (block, marks) in found {
        assert_eq!(expected.get(&block.key), Some(&(block, marks)));
    }
    let (counts, live, _) = snapshot.totals();
    assert_eq!((counts.allocations.0, live.blocks_live.0), (count, expected.len() as u64));
    assert_eq!(live.bytes_live.0, expected.values().map(|(block, _)| block.size.0).sum::<u64>());
}

/// A table that grows between the two looks at it is copied all the same, and so is one that has
/// become smaller.
#[test]
fn tables_may_change_while_room_is_made() {
    let ledger = Box::new(SharedLedger::new());
    for (before, after) in [(0_u64, 3000_u64), (3000, 10), (10, 0)] {
        ledger.clear();
        (0..before).for_each(|number| allocate(&ledger, 0x1000 + number * 16, 16).unwrap());
        // The clock is asked after room has been made, and before the locks are taken.
        let asked = std::cell::Cell::new(0);
        let snapshot = ledger.snapshot(
            || {
                asked.set(asked.get() + 1);
                if asked.get() == 1 {
                    ledger.clear();
                    (0..after).for_each(|number| allocate(&ledger, 0x1000 + number * 16, 16).unwrap());
                }
                asked.get() * 10
            },
            None,
        );
        let snapshot = snapshot.unwrap();
        assert_eq!((snapshot.blocks().count() as u64, snapshot.pause()), (after, 10));
    }
}

#[test]
fn without_memory_there_is_no_snapshot_and_nobody_waits_for_ever() {
    let ledger = Box::new(SharedLedger::new());
    (0..1000).for_each(|number| allocate(&ledger, 0x1000 + number * 16, 16).unwrap());
    for mappings in [0, 1, 5] {
        assert!(with_mappings(mappings, || ledger.snapshot(|| 0, None)).is_err());
        // No lock is held.
        allocate(&ledger, 0x100_0000, 1).unwrap();
        ledger.free(THREAD, Key(0x100_0000));
    }
    assert_eq!(ledger.snapshot(|| 0, None).unwrap().blocks().count(), 1000);
}
