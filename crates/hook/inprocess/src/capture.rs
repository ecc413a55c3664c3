//! Stacks for another hook of this loaded object, which does its own accounting.

use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use heapledger_core::context::{Name, ScopeStack};
use heapledger_core::hooks::Caller;
use heapledger_core::{NodeKind, StackId, ThreadId};
use heapledger_thread::{self as thread, Block};
use heapledger_unwind::arch::FrameRegisters;
use heapledger_unwind::nodes;

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

/// A function that returns the calling thread's stack of scopes, if it is passed null: the entry
/// `contexts` of the bridge of another loaded object.
pub type ContextSource = unsafe extern "C" fn(*mut ScopeStack) -> *mut ScopeStack;

/// A [`ContextSource`], or null.
static SOURCE: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// Has contexts found that the program declares to another loaded object.
///
/// # Safety
///
/// The function is that of a bridge, of an object that is never unloaded.
pub unsafe fn set_context_source(source: ContextSource) {
    SOURCE.store(source as *mut (), Ordering::Release);
}

/// Makes the scopes of this thread known to this object, if the program declares them to another
/// one.
fn bind_contexts() {
    let source = SOURCE.load(Ordering::Acquire);
    if source.is_null() || !thread::contexts().is_null() {
        return;
    }
    // SAFETY: `transmute` demands a `ContextSource`, from which `set_context_source` made the
    // pointer. The bridge's function proposes the stack that it is passed, and returns the one in
    // use: with null it changes nothing. `bind` demands this thread's own stack of scopes, which
    // that is, for as long as the thread may call its allocator.
    unsafe {
        let stack = core::mem::transmute::<*mut (), ContextSource>(source)(ptr::null_mut());
        if !stack.is_null() {
            thread::bind(stack);
        }
    }
}

/// Returns the id of the context that this thread is in, as a leaf above the stack; the root if it
/// is in none, or cannot enter the ledger. `sp` is the stack pointer of the code that the caller
/// observes.
///
/// The names of its scopes are those of the program, and are found by [`scopes`].
pub fn present_context(sp: u64, stack: StackId) -> StackId {
    bind_contexts();
    let Some(state) = thread::enter::<ThreadBlock>(sp) else { return StackId::ROOT };
    let leaf = state.in_present_context(stack);
    state.head.leave();
    if leaf == stack { StackId::ROOT } else { leaf }
}

/// Returns the names of the scopes of a context that [`present_context`] has returned, each with
/// its value, innermost first. Allocates nothing.
pub fn scopes(context: StackId) -> impl Iterator<Item = (&'static Name, Option<&'static Name>)> {
    let mut at = nodes::get(context).filter(|node| node.is(NodeKind::Context)).map(|node| StackId(node.address as u32));
    core::iter::from_fn(move || {
        let mut value = None;
        while let Some(node) = at.filter(|&id| id != StackId::ROOT).and_then(nodes::get) {
            at = Some(node.parent);
            if node.is(NodeKind::Value) {
                value = name(node.address);
            } else if node.is(NodeKind::Scope) {
                return Some((name(node.address)?, value));
            }
        }
        None
    })
}

fn name(address: u64) -> Option<&'static Name> {
    // SAFETY: nodes of contexts have addresses of names, which are static
    // (`heapledger_core::context`).
    unsafe { ptr::with_exposed_provenance::<Name>(address as usize).as_ref() }
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
