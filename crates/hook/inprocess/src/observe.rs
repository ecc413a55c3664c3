//! The functions that the hook table calls: after an allocation succeeded, and before a free
//! happens.

use heapledger_core::context::{self, Name};
use heapledger_core::hooks::{self, Arena, Caller, Observer, Pointer};
use heapledger_core::sample::Rate;
use heapledger_core::{Bytes, StackId, ThreadId, TypeId, arch, countdown};
use heapledger_ledger::{Allocated, Allocation, Freed, Key, OutOfMemory, Time};
use heapledger_thread as thread;

use crate::block::{self, ThreadBlock, UNKNOWN_THREAD, may_wait, sampled};
use crate::events::ring;
use crate::pending::{Pending, count_release, release};
use crate::{LEDGER, filter, losses, mode};

/// The ledger as an observer: notified after the recorder, and after hooks that do not state an
/// order.
pub(crate) static OBSERVER: Observer = Observer {
    name: c"ledger".as_ptr(),
    order: 100,
    realloc_begins: Some(realloc_begins),
    realloc_ends: Some(realloc_ends),
    failed: Some(failed),
    arena_allocated: Some(arena_allocated),
    arena_realloc_ends: Some(arena_realloc_ends),
    ..Observer::new(malloc, free)
};

// The functions from here to `failed` are entered through `OBSERVER` only. By the contract of
// `Observer`:
//
// - **Live caller**: `caller` is the frame of this thread that made the call. It is live, and the
//   intercepted function has yet to return to it.
// - **Fresh block**: a new block has been returned by its allocator just now. The program gets its
//   address after the observers have returned, so nobody has freed it: it is live.

unsafe extern "C" fn malloc(block: Pointer, size: usize, caller: Caller) {
    let rate = mode::rate();
    // Entry points find that out themselves if this observer is the only one.
    if rate == Rate::EXACT || !countdown::count_unsampled(size, rate.logarithm().into()) {
        // SAFETY: `allocated` requires a live `caller` and a block returned just now. Only
        // `OBSERVER` leads here, so they are a *live caller* and a *fresh block*.
        unsafe { allocated(block, size as u64, rate, None, caller) };
    }
}

unsafe extern "C" fn arena_allocated(
    arena: *const Arena,
    _: u32,
    block: Pointer,
    size: usize,
    _: usize,
    _: usize,
    caller: Caller,
) {
    let rate = mode::rate();
    if rate == Rate::EXACT || !countdown::count_unsampled(size, rate.logarithm().into()) {
        // SAFETY: `heap` requires null or a live arena, which the contract of `Observer` gives.
        // `allocated` requires a live `caller` and a block returned just now. Only `OBSERVER` leads
        // here, so they are a *live caller* and a *fresh block*.
        unsafe { allocated(block, size as u64, rate, heap(arena), caller) };
    }
}

/// Returns the heap that an arena is: its label.
///
/// # Safety
///
/// `arena` is null, or live, with a static name.
unsafe fn heap(arena: *const Arena) -> Option<&'static Name> {
    // SAFETY: `as_ref` requires null or a live arena; this function's `# Safety` requires the same.
    unsafe { arena.as_ref() }.map(|arena| arena.name)
}

unsafe extern "C" fn free(block: Pointer, caller: Caller) {
    if may_be_recorded(block) {
        freed(block as u64, caller);
    }
}

unsafe extern "C" fn realloc_begins(_: u32, old: Pointer, caller: Caller) {
    if may_be_recorded(old) {
        reallocation_begins(old as u64, caller);
    }
}

unsafe extern "C" fn realloc_ends(old: Pointer, block: Pointer, size: usize, caller: Caller) {
    // SAFETY: `reallocation_ends` requires a live `caller`, and that `block` is null or was
    // returned just now. Only `OBSERVER` leads here, so they are a *live caller* and, if not null,
    // a *fresh block*.
    unsafe { reallocation_ends(old, block, size as u64, None, caller) };
}

unsafe extern "C" fn arena_realloc_ends(
    arena: *const Arena,
    old: Pointer,
    block: Pointer,
    size: usize,
    caller: Caller,
) {
    // SAFETY: `heap` requires null or a live arena, which the contract of `Observer` gives.
    // `reallocation_ends` requires a live `caller`, and that `block` is null or was returned just
    // now. Only `OBSERVER` leads here, so they are a *live caller* and, if not null, a *fresh
    // block*.
    unsafe { reallocation_ends(old, block, size as u64, heap(arena), caller) };
}

unsafe extern "C" fn failed(_: u32, _: usize, _: usize, _: usize, _: Caller) {
    if mode::is_recording() {
        LEDGER.fail();
    }
}

/// True if the ledger may have this block, or is to count it all the same.
#[inline(always)]
fn may_be_recorded(block: Pointer) -> bool {
    mode::rate() == Rate::EXACT || filter::may_contain(block as u64)
}

