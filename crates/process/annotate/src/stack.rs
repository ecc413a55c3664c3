//! The scope stack of the calling thread.
//!
//! The functions of [`heapledger_core::context`] require the calling thread's *own stack*: a stack
//! that is valid until the thread ends, and that only this thread uses, and hooks that run in it.
//! [`current`] and [`known`] return that stack. [`bind`] keeps it in a thread-local variable. It is
//! the one that [`own`] made for the thread, or one that another part of the program proposed for
//! the thread before, under the same contract. Its address is passed to no other thread.

use std::cell::Cell;
use std::ptr;

use heapledger_core::bridge;
use heapledger_core::context::ScopeStack;

#[cfg(all(not(miri), target_arch = "x86_64", target_os = "linux"))]
use crate::storage;

thread_local! {
    /// The scope stack that the thread uses: an observer's, if an observer had one for this thread
    /// first. Null until the thread's first scope.
    static BOUND: Cell<*mut ScopeStack> = const { Cell::new(ptr::null_mut()) };
}

/// Returns the calling thread's stack. The variable has no destructor, and stacks are not freed, so
/// the stack exists as long as the thread.
#[inline(always)]
pub(crate) fn current() -> *mut ScopeStack {
    let bound = BOUND.get();
    if bound.is_null() { bind() } else { bound }
}

/// Returns the calling thread's stack, if the thread has been in a scope.
#[inline(always)]
pub(crate) fn known() -> Option<*mut ScopeStack> {
    let bound = BOUND.get();
    (!bound.is_null()).then_some(bound)
}

/// Tells all observers where the thread's scopes are: the preload library, or another library with
/// an observer, and the observer in this program. The thread uses the stack that these return, so
/// that there is only one.
#[cold]
#[inline(never)]
fn bind() -> *mut ScopeStack {
    let mut stack = own();
    if cfg!(any(miri, not(all(target_arch = "x86_64", target_os = "linux")))) {
        // Nobody observes, and whether anybody does is found out in assembly.
        BOUND.set(stack);
        return stack;
    }
    if let Some(contexts) = bridge::find().and_then(|observer| observer.contexts()) {
        // SAFETY: `contexts` of a `Bridge` requires a stack that lives as long as the thread, of
        // this thread alone, which `own` has returned.
        stack = unsafe { contexts(stack) };
    }
    // SAFETY: `bind` requires a stack that lives as long as the thread, of this thread alone. `own`
    // has returned it, or another part of the program that has proposed it under the same contract.
    stack = unsafe { heapledger_thread::bind(stack) };
    BOUND.set(stack);
    stack
}

/// Returns a stack of this part of the program, for the calling thread.
#[cfg(all(not(miri), target_arch = "x86_64", target_os = "linux"))]
fn own() -> *mut ScopeStack {
    storage::take()
}

/// Returns a stack with the lifetime of the thread. On platforms without Heapledger's own system
/// calls, and under Miri, no hook keeps its address.
#[cfg(not(all(not(miri), target_arch = "x86_64", target_os = "linux")))]
fn own() -> *mut ScopeStack {
    use heapledger_core::context::ScopeStackCell;
    thread_local! {
        static OWN: ScopeStackCell = const { ScopeStackCell::new() };
    }
    OWN.with(ScopeStackCell::get)
}
