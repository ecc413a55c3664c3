//! Captures the stack of a call, within the context that the thread is in.

use core::mem;
use core::ptr;
use core::sync::atomic::Ordering;

use heapledger_core::context::{Name, ScopeStack};
use heapledger_core::hooks::Caller;
use heapledger_core::{NodeKind, StackId};
use heapledger_thread as thread;
use heapledger_unwind::arch::FrameRegisters;
use heapledger_unwind::nodes::NodeRef;
use heapledger_unwind::walk::IncompleteStacks;
use heapledger_unwind::{context, tree};
use heapledger_wire::session::mode;

use crate::block::{INSPECT_ALL, ThreadBlock};
use crate::process::Process;
use crate::{session, verify};

/// The heap that a block is from: an arena or a pool, by its name. `None` is the main heap.
pub(crate) type Heap = Option<&'static Name>;

/// True if the program wants the allocations of this thread ignored.
#[inline]
pub(crate) fn is_ignoring() -> bool {
    // SAFETY: the pointer is null or the calling thread's, by the contract of `thread::bind`.
    unsafe { context::is_ignoring(thread::contexts()) }
}

impl ThreadBlock {
    /// Captures the stack, within the context that the thread is in. `None` if the program wants
    /// the allocation ignored. Call in the usual mode only.
    ///
    /// # Safety
    ///
    /// See [`malloc`](crate::hook::malloc).
    #[inline(always)]
    pub(crate) unsafe fn capture(&mut self, caller: Caller) -> Option<StackId> {
        // SAFETY: `walk` requires *live caller*; this function's `# Safety` requires the same of
        // `caller`.
        let id = unsafe { self.walk(caller) };
        let contexts = thread::contexts();
        if contexts.is_null() {
            return Some(id);
        }
        // SAFETY: `context::is_ignoring` requires null or the calling thread's own stack. This one
        // was given to `thread::bind` in this thread, and its contract says so.
        if unsafe { context::is_ignoring(contexts) } {
            return None;
        }
        Some(self.within_context(contexts, id))
    }

    /// Does the same in any mode, for an allocation that is not to be ignored.
    ///
    /// # Safety
    ///
    /// See [`malloc`](crate::hook::malloc).
    pub(crate) unsafe fn capture_slow(&mut self, caller: Caller) -> StackId {
        let takes_stacks = session::page().mode() & mode::NO_STACKS == 0;
        // SAFETY: `walk` requires *live caller*; this function's `# Safety` requires the same of
        // `caller`.
        let id = if takes_stacks { unsafe { self.walk(caller) } } else { StackId::ROOT };
        let contexts = thread::contexts();
        if contexts.is_null() { id } else { self.within_context(contexts, id) }
    }

    /// Captures the stack of an allocation from a heap of the program's own, as
    /// [`ThreadBlock::capture_slow`] does: the heap is a leaf of it. `None` stands for the main
    /// heap.
    ///
    /// # Safety
    ///
    /// See [`malloc`](crate::hook::malloc).
    pub(crate) unsafe fn capture_in(&mut self, caller: Caller, heap: Heap) -> StackId {
        // SAFETY: `capture_slow` requires *live caller*; this function's `# Safety` requires the
        // same of `caller`.
        let stack = unsafe { self.capture_slow(caller) };
        let Some(heap) = heap else { return stack };
        let heap = ptr::from_ref(heap).expose_provenance() as u64;
        tree::child(NodeRef::of(stack), NodeKind::Heap, heap, &mut self.writer).id()
    }

    /// Returns the stack within the context that the thread is in.
    #[inline(never)]
    fn within_context(&mut self, contexts: *const ScopeStack, id: StackId) -> StackId {
        if session::page().is_without_contexts() {
            return id;
        }
        // SAFETY: not null, hence this thread's, by the contract of `thread::bind`; the names on it
        // are static, by the contract of `heapledger_core::context`.
        unsafe { self.contexts.leaf(contexts, id, &mut self.writer) }
    }

    /// # Safety
    ///
    /// See [`malloc`](crate::hook::malloc).
    #[inline(always)]
    unsafe fn walk(&mut self, caller: Caller) -> StackId {
        // SAFETY: `frame_registers` requires *live caller*, and `Walker::capture` a live frame of
        // this thread, which is the same; this function's `# Safety` requires it of `caller`. The
        // walker is this thread's.
        let id = unsafe { self.walker.capture(frame_registers(caller), &mut self.writer) };
        if self.walker.incomplete.count() != self.incomplete_counted {
            self.inspect(id);
        }
        id
    }

    /// Handles an incomplete capture, and every capture if stacks are verified.
    #[cold]
    #[inline(never)]
    fn inspect(&mut self, id: StackId) {
        let IncompleteStacks { truncated, lost } = mem::take(&mut self.walker.incomplete);
        if truncated + lost > 0 {
            count_incomplete(truncated, lost);
        }
        let position = self.producer().position();
        if self.incomplete_counted == INSPECT_ALL && !self.writer.is_folded(position) {
            // The word below the guard is the return address of the call.
            verify::check(self, self.head.guard_word, id);
        }
    }
}

/// # Safety
///
/// See [`malloc`](crate::hook::malloc).
#[inline(always)]
unsafe fn frame_registers(caller: Caller) -> FrameRegisters {
    // SAFETY: `read` requires a readable, aligned word: by *live caller*, which this function's
    // `# Safety` requires, `slot` is that of the return address, on this thread's stack.
    let return_address = unsafe { ptr::with_exposed_provenance::<u64>(caller.slot as usize).read() };
    FrameRegisters { slot: caller.slot, return_address, rbp: caller.rbp }
}

#[cold]
fn count_incomplete(truncated: u64, lost: u64) {
    if let Some(counters) = Process::get().and_then(Process::counters) {
        counters.stacks_truncated.fetch_add(truncated, Ordering::Relaxed);
        counters.stacks_dropped.fetch_add(lost, Ordering::Relaxed);
    }
}
