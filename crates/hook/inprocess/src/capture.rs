//! Stacks for another hook of this loaded object, which does its own accounting.

use heapledger_core::hooks::Caller;
use heapledger_core::{StackId, ThreadId};
use heapledger_thread::{self as thread, Block};
use heapledger_unwind::arch::FrameRegisters;

use crate::block::{self, Nodes, ThreadBlock, UNKNOWN_THREAD, may_wait};
use crate::{control, library};

/// Registers handlers around each fork that goes through the C library. The handlers do not
/// allocate. Before a fork they run ahead of the ledger's own, which take its locks, and after it
/// behind them: so they may wait for a thread that allocates.
pub fn watch_forks(before: extern "C" fn(), in_parent: extern "C" fn(), in_child: extern "C" fn()) {
    // The ledger's handlers are registered first. Without memory for them there is no ledger,
    // either.
    let _ = prepare();
    library::watch_forks(before, in_parent, in_child);
}

/// Makes ready what [`with_stack`] needs. Its fork handlers come before those that are registered
/// after it has returned. Idempotent.
///
/// # Errors
///
/// The system gives no memory.
pub fn prepare() -> Result<(), control::StartError> {
    control::prepare()
}

/// Runs a function with the native stack of a call and the number of its thread, while allocator
/// calls of this thread keep out, for instance from a signal handler. The stack is the root for a
/// thread that is ending, and for calls that the hooks themselves have caused. Returns `false`, and
/// runs nothing, in a handler that interrupted the ledger.
///
/// # Safety
///
/// `caller` is the live frame of this thread to which the called function has yet to return.
pub unsafe fn with_stack(caller: Caller, run: impl FnOnce(StackId, ThreadId)) -> bool {
    if let Some(state) = thread::enter::<ThreadBlock>(caller.sp()) {
        // SAFETY: `read` requires a readable, aligned word, and `Walker::capture` a live frame of
        // this thread. By this function's `# Safety`, `caller.slot` is the word of this thread's
        // stack that holds the return address. The walker is this thread's.
        let stack = unsafe {
            let word = core::ptr::with_exposed_provenance::<u64>(caller.slot as usize);
            let position = FrameRegisters { slot: caller.slot, return_address: word.read(), rbp: caller.rbp };
            state.walker().capture(position, &mut Nodes)
        };
        run(stack, state.thread());
        state.head.leave();
        return true;
    }
    let is_untracked = block::state().is_some_and(|block| block.is_untracked);
    if block::free_list().is_some() && (is_untracked || may_wait()) {
        run(StackId::ROOT, UNKNOWN_THREAD);
        return true;
    }
    false
}

/// Runs a function with the native stack of code of this thread that a signal has interrupted,
/// given its program counter, stack pointer and rbp. Returns `false`, and runs nothing, if the
/// signal has interrupted the ledger, or the thread cannot enter it.
///
/// # Safety
///
/// The caller is a handler of that signal, and has the registers from the kernel's signal frame.
pub unsafe fn with_interrupted_stack(pc: u64, sp: u64, rbp: u64, run: impl FnOnce(StackId)) -> bool {
    let Some(state) = thread::enter::<ThreadBlock>(sp) else { return false };
    let position = FrameRegisters { slot: sp.wrapping_sub(8), return_address: pc.wrapping_add(1), rbp };
    // No word of the stack leads to the interrupted frame, so it must not be remembered.
    state.walker().forget();
    // SAFETY: `Walker::capture` requires a live frame of this thread. By this function's `#
    // Safety`, that is the interrupted one, which continues at `pc`. The walker is this thread's.
    let stack = unsafe { state.walker().capture(position, &mut Nodes) };
    state.walker().forget();
    run(stack);
    state.head.leave();
    true
}
