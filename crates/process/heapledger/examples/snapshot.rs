//! How long a snapshot holds the program up: `snapshot BLOCKS THREADS ROUNDS [contents]`. What
//! `benches/snapshot` runs: so many blocks are live, so many threads allocate and free all the
//! while; prints, of each round, the pause and what the call took, in microseconds.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use heapledger::{Allocator, Bytes, Ledger, LedgerOptions, SnapshotOptions};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator::system();

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| arguments.get(at).and_then(|text| text.parse().ok()).unwrap_or(1);
    let contents_max = arguments.get(3).map(|_| Bytes(u64::MAX));
    Ledger::start(LedgerOptions::EXACT).expect("it does not run yet");
    let mut state = 1_u64;
    let kept: Vec<Vec<u8>> = (0..number(0)).map(|_| vec![1; size(&mut state)]).collect();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..number(1) {
            let is_over = &is_over;
            scope.spawn(move || storm(thread as u64 + 2, is_over));
        }
        for _ in 0..number(2) {
            let began = Instant::now();
            let snapshot = Ledger::get().snapshot(&SnapshotOptions { contents_max }).expect("there is memory");
            let took = began.elapsed();
            assert!(snapshot.blocks().count() >= kept.len());
            println!("{} {}", snapshot.pause().as_micros(), took.as_micros());
        }
        is_over.store(true, Ordering::Relaxed);
    });
    // The end of the process frees them faster.
    std::mem::forget(black_box(kept));
}

/// 16 to 271 bytes.
fn size(state: &mut u64) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    16 + (*state >> 56) as usize
}

fn storm(mut state: u64, is_over: &AtomicBool) {
    let mut held: Vec<Vec<u8>> = vec![Vec::new(); 1_000];
    while !is_over.load(Ordering::Relaxed) {
        let size = size(&mut state);
        held[(state >> 30) as usize % 1_000] = black_box(Vec::with_capacity(size));
    }
}
