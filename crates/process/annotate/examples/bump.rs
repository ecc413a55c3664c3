//! A bump arena that tells Heapledger what it hands out: the arena is a heap of its own, and the
//! memory it is cut from is not counted twice. Runs the same without Heapledger.
//!
//! ```text
//! cargo build -p heapledger-annotate --example bump
//! heapledger record -- target/debug/examples/bump
//! ```

use std::cell::Cell;
use std::mem::MaybeUninit;

use heapledger_annotate::Pool;

/// Hands out room in one block of memory, and takes all of it back at once.
struct Arena {
    // Before the memory: it is dropped first.
    pool: Pool,
    memory: Box<[MaybeUninit<u8>]>,
    used: Cell<usize>,
}

impl Arena {
    fn new(name: &'static str, bytes: usize) -> Arena {
        let arena = Arena { pool: Pool::new(name), memory: Box::new_uninit_slice(bytes), used: Cell::new(0) };
        // From here on the arena's blocks stand for its memory.
        arena.pool.back(arena.memory.as_ptr().cast());
        arena
    }

    /// Room for `bytes` bytes, aligned to 16, or `None` when the arena is full.
    fn alloc(&self, bytes: usize) -> Option<*mut u8> {
        let start = self.used.get().next_multiple_of(16);
        let room = self.memory.get(start..start.checked_add(bytes)?)?;
        self.used.set(start + bytes);
        let block = room.as_ptr().cast::<u8>();
        self.pool.alloc(block, bytes);
        Some(block.cast_mut())
    }

    /// Takes everything back. Nobody uses what was handed out.
    fn reset(&mut self) {
        self.pool.reset();
        self.used.set(0);
    }
}

#[inline(never)]
fn draw(arena: &Arena, frame: usize) -> usize {
    (0..100 + frame).filter(|_| arena.alloc(32).is_some()).count()
}

fn main() {
    let mut arena = Arena::new("frames", 64 << 10);
    let mut drawn = 0;
    for frame in 0..60 {
        arena.reset();
        drawn += draw(&arena, frame);
    }
    println!("{drawn} sprites");
}