/// # Safety
///
/// `caller` is the live frame of this thread to which the intercepted function has yet to return,
/// and the block was returned just now.
#[inline(never)]
unsafe fn allocated(block: Pointer, size: u64, rate: Rate, heap: Option<&'static Name>, caller: Caller) {
    // Drawn in a pause too, so that later blocks are as likely to be in the sample as ever.
    let Some(rate) = sampled(size, rate, caller.sp()) else { return };
    if !mode::is_recording() {
        return;
    }
    let Some(state) = thread::enter::<ThreadBlock>(caller.sp()) else {
        // SAFETY: `enter` requires a live block. `block` is a *fresh block*, by this function's
        // `# Safety`, and `without_thread_block` calls this at once.
        return without_thread_block(|| unsafe { enter(block, size, rate, UNKNOWN_THREAD, StackId::ROOT) });
    };
    let began = arch::ticks();
    // SAFETY: `capture_for` requires the live frame of this thread to which the intercepted
    // function has yet to return, and `stack_weight` a live block. This function's `# Safety`
    // requires such a `caller`, and a *fresh block*.
    match unsafe { state.capture_for(caller, || stack_weight(block, size, rate)) } {
        // SAFETY: `enter` requires a live block. `block` is a *fresh block*, by this function's
        // `# Safety`.
        Some(stack) => unsafe {
            let stack = state.in_heap(stack, heap);
            enter(block, size, rate, state.thread(), stack);
        },
        None => ignore(block, rate),
    }
    state.remember_countdown();
    state.finish(began);
}

/// Enters a block in the ledger. All work of the ledger for the block is part of this function, so
/// that profiles show it as one.
///
/// # Safety
///
/// The block is live.
#[inline(never)]
unsafe fn enter(block: Pointer, size: u64, rate: Rate, thread: ThreadId, stack: StackId) {
    // SAFETY: `allocation` requires a live block. This function's `# Safety` requires the same of
    // `block`.
    let new = unsafe { allocation(block, size, rate, thread, stack) };
    enter_new(&new, || LEDGER.allocate(&new));
}

fn enter_new(new: &Allocation, enter: impl FnOnce() -> Result<Allocated, OutOfMemory>) {
    // A block that is still known at this address may be displaced.
    record_free(new.key, new.thread);
    filter::add(new.key.0);
    finish_entry(new, enter());
}

/// # Safety
///
/// The block is live.
unsafe fn allocation(block: Pointer, size: u64, rate: Rate, thread: ThreadId, stack: StackId) -> Allocation {
    Allocation {
        key: Key(block as u64),
        size: Bytes(size),
        rate,
        // SAFETY: `usable_size` requires a live block. This function's `# Safety` requires the same
        // of `block`.
        usable: Bytes(unsafe { usable_size(block) }.max(size)),
        stack,
        thread,
        time: Time(arch::ticks()),
        stamp: TypeId::NONE,
    }
}

/// Notes the result of entering an allocation, for which the filter has counted.
fn finish_entry(new: &Allocation, entered: Result<Allocated, OutOfMemory>) {
    match entered {
        Ok(Allocated { serial, displaced }) => {
            if displaced.is_some() {
                // The displaced block was counted at this address, too.
                filter::remove(new.key.0);
            }
            ring::allocated(new, serial);
        }
        Err(OutOfMemory) => filter::remove(new.key.0),
    }
}

/// Notes that the program wants this block ignored. In a sample, blocks that are not in it are
/// ignored anyway.
fn ignore(block: Pointer, rate: Rate) {
    if rate == Rate::EXACT {
        let address = block as u64;
        filter::add(address);
        if !LEDGER.ignore(Key(address)).is_ok_and(|displaced| displaced.is_none()) {
            filter::remove(address);
        }
    }
}

/// Returns the usable size of a live block, as its allocator says; 0 if the allocator does not say.
///
/// # Safety
///
/// The block is live.
#[inline(always)]
unsafe fn usable_size(block: Pointer) -> u64 {
    // SAFETY: the function requires a live block of this object's allocator. `block` is live by
    // this function's `# Safety`. Nothing here excludes a block of another source, announced by
    // `Hooks::tell`.
    hooks::usable_size().map_or(0, |function| unsafe { function(block) } as u64)
}

/// Returns the number of bytes for which a block counts in the choice of those whose stacks are
/// taken. A sampled block is chosen already.
///
/// # Safety
///
/// The block is live.
unsafe fn stack_weight(block: Pointer, size: u64, rate: Rate) -> u64 {
    // SAFETY: `usable_size` requires a live block. This function's `# Safety` requires the same of
    // `block`.
    if rate == Rate::EXACT { unsafe { usable_size(block) }.max(size) } else { u64::MAX }
}

#[inline(never)]
fn freed(address: u64, caller: Caller) {
    let Some(state) = thread::enter::<ThreadBlock>(caller.sp()) else {
        return without_thread_block(|| remove(address, UNKNOWN_THREAD));
    };
    let began = arch::ticks();
    state.record_unsampled_allocations();
    remove(address, state.thread());
    state.finish(began);
}

/// True if the allocations of this thread are not recorded at the moment.
#[inline(always)]
fn is_ignoring() -> bool {
    let contexts = thread::contexts();
    // SAFETY: not null, hence this thread's, by the contract of `thread::bind`.
    !contexts.is_null() && unsafe { context::is_ignoring(contexts) }
}

