//! Memory that was freed is returned to the system: in a process of its own, whose resident memory
//! nobody else changes.

use std::{fs, hint, thread};

#[global_allocator]
static ALLOCATOR: heapledger_heap::HeapAllocator = heapledger_heap::HeapAllocator;

/// Returns the resident memory of this process in bytes.
fn resident() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// Allocates about this many bytes in blocks of 16 bytes to 100 KiB, all of which are written to.
fn blocks(bytes: usize) -> Vec<Vec<u8>> {
    let (mut blocks, mut total, mut state) = (Vec::new(), 0, 1_u64);
    while total < bytes {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let size = if state >> 60 == 0 { 100 << 10 } else { 16 + (state >> 33) as usize % 3000 };
        blocks.push(vec![1; size]);
        total += size;
    }
    blocks
}

#[test]
fn a_tenth_at_most_is_kept() {
    const BYTES: usize = 300 << 20;
    let before = resident();
    for round in 0..2 {
        let blocks = blocks(BYTES);
        let live = resident() - before;
        assert!(live > BYTES && live < BYTES + BYTES / 4, "{live} bytes for {BYTES}");
        drop(blocks);
        let kept = resident().saturating_sub(before);
        assert!(kept < BYTES / 10, "round {round}: {kept} bytes kept of {live}");
    }
    assert!(heapledger_heap::trim() > 0);
    let kept = resident().saturating_sub(before);
    assert!(kept < 4 << 20, "{kept} bytes kept");
    // Another thread frees all but one block; this thread, which owns them, frees that one only.
    let mut blocks = blocks(BYTES);
    let last = blocks.swap_remove(blocks.len() / 2);
    let live = heapledger_heap::statistics().run_bytes;
    thread::spawn(move || drop(blocks)).join().unwrap();
    drop(last);
    let kept = heapledger_heap::statistics().run_bytes;
    assert!(kept < live / 10, "{kept} bytes of runs kept of {live}");
    heapledger_heap::trim();
    // The mapping that is kept for the next block of the same size counts as returned.
    (0..3).for_each(|_| drop(hint::black_box(vec![1_u8; 8 << 20])));
    assert!(heapledger_heap::trim() >= 8 << 20);
    let statistics = heapledger_heap::statistics();
    assert_eq!(statistics.dirty_bytes, 0);
    assert!(statistics.purges > 0 && statistics.chunk_bytes >= statistics.run_bytes, "{statistics:?}");
}
