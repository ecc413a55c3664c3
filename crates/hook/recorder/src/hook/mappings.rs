//! Events of calls that change the program's mappings.

use heapledger_core::StackId;
use heapledger_core::hooks::Caller;
use heapledger_wire::event::{Extended, MapCall, MapStep};

mod calls;
mod moves;

pub use calls::make;

use crate::accept::{Kind, is_paused};
use crate::attach::enter;
use crate::block;
use crate::common_ring::write_to_common_ring;

/// A call that changes mappings, or a part of it: see [`MapCall`].
#[derive(Clone, Copy, Debug)]
pub struct MappingCall {
    /// The function.
    pub call: MapCall,
    /// The part of the call.
    pub step: MapStep,
    /// True if an allocator made the call while it served one of the malloc functions.
    pub is_allocators: bool,
    /// The first address of the range.
    pub address: u64,
    /// The length of the range, in bytes.
    pub length: u64,
    /// Further arguments.
    pub arguments: [u64; 3],
}

/// True if this thread is inside the hook: a signal handler has interrupted it, or the hook calls
/// the C library. Then the hook must be entered with the frame of the call itself, by which it sees
/// that it is entered again.
pub fn is_inside() -> bool {
    block::state().is_some_and(|block| block.is_closed)
}

/// Records a call that changes mappings.
///
/// A call that has given memory up is recorded before it is made, all others afterwards. May be
/// called in any thread, nested in itself by a signal, in a child of vfork(2), and without
/// thread-local storage of the thread's own, as the functions of this module's parent may.
///
/// # Safety
///
/// See [`malloc`](super::malloc).
#[inline(never)]
pub unsafe fn record(call: MappingCall, caller: Caller) {
    let MappingCall { call, step, is_allocators, address, length, arguments } = call;
    let event = |stack| Extended::Mapping { call, step, is_allocators, stack, address, length, arguments };
    // Mappings are recorded while blocks are not, too.
    if is_paused(Kind::Free) {
        return;
    }
    let Some(block) = enter(caller.sp()) else { return write_to_common_ring(&event(StackId::ROOT)) };
    if block.skips(Kind::Free) {
        return;
    }
    block.begin();
    // SAFETY: `capture_slow` requires *live caller*; this function's `# Safety` requires the same
    // of `caller`.
    let stack = unsafe { block.capture_slow(caller) };
    let ticks = block.stamp();
    let written = block.write_extended(ticks, &event(stack));
    block.finish(written);
}
