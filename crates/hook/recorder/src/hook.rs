//! The functions that the malloc entry points call: before a free happens, and after an allocation
//! has succeeded.
//!
//! Every function here and in the modules below may be called at any moment, in any thread, nested
//! in itself by a signal. It either writes an event or counts that it could not; it never fails,
//! allocates or panics. All arguments are scalars, so that they are passed in registers.
//!
//! Some losses are not counted. In a thread without a ring, and in a signal handler that
//! interrupted the recorder, these are changes of context, annotations (their function returns
//! false), and the announcements of forks and execs. If the recorder stands still, they are the
//! names and ends of threads. Before the program has been introduced to the collector, nothing is
//! counted.

use heapledger_core::hooks::Caller;
use heapledger_core::sample::Rate;
use heapledger_core::{Api, StackId};
use heapledger_wire::event::{self, COMPACT_SIZE_END, Extended, ReallocOutcome, is_compact_address};

use crate::accept::{Kind, ended_as_free, is_paused};
use crate::attach::{enter, enter_fast, enter_in_call};
use crate::capture::{Heap, is_ignoring};
use crate::common_ring::{write_allocation_to_common_ring, write_to_common_ring};
use crate::session;
use crate::usable::usable_size;

pub(crate) mod arenas;
pub mod declarations;
pub mod mappings;
pub mod marks;
pub mod pools;
pub mod processes;
pub mod sample;
pub mod with_usable;

/// Records that `malloc(size)` returned `address`.
///
/// # Safety
///
/// *Live caller*: `caller` is the live frame of this thread to which the intercepted function has
/// yet to return, and `caller.slot` is the address of the word that holds the return address. All
/// functions here that take a `caller` require this.
#[inline(always)]
pub unsafe fn malloc(address: u64, size: u64, caller: Caller) {
    let is_compact = size < COMPACT_SIZE_END && is_compact_address(address);
    // SAFETY: `record_after` requires *live caller*; this function's `# Safety` requires the same
    // of `caller`.
    if !is_compact || unsafe { !record_after(caller, |stack| event::malloc(0, address, size, stack)) } {
        // SAFETY: `malloc_slow` requires *live caller*; this function's `# Safety` requires the
        // same of `caller`.
        unsafe { malloc_slow(address, size, caller) };
    }
}

/// # Safety
///
/// See [`malloc`].
#[cold]
#[inline(never)]
unsafe fn malloc_slow(address: u64, size: u64, caller: Caller) {
    if size >= COMPACT_SIZE_END || !is_compact_address(address) {
        // SAFETY: `allocation` requires *live caller*; this function's `# Safety` requires the same
        // of `caller`.
        return unsafe { allocation(Api::Malloc, address, size, 0, 0, caller, None) };
    }
    if is_ignoring() {
        return ignored(address, caller.sp());
    }
    // SAFETY: `record_after_slow` requires *live caller*; this function's `# Safety` requires the
    // same of `caller`.
    if unsafe { !record_after_slow(caller, |stack| event::malloc(0, address, size, stack)) } {
        write_allocation_to_common_ring(Api::Malloc, address, size, 0, 0, 0);
    }
}

/// Records that `calloc(count, each)` returned `address`.
///
/// # Safety
///
/// See [`malloc`].
#[inline(always)]
pub unsafe fn calloc(address: u64, count: u64, each: u64, caller: Caller) {
    // The call succeeded, so the product does not overflow.
    let size = count.wrapping_mul(each);
    let (Ok(count_small), Ok(each_small)) = (u32::try_from(count), u32::try_from(each)) else {
        // SAFETY: `allocation` requires *live caller*; this function's `# Safety` requires the same
        // of `caller`.
        return unsafe { allocation(Api::Calloc, address, size, 0, count, caller, None) };
    };
    if size >= COMPACT_SIZE_END || !is_compact_address(address) {
        // SAFETY: `allocation` requires *live caller*; this function's `# Safety` requires the same
        // of `caller`.
        return unsafe { allocation(Api::Calloc, address, size, 0, count, caller, None) };
    }
    // SAFETY: `record_after` requires *live caller*; this function's `# Safety` requires the same
    // of `caller`.
    if unsafe { !record_after(caller, |stack| event::calloc(0, address, count_small, each_small, stack)) } {
        // SAFETY: `calloc_slow` requires *live caller*; this function's `# Safety` requires the
        // same of `caller`.
        unsafe { calloc_slow(address, count_small, each_small, caller) };
    }
}

