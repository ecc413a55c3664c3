//! The ledger's end of the bridge: receives the program's contexts and pools if no recorder does.
//!
//! **Passed pool**: a pool that the program passes by the bridge is null, or points to a [`Pool`]
//! that stays where it is until the function returns. All changes to it are atomic.

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
use core::arch::naked_asm;
use core::ffi::c_int;
use core::ptr;

use heapledger_core::bridge::{self, Bridge, Extent, Marking};
use heapledger_core::context::{Name, ScopeStack};
use heapledger_core::hooks::Caller;
use heapledger_core::pool::{ADDRESS_END, Pool};
use heapledger_core::sample::Rate;
use heapledger_core::stamp::Place;
use heapledger_core::{Bytes, TypeId, arch};
use heapledger_ledger::{Allocation, Key, Time};
use heapledger_thread as thread;

use crate::block::{ThreadBlock, query, thread_number};
use crate::{LEDGER, losses, marks, mode};

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

static TABLE: Bridge = BRIDGE;

/// Makes the ledger available to the program, which finds it unless a recorder observes it.
pub(crate) fn offer() {
    bridge::offer(&TABLE);
}

extern "C" fn is_recording() -> c_int {
    c_int::from(mode::is_recording())
}

/// Fails: there is no recording for an annotation to be in.
unsafe extern "C" fn annotate(_: u32, _: *const u64, _: usize) -> c_int {
    -1
}

/// # Safety
///
/// See [`thread::bind`].
unsafe extern "C" fn contexts(stack: *mut ScopeStack) -> *mut ScopeStack {
    // SAFETY: `thread::bind` requires a stack that is valid as long as this thread may call its
    // allocator, and that only this thread uses. This function's `# Safety` requires the same of
    // `stack`.
    unsafe { thread::bind(stack) }
}

/// Records that a pool gave out a block: `(pool, address, size)`.
///
/// # Safety
///
/// `pool` is a [passed pool](self).
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[unsafe(naked)]
unsafe extern "C" fn pool_allocated(pool: *const Pool, address: u64, size: u64) {
    naked_asm!("mov rcx, rsp", "mov r8, rbp", "jmp {target}", target = sym pool_allocated_from)
}

/// Does the same without a frame: no ledger runs.
///
/// # Safety
///
/// `pool` is a [passed pool](self).
#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
unsafe extern "C" fn pool_allocated(pool: *const Pool, address: u64, size: u64) {
    // SAFETY: `pool_allocated_from` requires a *passed pool*, as this function's `# Safety` does,
    // and a live frame if the ledger records. It does not: `control::start` refuses this system.
    unsafe { pool_allocated_from(pool, address, size, 0, 0) };
}

/// # Safety
///
/// `pool` is a [passed pool](self). If the ledger records, `slot` and `rbp` are those of the live
/// frame of this thread to which the called function has yet to return: [`pool_allocated`] passes
/// the registers that it was called with, and jumps.
unsafe extern "C" fn pool_allocated_from(pool: *const Pool, address: u64, size: u64, slot: u64, rbp: u64) {
    if !mode::is_recording() {
        return;
    }
    // SAFETY: `as_ref` requires null, or a live, aligned pool that nobody borrows mutably. It is a
    // *passed pool*, by this function's `# Safety`.
    let Some(pool) = (unsafe { pool.as_ref() }) else { return };
    if let (Some(id), Some(name)) = (pool.id(), pool.name())
        && address < ADDRESS_END
    {
        // SAFETY: `allocated` requires the live frame of this thread to which the called function
        // has yet to return. By this function's `# Safety`, `slot` and `rbp` are that frame if the
        // ledger records, as tested above.
        unsafe { allocated(id, name, address, size, Caller { slot, rbp }) };
    } else {
        losses::count_lost();
    }
}

