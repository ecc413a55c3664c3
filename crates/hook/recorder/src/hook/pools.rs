//! Events of the program's own pools.

use core::sync::atomic::Ordering;

use heapledger_core::context::Name;
use heapledger_core::hooks::Caller;
use heapledger_core::pool::ADDRESS_END;
use heapledger_core::sample::Rate;
use heapledger_core::{Api, StackId};
use heapledger_wire::event::Extended;

use super::{free_with, ignored, sample};
use crate::accept::{Kind, is_paused};
use crate::attach::enter;
use crate::capture::is_ignoring;
use crate::common_ring::write_to_common_ring;
use crate::process::Process;
use crate::{addresses, session};

/// Returns the register's key for a block in a pool.
fn key(pool: u32, address: u64) -> u64 {
    u64::from(pool) << ADDRESS_END.trailing_zeros() | address
}

/// Records that a pool gave out `size` bytes at `address`, which is below [`ADDRESS_END`].
///
/// # Safety
///
/// See [`malloc`](super::malloc).
pub unsafe fn allocation(pool: u32, name: &'static Name, address: u64, size: u64, caller: Caller) {
    let (api, address) = (Api::PoolAlloc, key(pool, address));
    if is_ignoring() {
        return ignored(address, caller.sp());
    }
    if is_paused(Kind::Allocation) {
        return;
    }
    let rate = if session::samples() {
        let Some(rate) = sample::draw(size, caller.sp()) else { return };
        addresses::add(address);
        rate
    } else {
        Rate::EXACT
    };
    let Some(block) = enter(caller.sp()) else {
        let stack = StackId::ROOT;
        return write_to_common_ring(&Extended::Alloc {
            api,
            address,
            size,
            stack,
            alignment: 0,
            count: 0,
            usable: 0,
            rate,
        });
    };
    if block.skips(Kind::Allocation) {
        return;
    }
    block.begin();
    // SAFETY: `capture_in` requires *live caller*; this function's `# Safety` requires the same of
    // `caller`.
    let stack = unsafe { block.capture_in(caller, Some(name)) };
    let ticks = block.stamp();
    let event = Extended::Alloc { api, address, size, stack, alignment: 0, count: 0, usable: 0, rate };
    let written = block.write_extended(ticks, &event);
    block.finish(written);
}

/// Records that a pool takes the block at `address` back.
pub fn free(pool: u32, address: u64, sp: u64) {
    free_if_recorded(Api::PoolFree, key(pool, address), sp);
}

/// Records that a pool takes all its blocks back.
pub fn reset(pool: u32, sp: u64) {
    free_with(Api::PoolReset, key(pool, 0), 0, 0, sp);
}

/// Records that a block of the allocator becomes backing memory of a pool.
pub fn add_backing_memory(block: u64, sp: u64) {
    free_if_recorded(Api::PoolBack, block, sp);
}

fn free_if_recorded(api: Api, address: u64, sp: u64) {
    if session::samples() {
        sample::freed(api, address, 0, 0, sp);
    } else {
        free_with(api, address, 0, 0, sp);
    }
}

/// Counts a pool's action that could not be recorded.
#[cold]
pub fn count_refused() {
    if let Some(process) = Process::get()
        && let Some(_visit) = process.visit()
        && let Some(counters) = process.counters()
    {
        counters.lost_pools.fetch_add(1, Ordering::Relaxed);
    }
}
