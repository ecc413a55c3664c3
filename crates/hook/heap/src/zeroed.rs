//! Zeroes for large blocks of `calloc` whose memory was in use before.
//!
//! Writing zeroes takes 6 µs for 1 MiB. The system takes the memory back in 0.3 µs, and gives zero
//! pages when the block is used, if nobody has written to it since it gave the last ones. Otherwise
//! that takes 100 µs, and the program's writes to the new pages 380 µs. No system call that every
//! sandbox allows tells which is the case. So the memory is taken back if words that are read here
//! and there are zero, and the time of that decides about the next time.

use core::ptr;
use core::sync::atomic::{AtomicI32, Ordering};

use crate::geometry::PAGE;
use crate::page::{self, page_size};
use crate::{arch, os};

/// The smallest block that this is for, in bytes.
pub(crate) const LARGE: usize = 512 << 10;
/// The words that are read in a block.
const SAMPLES: usize = 8;
/// The ticks of the processor's clock that the system may need to take back memory that was not
/// written to, and that it may need more for each page. It takes some 1400 in all for 1 MiB, and
/// 650 for each page with memory. If one page in 64 was written to, writing zeroes is as fast.
const TICKS: u64 = 6000;
const TICKS_PER_PAGE: u64 = 8;
/// The ticks that it may need in all cases if words were read before: these have mapped pages, and
/// the first call of a program takes 15,000 (of 1 MiB with memory, 150,000).
const TICKS_AFTER_SAMPLES: u64 = 24_000;

/// The most that a program gains by blocks to which it does not write.
const CREDIT_MAX: i32 = 64;
/// The loss by a block to which it does. A program that begins with one gets no memory in this way
/// again. One that gains in between can afford a thread switch at this place.
const LOSS: i32 = 32;

/// Above 0: the memory is taken back. 0: that depends on words that are read. Below: it is not.
static CREDIT: AtomicI32 = AtomicI32::new(0);

/// Makes a new block zero, of at least [`LARGE`] bytes, whose content is anything.
///
/// # Safety
///
/// The block begins at a page and has whole pages of the system's, that many bytes or more, which
/// the caller owns.
#[cold]
#[inline(never)]
pub(crate) unsafe fn fill(block: *mut u8, size: usize) {
    // The first page has the link of the list of free blocks.
    let page = page_size();
    let (rest, length) = (block.wrapping_add(page), page::up(size) - page);
    let credit = CREDIT.load(Ordering::Relaxed);
    // SAFETY: `is_zero_here_and_there` demands as many bytes, which the caller owns: the block's
    // pages but the first, of which there are more.
    let may_try = credit > 0 || (credit == 0 && unsafe { is_zero_here_and_there(rest, length) });
    if may_try {
        // SAFETY: `discard` demands whole pages whose content is not needed: those of the block.
        // `write_bytes` demands writable memory of the caller's.
        unsafe {
            if take_back(rest, length, if credit > 0 { TICKS } else { TICKS_AFTER_SAMPLES }) {
                return block.write_bytes(0, page);
            }
        }
    }
    // SAFETY: `write_bytes` demands writable memory of that size, which the caller owns.
    unsafe { block.write_bytes(0, size) };
}

/// Takes the memory of a range back, and learns from the time of that, of which so many ticks and
/// some for each page are usual. False if the system refuses.
///
/// # Safety
///
/// As for [`os::discard`].
unsafe fn take_back(start: *mut u8, length: usize, usual: u64) -> bool {
    let before = arch::ticks();
    // SAFETY: `discard` demands what this function's `# Safety` does.
    let is_zero = unsafe { os::discard(start, length) };
    let ticks = arch::ticks().saturating_sub(before);
    let is_slow = !is_zero || ticks > usual + (length / PAGE) as u64 * TICKS_PER_PAGE;
    // Two threads may both count from the same value: then one of the two is not counted.
    let credit = CREDIT.load(Ordering::Relaxed);
    CREDIT.store(next_credit(credit, is_slow), Ordering::Relaxed);
    is_zero
}

fn next_credit(credit: i32, is_slow: bool) -> i32 {
    if is_slow { credit - LOSS } else { (credit + 1).min(CREDIT_MAX) }
}

/// True if some words of a range are zero. If nobody has written to a page, the system maps its
/// zero page there.
///
/// # Safety
///
/// The caller owns that many bytes, at least those of [`SAMPLES`] pages.
unsafe fn is_zero_here_and_there(start: *mut u8, length: usize) -> bool {
    let step = length / SAMPLES;
    (0..SAMPLES).all(|sample| {
        // At another place in each page.
        let at = start.wrapping_add((sample * step).next_multiple_of(PAGE) + sample * 8 * 61);
        // SAFETY: `read_volatile` demands an aligned word that the caller owns: the last one is in
        // the page at or behind seven eighths of the range. Any content is a valid number; volatile
        // because nothing is known about it.
        unsafe { ptr::read_volatile(at.cast::<u64>()) == 0 }
    })
}

#[cfg(all(test, not(loom)))]
mod tests;
