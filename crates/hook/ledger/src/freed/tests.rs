extern crate std;

use std::boxed::Box;
use std::collections::BTreeMap;
use std::vec::Vec;

use heapledger_core::ThreadId;
use heapledger_core::sample::Rate;
use heapledger_core::totals::Time;

use super::*;
use crate::shared::{Allocation, SharedLedger};

const THREAD: ThreadId = ThreadId(1);

/// Returns an allocation whose properties all follow from its number.
fn allocation(number: u64) -> Allocation {
    let (size, stack, stamp) = (Bytes(number % 7), StackId(number as u32 % 11), TypeId(number as u32 % 3));
    let usable = Bytes(size.0 + 8 * (number % 2));
    let (key, rate) = (Key(0x1000 + number * 16), Rate::EXACT);
    Allocation { key, size, rate, usable, stack, thread: THREAD, time: Time(0), stamp }
}

fn freed(ledger: &SharedLedger) -> (Vec<FreedBlocks>, u64) {
    let snapshot = ledger.snapshot(|| 0, None).unwrap();
    (snapshot.freed().collect(), snapshot.freed_lost())
}

/// However a block is freed, it is one more of its kind.
#[test]
fn freed_blocks_are_counted_by_what_they_have_in_common() {
    let ledger = Box::new(SharedLedger::new());
    let mut expected: BTreeMap<_, u64> = BTreeMap::new();
    for is_kept in [false, true] {
        ledger.keep_freed(is_kept);
        for number in 0..if cfg!(miri) { 200 } else { 3000 } {
            let new = allocation(number);
            let _ = ledger.allocate(&new).unwrap();
            match number % 5 {
                0 => _ = ledger.free(THREAD, new.key),
                1 => {
                    let pending = ledger.begin_realloc(THREAD, new.key);
                    let _ =
                        ledger.finish_realloc(pending, &Allocation { key: Key(0x8000_0000 + number), ..new }).unwrap();
                }
                2 => {
                    let pending = ledger.begin_realloc(THREAD, new.key);
                    ledger.cancel_realloc(pending);
                    continue;
                }
                3 => _ = ledger.free_if_known(THREAD, new.key),
                _ => continue,
            }
            if is_kept {
                *expected.entry((new.size, new.usable, new.stack, new.stamp)).or_default() += 1;
            }
        }
        // A block that is untracked is not counted.
        let _ = ledger.allocate(&allocation(0)).unwrap();
        let _ = ledger.back(THREAD, allocation(0).key, 1);
        let _ = ledger.free(THREAD, allocation(0).key);
        let (found, lost) = freed(&ledger);
        let as_key = |one: &FreedBlocks| ((one.size, one.usable, one.stack, one.stamp), one.blocks.0);
        assert_eq!(
            (found.iter().map(as_key).collect::<BTreeMap<_, _>>(), found.len(), lost),
            (expected.clone(), expected.len(), 0)
        );
        ledger.clear();
        assert_eq!(freed(&ledger), (Vec::new(), 0));
    }
    assert!(cfg!(miri) || expected.len() == 7 * 11 * 3 * 2);
}

#[test]
fn blocks_without_room_are_counted_as_lost() {
    let ledger = Box::new(SharedLedger::new());
    ledger.keep_freed(true);
    let _ = ledger.allocate(&allocation(1)).unwrap();
    ledger.set_bytes_max(ledger.bytes_mapped());
    let _ = ledger.free(THREAD, allocation(1).key);
    assert_eq!(freed(&ledger), (Vec::new(), 1));
    ledger.set_bytes_max(Bytes(u64::MAX));
    let _ = ledger.allocate(&allocation(1)).unwrap();
    let _ = ledger.free(THREAD, allocation(1).key);
    assert_eq!((freed(&ledger).0.len(), freed(&ledger).1), (1, 1));
}

/// Sampled blocks count with their weights, at each rate.
#[test]
fn sampled_blocks_count_with_their_weights() {
    let ledger = Box::new(SharedLedger::new());
    ledger.keep_freed(true);
    let mut expected = BTreeMap::new();
    for number in 0..300 {
        let rate = Rate::from_logarithm([0, 6, 10][number as usize % 3]);
        let (size, usable, stack) = (Bytes(24), Bytes(24), StackId(1));
        let new = Allocation { size, usable, stack, rate, stamp: TypeId::NONE, ..allocation(number) };
        let _ = ledger.allocate(&new).unwrap();
        let block = ledger.get(new.key).unwrap();
        assert_eq!((block.rate, block.weight().0 > 1), (rate, rate != Rate::EXACT));
        *expected.entry(rate).or_insert(0) += block.weight().0;
        let _ = ledger.free(THREAD, new.key);
    }
    let mut found: Vec<_> = freed(&ledger).0.iter().map(|one| (one.blocks.0, one.weight.0)).collect();
    found.sort_unstable();
    assert_eq!(found, expected.into_values().map(|weight| (100, weight)).collect::<Vec<_>>());
}
