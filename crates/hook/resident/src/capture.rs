//! Stacks for another hook of this artefact, which keeps books of its own.

use heapledger_core::hooks::Caller;
use heapledger_core::{StackId, ThreadId};
use heapledger_thread::{self as thread, Block, Current};
use heapledger_unwind::arch::Position;

use crate::block::{Nodes, ThreadBlock, UNKNOWN_THREAD, may_wait};
use crate::{control, library};

/// Asks to be called around each fork that goes through the C library. The handlers do not allocate. Before a fork they come ahead of the
/// ledger's own, which take its locks, and after it behind them: so whoever allocates may be waited for.
pub fn watch_forks(before: extern "C" fn(), in_parent: extern "C" fn(), in_child: extern "C" fn()) {
    // The ledger's are registered first. Without memory for them there is no ledger, either.
    let _ = prepare();
    library::watch_forks(before, in_parent, in_child);
}

/// Makes ready what [`with_stack`] needs. Its fork handlers come before those that are registered after it has
/// returned. Idempotent.
///
/// # Errors
///
/// The system gives no memory.
pub fn prepare() -> Result<(), control::StartError> {
    control::prepare()
}

/// Runs something with the native stack of a call and the number of its thread, while calls of the allocator that this
/// thread makes keep out: in a signal handler, for instance. Of a thread that is ending, and of calls that the hooks
/// themselves have caused, the stack is the root. `false`: this is such a handler, and nothing was run.
///
/// # Safety
///
/// `caller` is a live frame of this thread, to which the function that was called has yet to return.
pub unsafe fn with_stack(caller: Caller, run: impl FnOnce(StackId, ThreadId)) -> bool {
    if let Some(state) = thread::enter::<ThreadBlock>(caller.sp()) {
        // SAFETY: by the caller's contract the word is of this thread's stack, and the walker is this thread's.
        let stack = unsafe {
            let word = core::ptr::with_exposed_provenance::<u64>(caller.slot as usize);
            let position = Position { slot: caller.slot, return_address: word.read(), rbp: caller.rbp };
            state.walker().capture(position, &mut Nodes)
        };
        run(stack, state.thread());
        state.head.leave();
        return true;
    }
    let is_internal = match thread::current::<ThreadBlock>() {
        // SAFETY: this thread's block; the field is plain and may be read at any moment.
        Current::Block(block) => unsafe { (*block.as_ptr()).head.is_internal },
        _ => false,
    };
    if control::pool().is_some() && (is_internal || may_wait()) {
        run(StackId::ROOT, UNKNOWN_THREAD);
        return true;
    }
    false
}
