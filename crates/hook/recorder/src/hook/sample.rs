//! The recorder of a session that samples: a Poisson process over the bytes that each thread
//! allocates picks the blocks that are recorded, with their frees and reallocations.
//!
//! The recorder knows nothing of other blocks: their allocation is a subtraction from the thread's
//! [countdown], their free a look-up in the [filter]. If there is no other observer, the malloc
//! entry points do both themselves. Every recorded event says at which rate its thread's countdown
//! was drawn, so the rate may change at any time without notice.

use core::mem;

use heapledger_core::hooks::{Arena, Caller, Observer, Pointer};
use heapledger_core::sample::Rate;
use heapledger_core::{Api, StackId, countdown, filter};
use heapledger_thread::{self as thread, Current};
use heapledger_wire::event::{Extended, ReallocOutcome};
use heapledger_wire::publish::WriteError;

use super::arenas::{self, arena_created, arena_disposed, purged};
use super::failure;
use crate::accept::{Kind, is_paused};
use crate::attach::enter;
use crate::block::ThreadBlock;
use crate::capture::{Heap, is_ignoring};
use crate::common_ring::write_to_common_ring;
use crate::table::{api_from_number, observer};
use crate::usable::usable_size;
use crate::{addresses, session};

/// The recorder as an observer that samples, to be installed instead of
/// [`crate::observer::OBSERVER`] if the session samples.
pub static OBSERVER: Observer = observer!();

/// Returns the rate at which a block of this size is in the sample, if it is: the caller then
/// records it. A thread gets its thread block when it has something to record.
pub(crate) fn draw(size: u64, sp: u64) -> Option<Rate> {
    if let (Current::None, Some(page)) = (thread::current::<ThreadBlock>(), session::known_page()) {
        return countdown::draw_with_shared_seed(size, page.rate());
    }
    // The first thread introduces the process, in an armed one also in its next sessions.
    let block = if session::known_page().is_some() { thread::enter::<ThreadBlock>(sp) } else { enter(sp) };
    let Some(block) = block else {
        return countdown::draw_with_shared_seed(size, session::known_page()?.rate());
    };
    let Some(page) = session::known_page() else {
        block.head.leave();
        return None;
    };
    let rate = countdown::draw(size, page.rate(), |mean| block.sampling.sampler().distance(mean));
    block.head.leave();
    rate
}

/// Counts a block of this size down while nothing is recorded, so that later blocks are as likely
/// to be in the sample as ever.
fn count_down(size: u64) {
    if let Some(page) = session::known_page() {
        let _ = countdown::draw_with_shared_seed(size, page.rate());
    }
}

/// True if a block of this size is not in the sample, and no observer need see it. The entry points
/// find this out themselves if this observer is the only one.
#[inline(always)]
fn is_unsampled(size: u64) -> bool {
    session::known_page().is_some_and(|page| countdown::count_unsampled(size as usize, page.rate()))
}

// These are called under the contract of `Observer`. It gives *live caller* (`super::malloc`): the
// call is in this thread, and the caller's frame is live until they return.

/// # Safety
///
/// The contract of [`Observer`].
unsafe extern "C" fn malloc(block: Pointer, size: usize, caller: Caller) {
    // SAFETY: `allocated` requires *live caller*, which the contract of `Observer` gives: the
    // caller's frame is live until we return.
    unsafe { allocated(Api::Malloc, block as u64, size as u64, 0, 0, caller) };
}

/// # Safety
///
/// The contract of [`Observer`].
unsafe extern "C" fn calloc(block: Pointer, count: usize, each: usize, caller: Caller) {
    // The call succeeded, so the product does not overflow.
    let size = count.wrapping_mul(each) as u64;
    // SAFETY: `allocated` requires *live caller*, which the contract of `Observer` gives: the
    // caller's frame is live until we return.
    unsafe { allocated(Api::Calloc, block as u64, size, 0, count as u64, caller) };
}

