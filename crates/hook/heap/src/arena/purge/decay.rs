//! Decay: dirty pages that are older than a number of seconds go back to the system.
//!
//! It is off unless a program asks for it. Then a thread asks the clock once in some refills, and
//! once in a second one of the threads visits all arenas. Nothing happens while no thread allocates
//! new runs: the allocator has no thread of its own.

use core::sync::atomic::{AtomicU32, Ordering};

use heapledger_core::sys::monotonic_nanoseconds;

use super::super::{clock, registry};
use crate::chunk::ChunkPtr;

/// The age in seconds. 0: pages do not decay.
static AGE: AtomicU32 = AtomicU32::new(0);

/// Sets the age in seconds from which on dirty pages are returned. 0 switches decay off.
pub(crate) fn set(seconds: u32) {
    clock::set_second(now());
    AGE.store(seconds, Ordering::Relaxed);
}

fn now() -> u32 {
    (monotonic_nanoseconds() / 1_000_000_000) as u32
}

/// Returns pages that are old enough, if decay is on and a second has passed since the last time.
/// Takes a load if it is off.
#[inline(always)]
pub(crate) fn tick() {
    let age = AGE.load(Ordering::Relaxed);
    if age != 0 {
        tick_at(age, now());
    }
}

/// Does the work of [`tick`] in the second `now`.
#[cold]
pub(crate) fn tick_at(age: u32, now: u32) {
    if clock::set_second(now) >= now {
        return;
    }
    // Another thread may have set the clock to a later second since `now` was read.
    let is_due = |chunk: ChunkPtr| now.saturating_sub(chunk.dirty_since.get()) >= age;
    registry::for_each(|arena| {
        arena.purge(c"decay", &|_, chunk| is_due(chunk), usize::MAX, false);
    });
}
