//! User pools: passes the calls of the bridge on to the recorder.
//!
//! An allocation has a stack, which begins at the program's frame: so its entry point is a thunk
//! like those of the malloc functions.

use core::arch::naked_asm;

use heapledger_core::hooks::Caller;
use heapledger_core::pool::{ADDRESS_END, Pool};
use heapledger_recorder::{hook, session};

use crate::guard::with_guard;

/// Records that a pool gave out a block: `(pool, address, size)`.
///
/// # Safety
///
/// The contract of the bridge: `pool` is null or points to a [`Pool`], which stays where it is
/// until this returns.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn allocated(pool: *const Pool, address: u64, size: u64) {
    naked_asm!("mov rcx, rsp", "mov r8, rbp", "jmp {target}", target = sym allocated_from)
}

/// # Safety
///
/// The contract of [`allocated`], whose thunk calls this: `slot` is the address of its return
/// address, and `rbp` its caller's.
unsafe extern "C" fn allocated_from(pool: *const Pool, address: u64, size: u64, slot: u64, rbp: u64) {
    if !session::is_on() {
        return;
    }
    // SAFETY: `as_ref` requires null or a live pool, of which only atomics change; the `# Safety`
    // of `allocated` requires the same, and its thunk passes `pool` unchanged.
    let Some(pool) = (unsafe { pool.as_ref() }) else { return };
    match (pool.id(), pool.name()) {
        // SAFETY: `hook::pools::allocation` requires *live caller* (`hook::malloc`): `slot` and
        // `rbp` are those of the caller of `allocated`, to which this function returns.
        (Some(id), Some(name)) if address < ADDRESS_END => unsafe {
            hook::pools::allocation(id, name, address, size, Caller { slot, rbp });
        },
        _ => hook::pools::count_refused(),
    }
}

/// Records that a pool takes a block back: `(pool, address)`.
///
/// # Safety
///
/// See [`allocated`].
pub(crate) unsafe extern "C" fn freed(pool: *const Pool, address: u64) {
    // SAFETY: `as_ref` requires null or a live pool, of which only atomics change; the `# Safety`
    // of `allocated` requires the same of `pool`, and this function's refers to it.
    let id = unsafe { pool.as_ref() }.and_then(Pool::known_id);
    // A pool without a number has no known blocks.
    if let Some(id) = id.filter(|_| address < ADDRESS_END && session::is_on()) {
        with_guard(|sp| hook::pools::free(id, address, sp));
    }
}

/// Records that a pool takes all its blocks back.
///
/// # Safety
///
/// See [`allocated`].
pub(crate) unsafe extern "C" fn reset(pool: *const Pool) {
    // SAFETY: `as_ref` requires null or a live pool, of which only atomics change; the `# Safety`
    // of `allocated` requires the same of `pool`, and this function's refers to it.
    let id = unsafe { pool.as_ref() }.and_then(Pool::known_id);
    if let Some(id) = id.filter(|_| session::is_on()) {
        with_guard(|sp| hook::pools::reset(id, sp));
    }
}

/// Does the same for a pool that no longer exists afterwards.
///
/// # Safety
///
/// See [`allocated`].
pub(crate) unsafe extern "C" fn closed(pool: *const Pool) {
    // SAFETY: `as_ref` requires null or a live pool, of which only atomics change; the `# Safety`
    // of `allocated` requires the same of `pool`, and this function's refers to it.
    let Some(pool) = (unsafe { pool.as_ref() }) else { return };
    pool.close(|id| {
        if session::is_on() {
            with_guard(|sp| hook::pools::reset(id, sp));
        }
    });
}

/// Records that a block of the allocator, given by its address, is backing memory of a pool from
/// now on.
///
/// # Safety
///
/// See [`allocated`].
pub(crate) unsafe extern "C" fn backed(_: *const Pool, block: u64) {
    if block != 0 && session::is_on() {
        with_guard(|sp| hook::pools::add_backing_memory(block, sp));
    }
}
