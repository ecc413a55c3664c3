//! User pools: what the bridge passes on to the recorder.
//!
//! An allocation has a stack, which begins at the program's frame: so its entry point is a thunk like those of the malloc
//! family.

use core::arch::naked_asm;

use heapledger_core::hooks::Caller;
use heapledger_core::pool::{ADDRESS_END, Pool};
use heapledger_record::hook;
use heapledger_record::process;

use crate::init::with_guard;

/// A pool gave out a block: `(pool, address, size)`.
///
/// # Safety
///
/// As in the bridge: the pool is one, and stays where it is.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn allocated(pool: *const Pool, address: u64, size: u64) {
    naked_asm!("mov rcx, rsp", "mov r8, rbp", "jmp {target}", target = sym allocated_from)
}

unsafe extern "C" fn allocated_from(pool: *const Pool, address: u64, size: u64, slot: u64, rbp: u64) {
    if !process::is_on() {
        return;
    }
    // SAFETY: the caller's contract.
    let Some(pool) = (unsafe { pool.as_ref() }) else { return };
    match (pool.id(), pool.name()) {
        // SAFETY: the thunk passed its caller's registers.
        (Some(id), Some(name)) if address < ADDRESS_END => unsafe {
            hook::pools::allocation(id, name, address, size, Caller { slot, rbp });
        },
        _ => hook::pools::refuse(),
    }
}

/// A pool takes a block back: `(pool, address)`.
///
/// # Safety
///
/// As [`allocated`].
pub(crate) unsafe extern "C" fn freed(pool: *const Pool, address: u64) {
    // SAFETY: the caller's contract.
    let id = unsafe { pool.as_ref() }.and_then(Pool::known_id);
    // A pool without number has no blocks that anybody knows of.
    if let Some(id) = id.filter(|_| address < ADDRESS_END && process::is_on()) {
        with_guard(|sp| hook::pools::free(id, address, sp));
    }
}

/// A pool takes all its blocks back.
///
/// # Safety
///
/// As [`allocated`].
pub(crate) unsafe extern "C" fn reset(pool: *const Pool) {
    // SAFETY: the caller's contract.
    let id = unsafe { pool.as_ref() }.and_then(Pool::known_id);
    if let Some(id) = id.filter(|_| process::is_on()) {
        with_guard(|sp| hook::pools::reset(id, sp));
    }
}

/// The same, and there is no such pool any more.
///
/// # Safety
///
/// As [`allocated`].
pub(crate) unsafe extern "C" fn closed(pool: *const Pool) {
    // SAFETY: the caller's contract.
    let Some(pool) = (unsafe { pool.as_ref() }) else { return };
    pool.close(|id| {
        if process::is_on() {
            with_guard(|sp| hook::pools::reset(id, sp));
        }
    });
}

/// A block of the allocator, by its address, is memory of a pool from now on.
///
/// # Safety
///
/// As [`allocated`].
pub(crate) unsafe extern "C" fn backed(_: *const Pool, block: u64) {
    if block != 0 && process::is_on() {
        with_guard(|sp| hook::pools::back(block, sp));
    }
}
