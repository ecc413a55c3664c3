//! Measuring in a program that uses Heapledger's allocator, without a ledger.

use std::collections::BTreeMap;

use heapledger_heap::HeapAllocator;
use heapledger_measure::{HeapSize, Meter};

#[global_allocator]
static ALLOCATOR: HeapAllocator = HeapAllocator;

#[test]
fn blocks_are_asked_for_by_any_address_in_them() {
    let mut meter = Meter::new();
    let bytes: Vec<u8> = Vec::with_capacity(1000);
    assert_eq!(bytes.heap_size(&mut meter).0, 1024);
    // The nodes of a tree are found by the addresses of elements.
    let tree: BTreeMap<u64, u64> = (0..1000).map(|number| (number, number)).collect();
    assert!(tree.heap_size(&mut meter).0 > 1000 * 16);
    assert_eq!(meter.computed_bytes().0, 0);
    // Addresses that are not in a block are not known.
    let local = 0_u8;
    assert_eq!(meter.block_around(&raw const local), None);
}
