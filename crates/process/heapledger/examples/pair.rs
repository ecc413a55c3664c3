//! Pairs of an allocation and its free: `pair MODE COUNT [FRAMES]`. What `benches/instructions`
//! counts: straight from the system's allocator (`bare`), through Heapledger's with nothing
//! installed (`idle`), or with a ledger that records everything (`exact`, `counts` without stacks,
//! `some-stacks` with those of chosen blocks) or samples every 512 KiB (`sampled`). With so many
//! frames below that are others each time.

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;

use heapledger::{Allocator, Bytes, Ledger, LedgerOptions, STACK_PROBABILITY, Stacks};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator::system();

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mode = arguments.next().unwrap_or_default();
    let count: usize = arguments.next().and_then(|count| count.parse().ok()).unwrap_or(1_000);
    let options = match mode.as_str() {
        "exact" => Some(LedgerOptions::EXACT),
        "counts" => Some(LedgerOptions { stacks: Stacks::None, ..LedgerOptions::EXACT }),
        "some-stacks" => Some(LedgerOptions { stack_probability: Some(STACK_PROBABILITY), ..LedgerOptions::EXACT }),
        "sampled" => Some(LedgerOptions { sample_every: Some(Bytes(512 << 10)), ..LedgerOptions::EXACT }),
        _ => None,
    };
    if let Some(options) = options {
        Ledger::start(options).expect("it does not run yet");
    }
    let frames = arguments.next().and_then(|frames| frames.parse().ok()).unwrap_or(0);
    if frames != 0 {
        return if mode == "bare" {
            pairs_below(&System, count, frames)
        } else {
            pairs_below(&ALLOCATOR, count, frames)
        };
    }
    if mode == "bare" { pairs(&System, count) } else { pairs(&ALLOCATOR, count) }
}

#[inline(never)]
fn pairs(allocator: &impl GlobalAlloc, count: usize) {
    let layout = black_box(Layout::new::<[u64; 8]>());
    for _ in 0..count {
        // SAFETY: the size is not 0, and the block is freed as it was allocated.
        unsafe {
            let block = allocator.alloc(layout);
            black_box(block);
            allocator.dealloc(block, layout);
        }
    }
}

/// By one of two ways in each of so many frames, to one pair each time.
fn pairs_below(allocator: &impl GlobalAlloc, count: usize, frames: u32) {
    #[inline(never)]
    fn below(allocator: &impl GlobalAlloc, path: u64, frames: u32) {
        if frames == 0 {
            pairs(allocator, 1);
        } else if path & 1 == 0 {
            below(allocator, black_box(path >> 1), frames - 1);
            black_box(path);
        } else {
            below(allocator, path >> 1, black_box(frames - 1));
            black_box(frames);
        }
    }
    let mut path = 1_u64;
    for _ in 0..count {
        path = path.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        below(allocator, path >> 32, frames);
    }
}
