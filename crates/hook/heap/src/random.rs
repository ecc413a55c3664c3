//! Random order of the blocks of fresh memory, for the option `random`.

use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering};

use heapledger_core::arch::{nr, syscall};

use crate::arena::registry;
use crate::block::Block;
use crate::keys::Key;
use crate::options;

/// The most blocks that are put into random order at once.
const COUNT_MAX: usize = 1024;

/// The state of the generator, splitmix64. 0: not seeded.
static STATE: AtomicU64 = AtomicU64::new(0);

/// Returns a random number, by splitmix64 (Steele, Lea and Flood, 2014), seeded by the kernel.
fn next() -> u64 {
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    if STATE.load(Ordering::Relaxed) == 0 {
        let mut seed = 0_u64;
        // SAFETY: the kernel writes 8 bytes to `seed`, or none; then the seed is the address of
        // this thread's stack, which is random as well.
        unsafe { syscall(nr::GETRANDOM, [(&raw mut seed).expose_provenance(), size_of::<u64>(), 0, 0, 0, 0]) };
        let seed = if seed == 0 { (&raw const seed).addr() as u64 } else { seed };
        // Another thread's seed is as good.
        let _ = STATE.compare_exchange(0, seed | 1, Ordering::Relaxed, Ordering::Relaxed);
    }
    let mut mixed = STATE.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Says if the blocks of fresh memory are handed out in random order from now on, and lets the
/// kernel seed the random numbers anew. In arenas that were created with a wish of their own, the
/// order stays as it is. Blocks that are free already stay in their order. For a process that was
/// forked and wants other options, or other numbers, than its parent.
pub fn reset_randomisation(is_on: bool) {
    options::start();
    options::set_random(is_on);
    STATE.store(0, Ordering::Relaxed);
    registry::for_each(|arena| arena.note_randomisation());
}

/// Links `count` blocks of `size` bytes to a free list in random order. Each order has about the
/// same probability. Returns the first block. More than [`COUNT_MAX`] blocks stay in their order
/// from there on.
///
/// # Safety
///
/// The caller owns the memory of the blocks, which begin at `first`. A block is of at least 16
/// bytes and aligned to 16. `count` is at least 1.
pub(crate) unsafe fn link(key: Key, first: *mut u8, count: usize, size: usize) -> *mut Block {
    let mut order = [0_u16; COUNT_MAX];
    let shuffled = count.min(COUNT_MAX);
    // Fisher and Yates's shuffle, from the inside out. One number of the shared generator seeds the
    // numbers for all blocks, by xorshift (Marsaglia, 2003): they have to be quick, not many.
    let mut random = next() | 1;
    for number in 0..shuffled {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        // The high half of a product instead of a division: a number from 0 to `number`.
        let other = (((random >> 32) * (number as u64 + 1)) >> 32) as usize;
        // The masks change nothing: they show the compiler that the numbers are in bounds.
        let (number, other) = (number & (COUNT_MAX - 1), other & (COUNT_MAX - 1));
        order[number] = order[other];
        order[other] = number as u16;
    }
    let mut following = ptr::null_mut();
    let block = |number: usize| first.wrapping_add(number * size).cast::<Block>();
    let rest = (shuffled..count).rev();
    let shuffled = order.iter().take(shuffled).map(|&number| usize::from(number));
    for number in rest.chain(shuffled) {
        // SAFETY: `set_next` demands a block that the caller owns, of 16 bytes and aligned to 16:
        // this function's `# Safety`.
        unsafe { key.set_next(block(number), following) };
        following = block(number);
    }
    following
}

#[cfg(test)]
mod tests;