/// # Safety
///
/// `caller` is the live frame of this thread to which the called function has yet to return.
unsafe fn allocated(pool: u32, name: &'static Name, address: u64, size: u64, caller: Caller) {
    let Some(state) = thread::enter::<ThreadBlock>(caller.sp()) else { return losses::count_lost() };
    let began = arch::ticks();
    // SAFETY: `capture_for` requires the live frame of this thread to which the intercepted
    // function has yet to return. This function's `# Safety` requires the same of `caller`.
    if let Some(stack) = unsafe { state.capture_for(caller, || size) } {
        let stack = state.in_heap(stack, Some(name));
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
/// `pool` is a [passed pool](self).
unsafe extern "C" fn pool_freed(pool: *const Pool, address: u64) {
    // SAFETY: `as_ref` requires null, or a live, aligned pool that nobody borrows mutably. It is a
    // *passed pool*, by this function's `# Safety`.
    let id = unsafe { pool.as_ref() }.and_then(Pool::known_id);
    if let Some(id) = id.filter(|_| address < ADDRESS_END && mode::is_running()) {
        update(|| {
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
/// `pool` is a [passed pool](self).
unsafe extern "C" fn pool_reset(pool: *const Pool) {
    // SAFETY: `as_ref` requires null, or a live, aligned pool that nobody borrows mutably. It is a
    // *passed pool*, by this function's `# Safety`.
    if let Some(id) = unsafe { pool.as_ref() }.and_then(Pool::known_id) {
        reset(id);
    }
}

/// Does the same for a pool that no longer exists afterwards.
///
/// # Safety
///
/// `pool` is a [passed pool](self).
unsafe extern "C" fn pool_closed(pool: *const Pool) {
    // SAFETY: `as_ref` requires null, or a live, aligned pool that nobody borrows mutably. It is a
    // *passed pool*, by this function's `# Safety`.
    if let Some(pool) = unsafe { pool.as_ref() } {
        pool.close(reset);
    }
}

fn reset(id: u32) {
    if mode::is_running() {
        update(|| {
            LEDGER.reset_pool(thread_number(), id);
        });
    }
}

/// Records that a block of the allocator, given by its address, is backing memory of a pool from
/// now on.
///
/// # Safety
///
/// `pool` is a [passed pool](self).
unsafe extern "C" fn pool_backed(pool: *const Pool, block: u64) {
    if block != 0 && mode::is_running() {
        // SAFETY: `as_ref` requires null, or a live, aligned pool that nobody borrows mutably. It
        // is a *passed pool*, by this function's `# Safety`.
        let id = unsafe { pool.as_ref() }.and_then(Pool::id).unwrap_or(0);
        update(|| {
            // A sample may not have the block: then the ledger has nothing to change.
            if !mode::is_sample() || LEDGER.get(Key(block)).is_some() {
                LEDGER.back(thread_number(), Key(block), id);
            }
        });
    }
}

/// Records that a live block, given by its address, belongs to the context that the calling thread
/// is in.
///
/// # Safety
///
/// None is needed: the address is not dereferenced.
unsafe extern "C" fn set_context(block: u64) {
    if mode::is_running() {
        // A block that is unknown stays so.
        marks::set_context(block);
    }
}

/// Records the program's declaration of what the live block at, or around, an address is.
///
/// # Safety
///
/// The contract of the bridge: `type_name` is null or points to `length` static bytes, and `place`
/// is null or points to a static [`Place`].
unsafe extern "C" fn stamp(block: u64, type_name: *const u8, length: u32, place: *const Place) -> c_int {
    if type_name.is_null() || !mode::is_running() {
        return 0;
    }
    // SAFETY: `marks::stamp` requires that `type_name` points to `length` static bytes, and that
    // `place` is null or static. This function's `# Safety` requires both; `type_name` is not null,
    // as tested above.
    c_int::from(unsafe { marks::stamp(block, type_name, length, place) })
}

/// Records that a reporter has reported a block.
///
/// # Safety
///
/// The contract of the bridge: `marking` is null or points to a [`Marking`] that does not change
/// before this returns. Its name is null or static, and as long as it says.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[unsafe(naked)]
unsafe extern "C" fn mark(block: u64, marking: *const Marking) -> c_int {
    naked_asm!("mov rdx, rsp", "mov rcx, rbp", "jmp {target}", target = sym mark_from)
}

/// Does the same without a frame: no ledger runs.
///
/// # Safety
///
/// The contract of the bridge: `marking` is null or points to a [`Marking`] that does not change
/// before this returns. Its name is null or static, and as long as it says.
#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
unsafe extern "C" fn mark(block: u64, marking: *const Marking) -> c_int {
    // SAFETY: `mark_from` requires a marking as this function's `# Safety` does, and a live frame
    // if the ledger runs. It does not: `control::start` refuses this system.
    unsafe { mark_from(block, marking, 0, 0) }
}

/// # Safety
///
/// `marking` is as in [`mark`]. If the ledger runs, `slot` and `rbp` are those of the live frame of
/// this thread to which the called function has yet to return: [`mark`] passes the registers that
/// it was called with, and jumps.
unsafe extern "C" fn mark_from(block: u64, marking: *const Marking, slot: u64, rbp: u64) -> c_int {
    // SAFETY: `as_ref` requires null, or a live, aligned marking that does not change meanwhile.
    // This function's `# Safety` requires the same.
    let Some(marking) = (unsafe { marking.as_ref() }) else { return bridge::mark::UNKNOWN };
    // SAFETY: `marks::mark` requires that the name of `marking` is static, and the live frame of
    // this thread to which the called function has yet to return, if the ledger runs. This
    // function's `# Safety` requires both.
    unsafe { marks::mark(block, marking, Caller { slot, rbp }) }
}

/// Records that a reporter takes its mark off a block.
///
/// # Safety
///
/// The contract of the bridge: `reporter` is null or points to `length` static bytes.
unsafe extern "C" fn unmark(block: u64, reporter: *const u8, length: u32) -> c_int {
    if reporter.is_null() || !mode::is_running() {
        return 0;
    }
    // SAFETY: `marks::unmark` requires that `reporter` points to `length` static bytes. This
    // function's `# Safety` requires them unless it is null, and it is not, as tested above.
    c_int::from(unsafe { marks::unmark(block, reporter, length) })
}

/// Clears the marks: reporters are about to be asked.
extern "C" fn clear_marks() {
    update(|| LEDGER.begin_marks());
}

/// Notes that all reporters have been asked.
extern "C" fn marks_complete() {
    update(|| LEDGER.marks_complete());
}

/// Returns the live block around an address.
///
/// # Safety
///
/// `extent` is null, or points to an aligned [`Extent`] that may be written.
unsafe extern "C" fn block_around(address: u64, extent: *mut Extent) -> c_int {
    if extent.is_null() || !mode::is_running() {
        return 0;
    }
    let Some(found) = marks::block_around(address) else { return 0 };
    // SAFETY: `write` requires a pointer that is aligned and may be written. This function's
    // `# Safety` requires that of `extent` unless it is null, and it is not, as tested above.
    unsafe { extent.write(found) };
    1
}

/// Updates the ledger, unless this is a signal handler that interrupted it.
fn update(run: impl FnOnce()) {
    if query(run).is_none() {
        losses::count_lost();
    }
}
