//! Events of what the program declares: contexts and types of blocks, annotations.

use core::ptr;

use heapledger_core::hooks::Caller;
use heapledger_core::stamp::{self, Place};
use heapledger_wire::event::{Extended, Words};

use crate::accept::{Kind, is_paused};
use crate::attach::enter;
use crate::capture::is_ignoring;
use crate::common_ring::count_lost_stamp;
use crate::{addresses, session};

/// Records that a live block now belongs to the context that the thread is in.
///
/// # Safety
///
/// See [`malloc`](super::malloc).
pub unsafe fn set_context(address: u64, caller: Caller) {
    // While the thread's allocations are ignored or not recorded, it has no context: the block
    // keeps its own.
    if is_paused(Kind::Allocation) || is_ignoring() || (session::samples() && !addresses::may_contain(address)) {
        return;
    }
    let Some(block) = enter(caller.sp()) else { return };
    if block.skips(Kind::Allocation) {
        return;
    }
    block.begin();
    // SAFETY: `capture_slow` requires *live caller*; this function's `# Safety` requires the same
    // of `caller`.
    let stack = unsafe { block.capture_slow(caller) };
    let ticks = block.stamp();
    let written = block.write_extended(ticks, &Extended::Reattributed { address, stack });
    block.finish(written);
}

/// Records what the program declares the live block at, or around, `address` to be. True if the
/// event was written.
///
/// # Safety
///
/// See [`stamp::intern`].
pub unsafe fn stamp(address: u64, type_name: *const u8, length: u32, place: *const Place, sp: u64) -> bool {
    // As in `set_context`.
    if is_paused(Kind::Allocation) || is_ignoring() {
        return false;
    }
    let Some(block) = enter(sp) else {
        count_lost_stamp();
        return false;
    };
    if block.skips(Kind::Allocation) {
        return false;
    }
    // SAFETY: the name and the place are valid, by this function's contract, which is that of
    // `stamp::intern`.
    let stamp = unsafe { stamp::intern(type_name, length, place) };
    let is_announced = stamp.is_announced();
    // Another thread may have announced both the block and the text just now.
    block.begin();
    let ticks = block.stamp();
    let announced = if is_announced { Ok(()) } else { block.writer.announce_stamp(ticks, stamp) };
    let written = announced
        .and_then(|()| block.write_extended(ticks, &Extended::Stamped { address, stamp: ptr::from_ref(stamp) as u64 }));
    let is_written = written.is_ok();
    block.finish(written);
    is_written
}

/// Writes an annotation to the recording: see [`code`](heapledger_wire::event::code). False if it
/// could not be written.
pub fn annotate(code: u16, payload: Words<'_>, sp: u64) -> bool {
    let Some(block) = enter(sp) else { return false };
    block.begin();
    let ticks = block.stamp();
    let written = block.write_extended(ticks, &Extended::Annotation { code, payload });
    let is_written = written.is_ok();
    block.finish(written);
    is_written
}