/// # Safety
///
/// The contract of [`Observer`].
unsafe extern "C" fn aligned(api: u32, block: Pointer, alignment: usize, size: usize, caller: Caller) {
    if let Some(api) = api_from_number(api) {
        // SAFETY: `allocated` requires *live caller*, which the contract of `Observer` gives: the
        // caller's frame is live until we return.
        unsafe { allocated(api, block as u64, size as u64, alignment as u64, 0, caller) };
    }
}

/// # Safety
///
/// The contract of [`Observer`].
unsafe extern "C" fn free(block: Pointer, caller: Caller) {
    if filter::may_contain(block as u64) {
        freed(Api::Free, block as u64, 0, 0, caller.sp());
    }
}

/// # Safety
///
/// The contract of [`Observer`].
unsafe extern "C" fn free_sized(api: u32, block: Pointer, size: usize, alignment: usize, caller: Caller) {
    if filter::may_contain(block as u64)
        && let Some(api) = api_from_number(api)
    {
        freed(api, block as u64, size as u64, alignment as u64, caller.sp());
    }
}

/// # Safety
///
/// The contract of [`Observer`].
unsafe extern "C" fn realloc_begins(api: u32, old: Pointer, caller: Caller) {
    if filter::may_contain(old as u64)
        && let Some(api) = api_from_number(api)
    {
        begins(api, old as u64, caller.sp());
    }
}

/// # Safety
///
/// The contract of [`Observer`].
unsafe extern "C" fn realloc_ends(old: Pointer, block: Pointer, size: usize, caller: Caller) {
    // SAFETY: `ends` requires *live caller*, which the contract of `Observer` gives: the caller's
    // frame is live until we return.
    unsafe { ends(Api::Realloc, old as u64, block as u64, size as u64, 0, caller, None) };
}

/// # Safety
///
/// The contract of [`Observer`].
unsafe extern "C" fn reallocarray_ends(old: Pointer, block: Pointer, count: usize, each: usize, caller: Caller) {
    let size = count.saturating_mul(each) as u64;
    // SAFETY: `ends` requires *live caller*, which the contract of `Observer` gives: the caller's
    // frame is live until we return.
    unsafe { ends(Api::Reallocarray, old as u64, block as u64, size, count as u64, caller, None) };
}

/// # Safety
///
/// The contract of [`Observer`].
#[cold]
unsafe extern "C" fn failed(api: u32, size: usize, alignment: usize, count: usize, caller: Caller) {
    if let Some(api) = api_from_number(api) {
        // SAFETY: `failure` requires *live caller*, which the contract of `Observer` gives: the
        // caller's frame is live until we return.
        unsafe { failure(api, size as u64, alignment as u64, count as u64, caller) };
    }
}

/// # Safety
///
/// The contract of [`Observer`].
unsafe extern "C" fn arena_allocated(
    arena: *const Arena,
    api: u32,
    block: Pointer,
    size: usize,
    alignment: usize,
    count: usize,
    caller: Caller,
) {
    let (size, alignment, count) = (size as u64, alignment as u64, count as u64);
    if !is_unsampled(size)
        && let Some(api) = api_from_number(api)
    {
        // SAFETY: `heap` requires an arena that observers are told of, and `allocated_slow` *live
        // caller*: the contract of `Observer` gives both.
        unsafe { allocated_slow(api, block as u64, size, alignment, count, caller, arenas::heap(arena)) };
    }
}

/// # Safety
///
/// The contract of [`Observer`].
unsafe extern "C" fn arena_realloc_ends(
    arena: *const Arena,
    old: Pointer,
    block: Pointer,
    size: usize,
    caller: Caller,
) {
    // SAFETY: `heap` requires an arena that observers are told of, and `ends` *live caller*: the
    // contract of `Observer` gives both.
    unsafe { ends(Api::Realloc, old as u64, block as u64, size as u64, 0, caller, arenas::heap(arena)) };
}

