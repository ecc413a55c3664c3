//! Measures the cost of measuring many small blocks: `benches/measure` runs it.
//!
//! `measure BLOCKS ROUNDS HOW…`: with each HOW in turn, ROUNDS times, goes over all blocks, which
//! lie in random order, and prints nanoseconds of CPU time per block. `walk` only reads a word of
//! each, `measure` measures, `mark` measures and marks in a ledger that has run since the
//! beginning; `nothing` does nothing.

use std::hint::black_box;

use heapledger::{Allocator, HeapSize, Ledger, LedgerOptions, Meter};
use heapledger_core::sample::Random;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator::system();

#[derive(HeapSize)]
struct Small {
    number: u64,
    #[heap(skip = "room")]
    _room: [u64; 4],
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [blocks, rounds, hows @ ..] = &arguments[..] else { panic!("measure BLOCKS ROUNDS HOW…") };
    let (blocks, rounds): (usize, usize) = (blocks.parse().unwrap(), rounds.parse().unwrap());
    let marks = hows.iter().any(|how| how == "mark");
    let ledger = Ledger::get();
    if marks {
        Ledger::start(LedgerOptions::EXACT).unwrap();
    }
    let mut all: Vec<Box<Small>> =
        (0..blocks as u64).map(|number| Box::new(Small { number, _room: [number; 4] })).collect();
    shuffle(&mut all);
    for _ in 0..rounds {
        for how in hows {
            let began = cpu_time();
            match how.as_str() {
                "nothing" => {}
                "walk" => assert!(black_box(all.iter().map(|one| one.number).sum::<u64>()) > 0),
                "measure" => assert!(all.heap_size(&mut Meter::new()).0 >= blocks as u64 * 48),
                "mark" => {
                    let mut meter = Meter::marking("explicit/small");
                    assert!(all.heap_size(&mut meter).0 >= blocks as u64 * 48);
                    assert_eq!(meter.mark_counts().once, blocks as u64 + 1);
                }
                _ => panic!("{how}: no such way"),
            }
            let spent = cpu_time() - began;
            println!("{how} {:.2}", spent / blocks as f64);
            if how == "mark" {
                let bytes = ledger.overhead().bytes_ledger.0;
                ledger.clear_marks();
                let kept = ledger.overhead().bytes_ledger.0;
                println!("bytes {:.1} {:.1}", kept as f64 / blocks as f64, (bytes - kept) as f64 / blocks as f64);
            }
        }
    }
}

/// Nanoseconds that this thread has run.
fn cpu_time() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `clock_gettime` requires a `timespec` that may be written, as the local is.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) }, 0);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// By a generator that is always the same.
fn shuffle<T>(all: &mut [T]) {
    let mut random = Random::new(1);
    for at in (1..all.len()).rev() {
        all.swap(at, random.index(at + 1));
    }
}
