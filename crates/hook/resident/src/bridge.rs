//! The ledger's end of the bridge: receives the program's contexts and pools if no recorder does.

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
use core::arch::naked_asm;
use core::ffi::c_int;
use core::ptr;

use heapledger_core::bridge::{self, Bridge, Extent, Marking};
use heapledger_core::context::{Name, Stack};
use heapledger_core::hooks::Caller;
use heapledger_core::pool::{ADDRESS_END, Pool};
use heapledger_core::sample::Rate;
use heapledger_core::stamp::Place;
use heapledger_core::{Bytes, TypeId, arch};
use heapledger_ledger::{Allocation, Key, Time};
use heapledger_thread as thread;

use crate::block::{ThreadBlock, query, thread_number};
use crate::{LEDGER, control, marks};

/// The functions of the ledger.
pub const BRIDGE: Bridge = Bridge {
    size: size_of::<Bridge>() as u32,
    version: 1,
    is_recording,
    annotate,
    contexts,
    pool_allocated,
    pool_freed,
    pool_reset,
    pool_closed,
    pool_backed,
    set_context,
    ledger: ptr::null(),
    stamp,
    mark,
    block_around,
    unmark,
    clear_marks,
    marks_complete,
};

static OFFERED: Bridge = BRIDGE;

/// Makes the ledger available to the program, which finds it unless a recorder observes it.
pub(crate) fn offer() {
    bridge::offer(&OFFERED);
}

extern "C" fn is_recording() -> c_int {
    c_int::from(control::is_recording())
}

/// Fails: there is no recording for an annotation to be in.
unsafe extern "C" fn annotate(_: u32, _: *const u64, _: usize) -> c_int {
    -1
}

/// # Safety
///
/// See [`thread::bind`].
unsafe extern "C" fn contexts(stack: *mut Stack) -> *mut Stack {
    // SAFETY: the caller's contract.
    unsafe { thread::bind(stack) }
}

/// Records that a pool gave out a block: `(pool, address, size)`.
///
/// # Safety
///
/// The contract of the bridge: the pool is one, and stays where it is.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[unsafe(naked)]
unsafe extern "C" fn pool_allocated(pool: *const Pool, address: u64, size: u64) {
    naked_asm!("mov rcx, rsp", "mov r8, rbp", "jmp {target}", target = sym pool_allocated_from)
}

/// Does the same without a frame: no ledger runs.
#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
unsafe extern "C" fn pool_allocated(pool: *const Pool, address: u64, size: u64) {
    // SAFETY: the caller's contract; no frame is looked at.
    unsafe { pool_allocated_from(pool, address, size, 0, 0) };
}

unsafe extern "C" fn pool_allocated_from(pool: *const Pool, address: u64, size: u64, slot: u64, rbp: u64) {
    if !control::is_recording() {
        return;
    }
    // SAFETY: the caller's contract.
    let Some(pool) = (unsafe { pool.as_ref() }) else { return };
    if let (Some(id), Some(name)) = (pool.id(), pool.name())
        && address < ADDRESS_END
    {
        // SAFETY: the thunk passed its caller's registers.
        unsafe { allocated(id, name, address, size, Caller { slot, rbp }) };
    } else {
        control::count_lost();
    }
}

/// # Safety
///
/// `caller` is a live frame of this thread.
unsafe fn allocated(pool: u32, name: &'static Name, address: u64, size: u64, caller: Caller) {
    let Some(state) = thread::enter::<ThreadBlock>(caller.sp()) else { return control::count_lost() };
    let began = arch::ticks();
    // SAFETY: `caller` is live, by this function's contract.
    if let Some(stack) = unsafe { state.capture_for(caller, || size) } {
        let stack = state.in_heap(stack, name);
        let (key, size, thread) = (Key::in_pool(pool, address), Bytes(size), state.thread());
        // Pools are not sampled.
        let (time, stamp, rate) = (Time(began), TypeId::NONE, Rate::EXACT);
        // The ledger counts what it refuses.
        let _ = LEDGER.allocate(&Allocation { key, size, rate, usable: size, stack, thread, time, stamp });
    }
    state.finish(began);
}

/// Records that a pool takes a block back.
///
/// # Safety
///
/// See [`pool_allocated`].
unsafe extern "C" fn pool_freed(pool: *const Pool, address: u64) {
    // SAFETY: the caller's contract.
    let id = unsafe { pool.as_ref() }.and_then(Pool::known_id);
    if let Some(id) = id.filter(|_| address < ADDRESS_END && control::is_running()) {
        tell(|| {
            // A block that was allocated before the ledger was started, or in a pause, is unknown
            // to it.
            let _ = LEDGER.free(thread_number(), Key::in_pool(id, address));
        });
    }
}

