//! The bridge: how a program that links Heapledger finds the recorder, and the hook table, by weak references to one
//! symbol each.

use core::ffi::c_int;

use heapledger_core::context::Stack;
use heapledger_core::hooks::Hooks;
use heapledger_core::pool::Pool;
use heapledger_record::{hook, process};
use heapledger_wire::event::code;

use crate::family;
use crate::init::with_guard;
use crate::pools;

/// The longest annotation, in words.
const WORDS_MAX: usize = 256;

/// The table behind `heapledger_bridge_v1`. Functions are only ever appended: a user checks `size`.
#[repr(C)]
#[derive(Debug)]
pub struct Bridge {
    /// Bytes of this table.
    size: u32,
    /// 1.
    version: u32,
    /// Whether events are being recorded now.
    is_recording: extern "C" fn() -> c_int,
    /// Writes an annotation: a code of 256 or more and at most 256 words. 0 when it was written.
    annotate: unsafe extern "C" fn(u32, *const u64, usize) -> c_int,
    /// Proposes a stack of scopes for the calling thread: memory that lives as long as the thread. Returns the one to
    /// use: the first that was proposed.
    contexts: unsafe extern "C" fn(*mut Stack) -> *mut Stack,
    /// A pool gave out a block: its address, below 2⁴⁷, and bytes.
    pool_allocated: unsafe extern "C" fn(*const Pool, u64, u64),
    /// A pool takes the block at an address back.
    pool_freed: unsafe extern "C" fn(*const Pool, u64),
    /// A pool takes all its blocks back.
    pool_reset: unsafe extern "C" fn(*const Pool),
    /// The same, and the pool is gone.
    pool_closed: unsafe extern "C" fn(*const Pool),
    /// A block of the allocator becomes the memory of a pool: the pool's blocks stand for it.
    pool_backed: extern "C" fn(u64),
}

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
};

/// # Safety
///
/// See [`heapledger_thread::bind`].
unsafe extern "C" fn contexts(stack: *mut Stack) -> *mut Stack {
    // SAFETY: the caller's contract.
    unsafe { heapledger_thread::bind(stack) }
}

/// The hook table of this process. Also what hook libraries are given.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "the name is a C symbol")]
pub static heapledger_hooks_v1: Hooks = Hooks::new(&family::PROGRAM);

extern "C" fn is_recording() -> c_int {
    c_int::from(hook::session_is_live())
}

/// # Safety
///
/// `words` points to `count` words.
unsafe extern "C" fn annotate(number: u32, words: *const u64, count: usize) -> c_int {
    let Ok(number) = u16::try_from(number) else { return -1 };
    if number < code::ANNOTATIONS || count > WORDS_MAX || (words.is_null() && count > 0) || !process::is_on() {
        return -1;
    }
    let payload = if count == 0 {
        &[]
    } else {
        // SAFETY: the caller's contract; not null and bounded as checked above.
        unsafe { core::slice::from_raw_parts(words, count) }
    };
    if with_guard(|sp| hook::annotate(number, payload, sp)) { 0 } else { -1 }
}
