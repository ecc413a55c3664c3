//! The time spent in recorded events: some are timed.

use core::sync::atomic::{AtomicU64, Ordering};

/// One in this many recorded events of a thread is timed.
pub(crate) const MEASURED_ONE_IN: u32 = 256;

/// The most ticks of a timed event that count: some 50 microseconds. If an event takes longer, its
/// thread had no processor for a while, which would count 256 times.
const TICKS_MAX: u64 = 1 << 17;

static TICKS_MEASURED: AtomicU64 = AtomicU64::new(0);

/// Adds the ticks that a timed event took.
#[cold]
pub(crate) fn add(ticks: u64) {
    TICKS_MEASURED.fetch_add(ticks.min(TICKS_MAX), Ordering::Relaxed);
}

/// Returns the ticks that timed events took.
pub(crate) fn ticks_measured() -> u64 {
    TICKS_MEASURED.load(Ordering::Relaxed)
}

/// Resets the measurement when a ledger begins.
pub(crate) fn clear() {
    TICKS_MEASURED.store(0, Ordering::Relaxed);
}