/// # Safety
///
/// The contract of [`Observer`].
unsafe extern "C" fn arena_reallocarray_ends(
    arena: *const Arena,
    old: Pointer,
    block: Pointer,
    count: usize,
    each: usize,
    caller: Caller,
) {
    let size = count.saturating_mul(each) as u64;
    // SAFETY: `heap` requires an arena that observers are told of, and `ends` *live caller*: the
    // contract of `Observer` gives both.
    unsafe {
        ends(Api::Reallocarray, old as u64, block as u64, size, count as u64, caller, arenas::heap(arena));
    }
}

/// # Safety
///
/// See [`malloc`](super::malloc).
#[inline(always)]
unsafe fn allocated(api: Api, address: u64, size: u64, alignment: u64, count: u64, caller: Caller) {
    if is_unsampled(size) {
        return;
    }
    // SAFETY: `allocated_slow` requires *live caller*; this function's `# Safety` requires the
    // same of `caller`.
    unsafe { allocated_slow(api, address, size, alignment, count, caller, None) };
}

/// # Safety
///
/// See [`malloc`](super::malloc).
#[cold]
#[inline(never)]
unsafe fn allocated_slow(api: Api, address: u64, size: u64, alignment: u64, count: u64, caller: Caller, heap: Heap) {
    if is_paused(Kind::Allocation) {
        return count_down(size);
    }
    let Some(rate) = draw(size, caller.sp()) else { return };
    // Only blocks that are in the sample are recorded, and not those that the program wants
    // ignored.
    if is_ignoring() {
        return;
    }
    // SAFETY: `usable_size` requires a *live block*: the call that is recorded has returned it.
    let usable = unsafe { usable_size(address) };
    let Some(block) = enter(caller.sp()) else {
        addresses::add(address);
        let stack = StackId::ROOT;
        return write_to_common_ring(&Extended::Alloc { api, address, size, stack, alignment, count, usable, rate });
    };
    if block.skips(Kind::Allocation) {
        return;
    }
    addresses::add(address);
    block.begin();
    // SAFETY: `capture_in` requires *live caller*; this function's `# Safety` requires the same of
    // `caller`.
    let stack = unsafe { block.capture_in(caller, heap) };
    let ticks = block.stamp();
    let event = Extended::Alloc { api, address, size, stack, alignment, count, usable, rate };
    let written = block.write_extended(ticks, &event);
    block.sampling.until_sample_at_event = countdown::bytes_until_sample();
    block.finish(written);
}

/// Records the free of a block that may be in the sample, before it happens.
#[cold]
#[inline(never)]
pub(crate) fn freed(api: Api, address: u64, size: u64, alignment: u64, sp: u64) {
    if !addresses::take(address) || is_paused(Kind::Free) {
        return;
    }
    let event = Extended::Free { api, address, size, alignment };
    let Some(block) = enter(sp) else {
        return write_to_common_ring(&event);
    };
    if block.skips(Kind::Free) {
        return;
    }
    block.begin();
    let ticks = block.stamp();
    let written = block.record_unsampled_allocations(ticks).and_then(|()| block.write_extended(ticks, &event));
    block.finish(written);
}

#[cold]
#[inline(never)]
fn begins(api: Api, address: u64, sp: u64) {
    if !addresses::take(address) || is_paused(Kind::Free) {
        return;
    }
    let Some(block) = enter(sp) else {
        // A thread that cannot remember what has begun records that the block is gone.
        return write_to_common_ring(&Extended::Free { api, address, size: 0, alignment: 0 });
    };
    if block.skips(Kind::Free) {
        return;
    }
    block.sampling.reallocated = address;
    block.begin();
    let ticks = block.stamp();
    let written = block.write_extended(ticks, &Extended::ReallocBegin { api, address });
    block.finish(written);
}

/// # Safety
///
/// See [`malloc`](super::malloc).
#[inline(always)]
unsafe fn ends(api: Api, old: u64, address: u64, size: u64, count: u64, caller: Caller, heap: Heap) {
    if address != 0
        && let Some(block) = thread::open::<ThreadBlock>()
        && block.sampling.reallocated == 0
        && is_unsampled(size)
    {
        return;
    }
    // SAFETY: `ends_slow` requires *live caller*; this function's `# Safety` requires the same of
    // `caller`.
    unsafe { ends_slow(api, old, address, size, count, caller, heap) };
}

