//! How far each thread is from its next sample point: a countdown in thread-local storage, so that whoever stands at an
//! allocator's door need not find anything out before looking at it.
//!
//! One for each artefact that samples. Signal handlers may come in between at any moment: what they count is at worst forgotten, and the
//! process of sample points has no memory.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::arch;
use crate::sample::{Poisson, Random, Rate};

/// Whether there is no sample point in a block of so many bytes, at the rate of this logarithm, which is not 0: then the block has been
/// counted. Otherwise nothing has happened; so it is where the countdown was drawn at another rate, or never, and with blocks
/// of 0 bytes, or more than [`isize::MAX`], which are too rare to be made quick.
#[inline(always)]
pub fn passes(size: usize, rate: u32) -> bool {
    size as isize > 0 && arch::count_down(size, rate)
}

/// At which rate a block of this size is in the sample, if it is: in a sample of the rate with this logarithm, of which all blocks are with 0.
/// `distance` draws bytes to the next sample point at this mean distance.
pub fn draw(size: u64, rate: u32, mut distance: impl FnMut(u64) -> u64) -> Option<Rate> {
    if rate == 0 {
        arch::set_countdown(0, 0);
        return Some(Rate::EXACT);
    }
    let drawn = Rate::from_logarithm(rate.into());
    let mean = 1 << drawn.logarithm();
    let size = i64::try_from(size.max(1)).unwrap_or(i64::MAX);
    let mut distance = || i64::try_from(distance(mean)).unwrap_or(i64::MAX);
    // A distance that was drawn at another rate may be forgotten.
    let left = match arch::countdown() {
        (left, drawn_at) if drawn_at == rate && left > 0 => left,
        _ => distance(),
    };
    if left > size {
        arch::set_countdown(left - size, rate);
        return None;
    }
    arch::set_countdown(distance(), rate);
    Some(drawn)
}

/// The same for threads that cannot use a process of their own at the moment.
#[cold]
pub fn draw_outside(size: u64, rate: u32) -> Option<Rate> {
    static SEED: AtomicU64 = AtomicU64::new(0);
    draw(size, rate, |mean| {
        let seed = SEED.fetch_add(1, Ordering::Relaxed) ^ arch::ticks();
        Poisson::new(Random::new(seed).word()).distance(mean)
    })
}

/// A number that changes with every block that this thread counts.
pub fn left() -> u64 {
    arch::countdown().0 as u64
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    const RATE: u32 = 12;

    #[test]
    fn blocks_pass_until_the_next_sample_point() {
        assert!(!passes(1, RATE), "nothing is drawn yet");
        assert_eq!(draw(10, RATE, |_| 1000), None);
        assert_eq!(left(), 990);
        assert!(passes(989, RATE));
        assert!(!passes(1, RATE) && left() == 1, "there is a point in the next byte");
        assert_eq!(draw(1, RATE, |mean| mean / 2), Some(Rate::from_logarithm(RATE.into())));
        assert_eq!(left(), 2048);
    }

    #[test]
    fn what_is_out_of_the_ordinary_does_not_pass() {
        draw(1, RATE, |_| 1000);
        for size in [0, 1000, 4096, isize::MAX as usize, isize::MAX as usize + 1, usize::MAX] {
            assert!(!passes(size, RATE), "{size}");
            assert_eq!(left(), 999, "{size}");
        }
        // A block of no bytes counts as having one; one of too many has a point in it.
        assert_eq!((draw(0, RATE, |_| 7), left()), (None, 998));
        assert!(draw(u64::MAX, RATE, |_| 7).is_some());
    }

    #[test]
    fn another_rate_applies_at_once() {
        draw(1, RATE, |_| 1000);
        assert!(!passes(1, RATE + 1) && !passes(1, 0) && !passes(1, 0x200));
        assert_eq!((draw(1, RATE + 1, |_| 2000), left()), (None, 1999));
        assert!(!passes(1, RATE) && passes(1, RATE + 1));
        assert_eq!(draw(5, 0, |_| 1), Some(Rate::EXACT));
        assert!(!passes(1, 0) && !passes(1, RATE + 1));
    }

    #[test]
    fn threads_count_for_themselves() {
        extern crate std;
        draw(1, RATE, |_| 1000);
        std::thread::spawn(|| assert!(left() == 0 && !passes(1, RATE))).join().unwrap();
        assert_eq!(left(), 999);
    }

    /// Blocks that pass, and blocks that are drawn for, as doors and hooks do it together: what is sampled is what should be. The seed is
    /// fixed; the bound is five standard deviations.
    #[test]
    fn doors_and_draws_make_one_process() {
        for size in [0_usize, 24, 500, 20_000] {
            let mut sampler = Poisson::new(size as u64);
            let sampled = (0..200_000)
                .filter(|_| !passes(size, RATE) && draw(size as u64, RATE, |mean| sampler.distance(mean)).is_some());
            let (sampled, p) = (sampled.count() as f64, crate::sample::probability(size as u64, 1 << RATE));
            let expected = 200_000.0 * p;
            assert!((sampled - expected).abs() <= 5.0 * (expected * (1.0 - p)).sqrt() + 1.0, "{size}: {sampled}");
        }
    }
}
