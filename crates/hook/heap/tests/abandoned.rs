//! Runs of a thread that has ended: what is freed in them comes back, whatever else it has left.

use std::thread;

use heapledger_heap as heap;

/// The runs of a class with many of them, each of which keeps one block in use.
const MANY: usize = 400;
/// The runs of another class, all blocks of which are freed.
const OTHERS: usize = 20;

/// Addresses for another thread.
struct Blocks(Vec<usize>);

fn free(blocks: &[usize]) {
    for &block in blocks {
        // SAFETY: a block of this allocator, which nobody else has; its address is exposed.
        unsafe { heap::free(std::ptr::with_exposed_provenance_mut(block)) };
    }
}

fn run_bytes(size: usize) -> usize {
    heap::detailed_statistics().bins.iter().find(|bin| bin.size == size).unwrap().total
}

#[test]
fn a_class_with_many_runs_does_not_keep_others_from_being_swept() {
    // One block of each run is left in use; a run has the blocks of 64 KiB.
    let leave = |size: usize, runs: usize| -> Blocks {
        let blocks: Vec<usize> =
            (0..runs * (65_536 / size)).map(|_| heap::allocate(size).expose_provenance()).collect();
        let (kept, freed): (Vec<_>, Vec<_>) =
            blocks.into_iter().enumerate().partition(|(at, _)| at % (65_536 / size) == 0);
        free(&freed.into_iter().map(|(_, block)| block).collect::<Vec<_>>());
        Blocks(kept.into_iter().map(|(_, block)| block).collect())
    };
    let (many, others) = thread::spawn(move || (leave(1024, MANY), leave(4096, OTHERS))).join().unwrap();
    let before = run_bytes(4096);
    assert!(before >= OTHERS * 65_536, "{before}");
    // Another thread's frees sweep now and then: first all of the other class, then some more.
    free(&others.0);
    let (freed, kept) = many.0.split_at(MANY * 3 / 4);
    free(freed);
    let after = run_bytes(4096);
    assert!(after <= before / 4, "{after} of {before} bytes are left");
    free(kept);
}
