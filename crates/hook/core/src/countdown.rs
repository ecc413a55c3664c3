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
mod tests {
    use super::*;

    const RATE: u32 = 12;

    #[test]
    fn blocks_are_unsampled_until_the_next_sample_point() {
        assert!(!count_unsampled(1, RATE), "nothing is drawn yet");
        assert_eq!(draw(10, RATE, |_| 1000), None);
        assert_eq!(bytes_until_sample(), 990);
        assert!(count_unsampled(989, RATE));
        assert!(!count_unsampled(1, RATE) && bytes_until_sample() == 1, "there is a point in the next byte");
        assert_eq!(draw(1, RATE, |mean| mean / 2), Some(Rate::from_logarithm(RATE.into())));
        assert_eq!(bytes_until_sample(), 2048);
    }

    #[test]
    fn unusual_sizes_are_not_counted() {
        draw(1, RATE, |_| 1000);
        for size in [0, 1000, 4096, isize::MAX as usize, isize::MAX as usize + 1, usize::MAX] {
            assert!(!count_unsampled(size, RATE), "{size}");
            assert_eq!(bytes_until_sample(), 999, "{size}");
        }
        // A block of 0 bytes counts as one byte; a block that is too large has a sample point in
        // it.
        assert_eq!((draw(0, RATE, |_| 7), bytes_until_sample()), (None, 998));
        assert!(draw(u64::MAX, RATE, |_| 7).is_some());
    }

    #[test]
    fn another_rate_applies_from_the_next_block_on() {
        draw(1, RATE, |_| 1000);
        assert!(!count_unsampled(1, RATE + 1) && !count_unsampled(1, 0) && !count_unsampled(1, 0x200));
        assert_eq!((draw(1, RATE + 1, |_| 2000), bytes_until_sample()), (None, 2000));
        assert!(!count_unsampled(1, RATE) && count_unsampled(1, RATE + 1));
        // A sample point that was drawn before still holds.
        assert_eq!(
            (draw(1999, RATE, |_| 500), bytes_until_sample()),
            (Some(Rate::from_logarithm(RATE as u64 + 1)), 500)
        );
        assert_eq!((draw(5, 0, |_| 1), draw(5, 0, |_| 1)), (None, Some(Rate::EXACT)));
        assert!(!count_unsampled(1, 0) && !count_unsampled(1, RATE + 1));
    }

    #[test]
    fn a_thread_rereads_the_rate_regularly() {
        let (least, most) = (*REREAD_AFTER.start(), *REREAD_AFTER.end());
        let (far, mut allocated) = (50 * most, 10);
        assert_eq!(draw(10, RATE, |_| far), None);
        assert_eq!(arch::countdown().until_reread as u64, least);
        for _ in 0..20 {
            let until_reread = arch::countdown().until_reread as u64;
            assert!((least..=most).contains(&until_reread));
            assert!(count_unsampled(until_reread as usize - 1, RATE) && !count_unsampled(1, RATE));
            assert_eq!(draw(1, RATE, |_| 0), None);
            allocated += until_reread;
            assert_eq!(bytes_until_sample(), far - allocated);
        }
        assert!(arch::countdown().stride > least, "it rereads often, and so more rarely");
        // A block that is larger than the stride is as likely to be sampled as any other.
        let size = most + 89;
        assert!(!count_unsampled(size as usize, RATE));
        assert_eq!((draw(size, RATE, |_| 7), bytes_until_sample()), (None, far - allocated - size));
        assert_eq!(
            (draw(bytes_until_sample(), RATE, |_| 7), bytes_until_sample()),
            (Some(Rate::from_logarithm(RATE.into())), 7)
        );
    }

    #[test]
    fn threads_count_for_themselves() {
        extern crate std;
        draw(1, RATE, |_| 1000);
        std::thread::spawn(|| assert!(bytes_until_sample() == 0 && !count_unsampled(1, RATE))).join().unwrap();
        assert_eq!(bytes_until_sample(), 999);
    }

    /// Blocks that pass and blocks that are drawn for, combined as entry points and hooks do: the
    /// number of samples is as expected. The seed is fixed; the bound is five standard deviations.
    #[test]
    fn fast_path_and_draws_make_one_process() {
        for size in [0_usize, 24, 500, 20_000] {
            let mut sampler = Poisson::new(size as u64);
            let sampled = (0..200_000).filter(|_| {
                !count_unsampled(size, RATE) && draw(size as u64, RATE, |mean| sampler.distance(mean)).is_some()
            });
            let (sampled, p) = (sampled.count() as f64, crate::sample::probability(size as u64, 1 << RATE));
            let expected = 200_000.0 * p;
            assert!((sampled - expected).abs() <= 5.0 * (expected * (1.0 - p)).sqrt() + 1.0, "{size}: {sampled}");
        }
    }
}
