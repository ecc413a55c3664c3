extern crate std;

use std::boxed::Box;
use std::vec::Vec;

use heapledger_core::sample::Rate;
use heapledger_core::totals::Time;
use heapledger_core::{StackId, ThreadId, TypeId};
use proptest::prelude::*;

use super::*;
use crate::shared::{Allocation, SharedLedger};
use crate::snapshot::Snapshot;

const PAGE: u64 = 4096;

/// True if there is memory at an address.
fn is_there(address: u64) -> bool {
    address / PAGE % 5 != 3
}

/// Reads memory in which each word holds its own address.
fn read(pieces: &[[u64; 2]], words: &mut [u64]) -> usize {
    let mut slots = words.iter_mut();
    let mut read = 0;
    for &[address, bytes] in pieces {
        assert!(address % 8 == 0 && bytes % 8 == 0 && bytes > 0);
        for at in (address..address + bytes).step_by(8) {
            let Some(slot) = slots.next().filter(|_| is_there(at)) else { return read };
            *slot = at;
            read += 8;
        }
    }
    read
}

fn allocate(ledger: &SharedLedger, key: Key, size: u64) {
    let (size, stack, thread) = (Bytes(size), StackId(7), ThreadId(1));
    let new = Allocation { key, size, rate: Rate::EXACT, usable: size, stack, thread, time: Time(0), stamp: TypeId(0) };
    let _ = ledger.allocate(&new).unwrap();
}

fn snapshot(ledger: &SharedLedger, bytes_max: u64) -> Snapshot {
    ledger.snapshot(|| 0, Some((Bytes(bytes_max), read))).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// Every block whose memory is there is found with its contents, whatever lies beside it.
    #[test]
    fn existing_memory_is_read(blocks in prop::collection::vec((0_u64..8, 0_u64..9000), 0..400)) {
        let ledger = Box::new(SharedLedger::new());
        let mut address = PAGE;
        let mut expected = Vec::new();
        for (gap, size) in blocks {
            // Most are small, as blocks are.
            let size = if size < 8000 { size % 100 } else { size };
            address += gap * 16;
            allocate(&ledger, Key(address), size);
            expected.push((Key(address), size));
            address = (address + size).next_multiple_of(16);
        }
        let snapshot = snapshot(&ledger, u64::MAX);
        for (key, size) in expected {
            let words: Vec<u64> = (key.0..).step_by(8).take(size as usize / 8).collect();
            let found = snapshot.contents(key, Bytes(size));
            let is_there = words.iter().copied().all(is_there);
            prop_assert_eq!(found, is_there.then_some(&*words), "{:?} of {} bytes", key, size);
        }
    }
}

#[test]
fn only_the_heap_and_only_as_much_as_may_be() {
    let ledger = Box::new(SharedLedger::new());
    for number in 0..100 {
        allocate(&ledger, Key(0x10_0000 + number * 128), 64);
    }
    allocate(&ledger, Key::in_pool(1, 0x20_0000), 64);
    allocate(&ledger, Key(0x30_0000), (BLOCK_WORDS_MAX + 1) * 8);
    let _ = ledger.ignore(Key(0x40_0000)).unwrap();
    let found = |snapshot: &Snapshot| {
        let blocks = snapshot.blocks().filter(|(block, _)| snapshot.contents(block.key, block.size).is_some());
        blocks.map(|(block, _)| block.key.0).max().map(|last| (last - 0x10_0000) / 128 + 1).unwrap_or(0)
    };
    // Three of five pages are not there; the first ones are.
    assert!(is_there(0x10_0000) && is_there(0x10_0000 + 100 * 128));
    assert_eq!(found(&snapshot(&ledger, u64::MAX)), 100);
    // Words between blocks take room, if reading them is cheaper.
    assert_eq!([640, 575, 63, 0].map(|bytes_max| found(&snapshot(&ledger, bytes_max))), [6, 5, 0, 0]);
    assert!(ledger.snapshot(|| 0, None).unwrap().contents(Key(0x10_0000), Bytes(64)).is_none());
}
