//! The canary: bytes behind each block that no program has reason to write.

use core::ops::Range;

/// How many there are: what of a write past the end is found.
pub const LENGTH: usize = 16;
/// None is 0, which is what strings end with.
const BYTE: u8 = 0xc9;

/// # Safety
///
/// `block` has [`LENGTH`] bytes behind its `size`, and nobody else uses it.
pub(crate) unsafe fn write(block: *mut u8, size: usize) {
    // SAFETY: the caller's contract.
    unsafe { block.add(size).write_bytes(BYTE, LENGTH) };
}

/// From the first to behind the last of its bytes that are not what they were, counted from the end of the block.
///
/// # Safety
///
/// `block` has [`LENGTH`] bytes behind its `size`.
pub(crate) unsafe fn overwritten(block: *const u8, size: usize) -> Option<Range<u64>> {
    // The program may write there at this moment: read byte by byte, as it is.
    // SAFETY: the caller's contract.
    let is_changed = |&at: &usize| unsafe { block.add(size + at).read_volatile() } != BYTE;
    let first = (0..LENGTH).find(is_changed)?;
    let last = (0..LENGTH).rev().find(is_changed)?;
    Some(first as u64..last as u64 + 1)
}
