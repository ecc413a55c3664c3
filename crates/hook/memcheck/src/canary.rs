//! The canary: bytes behind each block that no program has reason to write.

use core::ops::Range;

/// The length of the canary: the number of bytes past the end in which a write is found.
pub const LENGTH: usize = 16;
/// Not 0, which is what strings end with.
const BYTE: u8 = 0xc9;

/// # Safety
///
/// `block` is an allocation of `size` bytes and at least [`LENGTH`] more behind them. Nobody else
/// uses it.
pub(crate) unsafe fn write(block: *mut u8, size: usize) {
    // SAFETY: `add` and `write_bytes` require that the bytes from `size` to `size + LENGTH` are
    // part of one allocation and may be written. This function's `# Safety` requires that. There is
    // no data race, because nobody else uses the block.
    unsafe { block.add(size).write_bytes(BYTE, LENGTH) };
}

/// Returns the range from the first to behind the last changed byte of the canary, counted from the
/// end of the block.
///
/// # Safety
///
/// `block` is an allocation of `size` bytes and at least [`LENGTH`] more behind them.
pub(crate) unsafe fn overwritten(block: *const u8, size: usize) -> Option<Range<u64>> {
    // The program may write there at this moment: hence volatile reads, byte by byte.
    // SAFETY: `add` and `read_volatile` require that the byte is part of the block's allocation.
    // `at` is below `LENGTH`, and this function's `# Safety` requires as many bytes behind `size`.
    let is_changed = |&at: &usize| unsafe { block.add(size + at).read_volatile() } != BYTE;
    let first = (0..LENGTH).find(is_changed)?;
    let last = (0..LENGTH).rev().find(is_changed)?;
    Some(first as u64..last as u64 + 1)
}
