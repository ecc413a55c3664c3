//! The recorder's end of the bridge.

use core::arch::naked_asm;
use core::ffi::c_int;

use heapledger_core::bridge::{self, Bridge, Extent, Marking};
use heapledger_core::context::ScopeStack;
use heapledger_core::hooks::Caller;
use heapledger_core::stamp::Place;
use heapledger_recorder::hook::{declarations, marks};
use heapledger_recorder::{process, session};
use heapledger_wire::event::{Extended, code};

use crate::guard::with_guard;
use crate::pools;

/// The longest annotation, in words.
const WORDS_MAX: usize = 256;

/// Version 1 of the bridge.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "the name is a C symbol")]
pub static heapledger_bridge_v1: Bridge = Bridge {
    size: size_of::<Bridge>() as u32,
    version: 1,
    is_recording,
    annotate,
    contexts,
    pool_allocated: pools::allocated,
    pool_freed: pools::freed,
    pool_reset: pools::reset,
    pool_closed: pools::closed,
    pool_backed: pools::backed,
    set_context,
    ledger: core::ptr::null(),
    stamp,
    mark,
    block_around,
    unmark,
    clear_marks,
    marks_complete,
};

/// # Safety
///
/// The contract of the bridge: `type_name` is null or points to `length` bytes, and `place` is null
/// or points to a [`Place`]. Both are static.
unsafe extern "C" fn stamp(block: u64, type_name: *const u8, length: u32, place: *const Place) -> c_int {
    if block == 0 || type_name.is_null() || !session::is_on() {
        return 0;
    }
    // SAFETY: `declarations::stamp` requires a static name of this length, and null or a static
    // place; this function's `# Safety` requires the same.
    c_int::from(with_guard(|sp| unsafe { declarations::stamp(block, type_name, length, place, sp) }))
}

/// Marks a block as reported. A thunk, like that of [`set_context`].
///
/// # Safety
///
/// The contract of the bridge: `marking` is null or points to a [`Marking`], which stays unchanged
/// until this returns. The reporter's name is null, or static and as long as the marking says.
#[unsafe(naked)]
unsafe extern "C" fn mark(block: u64, marking: *const Marking) -> c_int {
    naked_asm!("mov rdx, rsp", "mov rcx, rbp", "jmp {target}", target = sym mark_from)
}

/// # Safety
///
/// The contract of [`mark`], whose thunk calls this: `slot` is the address of its return address,
/// and `rbp` its caller's.
unsafe extern "C" fn mark_from(block: u64, marking: *const Marking, slot: u64, rbp: u64) -> c_int {
    // SAFETY: `as_ref` requires null or a live marking; the `# Safety` of `mark` requires the same,
    // and its thunk passes `marking` unchanged.
    let Some(marking) = (unsafe { marking.as_ref() }) else { return bridge::mark::UNKNOWN };
    if block == 0 || marking.reporter.is_null() || !session::is_on() {
        return bridge::mark::UNKNOWN;
    }
    // SAFETY: `marks::mark` requires a static name, as `mark` does, and *live caller*
    // (`hook::malloc`): `slot` and `rbp` are those of the caller of `mark`, to which this function
    // returns.
    let is_recorded = unsafe { marks::mark(block, marking, Caller { slot, rbp }) };
    if is_recorded { bridge::mark::RECORDED } else { bridge::mark::UNKNOWN }
}

/// # Safety
///
/// The contract of the bridge: `reporter` is null or points to `length` bytes, which are static.
unsafe extern "C" fn unmark(block: u64, reporter: *const u8, length: u32) -> c_int {
    if block == 0 || reporter.is_null() || !session::is_on() {
        return 0;
    }
    // SAFETY: `marks::unmark` requires a static name of this length; this function's `# Safety`
    // requires the same of `reporter`.
    c_int::from(with_guard(|sp| unsafe { marks::unmark(block, reporter, length, sp) }))
}

extern "C" fn clear_marks() {
    if session::is_on() {
        with_guard(|sp| marks::marks_event(&Extended::MarksCleared, sp));
    }
}

extern "C" fn marks_complete() {
    if session::is_on() {
        with_guard(|sp| marks::marks_event(&Extended::MarksComplete, sp));
    }
}

/// Finds nothing: the register is in another process.
///
/// # Safety
///
/// None is needed: the pointer is not used.
unsafe extern "C" fn block_around(_: u64, _: *mut Extent) -> c_int {
    0
}

/// # Safety
///
/// See [`heapledger_thread::bind`].
unsafe extern "C" fn contexts(stack: *mut ScopeStack) -> *mut ScopeStack {
    // SAFETY: `heapledger_thread::bind` requires what this function's `# Safety` requires of
    // `stack`.
    unsafe { heapledger_thread::bind(stack) }
}

/// Sets the context of a block. A thunk, like those of the malloc functions: the stack begins at
/// the program's frame.
///
/// # Safety
///
/// None is needed: any number may be passed.
#[unsafe(naked)]
unsafe extern "C" fn set_context(block: u64) {
    naked_asm!("mov rsi, rsp", "mov rdx, rbp", "jmp {target}", target = sym set_context_from)
}

/// # Safety
///
/// The thunk of [`set_context`] calls this: `slot` is the address of its return address, and `rbp`
/// its caller's.
unsafe extern "C" fn set_context_from(block: u64, slot: u64, rbp: u64) {
    if block != 0 && session::is_on() {
        // SAFETY: `declarations::set_context` requires *live caller* (`hook::malloc`): `slot` and
        // `rbp` are those of the caller of `set_context`, to which this function returns.
        unsafe { declarations::set_context(block, Caller { slot, rbp }) };
    }
}

extern "C" fn is_recording() -> c_int {
    c_int::from(process::session_is_live())
}

/// # Safety
///
/// `words` points to `count` words, aligned, which do not change until this returns. It may be null
/// if there are none.
unsafe extern "C" fn annotate(number: u32, words: *const u64, count: usize) -> c_int {
    let Ok(number) = u16::try_from(number) else { return -1 };
    if number < code::ANNOTATIONS || count > WORDS_MAX || (words.is_null() && count > 0) || !session::is_on() {
        return -1;
    }
    let payload = if count == 0 {
        &[]
    } else {
        // SAFETY: `from_raw_parts` requires `count` words at an aligned pointer that is not null:
        // it was compared with null above, and this function's `# Safety` requires the rest of
        // `words`.
        unsafe { core::slice::from_raw_parts(words, count) }
    };
    if with_guard(|sp| declarations::annotate(number, payload, sp)) { 0 } else { -1 }
}
