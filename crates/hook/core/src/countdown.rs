//! The bytes until each thread's next sample point: a countdown in thread-local storage, so that an
//! entry point of an allocator can read it without any lookup.
//!
//! There is one for each loaded object that samples. A signal handler may interrupt at any moment:
//! at worst, the bytes that it counts are forgotten, which is harmless because the process of
//! sample points is memoryless.

use core::ops::RangeInclusive;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::arch::{self, Countdown};
use crate::sample::{Poisson, Random, Rate};
use crate::sandbox;

/// The bytes after which a thread re-reads the sampling rate even if it reaches no sample point, so
/// that the fast path never has to. It starts with the fewest, and uses fewer again when it
/// allocates slowly.
pub const REREAD_AFTER: RangeInclusive<u64> = 4 << 10..=2 << 20;
/// The ticks, about a millisecond, within which a second re-read doubles the thread's number of
/// bytes until the next.
const REREAD_INTERVAL_TICKS: u64 = 1 << 21;

/// True if a block of `size` bytes has no sample point, at the rate with this logarithm, which is
/// not 0; then the block has been counted. If false, nothing has changed. Also false if the
/// countdown was drawn at another rate, or never, and for blocks of 0 bytes or more than
/// [`isize::MAX`], which are too rare for the fast path.
#[inline(always)]
pub fn count_unsampled(size: usize, rate: u32) -> bool {
    size as isize > 0 && arch::count_down(size, rate)
}

/// Returns the rate at which a block of this size is sampled, or `None` if it is not, and counts
/// it; `rate` is the logarithm of the sampling rate, 0 to sample all blocks. `distance` draws the
/// bytes to the next sample point for a given mean distance.
///
/// A countdown that was drawn at another rate still holds for this block, but no longer: so each
/// block is sampled at the rate that its thread knew before the block, and its weight is that of
/// this rate.
pub fn draw(size: u64, rate: u32, mut distance: impl FnMut(u64) -> u64) -> Option<Rate> {
    let size = size.max(1);
    let mut distance = || if rate == 0 { 0 } else { distance(1 << Rate::from_logarithm(rate.into()).logarithm()) };
    let before = arch::countdown();
    let (until_sample, drawn_at) = match before {
        Countdown { until_reread: 1.., rate: 1.., .. } => (bytes_until_sample(), before.rate),
        _ if rate == 0 => (0, 0),
        _ => (distance(), rate.into()),
    };
    let is_sampled = until_sample <= size;
    let until_sample = if is_sampled || drawn_at != u64::from(rate) { distance() } else { until_sample - size };
    let reread_at = ticks();
    let stride = if reread_at.wrapping_sub(before.reread_at) < REREAD_INTERVAL_TICKS {
        before.stride * 2
    } else {
        before.stride / 2
    };
    let stride = stride.clamp(*REREAD_AFTER.start(), *REREAD_AFTER.end());
    let until_reread = until_sample.min(stride);
    let after_reread = until_sample - until_reread;
    arch::set_countdown(Countdown {
        until_reread: until_reread as i64,
        rate: rate.into(),
        after_reread,
        stride,
        reread_at,
    });
    is_sampled.then(|| Rate::from_logarithm(drawn_at))
}

/// Draws like [`draw`], for threads that cannot use a random process of their own at the moment.
#[cold]
pub fn draw_with_shared_seed(size: u64, rate: u32) -> Option<Rate> {
    static SEED: AtomicU64 = AtomicU64::new(0);
    draw(size, rate, |mean| {
        let seed = SEED.fetch_add(1, Ordering::Relaxed) ^ ticks();
        Poisson::new(Random::new(seed).word()).distance(mean)
    })
}

/// Returns the processor's time stamp counter; 0 in a sandbox, whose strict mode forbids reading
/// it.
fn ticks() -> u64 {
    if sandbox::is_entered() { 0 } else { arch::ticks() }
}

/// Returns a number that changes with every block that this thread counts.
pub fn bytes_until_sample() -> u64 {
    let Countdown { until_reread, after_reread, .. } = arch::countdown();
    (until_reread as u64).wrapping_add(after_reread)
}

#[cfg(all(test, not(miri)))]
mod tests;
