//! The work of the options that fill memory, and of keyed lists at a free.
//!
//! If one is on, the word of [`arch::heap`](crate::arch::heap) stays that of the empty heap in all
//! threads. So no allocation finds a block on the common path, and no run's owner is the thread:
//! each call takes the slow path, which calls these functions.

use core::ptr;

use crate::run::RunPtr;
use crate::{fatal, options, page};

/// Fills a new block as the options say. Null is ignored.
pub(crate) fn fill(block: *mut u8, size: usize) -> *mut u8 {
    if let Some(byte) = options::fill()
        && !block.is_null()
    {
        // SAFETY: a new block of at least `size` bytes, or the new part of one, which nobody uses
        // yet.
        unsafe { ptr::write_bytes(block, byte, size) };
    }
    block
}

/// Fills the bytes that a reallocated block has from `from` on, as the options say. Null is
/// ignored.
pub(crate) fn fill_grown(block: *mut u8, from: usize, to: usize) {
    if options::is_slow() && !block.is_null() && from < to {
        fill(block.wrapping_add(from), to - from);
    }
}

/// Fills a new huge block, whose mapping is of whole pages.
pub(crate) fn fill_huge(block: *mut u8, size: usize) -> *mut u8 {
    if block.is_null() { block } else { fill(block, page::up(size.max(1))) }
}

/// Poisons a block that is about to be freed. Aborts if the address is not that of a block of the
/// run, or with keyed lists, if the block is free.
///
/// # Safety
///
/// The run is one of this allocator's in a chunk that stays mapped, and if `block` is a block of
/// it, nobody uses it any more.
pub(crate) unsafe fn poison(run: RunPtr, block: *mut u8) {
    let size = run.block_size();
    let offset = block.addr().wrapping_sub(run.start().addr());
    if run.owner().is_null() {
        fatal::abort("free of a block that was freed", block);
    }
    if size == 0 || !offset.is_multiple_of(size) || offset / size >= run.carved() {
        fatal::abort("free of an address that is not the start of a block", block);
    }
    // SAFETY: `is_linked` demands a block, as was just checked, to which nobody writes: nobody uses
    // it, by this function's `# Safety`.
    if unsafe { run.key().is_linked(block.cast()) } {
        fatal::abort("double free", block);
    }
    let poisoned = options::poisoned().min(size);
    if poisoned > 0 {
        // SAFETY: a block of `size` bytes, as was just checked; nobody uses it, by this function's
        // `# Safety`.
        unsafe { ptr::write_bytes(block, options::POISON, poisoned) };
    }
}
