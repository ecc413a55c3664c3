//! The choice of sampled allocations: random numbers, a Poisson process over the bytes that are
//! allocated, and Bernoulli trials for the blocks whose stacks are taken.
//!
//! [`Poisson`]: every byte is a sample point with the same small probability, whatever block it is
//! in, so the distance between points is exponentially distributed. A block is sampled if it
//! contains a point, that is with the probability `1 - exp(-size / mean)`; the weight of a sampled
//! block is the inverse of that.

use crate::{Bytes, Serial};

/// The xorshift128+ (23, 17, 26) generator: fast, and random enough for sampling. Not for secrets.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Random {
    state: [u64; 2],
}

impl Random {
    /// Returns a different sequence for each seed.
    pub fn new(seed: u64) -> Random {
        // splitmix64 turns any seed, even 0, into a state that is not zero.
        let mut at = seed;
        let mut next = || {
            at = at.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (at ^ at >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ mixed >> 31
        };
        Random { state: [next(), next() | 1] }
    }

    /// Returns the sequence that begins in this state, which is not zero.
    pub fn from_state(state: [u64; 2]) -> Random {
        Random { state }
    }

    /// Returns the next number.
    pub fn word(&mut self) -> u64 {
        let [mut s1, s0] = self.state;
        s1 ^= s1 << 23;
        s1 = s1 ^ s0 ^ s1 >> 17 ^ s0 >> 26;
        self.state = [s0, s1];
        s1.wrapping_add(s0)
    }

    /// Returns a number below `bound`; small ones are equally likely. 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.word().checked_rem(bound).unwrap_or(0)
    }

    /// Returns an index into a sequence of this length; 0 if it is empty.
    pub fn index(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    /// Overwrites `count` bytes at random places: damage for tests of readers.
    pub fn damage(&mut self, bytes: &mut [u8], count: usize) {
        for _ in 0..count {
            let at = self.index(bytes.len());
            if let Some(byte) = bytes.get_mut(at) {
                *byte = self.word() as u8;
            }
        }
    }

    /// Returns a number above 0 and at most 1.
    pub fn unit(&mut self) -> f64 {
        ((self.word() >> 11) + 1) as f64 * (1.0 / (1_u64 << 53) as f64)
    }
}

/// A Poisson process over bytes, for one thread. The mean distance is given at each use, because it
/// may change at any time.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Poisson {
    random: Random,
}

impl Poisson {
    /// Returns a different process for each seed.
    pub fn new(seed: u64) -> Poisson {
        Poisson { random: Random::new(seed) }
    }

    /// Draws the number of bytes to the next sample point, at least 1. The process is memoryless:
    /// drawing again, with another mean, is sound at any moment.
    pub fn distance(&mut self, mean: u64) -> u64 {
        let distance = -ln(self.random.unit()) * mean as f64;
        // 1 to 53 × ln 2 × mean: far below 2^63 for any sensible mean.
        (distance as u64).saturating_add(1)
    }
}

/// The rate at which an allocation was sampled: the base-2 logarithm of the mean distance of sample
/// points.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Rate(u8);

impl Rate {
    /// Not sampled: every allocation is recorded.
    pub const EXACT: Rate = Rate(0);
    /// One sample point in 2⁴⁰ bytes on average.
    pub const MAX: Rate = Rate(40);

    /// Returns the rate with this logarithm of its mean distance; 0 is [`Rate::EXACT`], values that
    /// are too large become [`Rate::MAX`].
    #[inline(always)]
    pub const fn from_logarithm(logarithm: u64) -> Rate {
        if logarithm < Rate::MAX.0 as u64 { Rate(logarithm as u8) } else { Rate::MAX }
    }

    /// Returns the rate whose mean distance is nearest to this, from 2 bytes on.
    pub const fn nearest(mean: Bytes) -> Rate {
        let mean = if mean.0 < 2 { 2 } else { mean.0 };
        let below = mean.ilog2();
        let is_above_half = mean - (1 << below) > 1 << (below - 1);
        Rate::from_logarithm(below as u64 + is_above_half as u64)
    }

    /// Returns the logarithm to the base 2 of the mean distance; 0 for [`Rate::EXACT`].
    #[inline(always)]
    pub const fn logarithm(self) -> u8 {
        self.0
    }

    /// Returns the mean distance of sample points; `None` if everything is recorded.
    pub const fn mean(self) -> Option<Bytes> {
        if self.0 == 0 { None } else { Some(Bytes(1 << self.0)) }
    }

