//! The calls of the exact recorder in a session that records usable sizes: one question to the
//! allocator for each, and an event that is a word longer.

use heapledger_core::Api;
use heapledger_core::hooks::Caller;
use heapledger_wire::event::{
    self, COMPACT_SIZE_END, COMPACT_SLOP_END, ReallocOutcome, UsableCall, is_compact_address,
};

use super::{allocation, reallocation_ends_slow, record_after};
use crate::usable::usable_size;

/// Records that `malloc(size)` returned `address`.
///
/// # Safety
///
/// See [`malloc`](super::malloc). *Live block* ([`usable_size`]) holds for `address`.
#[inline(always)]
pub(crate) unsafe fn malloc(address: u64, size: u64, caller: Caller) {
    // SAFETY: `record` and `allocation` require *live caller* and a *live block*; this function's
    // `# Safety` requires the same.
    unsafe {
        if !record(UsableCall::Malloc, address, size, 0, caller) {
            allocation(Api::Malloc, address, size, 0, 0, caller, None);
        }
    }
}

/// Records that `calloc(count, each)` returned `address`.
///
/// # Safety
///
/// See [`malloc`].
#[inline(always)]
pub(crate) unsafe fn calloc(address: u64, count: u64, each: u64, caller: Caller) {
    // The call succeeded, so the product does not overflow.
    let size = count.wrapping_mul(each);
    // SAFETY: `record` and `allocation` require *live caller* and a *live block*; this function's
    // `# Safety` requires the same.
    unsafe {
        if !record(UsableCall::Calloc, address, size, count, caller) {
            allocation(Api::Calloc, address, size, 0, count, caller, None);
        }
    }
}

/// Records the end of the reallocation by `realloc` that this thread began last.
///
/// # Safety
///
/// See [`malloc`]; there is a block only if it was returned.
#[inline(always)]
pub(crate) unsafe fn reallocation_ends(outcome: ReallocOutcome, address: u64, size: u64, caller: Caller) {
    let is_returned = outcome == ReallocOutcome::Returned;
    // SAFETY: `record` and `reallocation_ends_slow` require *live caller*, and `record` a *live
    // block*, which there is if one was returned; this function's `# Safety` requires the same.
    unsafe {
        if !is_returned || !record(UsableCall::ReallocEnd, address, size, 0, caller) {
            reallocation_ends_slow(Api::Realloc, outcome, address, size, 0, caller, None);
        }
    }
}

/// Records an allocation with its usable size, on the fast path. False if the fast path does not
/// apply; then nothing has been recorded, and the allocator is asked again.
///
/// # Safety
///
/// See [`malloc`].
// Once for the three calls: it contains the capture of the stack, and is large.
#[inline(never)]
unsafe fn record(call: UsableCall, address: u64, size: u64, count: u64, caller: Caller) -> bool {
    // SAFETY: `usable_size` requires a *live block*; this function's `# Safety` requires the same
    // of `address`.
    let usable = unsafe { usable_size(address) };
    // A size below the requested one, 0 among them, gives a large number here.
    let slop = usable.wrapping_sub(size);
    let (Ok(count), true) = (u32::try_from(count), slop < COMPACT_SLOP_END) else { return false };
    // SAFETY: `record_after` requires *live caller*; this function's `# Safety` requires the same
    // of `caller`.
    size < COMPACT_SIZE_END
        && is_compact_address(address)
        && unsafe { record_after(caller, |stack| event::with_usable(call, address, size, stack, count, slop)) }
}
