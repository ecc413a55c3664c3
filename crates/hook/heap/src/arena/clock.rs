//! The coarse clock by which dirty chunks have their age. It goes on when `purge::decay` asks the
//! system, so it stands still unless pages decay.

use core::sync::atomic::{AtomicU32, Ordering};

static SECOND: AtomicU32 = AtomicU32::new(0);

/// Returns the second in which the clock was set.
pub(crate) fn second() -> u32 {
    SECOND.load(Ordering::Relaxed)
}

/// Sets the clock, unless it is ahead. Returns the second that it had.
pub(crate) fn set_second(second: u32) -> u32 {
    SECOND.fetch_max(second, Ordering::Relaxed)
}
