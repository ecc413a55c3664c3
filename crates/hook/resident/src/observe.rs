//! What the hook table calls: an allocation after it succeeded, a free before it happens.

use heapledger_core::hooks::{self, Caller, Observer, Pointer};
use heapledger_core::{Bytes, StackId, ThreadId, arch};
use heapledger_ledger::{Allocated, Allocation, Freed, Key, OutOfMemory, SharedPending, Time};
use heapledger_thread::{self as thread, Current};

use crate::block::{Pending, ThreadBlock, UNKNOWN_THREAD, may_wait};
use crate::{LEDGER, control, estimate, filter};

/// The ledger as an observer: told after the recorder, and after hooks that say nothing of their order.
pub(crate) static OBSERVER: Observer = Observer {
    name: c"ledger".as_ptr(),
    order: 100,
    realloc_begins: Some(realloc_begins),
    realloc_ends: Some(realloc_ends),
    failed: Some(failed),
    ..Observer::new(malloc, free)
};

// The contract of all is that of `Observer`: `caller` is a live frame of this thread.

unsafe extern "C" fn malloc(block: Pointer, size: usize, caller: Caller) {
    let (size, mean) = (size as u64, control::mean());
    if mean != 0
        && let Some(state) = thread::open::<ThreadBlock>()
        && state.mean == mean
        && state.until_sample > size
        && size != 0
    {
        state.until_sample -= size;
        return;
    }
    // SAFETY: see above.
    unsafe { allocated(block, size, mean, caller) };
}

unsafe extern "C" fn free(block: Pointer, caller: Caller) {
    let address = block as u64;
    if control::mean() == 0 || filter::may_hold(address) {
        freed(address, caller);
    }
}

unsafe extern "C" fn realloc_begins(_: u32, old: Pointer, caller: Caller) {
    let address = old as u64;
    if control::mean() == 0 || filter::may_hold(address) {
        reallocation_begins(address, caller);
    }
}

unsafe extern "C" fn realloc_ends(old: Pointer, block: Pointer, size: usize, caller: Caller) {
    // SAFETY: see above.
    unsafe { reallocation_ends(old, block, size as u64, caller) };
}

unsafe extern "C" fn failed(_: u32, _: usize, _: usize, _: usize, _: Caller) {
    if control::is_recording() {
        LEDGER.fail();
    }
}

/// # Safety
///
/// See above.
#[inline(never)]
unsafe fn allocated(block: Pointer, size: u64, mean: u64, caller: Caller) {
    if !control::is_recording() {
        return;
    }
    let Some(state) = thread::enter::<ThreadBlock>(caller.sp()) else {
        // SAFETY: the block was returned just now.
        return outside(|| unsafe { enter(block, size, mean, UNKNOWN_THREAD, StackId::ROOT) });
    };
    if mean != 0 && !state.is_sampled(size, mean) {
        return state.head.leave();
    }
    let began = arch::ticks();
    // SAFETY: see above; the block was returned just now.
    match unsafe { state.capture_for(caller, || stack_weight(block, size, mean)) } {
        // SAFETY: the block was returned just now.
        Some(stack) => unsafe { enter(block, size, mean, state.thread(), stack) },
        None => ignore(block, mean),
    }
    state.finish(began);
}

/// Enters a block in the ledger.
///
/// # Safety
///
/// The block is live.
unsafe fn enter(block: Pointer, size: u64, mean: u64, thread: ThreadId, stack: StackId) {
    // SAFETY: passed on.
    let new = unsafe { allocation(block, size, mean, thread, stack) };
    if control::is_sample() {
        forget_sample(new.key);
    }
    filter::add(new.key.0);
    note(&new, LEDGER.allocate(&new));
}

/// # Safety
///
/// The block is live.
unsafe fn allocation(block: Pointer, size: u64, mean: u64, thread: ThreadId, stack: StackId) -> Allocation {
    Allocation {
        key: Key(block as u64),
        size: Bytes(size),
        // SAFETY: passed on.
        usable: Bytes(unsafe { usable_size(block) }.max(size)),
        stack,
        thread,
        time: Time(arch::ticks()),
        stamp: control::rate_stamp(mean),
    }
}

/// An allocation was to be entered, for which the filter has counted.
fn note(new: &Allocation, entered: Result<Allocated, OutOfMemory>) {
    match entered {
        Ok(Allocated { displaced: None, .. }) => {}
        // The displaced one was counted at this address, too.
        Ok(_) => filter::remove(new.key.0),
        Err(OutOfMemory) => return filter::remove(new.key.0),
    }
    estimate::allocated(new.size, new.stamp);
}

/// The program wants this block ignored. In a sample all that are not in it are.
fn ignore(block: Pointer, mean: u64) {
    if mean == 0 {
        let address = block as u64;
        filter::add(address);
        if !LEDGER.ignore(Key(address)).is_ok_and(|displaced| displaced.is_none()) {
            filter::remove(address);
        }
    }
}

