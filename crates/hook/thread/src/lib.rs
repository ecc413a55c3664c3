//! The data that a hook keeps for each thread, and how a thread gets it.
//!
//! A TLS word points to the thread's *block*: a mapping that a forked child finds zeroed, with the
//! fields that every hook needs (the [`Head`], a [`Walker`]) and those that its user adds. The word
//! is 0 until the thread's first call, 1 once its block has been given up. A loaded object with a
//! hook (the preload library, a program that links Heapledger) has one such user.
//!
//! - [`Block`]: the interface of a user's blocks; [`enter`], [`open`]: access to this thread's
//!   block.
//! - [`Head`]: gate and guard.
//! - [`contexts`]: the other word, which points to the scopes that the thread is in.
//! - [`FreeList`]: blocks whose threads have ended; [`KeyFunctions`]: how a thread's
//!   end is detected.
//!
//! # The guard
//!
//! While a thread is inside its hook, the gate holds the stack pointer at which it was entered. A
//! call that finds such a gate is nested: a signal handler interrupted the hook, or the C library
//! called back. A guard whose frame is gone (`siglongjmp`) is stale, and is reset.
#![no_std]

mod arch;
mod contexts;
mod exit;
mod free_list;
mod head;

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

use heapledger_core::{sandbox, sys};
use heapledger_unwind::walk::Walker;

pub use contexts::{bind, contexts};
use exit::watch_exit;
#[cfg(all(placed, target_arch = "x86_64", target_os = "linux"))]
pub use exit::watch_slots;
pub use exit::{KeyFunctions, create_key, create_key_later, share_key};
pub use free_list::FreeList;
pub use head::{GATE_OPEN, GATE_UNATTACHED, Head};

/// A thread's block, as its user defines it.
///
/// # Safety
///
/// Zeroed memory is a valid block, which is not attached. Blocks are handed on, never dropped, so
/// the type has no destructor that matters. `head` and `walker` return fields of the block itself;
/// the head is at its start.
pub unsafe trait Block: Sized + 'static {
    /// Returns the gate, the guard and the list link.
    fn head(&mut self) -> &mut Head<Self>;

    /// Returns the walker for the thread's stacks.
    fn walker(&mut self) -> &mut Walker;

    /// Returns the free list: blocks whose threads have ended; `None` while the hook is off.
    fn free_list() -> Option<&'static FreeList<Self>>;

    /// False while the hook wants no thread to enter.
    fn is_on() -> bool {
        true
    }

    /// Makes a block whose gate is not open ready for its thread, closes the gate at `sp`, and
    /// returns true; or leaves it unattached, and returns false.
    fn attach(&mut self, sp: u64) -> bool;

    /// Recovers after the hook was left by a jump. True if the block can be used further; then its
    /// state is that after an event that has not been written.
    fn recover(&mut self) -> bool;

    /// Ends the block's use by a thread that is about to end. The gate is open, and the thread
    /// makes no further call.
    fn end(&mut self);

    /// Ends the block's use by a thread that has ended already. The gate is open; the caller is
    /// another thread, and nobody uses the block.
    fn end_elsewhere(&mut self) {
        self.end();
    }
}

/// The value of the thread's TLS word when its block has been given up.
const WORD_TORN_DOWN: usize = 1;

static BYTES: AtomicU64 = AtomicU64::new(0);
static BLOCKS: AtomicU64 = AtomicU64::new(0);

/// The state of this thread's TLS word.
#[derive(Debug)]
pub enum Current<B> {
    /// The thread has no block yet.
    None,
    /// The thread has given its block up.
    TornDown,
    /// The thread's block.
    Block(NonNull<B>),
}

/// Returns this thread's block.
#[inline(always)]
pub fn current<B: Block>() -> Current<B> {
    of_word(arch::thread_word())
}

/// Returns the block of a thread's word.
#[inline(always)]
fn of_word<B: Block>(word: usize) -> Current<B> {
    match word {
        0 => Current::None,
        WORD_TORN_DOWN => Current::TornDown,
        word => match NonNull::new(core::ptr::with_exposed_provenance_mut(word)) {
            Some(block) => Current::Block(block),
            None => Current::None,
        },
    }
}

/// Returns this thread's block, if its gate is open. The caller must close the gate by
/// [`Head::close`] before anything else in the block is used.
#[inline(always)]
pub fn open<B: Block>() -> Option<&'static mut B> {
    open_if(current())
}

/// Does the same as [`open`] during a call of an entry point, whose caller has this stack pointer.
/// In a library that is placed into a program, it must be a redirected call
/// (`of_call` of `thread_slots` in `hook/core`).
#[inline(always)]
pub fn open_in_call<B: Block>(sp: u64) -> Option<&'static mut B> {
    open_if(of_word(arch::thread_word_in_call(sp)))
}

#[inline(always)]
fn open_if<B: Block>(current: Current<B>) -> Option<&'static mut B> {
    let Current::Block(block) = current else { return None };
    // SAFETY: a thread's block is used by that thread alone. A signal handler that interrupts us
    // finds the gate closed and accesses the head only; the fields that it reads there are written
    // by the volatile store in `Head::close`.
    let block = unsafe { &mut *block.as_ptr() };
    (block.head().gate == GATE_OPEN).then_some(block)
}

