//! Events of reporters, which mark blocks.

use core::ptr;

use heapledger_core::bridge::{Marking, mark as answer};
use heapledger_core::hooks::Caller;
use heapledger_core::stamp;
use heapledger_wire::event::Extended;

use crate::accept::{Kind, is_paused};
use crate::attach::enter;
use crate::common_ring::{count_lost_stamp, write_to_common_ring};

/// Records that a reporter has reported the block that begins at `address`. True if the event was
/// written.
///
/// # Safety
///
/// See [`malloc`](super::malloc) and, for the reporter's name, [`stamp::intern`].
pub unsafe fn mark(address: u64, marking: &Marking, caller: Caller) -> bool {
    // While no allocations are recorded, marks are not either.
    if is_paused(Kind::Allocation) {
        return false;
    }
    let Some(block) = enter(caller.sp()) else {
        count_lost_stamp();
        return false;
    };
    if block.skips(Kind::Allocation) {
        return false;
    }
    // SAFETY: the name is valid, by this function's contract, which is that of `stamp::intern`.
    let reporter = unsafe { stamp::intern(marking.reporter, marking.reporter_length, ptr::null()) };
    let is_announced = reporter.is_announced();
    // As in `stamp`.
    block.begin();
    // SAFETY: `capture_slow` requires *live caller*; this function's `# Safety` requires the same
    // of `caller`.
    let stack = unsafe { block.capture_slow(caller) };
    let ticks = block.stamp();
    let event = Extended::Marked {
        address,
        reporter: ptr::from_ref(reporter) as u64,
        stack,
        is_kept: marking.flags & answer::KEEP != 0,
        is_on_stack: block.walker.is_own_stack(caller.slot, address),
        is_around: marking.flags & answer::AROUND != 0,
        measured: marking.measured,
    };
    let announced = if is_announced { Ok(()) } else { block.writer.announce_stamp(ticks, reporter) };
    let written = announced.and_then(|()| block.write_extended(ticks, &event));
    let is_written = written.is_ok();
    block.finish(written);
    is_written
}

/// Records that a reporter takes its mark off a block. True if the event was written.
///
/// # Safety
///
/// See [`stamp::intern`].
pub unsafe fn unmark(address: u64, reporter: *const u8, length: u32, sp: u64) -> bool {
    if is_paused(Kind::Allocation) {
        return false;
    }
    let Some(block) = enter(sp) else {
        count_lost_stamp();
        return false;
    };
    // SAFETY: the name is valid, by this function's contract, which is that of `stamp::intern`.
    let reporter = unsafe { stamp::intern(reporter, length, ptr::null()) };
    let is_announced = reporter.is_announced();
    block.begin();
    let ticks = block.stamp();
    let announced = if is_announced { Ok(()) } else { block.writer.announce_stamp(ticks, reporter) };
    let reporter = ptr::from_ref(reporter) as u64;
    let written = announced.and_then(|()| block.write_extended(ticks, &Extended::Unmarked { address, reporter }));
    let is_written = written.is_ok();
    block.finish(written);
    is_written
}

/// Records that marks are cleared, or complete. Earlier marks depend on this event, so it waits for
/// room even if events are dropped. It is lost, and counted, only if the recorder stands still.
pub fn marks_event(event: &Extended<'_>, sp: u64) {
    if is_paused(Kind::Allocation) {
        return;
    }
    let Some(block) = enter(sp) else { return write_to_common_ring(event) };
    block.begin();
    let ticks = block.stamp();
    let written = block.write_extended(ticks, event);
    block.finish(written);
}
