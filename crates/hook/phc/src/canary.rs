//! The bytes around a block on its pages, which nobody should write.
//!
//! They are filled and compared by words, because a page of bytes takes longer than all else that
//! is done for a block.

use core::ptr;

/// The byte that fills a slot around its block. Not 0, which is what strings end with.
const CANARY: u8 = 0xc9;
const WORD: usize = size_of::<u64>();
/// The words that are handled at once.
const WORDS: usize = 8;
type Line = [u64; WORDS];
const LINE: Line = [u64::from_ne_bytes([CANARY; WORD]); WORDS];

/// Returns the addresses in a range that are multiples of a line, and those before and behind them.
fn lines(from: usize, to: usize) -> [(usize, usize); 3] {
    let first = from.next_multiple_of(size_of::<Line>()).min(to);
    let last = (to & !(size_of::<Line>() - 1)).max(first);
    [(from, first), (first, last), (last, to)]
}

/// Fills a range of addresses.
///
/// # Safety
///
/// The memory may be written to, and nobody else uses it.
pub(crate) unsafe fn fill(from: usize, to: usize) {
    let [before, lines, behind] = lines(from, to);
    // SAFETY: the three ranges are the one that may be written to, by this function's `# Safety`;
    // that of lines is aligned.
    unsafe {
        for (from, to) in [before, behind] {
            (from..to).for_each(|at| ptr::with_exposed_provenance_mut::<u8>(at).write_volatile(CANARY));
        }
        let mut at = lines.0;
        while at < lines.1 {
            ptr::with_exposed_provenance_mut::<Line>(at).write(LINE);
            at += size_of::<Line>();
        }
    }
}

/// Returns the addresses of the first and the last byte of a range that are not as [`fill`] has
/// left them.
///
/// # Safety
///
/// The memory may be read.
pub(crate) unsafe fn changed(from: usize, to: usize) -> Option<(usize, usize)> {
    // SAFETY: the addresses are in the range, which may be read by this function's `# Safety`. The
    // program may write there at this moment: hence volatile reads.
    let is_changed = |at: &usize| unsafe { ptr::with_exposed_provenance::<u8>(*at).read_volatile() != CANARY };
    let [before, lines, behind] = lines(from, to);
    let mut is_any = (before.0..before.1).chain(behind.0..behind.1).any(|at| is_changed(&at));
    let mut at = lines.0;
    while at < lines.1 {
        // SAFETY: as above; the range of lines is aligned.
        let line = unsafe { ptr::with_exposed_provenance::<Line>(at).read_volatile() };
        is_any |= line.iter().zip(LINE).fold(0, |different, (word, expected)| different | (word ^ expected)) != 0;
        at += size_of::<Line>();
    }
    if !is_any {
        return None;
    }
    let first = (from..to).find(is_changed)?;
    Some((first, (from..to).rev().find(is_changed).unwrap_or(first)))
}

#[cfg(test)]
mod tests;
