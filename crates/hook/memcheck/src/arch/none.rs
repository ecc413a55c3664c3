//! Stands in on systems other than x86-64 Linux: threads have no state.

#[inline(always)]
pub(crate) fn word<const OFFSET: usize>() -> usize {
    0
}

/// Reads eight bytes.
///
/// # Safety
///
/// The bytes at `address` are readable. They need not be aligned.
#[inline(always)]
pub(crate) unsafe fn load(address: *const u8) -> u64 {
    // SAFETY: `read_unaligned` requires readable bytes, as this function's `# Safety` does.
    unsafe { address.cast::<u64>().read_unaligned() }
}

#[inline(always)]
pub(crate) fn prefetch(_: *const u8) {}

#[inline(always)]
pub(crate) fn set_word<const OFFSET: usize>(_: usize) {}