/// Closes the gate of this thread's block at `sp`; `None` if the thread has no usable block, or is
/// inside already.
#[inline(always)]
pub fn enter<B: Block>(sp: u64) -> Option<&'static mut B> {
    if let Some(block) = open::<B>() {
        block.head().close(sp);
        return Some(block);
    }
    enter_slow(sp)
}

/// Enters if the gate is not open: the thread is new, or its block is not attached, or it is inside
/// already, or seems to be.
#[cold]
#[inline(never)]
fn enter_slow<B: Block>(sp: u64) -> Option<&'static mut B> {
    let free_list = B::free_list()?;
    let (block, is_adopted) = match current::<B>() {
        Current::TornDown => return None,
        Current::None if B::is_on() => (adopt(free_list, sp)?, true),
        Current::None => return None,
        Current::Block(block) => (block, false),
    };
    // SAFETY: as in `open`.
    let block = unsafe { &mut *block.as_ptr() };
    if !is_adopted && block.head().gate != GATE_UNATTACHED {
        // A signal handler has interrupted the hook, or the C library calls back, or the guard is
        // stale.
        if block.head().is_untracked || !is_guard_stale(block, sp) {
            return None;
        }
        block.walker().forget();
        if block.recover() {
            block.head().close(sp);
            return Some(block);
        }
    }
    // A guard that was stale has been reset all the same.
    if !B::is_on() {
        block.head().gate = GATE_UNATTACHED;
        return None;
    }
    if !block.head().is_listed {
        // As in `adopt`, for a block that a fork has wiped.
        block.head().gate = sp;
        block.head().is_untracked = true;
        free_list.list(block);
        block.head().is_untracked = false;
    }
    block.attach(sp).then_some(block)
}

/// True if the frame at which the hook was entered is gone because of a jump.
fn is_guard_stale<B: Block>(block: &mut B, sp: u64) -> bool {
    /// The minimum distance between the guard and a frame of a signal handler that interrupted the
    /// hook: the hook's frames, the red zone, the signal frame.
    const NESTED_DISTANCE_MIN: u64 = 512;
    let Head { gate: guard, guard_word, .. } = *block.head();
    if !block.walker().is_own_stack(guard, sp) {
        return false;
    }
    // SAFETY: the guard is on the thread's own stack, verified above; the word is above sp, or else
    // the first condition has returned.
    let word = || unsafe { core::ptr::with_exposed_provenance::<u64>(guard as usize - 8).read_volatile() };
    sp + NESTED_DISTANCE_MIN > guard || word() != guard_word
}

/// Gives this thread a block: one whose thread has ended, or a new one. The gate is closed at `sp`.
#[cold]
fn adopt<B: Block>(free_list: &FreeList<B>, sp: u64) -> Option<NonNull<B>> {
    // In a sandbox no memory can be mapped.
    let new = || if sandbox::is_entered() { None } else { new_block() };
    let block = free_list.pop().or_else(new)?;
    // SAFETY: the block is valid: zeroed, or as its last thread has left it (`Block`). It is ours
    // alone: `pop` has removed it from the free list, or `new_block` has just mapped it, and no TLS
    // word leads to it yet.
    let state = unsafe { &mut *block.as_ptr() };
    state.head().gate = sp;
    state.head().iterations = 0;
    state.walker().start_thread();
    arch::set_thread_word(block.as_ptr().expose_provenance());
    // From here on calls of this thread see the closed gate. A signal handler must not use the
    // block before it is listed.
    state.head().is_untracked = true;
    // The gate is seen to be closed by whoever goes through the list from here on.
    free_list.list(state);
    watch_exit::<B>(block.as_ptr().cast());
    state.head().is_untracked = false;
    Some(block)
}

fn new_block<B: Block>() -> Option<NonNull<B>> {
    let length = size_of::<B>();
    let memory = sys::map_private(length).ok()?;
    sys::dont_dump(memory, length);
    BYTES.fetch_add(length as u64, Ordering::Relaxed);
    BLOCKS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: just mapped; a zeroed block is unattached, which is the state that a child must find.
    unsafe { sys::wipe_on_fork(memory, length) }.ok()?;
    NonNull::new(memory.cast())
}

/// Adds new blocks to the free list until it has so many, for threads that begin when no memory can
/// be mapped. `prepare` makes each ready for any thread; the first one that it refuses is the last.
pub fn add_spare<B: Block>(count: usize, mut prepare: impl FnMut(&mut B) -> bool) {
    let Some(free_list) = B::free_list() else { return };
    for _ in free_list.count()..count {
        let Some(block) = new_block::<B>() else { return };
        // SAFETY: the block is valid, and ours alone: `new_block` has just mapped it.
        let state = unsafe { &mut *block.as_ptr() };
        state.head().gate = GATE_UNATTACHED;
        let is_ready = prepare(state);
        free_list.list(state);
        free_list.push(block);
        if !is_ready {
            return;
        }
    }
}

/// Returns the number of blocks that have taken memory in this process.
pub fn blocks() -> u64 {
    BLOCKS.load(Ordering::Relaxed)
}

/// Resets the count in a forked child, which finds all blocks zeroed.
pub fn start_child() {
    BLOCKS.store(0, Ordering::Relaxed);
}

/// Returns the number of bytes mapped for blocks so far.
pub fn bytes_mapped() -> u64 {
    BYTES.load(Ordering::Relaxed)
}