    /// Returns the weight of a block that was sampled at this rate: the inverse of its probability,
    /// rounded up or down such that sums are unbiased. Always the same for the same block.
    ///
    /// The serial decides the rounding: multiples of the golden ratio are spread as evenly as can
    /// be, also those of every second or third serial.
    #[inline(always)]
    pub fn weight(self, size: Bytes, serial: Serial) -> u64 {
        if self.0 == 0 { 1 } else { self.estimate(size, serial) }
    }

    #[cold]
    #[inline(never)]
    fn estimate(self, size: Bytes, serial: Serial) -> u64 {
        let weight = 1.0 / probability(size.0, 1 << self.0);
        let word = serial.0.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let unit = (word >> 11) as f64 * (1.0 / (1_u64 << 53) as f64);
        (weight + unit) as u64
    }
}

/// Many trials at once that succeed with the same small probability, for one thread. They follow
/// the rule of the dark matter detector of Firefox, and with its seed they have the same results.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Bernoulli {
    random: Random,
    /// The inverse of the logarithm of the probability of failure.
    scale: f64,
    /// The number of trials that fail before the next success.
    skip: u64,
}

impl Bernoulli {
    /// The seed of Firefox's detector.
    pub const SEED: [u64; 2] = [0x8e26_eeee_166b_c8ca, 0x5682_0f30_4a9c_9ae0];

    /// Returns trials with this probability, from 10⁻⁹ to 1.
    pub fn new(random: Random, probability: f64) -> Bernoulli {
        // For probability 1 nothing is skipped.
        let scale = if probability < 1.0 { 1.0 / ln(1.0 - probability.max(1e-9)) } else { 0.0 };
        let mut trials = Bernoulli { random, scale, skip: 0 };
        trials.draw();
        trials
    }

    /// True if one of `count` trials succeeds. By the detector's rule, which counts one trial too
    /// many after each success.
    pub fn trial(&mut self, count: u64) -> bool {
        if self.skip > count {
            self.skip -= count;
            return false;
        }
        self.draw();
        true
    }

    /// True if a block of this usable size is chosen: exactly with [`probability_of_stack`].
    pub fn is_chosen(&mut self, usable: u64) -> bool {
        let usable = usable.max(1);
        // If all trials fail, there is no success: the detector's rule would count one trial more.
        if self.skip == usable {
            self.skip = 0;
            return false;
        }
        self.trial(usable)
    }

    fn draw(&mut self) {
        let unit = (self.random.word() & ((1 << 53) - 1)) as f64 * (1.0 / (1_u64 << 53) as f64);
        // Rounded down; values that are too large, or infinite for a logarithm of zero, become the
        // largest.
        self.skip = if self.scale == 0.0 {
            0
        } else if unit == 0.0 {
            u64::MAX
        } else {
            (ln(unit) * self.scale) as u64
        };
    }
}

/// Returns the probability that the stack of a block of this usable size is taken, if each byte is
/// chosen with the same probability.
pub fn probability_of_stack(usable: u64, probability: f64) -> f64 {
    if probability < 1.0 { -expm1_negative(-ln(1.0 - probability) * usable.max(1) as f64) } else { 1.0 }
}

/// Returns the probability that a block of this size is sampled; a block of 0 bytes counts as one
/// byte.
pub fn probability(size: u64, mean: u64) -> f64 {
    -expm1_negative(size.max(1) as f64 / mean.max(1) as f64)
}

/// Returns the natural logarithm of a positive normal number, to about 15 digits: `core` has none.
fn ln(x: f64) -> f64 {
    let bits = x.to_bits();
    let mut exponent = (bits >> 52) as i64 - 1023;
    // 1 to 2, then √½ to √2.
    let mut mantissa = f64::from_bits(bits & ((1 << 52) - 1) | 1023 << 52);
    if mantissa > core::f64::consts::SQRT_2 {
        mantissa *= 0.5;
        exponent += 1;
    }
    // ln m = 2 artanh z, with |z| below 0.172.
    let z = (mantissa - 1.0) / (mantissa + 1.0);
    let square = z * z;
    let series = (0..10).rev().fold(0.0, |sum, n| sum * square + 1.0 / f64::from(2 * n + 1));
    2.0 * z * series + exponent as f64 * core::f64::consts::LN_2
}

/// Returns `exp(-x) - 1` for a number of at least 0, exact to about 14 digits also near 0.
fn expm1_negative(x: f64) -> f64 {
    if x > 40.0 {
        return -1.0;
    }
    // With y = x / 64, at most 0.625, the series converges fast; then exp(2y) - 1 from exp(y) - 1,
    // six times.
    let y = -x / 64.0;
    let series = (1..=16).rev().fold(0.0, |sum, n| (sum + 1.0) * y / f64::from(n));
    (0..6).fold(series, |value, _| value * (value + 2.0))
}

#[cfg(test)]
mod tests;