/// Records that a pool takes all its blocks back.
///
/// # Safety
///
/// See [`pool_allocated`].
unsafe extern "C" fn pool_reset(pool: *const Pool) {
    // SAFETY: the caller's contract.
    if let Some(id) = unsafe { pool.as_ref() }.and_then(Pool::known_id) {
        reset(id);
    }
}

/// Does the same for a pool that no longer exists afterwards.
///
/// # Safety
///
/// See [`pool_allocated`].
unsafe extern "C" fn pool_closed(pool: *const Pool) {
    // SAFETY: the caller's contract.
    if let Some(pool) = unsafe { pool.as_ref() } {
        pool.close(reset);
    }
}

fn reset(id: u32) {
    if control::is_running() {
        tell(|| {
            LEDGER.reset_pool(thread_number(), id);
        });
    }
}

/// Records that a block of the allocator, given by its address, is backing memory of a pool from
/// now on.
///
/// # Safety
///
/// See [`pool_allocated`].
unsafe extern "C" fn pool_backed(pool: *const Pool, block: u64) {
    if block != 0 && control::is_running() {
        // SAFETY: the caller's contract.
        let id = unsafe { pool.as_ref() }.and_then(Pool::id).unwrap_or(0);
        tell(|| {
            // A sample may not have the block: then the ledger has nothing to change.
            if !control::is_sample() || LEDGER.get(Key(block)).is_some() {
                LEDGER.back(thread_number(), Key(block), id);
            }
        });
    }
}

/// Records that a live block, given by its address, belongs to the context that the calling thread
/// is in.
unsafe extern "C" fn set_context(block: u64) {
    if control::is_running() {
        // A block that is unknown stays so.
        marks::set_context(block);
    }
}

/// Records the program's declaration of what the live block at, or around, an address is.
///
/// # Safety
///
/// The contract of the bridge: the name and the place are static.
unsafe extern "C" fn stamp(block: u64, type_name: *const u8, length: u32, place: *const Place) -> c_int {
    if type_name.is_null() || !control::is_running() {
        return 0;
    }
    // SAFETY: the caller's contract.
    c_int::from(unsafe { marks::stamp(block, type_name, length, place) })
}

/// Records that a reporter has reported a block.
///
/// # Safety
///
/// The contract of the bridge: the name is static.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[unsafe(naked)]
unsafe extern "C" fn mark(block: u64, marking: *const Marking) -> c_int {
    naked_asm!("mov rdx, rsp", "mov rcx, rbp", "jmp {target}", target = sym mark_from)
}

/// Does the same without a frame: no ledger runs.
#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
unsafe extern "C" fn mark(block: u64, marking: *const Marking) -> c_int {
    // SAFETY: the caller's contract; no frame is looked at.
    unsafe { mark_from(block, marking, 0, 0) }
}

unsafe extern "C" fn mark_from(block: u64, marking: *const Marking, slot: u64, rbp: u64) -> c_int {
    // SAFETY: the caller's contract.
    let Some(marking) = (unsafe { marking.as_ref() }) else { return bridge::mark::UNKNOWN };
    // SAFETY: the caller's contract: the name is static; the thunk passed its caller's registers.
    unsafe { marks::mark(block, marking, Caller { slot, rbp }) }
}

/// Records that a reporter takes its mark off a block.
///
/// # Safety
///
/// The contract of the bridge: the name is static.
unsafe extern "C" fn unmark(block: u64, reporter: *const u8, length: u32) -> c_int {
    if reporter.is_null() || !control::is_running() {
        return 0;
    }
    // SAFETY: the caller's contract.
    c_int::from(unsafe { marks::unmark(block, reporter, length) })
}

/// Clears the marks: reporters are about to be asked.
extern "C" fn clear_marks() {
    tell(|| LEDGER.begin_marks());
}

/// Notes that all reporters have been asked.
extern "C" fn marks_complete() {
    tell(|| LEDGER.marks_complete());
}

/// Returns the live block around an address.
///
/// # Safety
///
/// `extent` is null or may be written.
unsafe extern "C" fn block_around(address: u64, extent: *mut Extent) -> c_int {
    if extent.is_null() || !control::is_running() {
        return 0;
    }
    let Some(found) = marks::block_around(address) else { return 0 };
    // SAFETY: the caller's contract.
    unsafe { extent.write(found) };
    1
}

/// Updates the ledger, unless this is a signal handler that interrupted it.
fn tell(run: impl FnOnce()) {
    if query(run).is_none() {
        control::count_lost();
    }
}