fn remove(address: u64, thread: ThreadId) {
    let key = Key(address);
    record_free(key, thread);
    // A block that Heapledger frees may be from before the start of the ledger.
    let is_expected = || !mode::is_sample() && !is_ignoring();
    let freed = LEDGER.free_unknown_if(thread, key, is_expected);
    if freed != Freed::Unknown {
        filter::remove(address);
    }
}

/// Notes that the block at this address, if there is one, is about to be freed.
#[inline(always)]
fn record_free(key: Key, thread: ThreadId) {
    if ring::is_wanted()
        && let Some(block) = LEDGER.get(key)
    {
        ring::freed(&block, thread);
    }
}

#[inline(never)]
fn reallocation_begins(old: u64, caller: Caller) {
    // A thread that cannot remember what has begun records at the end that the block is gone.
    let Some(state) = thread::enter::<ThreadBlock>(caller.sp()) else { return };
    let began = arch::ticks();
    state.record_unsampled_allocations();
    let pending = LEDGER.begin_realloc(state.thread(), Key(old));
    // A block that is not in the sample has nothing to end.
    if !mode::is_sample() || pending.old() != Freed::Unknown {
        state.push_pending(Pending { old, pending });
    }
    state.finish(began);
}

/// # Safety
///
/// `caller` is the live frame of this thread to which the intercepted function has yet to return,
/// and `block` is null or was returned just now.
#[inline(never)]
unsafe fn reallocation_ends(old: Pointer, block: Pointer, size: u64, heap: Option<&'static Name>, caller: Caller) {
    let rate = mode::rate();
    let has_failed = block.is_null() && (old.is_null() || size != 0);
    if has_failed && mode::is_recording() {
        LEDGER.fail();
    }
    let drawn = if block.is_null() { None } else { sampled(size, rate, caller.sp()) };
    let is_wanted = drawn.is_some() && mode::is_recording();
    let rate = drawn.unwrap_or(rate);
    let address = old as u64;
    let Some(state) = thread::enter::<ThreadBlock>(caller.sp()) else {
        return without_thread_block(|| {
            if !has_failed && !old.is_null() {
                remove(address, UNKNOWN_THREAD);
            }
            if is_wanted {
                // SAFETY: `enter` requires a live block. `block` is a *fresh block*, by this
                // function's `# Safety`; it is not null, because `is_wanted`.
                unsafe { enter(block, size, rate, UNKNOWN_THREAD, StackId::ROOT) };
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
    // SAFETY: `capture_for` requires the live frame of this thread to which the intercepted
    // function has yet to return, and `stack_weight` a live block. This function's `# Safety`
    // requires such a `caller`, and a *fresh block*, not null if `is_wanted`.
    let stack = if is_wanted { unsafe { state.capture_for(caller, || stack_weight(block, size, rate)) } } else { None };
    let stack = stack.map(|stack| state.in_heap(stack, heap));
    let is_event = pending.is_some() || stack.is_some();
    match (pending, stack) {
        (Some(Pending { pending, .. }), Some(stack)) => {
            // SAFETY: `allocation` requires a live block. `block` is a *fresh block*, by this
            // function's `# Safety`; it is not null, because `is_wanted`.
            let mut new = unsafe { allocation(block, size, rate, state.thread(), stack) };
            // The new block has the type of the old one.
            if let Some(old) = pending.old_block() {
                new.stamp = old.stamp;
            }
            count_release(&pending, new.thread);
            filter::add(new.key.0);
            finish_entry(&new, LEDGER.finish_realloc(pending, &new));
        }
        (Some(Pending { pending, .. }), None) => release(pending, state.thread()),
        (None, Some(stack)) => {
            // For a block that is not in the sample, nothing has begun.
            if !old.is_null() && mode::is_sample() {
                // SAFETY: `allocation` requires a live block. `block` is a *fresh block*, by this
                // function's `# Safety`; it is not null, because `is_wanted`.
                let new = unsafe { allocation(block, size, rate, state.thread(), stack) };
                enter_new(&new, || LEDGER.reallocate_unsampled(&new));
            } else {
                // SAFETY: `enter` requires a live block. `block` is a *fresh block*, by this
                // function's `# Safety`; it is not null, because `is_wanted`.
                unsafe { enter(block, size, rate, state.thread(), stack) };
            }
        }
        (None, None) => {}
    }
    if is_wanted && stack.is_none() {
        ignore(block, rate);
    }
    if is_event {
        state.remember_countdown();
    }
    state.finish(began);
}

/// Handles the call of a thread that cannot enter its block. A thread whose block is gone is run
/// without it. A thread that is inside the hook may hold a lock of the ledger's: its call is
/// counted as lost.
#[cold]
#[inline(never)]
fn without_thread_block(run: impl FnOnce()) {
    if block::state().is_some_and(|block| block.is_untracked) {
        return;
    }
    if may_wait() && block::free_list().is_some() {
        run();
    } else if mode::is_recording() {
        losses::count_lost();
    }
}
