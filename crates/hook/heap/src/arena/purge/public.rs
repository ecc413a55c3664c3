//! The functions by which programs control purges.

use super::deferred::{self, PurgeResult};
use super::hook::{self, PurgeHook};
use super::{all, decay, excess, set_modifier};

/// Returns the dirty memory of all arenas to the system, whatever their budgets. Returns the number
/// of bytes. Waits for other threads that purge. Memory that heaps keep in empty runs stays:
/// [`trim`](crate::trim) returns that, too.
pub fn purge_all() -> usize {
    all(c"all")
}

/// Returns the dirty memory of all arenas that is above their budgets to the system. Returns the
/// number of bytes.
pub fn purge_excess() -> usize {
    excess(c"excess")
}

/// Sets the global modifier: the number of bits by which the budgets of all arenas are shifted to
/// the left; to the right if it is negative. If it is lowered, arenas that exceed their budgets now
/// are purged at once, or queued if purges are deferred.
pub fn set_dirty_modifier(modifier: i32) {
    set_modifier(modifier);
}

/// Lets dirty pages go back to the system after about so many seconds. 0 switches that off, as it
/// is at first. Pages are returned by threads that allocate, at most once in a second.
pub fn set_dirty_decay(seconds: u32) {
    decay::set(seconds);
}

/// Defers purges until the program calls [`purge_now`], or ends that, and does those that wait.
/// Returns the previous state. While they are deferred, arenas may exceed their budgets.
pub fn enable_deferred_purge(is_enabled: bool) -> bool {
    deferred::enable(is_enabled)
}

/// Purges arenas that exceed their budgets while purges are deferred, down to half of the budget.
/// An arena in which a dirty page was used again in the last `grace_ms` milliseconds is left for
/// later. Stops after `budget` bytes were returned; as one chunk at a time is purged, that may be 4
/// MiB more. With `peek`, does nothing. Says what there is to do afterwards.
pub fn purge_now(peek: bool, grace_ms: u32, budget: usize) -> PurgeResult {
    deferred::purge_now(peek, grace_ms, budget)
}

/// Sets the function that is told of each purge that returned something; `None` removes it. A call
/// of the previous function may still be on its way.
///
/// # Safety
///
/// The function may be called by any thread, in the middle of functions of the allocator: it does
/// not allocate or free, and does not call functions of arenas or purges. It stays valid.
pub unsafe fn set_purge_hook(hook: Option<PurgeHook>) {
    hook::set(hook);
}
