//! Stacks of calls.

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicU64, Ordering};

use heapledger_core::hooks::Caller;
use heapledger_core::{StackId, sys};
use heapledger_inprocess::capture;
use heapledger_unwind::{modules, nodes};

use crate::arch::Interrupted;
use crate::slots::PhcEvent;

/// The beginnings of the loaded objects through which calls come, whose frames are left out: the
/// one with the hook table, and the allocator. 0 if it is the program itself.
static DISPATCHERS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Leaves out the innermost frames that are in the loaded objects around two addresses.
pub(crate) fn skip_frames_of(addresses: [u64; 2]) {
    for (dispatcher, address) in DISPATCHERS.iter().zip(addresses) {
        dispatcher.store(modules::find(address).map_or(0, |module| module.start()), Ordering::Relaxed);
    }
}

/// Leaves out the innermost frames that are in the library that this code is in. Those of a program
/// that contains this code are shown.
pub(crate) fn skip_own_library() {
    let own = skip_own_library as fn() as usize as u64;
    if modules::find(own).is_some_and(|module| !module.bias_and_path().1.is_empty()) {
        skip_frames_of([own, 0]);
    }
}

/// True if both addresses are in the same loaded object.
pub(crate) fn are_in_one_object(one: u64, other: u64) -> bool {
    let start = |address| modules::find(address).map(|module| module.start());
    start(one).is_some() && start(one) == start(other)
}

/// Captures the stack of a call that came to a function of ours with these stack and frame
/// pointers. Must not be called with the checker's lock held.
pub(crate) fn capture(sp: u64, rbp: u64) -> PhcEvent {
    let mut event = PhcEvent { thread: sys::thread_id(), ..PhcEvent::default() };
    if sp != 0 {
        // SAFETY: `with_stack` requires the live frame of this thread to which the called function
        // has yet to return. The functions of `arch` pass the stack pointer at which they were
        // called, where the return address is, and the caller's rbp; they return after this.
        unsafe {
            capture::with_stack(Caller { slot: sp, rbp }, |stack, _| event.stack = without_dispatcher(stack));
        }
        event.context = capture::present_context(sp, event.stack);
    }
    event
}

/// Captures the stack of code that a signal has interrupted, in a handler of that signal.
pub(crate) fn capture_interrupted(at: &Interrupted) -> PhcEvent {
    let mut event = PhcEvent { thread: sys::thread_id(), ..PhcEvent::default() };
    // SAFETY: the kernel has saved these registers of the interrupted code of this thread, which
    // does not go on before the handler has returned.
    unsafe { capture::with_interrupted_stack(at.pc, at.sp, at.rbp, |stack| event.stack = stack) };
    event.context = capture::present_context(at.sp, event.stack);
    event
}

/// Drops the innermost frames that belong to the dispatching objects.
fn without_dispatcher(stack: StackId) -> StackId {
    let dispatchers = DISPATCHERS.each_ref().map(|dispatcher| dispatcher.load(Ordering::Relaxed));
    let mut at = stack;
    while dispatchers != [0, 0]
        && let Some(node) = nodes::get(at).filter(|node| at != StackId::ROOT && node.is_frame())
        && modules::find(node.address).is_some_and(|module| dispatchers.contains(&module.start()))
    {
        at = node.parent;
    }
    // A stack that could not be followed beyond the dispatcher is better than none.
    if at == StackId::ROOT { stack } else { at }
}

/// Writes a context, outermost scope first: `request{17} > parse`. Control characters are replaced,
/// so that it is a part of a line.
pub(crate) fn write_context(out: &mut dyn Write, context: StackId) -> fmt::Result {
    /// The innermost scopes that are written.
    const SCOPES_MAX: usize = 16;
    let count = capture::scopes(context).take(SCOPES_MAX).count();
    for number in (0..count).rev() {
        let Some((name, value)) = capture::scopes(context).nth(number) else { continue };
        write_text(out, name.bytes())?;
        if let Some(value) = value {
            out.write_char('{')?;
            write_text(out, value.bytes())?;
            out.write_char('}')?;
        }
        if number > 0 {
            out.write_str(" > ")?;
        }
    }
    Ok(())
}

/// Writes the beginning of a text of the program's.
fn write_text(out: &mut dyn Write, text: &[u8]) -> fmt::Result {
    const BYTES_MAX: usize = 128;
    for chunk in text.get(..BYTES_MAX).unwrap_or(text).utf8_chunks() {
        for letter in chunk.valid().chars() {
            out.write_char(if letter.is_control() { '\u{fffd}' } else { letter })?;
        }
    }
    Ok(())
}

/// Returns the addresses of a stack, innermost first.
pub(crate) fn frames(stack: StackId) -> impl Iterator<Item = u64> {
    let mut at = stack;
    core::iter::from_fn(move || {
        let node = nodes::get(at).filter(|_| at != StackId::ROOT)?;
        at = node.parent;
        Some(node)
    })
    .filter(|node| node.is_frame())
    .map(|node| node.address)
}