/// # Safety
///
/// See [`malloc`].
#[cold]
#[inline(never)]
unsafe fn calloc_slow(address: u64, count: u32, each: u32, caller: Caller) {
    if is_ignoring() {
        return ignored(address, caller.sp());
    }
    // SAFETY: `record_after_slow` requires *live caller*; this function's `# Safety` requires the
    // same of `caller`.
    if unsafe { !record_after_slow(caller, |stack| event::calloc(0, address, count, each, stack)) } {
        let size = u64::from(count) * u64::from(each);
        write_allocation_to_common_ring(Api::Calloc, address, size, 0, u64::from(count), 0);
    }
}

/// Records any allocation, with all its arguments, the heap that the block is from, and its usable
/// size if the session records them.
///
/// # Safety
///
/// See [`malloc`]. *Live block* (`usable`) holds for `address`: the call that is recorded has just
/// returned it.
#[inline(never)]
pub(crate) unsafe fn allocation(
    api: Api,
    address: u64,
    size: u64,
    alignment: u64,
    count: u64,
    caller: Caller,
    heap: Heap,
) {
    if is_ignoring() {
        return ignored(address, caller.sp());
    }
    if is_paused(Kind::Allocation) {
        return;
    }
    // SAFETY: `usable_size` requires a *live block*; this function's `# Safety` requires the same
    // of `address`.
    let usable = unsafe { usable_size(address) };
    let Some(block) = enter_in_call(caller.sp()) else {
        return write_allocation_to_common_ring(api, address, size, alignment, count, usable);
    };
    if block.skips(Kind::Allocation) {
        return;
    }
    block.begin();
    // SAFETY: `capture_in` requires *live caller*; this function's `# Safety` requires the same of
    // `caller`.
    let stack = unsafe { block.capture_in(caller, heap) };
    let ticks = block.stamp();
    let event = Extended::Alloc { api, address, size, stack, alignment, count, usable, rate: Rate::EXACT };
    let written = block.write_extended(ticks, &event);
    block.finish(written);
}

/// Records a call that should have returned a block and did not.
///
/// # Safety
///
/// See [`malloc`].
#[cold]
#[inline(never)]
pub unsafe fn failure(api: Api, size: u64, alignment: u64, count: u64, caller: Caller) {
    if is_paused(Kind::Allocation) || is_ignoring() {
        return;
    }
    let Some(block) = enter(caller.sp()) else {
        return write_to_common_ring(&Extended::Failed { api, size, stack: StackId::ROOT, alignment, count });
    };
    if block.skips(Kind::Allocation) {
        return;
    }
    block.begin();
    // SAFETY: `capture_slow` requires *live caller*; this function's `# Safety` requires the same
    // of `caller`.
    let stack = unsafe { block.capture_slow(caller) };
    let ticks = block.stamp();
    let written = block.write_extended(ticks, &Extended::Failed { api, size, stack, alignment, count });
    block.finish(written);
}

/// Records that `free(address)` is about to happen. `sp` is the caller's stack pointer, here and
/// below: the word below it holds the return address, or another value that stays until the
/// function returns. In a library that is placed into a program, the call is a redirected one:
/// its thunk has put the thread's slot below that word.
#[inline(always)]
pub fn free(address: u64, sp: u64) {
    if !is_compact_address(address) || !record_before(sp, event::free(0, address)) {
        free_slow(address, sp);
    }
}

#[cold]
#[inline(never)]
fn free_slow(address: u64, sp: u64) {
    if !is_compact_address(address) {
        free_with(Api::Free, address, 0, 0, sp);
    } else if !record_before_slow(sp, event::free(0, address)) {
        write_to_common_ring(&Extended::Free { api: Api::Free, address, size: 0, alignment: 0 });
    }
}

