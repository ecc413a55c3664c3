//! Pairs of an allocation and its free: `pair MODE COUNT`. What `benches/instructions` counts: straight from the system's
//! allocator (`bare`), through Heapledger's with nothing installed (`idle`), or with a ledger that records everything
//! (`exact`, `counts` without stacks, `some-stacks` with those of chosen blocks) or samples every 512 KiB (`sampled`).

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;

use heapledger::{Allocator, Bytes, Ledger, Options, STACK_PROBABILITY, Stacks};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator::system();

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mode = arguments.next().unwrap_or_default();
    let count: usize = arguments.next().and_then(|count| count.parse().ok()).unwrap_or(1_000);
    let options = match mode.as_str() {
        "exact" => Some(Options::EXACT),
        "counts" => Some(Options { stacks: Stacks::None, ..Options::EXACT }),
        "some-stacks" => Some(Options { stack_probability: Some(STACK_PROBABILITY), ..Options::EXACT }),
        "sampled" => Some(Options { sample_every: Some(Bytes(512 << 10)), ..Options::EXACT }),
        _ => None,
    };
    if let Some(options) = options {
        Ledger::start(options).expect("it does not run yet");
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