/// What of a live block may be used, as its allocator says; 0 where it does not say.
///
/// # Safety
///
/// The block is live.
#[inline(always)]
unsafe fn usable_size(block: Pointer) -> u64 {
    // SAFETY: passed on.
    hooks::usable_size().map_or(0, |function| unsafe { function(block) } as u64)
}

/// For how many bytes a block counts in the choice of those whose stacks are taken: what is sampled is chosen already.
///
/// # Safety
///
/// The block is live.
unsafe fn stack_weight(block: Pointer, size: u64, mean: u64) -> u64 {
    // SAFETY: passed on.
    if mean == 0 { unsafe { usable_size(block) }.max(size) } else { u64::MAX }
}

#[inline(never)]
fn freed(address: u64, caller: Caller) {
    let Some(state) = thread::enter::<ThreadBlock>(caller.sp()) else {
        return outside(|| remove(address, UNKNOWN_THREAD));
    };
    let began = arch::ticks();
    remove(address, state.thread());
    state.finish(began);
}

fn remove(address: u64, thread: ThreadId) {
    let key = Key(address);
    let freed = if control::is_sample() {
        forget_sample(key);
        LEDGER.free_if_known(thread, key)
    } else {
        LEDGER.free(thread, key)
    };
    if freed != Freed::Unknown {
        filter::remove(address);
    }
}

/// A block that may have been sampled is about to go.
#[cold]
fn forget_sample(key: Key) {
    if let Some(block) = LEDGER.get(key) {
        estimate::freed(block.size, block.stamp);
    }
}

#[inline(never)]
fn reallocation_begins(old: u64, caller: Caller) {
    // A thread that cannot keep what has begun says at the end that the block is gone.
    let Some(state) = thread::enter::<ThreadBlock>(caller.sp()) else { return };
    let began = arch::ticks();
    let pending = LEDGER.begin_realloc(state.thread(), Key(old));
    state.push_pending(Pending { old, pending });
    state.finish(began);
}

/// # Safety
///
/// See above.
#[inline(never)]
unsafe fn reallocation_ends(old: Pointer, block: Pointer, size: u64, caller: Caller) {
    let mean = control::mean();
    let has_failed = block.is_null() && (old.is_null() || size != 0);
    if has_failed && control::is_recording() {
        LEDGER.fail();
    }
    let address = old as u64;
    let Some(state) = thread::enter::<ThreadBlock>(caller.sp()) else {
        return outside(|| {
            if !has_failed && !old.is_null() {
                remove(address, UNKNOWN_THREAD);
            }
            if !block.is_null() && control::is_recording() {
                // SAFETY: the block was returned just now.
                unsafe { enter(block, size, mean, UNKNOWN_THREAD, StackId::ROOT) };
            }
        });
    };
    let began = arch::ticks();
    let pending = if old.is_null() { None } else { state.take_pending(address) };
    if has_failed {
        if let Some(Pending { pending, .. }) = pending {
            LEDGER.cancel_realloc(pending);
        }
        return state.finish(began);
    }
    let is_wanted = !block.is_null() && control::is_recording() && (mean == 0 || state.is_sampled(size, mean));
    // SAFETY: see above; the block was returned just now.
    let stack = if is_wanted { unsafe { state.capture_for(caller, || stack_weight(block, size, mean)) } } else { None };
    match (pending, stack) {
        (Some(Pending { pending, .. }), Some(stack)) => {
            // SAFETY: the block was returned just now.
            let mut new = unsafe { allocation(block, size, mean, state.thread(), stack) };
            // It is another block, but of what the old one was.
            if let Some(old) = pending.old_block() {
                new.stamp = control::with_type(new.stamp, control::type_of(old.stamp));
            }
            count_release(&pending);
            filter::add(new.key.0);
            note(&new, LEDGER.finish_realloc(pending, &new));
        }
        (Some(Pending { pending, .. }), None) => release(pending),
        // SAFETY: the block was returned just now.
        (None, Some(stack)) => unsafe { enter(block, size, mean, state.thread(), stack) },
        (None, None) => {}
    }
    if is_wanted && stack.is_none() {
        ignore(block, mean);
    }
    state.finish(began);
}

/// A reallocation ends as a free.
pub(crate) fn release(pending: SharedPending) {
    count_release(&pending);
    LEDGER.finish_as_free(pending);
}

/// The old block of a reallocation is about to go for good.
fn count_release(pending: &SharedPending) {
    if let Some(old) = pending.old_block() {
        filter::remove(old.key.0);
        estimate::freed(old.size, old.stamp);
    }
}

/// The call of a thread that cannot enter its block. One whose block is gone is on its own; one that is inside the hook
/// may hold a lock of the ledger's: what it does is counted as lost.
#[cold]
#[inline(never)]
fn outside(run: impl FnOnce()) {
    if let Current::Block(block) = thread::current::<ThreadBlock>() {
        // SAFETY: this thread's block; the field is plain and may be read at any moment.
        if unsafe { (*block.as_ptr()).head.is_internal } {
            return;
        }
    }
    if may_wait() && control::pool().is_some() {
        run();
    } else if control::is_recording() {
        control::count_lost();
    }
}
