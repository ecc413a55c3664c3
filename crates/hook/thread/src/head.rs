//! Gate and guard.

use core::ptr;
use core::sync::atomic::{Ordering, compiler_fence};

/// [`Head::gate`] of a block that is attached, with its thread outside the hook.
pub const GATE_OPEN: u64 = 1;
/// [`Head::gate`] of a block that is not ready: fresh, or found wiped after a fork.
pub const GATE_UNATTACHED: u64 = 0;

/// The first fields of every block. Zeroed memory is valid.
#[derive(Debug)]
#[repr(C)]
pub struct Head<B> {
    /// [`GATE_OPEN`], [`GATE_UNATTACHED`], or, inside the hook, the stack pointer at which it was
    /// entered: the guard.
    pub gate: u64,
    /// The content of the word below the guard: the return address of the call that is being
    /// handled.
    pub guard_word: u64,
    /// The next block on the list of free blocks.
    pub(crate) next: *mut B,
    /// The block that was listed before this one: see [`FreeList::for_each`](crate::FreeList).
    pub(crate) listed_before: *mut B,
    /// True if the block is listed.
    pub(crate) is_listed: bool,
    /// The number of iterations of key destructors that have run.
    pub(crate) iterations: u32,
    /// True while we call the C library: calls that come back are not the program's.
    pub is_untracked: bool,
}

impl<B> Clone for Head<B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B> Copy for Head<B> {}

impl<B> Head<B> {
    /// Closes the gate. `sp` is the stack pointer of a frame of this thread; the word below it is
    /// the return address of the call, or another word that does not change meanwhile.
    #[inline(always)]
    pub fn close(&mut self, sp: u64) {
        // SAFETY: by the contract above it is a word of this thread's stack.
        self.guard_word = unsafe { ptr::with_exposed_provenance::<u64>(sp as usize - 8).read_volatile() };
        // SAFETY: our own field; volatile so that a signal handler of this thread sees it.
        unsafe { ptr::from_mut(&mut self.gate).write_volatile(sp) };
        compiler_fence(Ordering::SeqCst);
    }

    /// Opens the gate.
    #[inline(always)]
    pub fn leave(&mut self) {
        compiler_fence(Ordering::SeqCst);
        // SAFETY: writes our own field, to which `self` is the only reference; volatile, so that a
        // signal handler of this thread sees it.
        unsafe { ptr::from_mut(&mut self.gate).write_volatile(GATE_OPEN) };
    }
}