/// # Safety
///
/// See [`malloc`](super::malloc).
#[cold]
#[inline(never)]
unsafe fn ends_slow(api: Api, old: u64, address: u64, size: u64, count: u64, caller: Caller, heap: Heap) {
    if old == 0 {
        // SAFETY: `failure` and `allocated_slow` require *live caller*; this function's
        // `# Safety` requires the same of `caller`.
        return unsafe {
            match address {
                0 => failure(api, size, 0, count, caller),
                _ => allocated_slow(api, address, size, 0, count, caller, heap),
            }
        };
    }
    let was_recorded = match thread::enter::<ThreadBlock>(caller.sp()) {
        Some(block) => {
            let was_recorded = block.sampling.reallocated == old;
            block.sampling.reallocated = 0;
            block.head.leave();
            was_recorded
        }
        None => false,
    };
    let outcome = match (address, size) {
        // As in the exact recorder.
        (0, 0) => ReallocOutcome::Freed,
        (0, _) => ReallocOutcome::Failed,
        _ => ReallocOutcome::Returned,
    };
    let rate = match outcome {
        ReallocOutcome::Returned if is_paused(Kind::Allocation) => {
            count_down(size);
            None
        }
        ReallocOutcome::Returned => draw(size, caller.sp()).filter(|_| !is_ignoring()),
        ReallocOutcome::Failed if was_recorded => {
            addresses::add(old);
            Some(Rate::EXACT)
        }
        // SAFETY: `failure` requires *live caller*; this function's `# Safety` requires the same of
        // `caller`.
        ReallocOutcome::Failed => return unsafe { failure(api, size, 0, count, caller) },
        ReallocOutcome::Freed => None,
    };
    if rate.is_none() && !was_recorded {
        return;
    }
    if rate.is_some() && outcome == ReallocOutcome::Returned {
        addresses::add(address);
    }
    let usable = match outcome {
        // SAFETY: `usable_size` requires a *live block*: the call that is recorded has returned it.
        ReallocOutcome::Returned => unsafe { usable_size(address) },
        ReallocOutcome::Failed | ReallocOutcome::Freed => 0,
    };
    let Some(block) = enter(caller.sp()) else {
        let (stack, rate) = (StackId::ROOT, rate.unwrap_or_default());
        return write_to_common_ring(&Extended::Alloc { api, address, size, stack, alignment: 0, count, usable, rate });
    };
    let is_taken = session::page().mode() == 0 || block.accepts(Kind::Allocation);
    let Some(rate) = rate.filter(|_| is_taken || outcome != ReallocOutcome::Returned) else {
        return if was_recorded { block.end_as_free(api) } else { block.head.leave() };
    };
    block.begin();
    // SAFETY: `capture_in` requires *live caller*; this function's `# Safety` requires the same of
    // `caller`.
    let stack = unsafe { block.capture_in(caller, heap) };
    let ticks = block.stamp();
    let event = Extended::ReallocEnd { api, outcome, address, size, stack, count, usable, rate };
    let announced = if was_recorded { block.record_unsampled_allocations(ticks) } else { Ok(()) };
    let written = announced.and_then(|()| block.write_extended(ticks, &event));
    block.sampling.until_sample_at_event = countdown::bytes_until_sample();
    block.finish(written);
}

impl ThreadBlock {
    /// Writes, before the event of a free, that the thread has made unsampled allocations since its
    /// latest event: whether the freed block was temporary depends on it.
    fn record_unsampled_allocations(&mut self, ticks: u64) -> Result<(), WriteError> {
        let left = countdown::bytes_until_sample();
        if mem::replace(&mut self.sampling.until_sample_at_event, left) == left {
            return Ok(());
        }
        self.write_extended(ticks, &Extended::Unsampled)
    }
}