/// Records any free, with all its arguments, before it happens.
#[inline(never)]
pub fn free_with(api: Api, address: u64, size: u64, alignment: u64, sp: u64) {
    if is_paused(Kind::Free) {
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
    let written = block.write_extended(ticks, &event);
    block.finish(written);
}

/// Records that a reallocation of `address` is about to happen.
#[inline(always)]
pub fn reallocation_begins(api: Api, address: u64, sp: u64) {
    if !is_compact_address(address) || !record_before(sp, event::realloc_begin(0, address)) {
        reallocation_begins_slow(api, address, sp);
    }
}

#[cold]
#[inline(never)]
fn reallocation_begins_slow(api: Api, address: u64, sp: u64) {
    if is_paused(Kind::Free) {
        return;
    }
    let event = Extended::ReallocBegin { api, address };
    if !is_compact_address(address) {
        let Some(block) = enter(sp) else { return write_to_common_ring(&event) };
        if block.skips(Kind::Free) {
            return;
        }
        block.begin();
        let ticks = block.stamp();
        let written = block.write_extended(ticks, &event);
        block.finish(written);
    } else if !record_before_slow(sp, event::realloc_begin(0, address)) {
        write_to_common_ring(&event);
    }
}

/// Records the end of the reallocation that this thread began last.
///
/// # Safety
///
/// See [`malloc`].
#[inline(always)]
pub unsafe fn reallocation_ends(
    api: Api,
    outcome: ReallocOutcome,
    address: u64,
    size: u64,
    count: u64,
    caller: Caller,
) {
    let is_compact = is_compact_end(api, outcome, address, size);
    // SAFETY: `record_after` requires *live caller*; this function's `# Safety` requires the same
    // of `caller`.
    if !is_compact || unsafe { !record_after(caller, |stack| event::realloc_end(0, address, size, stack)) } {
        // SAFETY: `reallocation_ends_slow` requires *live caller*; this function's `# Safety`
        // requires the same of `caller`.
        unsafe { reallocation_ends_slow(api, outcome, address, size, count, caller, None) };
    }
}

/// Does the same as [`reallocation_ends`] for a block of an arena.
///
/// # Safety
///
/// See [`malloc`].
#[inline(never)]
pub(crate) unsafe fn arena_reallocation_ends(
    api: Api,
    outcome: ReallocOutcome,
    address: u64,
    size: u64,
    count: u64,
    caller: Caller,
    heap: Heap,
) {
    // SAFETY: `reallocation_ends_slow` requires *live caller*; this function's `# Safety` requires
    // the same of `caller`.
    unsafe { reallocation_ends_slow(api, outcome, address, size, count, caller, heap) };
}

/// True if the end of a reallocation fits a compact event.
#[inline(always)]
fn is_compact_end(api: Api, outcome: ReallocOutcome, address: u64, size: u64) -> bool {
    api == Api::Realloc && outcome == ReallocOutcome::Returned && size < COMPACT_SIZE_END && is_compact_address(address)
}

/// # Safety
///
/// See [`malloc`].
#[cold]
#[inline(never)]
unsafe fn reallocation_ends_slow(
    api: Api,
    outcome: ReallocOutcome,
    address: u64,
    size: u64,
    count: u64,
    caller: Caller,
    heap: Heap,
) {
    // The beginning of the reallocation is not recorded either.
    if is_paused(Kind::Free) {
        return;
    }
    let is_ignored = outcome == ReallocOutcome::Returned && is_ignoring();
    let usable = match outcome {
        // SAFETY: `usable_size` requires a *live block*: the call that is recorded has returned it.
        ReallocOutcome::Returned => unsafe { usable_size(address) },
        ReallocOutcome::Failed | ReallocOutcome::Freed => 0,
    };
    let Some(block) = enter(caller.sp()) else {
        if is_ignored {
            write_to_common_ring(&ended_as_free(api));
            return write_to_common_ring(&Extended::Ignored { address });
        }
        let stack = StackId::ROOT;
        return write_to_common_ring(&Extended::ReallocEnd {
            api,
            outcome,
            address,
            size,
            stack,
            count,
            usable,
            rate: Rate::EXACT,
        });
    };
    if is_ignored {
        block.end_as_free(api);
        return ignored(address, caller.sp());
    }
    if session::page().mode() != 0 && outcome == ReallocOutcome::Returned && !block.accepts(Kind::Allocation) {
        return block.end_as_free(api);
    }
    block.begin();
    // SAFETY: `capture_in` requires *live caller*; this function's `# Safety` requires the same of
    // `caller`.
    let stack = unsafe { block.capture_in(caller, heap) };
    let ticks = block.stamp();
    let is_compact = is_compact_end(api, outcome, address, size) && usable == 0;
    if is_compact {
        return block.write_and_finish(ticks, &mut event::realloc_end(0, address, size, stack));
    }
    let event = Extended::ReallocEnd { api, outcome, address, size, stack, count, usable, rate: Rate::EXACT };
    let written = block.write_extended(ticks, &event);
    block.finish(written);
}

/// Records an allocation that the program wants ignored, so that the collector recognizes its free.
#[cold]
#[inline(never)]
fn ignored(address: u64, sp: u64) {
    if is_paused(Kind::Allocation) {
        return;
    }
    let event = Extended::Ignored { address };
    let Some(block) = enter(sp) else { return write_to_common_ring(&event) };
    if block.skips(Kind::Allocation) {
        return;
    }
    block.begin();
    let ticks = block.stamp();
    let written = block.write_extended(ticks, &event);
    block.finish(written);
}

/// Records an event with a stack, after the call that it describes, on the fast path. False if the
/// fast path does not apply; then nothing has been recorded.
///
/// # Safety
///
/// See [`malloc`].
#[inline(always)]
unsafe fn record_after<const N: usize>(caller: Caller, event: impl Fn(StackId) -> [u64; N]) -> bool {
    let Some(block) = enter_fast(caller.sp()) else { return false };
    block.begin();
    // SAFETY: `capture` requires *live caller*; this function's `# Safety` requires the same of
    // `caller`.
    let Some(stack) = (unsafe { block.capture(caller) }) else {
        block.producer().end();
        block.head.leave();
        return false;
    };
    let ticks = block.stamp();
    let words = event(stack);
    if block.producer().write_fast(ticks, words) {
        block.finish_written();
    } else {
        block.write_and_finish(ticks, &mut { words });
    }
    true
}

/// Does what [`record_after`] does in all other cases. False if the thread cannot use a ring.
///
/// # Safety
///
/// See [`malloc`].
unsafe fn record_after_slow<const N: usize>(caller: Caller, event: impl Fn(StackId) -> [u64; N]) -> bool {
    if is_paused(Kind::Allocation) {
        return true;
    }
    let Some(block) = enter(caller.sp()) else { return false };
    if block.skips(Kind::Allocation) {
        return true;
    }
    block.begin();
    // SAFETY: `capture_slow` requires *live caller*; this function's `# Safety` requires the same
    // of `caller`.
    let mut words = event(unsafe { block.capture_slow(caller) });
    let ticks = block.stamp();
    block.write_and_finish(ticks, &mut words);
    true
}

/// Records an event before the call that it describes, on the fast path. False if the fast path
/// does not apply; then nothing has been recorded.
#[inline(always)]
fn record_before<const N: usize>(sp: u64, words: [u64; N]) -> bool {
    let Some(block) = enter_fast(sp) else { return false };
    block.begin();
    let ticks = block.stamp();
    let is_written = block.producer().write_fast(ticks, words);
    if is_written {
        block.finish_written();
    } else {
        block.producer().end();
        block.head.leave();
    }
    is_written
}

/// Does what [`record_before`] does in all other cases. False if the thread cannot use a ring.
fn record_before_slow<const N: usize>(sp: u64, mut words: [u64; N]) -> bool {
    if is_paused(Kind::Free) {
        return true;
    }
    let Some(block) = enter(sp) else { return false };
    if block.skips(Kind::Free) {
        return true;
    }
    block.begin();
    let ticks = block.stamp();
    block.write_and_finish(ticks, &mut words);
    true
}
