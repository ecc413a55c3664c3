//! Stacks of calls.

use core::sync::atomic::{AtomicU64, Ordering};

use heapledger_core::hooks::Caller;
use heapledger_core::{NodeKind, StackId, sys};
use heapledger_inprocess::capture;
use heapledger_unwind::{modules, nodes};

use crate::arch::Interrupted;
use crate::slots::PhcEvent;

/// The beginning of the loaded object through which calls come, whose frames are left out; 0 if it
/// is the program itself.
static DISPATCHER: AtomicU64 = AtomicU64::new(0);

/// Leaves out the innermost frames that are in the loaded object around an address.
pub(crate) fn skip_frames_of(address: u64) {
    DISPATCHER.store(modules::find(address).map_or(0, |module| module.start()), Ordering::Relaxed);
}

/// Captures the stack of a call that came to a function of ours with these stack and frame
/// pointers. Must not be called with the checker's lock held.
pub(crate) fn capture(sp: u64, rbp: u64) -> PhcEvent {
    let mut event = PhcEvent { stack: StackId::ROOT, thread: sys::thread_id() };
    if sp != 0 {
        // SAFETY: `with_stack` requires the live frame of this thread to which the called function
        // has yet to return. The functions of `arch` pass the stack pointer at which they were
        // called, where the return address is, and the caller's rbp; they return after this.
        unsafe {
            capture::with_stack(Caller { slot: sp, rbp }, |stack, _| event.stack = without_dispatcher(stack));
        }
    }
    event
}

/// Captures the stack of code that a signal has interrupted, in a handler of that signal.
pub(crate) fn capture_interrupted(at: &Interrupted) -> PhcEvent {
    let mut event = PhcEvent { stack: StackId::ROOT, thread: sys::thread_id() };
    // SAFETY: the kernel has saved these registers of the interrupted code of this thread, which
    // does not go on before the handler has returned.
    unsafe { capture::with_interrupted_stack(at.pc, at.sp, at.rbp, |stack| event.stack = stack) };
    event
}

/// Drops the innermost frames that belong to the dispatching object.
fn without_dispatcher(stack: StackId) -> StackId {
    let dispatcher = DISPATCHER.load(Ordering::Relaxed);
    let mut at = stack;
    while dispatcher != 0
        && let Some(node) = nodes::get(at).filter(|node| at != StackId::ROOT && node.is(NodeKind::Frame))
        && modules::find(node.address).is_some_and(|module| module.start() == dispatcher)
    {
        at = node.parent;
    }
    // A stack that could not be followed beyond the dispatcher is better than none.
    if at == StackId::ROOT { stack } else { at }
}

/// Returns the addresses of a stack, innermost first.
pub(crate) fn frames(stack: StackId) -> impl Iterator<Item = u64> {
    let mut at = stack;
    core::iter::from_fn(move || {
        let node = nodes::get(at).filter(|_| at != StackId::ROOT)?;
        at = node.parent;
        Some(node)
    })
    .filter(|node| node.is(NodeKind::Frame))
    .map(|node| node.address)
}
