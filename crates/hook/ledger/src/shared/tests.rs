extern crate std;

use std::vec::Vec;

use super::*;

const A: ThreadId = ThreadId(0);

fn new(key: u64, size: u64) -> Allocation {
    Allocation {
        key: Key(key),
        size: Bytes(size),
        rate: Rate::EXACT,
        usable: Bytes(size),
        stack: StackId(7),
        thread: A,
        time: Time(key),
        stamp: TypeId::NONE,
    }
}

#[test]
fn blocks_are_found_from_within() {
    static LEDGER: SharedLedger = SharedLedger::new();
    for (key, size) in [(0x1000, 16), (0x1010, 24), (0x2ff0, 4000), (0x10_0000, 1 << 20), (0x40_0000, 5000)] {
        let _ = LEDGER.allocate(&new(key, size)).unwrap();
    }
    for block in LEDGER.blocks().collect::<Vec<_>>() {
        let start = block.key.0;
        for address in [start, start + block.size.0 / 2, start + block.size.0 - 1] {
            assert_eq!(LEDGER.block_at(address), Some(block));
        }
        assert!(LEDGER.block_at(start + block.size.0).is_none_or(|other| other.key.0 == start + block.size.0));
    }
    assert_eq!(LEDGER.blocks().count(), 5);
    assert_eq!(LEDGER.block_at(0xfff), None);
}
