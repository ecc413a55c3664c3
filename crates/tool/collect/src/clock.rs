//! Converts time stamps to nanoseconds.
//!
//! Stamps count the processor's ticks, at a rate that is not documented. It is measured against the
//! monotonic clock over the session so far, so that it becomes more and more exact. Each correction
//! starts where the one before has led, so that time neither jumps nor goes back.

use heapledger_core::{arch, sys};
use heapledger_wire::event::units;

/// A reading of both clocks, taken as close together as possible.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    /// The time stamp counter, in units of stamps.
    stamp: u64,
    nanoseconds: u64,
}

impl Reading {
    pub(crate) fn now() -> Reading {
        // Takes the try with the shortest time between both readings: the others were interrupted.
        let try_once = |_| {
            let before = arch::ticks();
            let nanoseconds = sys::monotonic_nanoseconds();
            let between = arch::ticks().wrapping_sub(before);
            (between, Reading { stamp: units(before.wrapping_add(between / 2)), nanoseconds })
        };
        let first = try_once(0);
        (1..4).map(try_once).fold(first, |best, next| if next.0 < best.0 { next } else { best }).1
    }
}

/// The number of fraction bits in a rate, which is in units of 2⁻³² ns.
const FRACTION: u32 = 32;
/// The bounds of the duration of a unit: 16 ticks at 10 GHz, and at 100 MHz.
const RATE_MIN: u64 = (16 << FRACTION) / 10;
const RATE_MAX: u64 = 160 << FRACTION;
/// The largest change of the rate by a correction, as a divisor of the rate: 1/1,024.
const SLEW_DIVISOR: u64 = 1024;

/// The measured relation between the two clocks. Time 0 is the time of the first reading.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    first: Reading,
    /// The stamp of the latest correction, whose time is `nanoseconds`.
    stamp: u64,
    nanoseconds: u64,
    /// The rate from that stamp on.
    rate: u64,
    next_correction: u64,
}

impl Clock {
    /// Returns a clock from two readings, which should be at least a millisecond apart.
    pub(crate) fn new(first: Reading, second: Reading) -> Clock {
        let mut clock = Clock { first, stamp: first.stamp, nanoseconds: 0, rate: RATE_MIN, next_correction: 0 };
        clock.rate = clock.measured(second);
        clock.schedule(second);
        clock
    }

    /// Returns the rate between the first reading and this one.
    fn measured(&self, reading: Reading) -> u64 {
        let units = u128::from(reading.stamp.saturating_sub(self.first.stamp).max(1));
        let rate = (u128::from(reading.nanoseconds - self.first.nanoseconds) << FRACTION) / units;
        u64::try_from(rate).unwrap_or(u64::MAX).clamp(RATE_MIN, RATE_MAX)
    }

    /// Schedules the next correction: when the session has doubled its length, but within a second.
    fn schedule(&mut self, reading: Reading) {
        let since = reading.nanoseconds - self.first.nanoseconds;
        self.next_correction = reading.nanoseconds + since.clamp(1_000_000, 1_000_000_000);
    }

    /// True if [`Clock::correct`] is due at this time of the monotonic clock.
    pub(crate) fn is_due(&self, nanoseconds: u64) -> bool {
        nanoseconds >= self.next_correction
    }

    /// Applies a new reading, such that time is right again at the next correction.
    pub(crate) fn correct(&mut self, reading: Reading) {
        let here = self.time(reading.stamp);
        let measured = self.measured(reading);
        self.schedule(reading);
        let until = self.next_correction - reading.nanoseconds;
        let target = self.next_correction - self.first.nanoseconds;
        let rate = u128::from(measured) * u128::from(target.saturating_sub(here)) / u128::from(until.max(1));
        let rate = u64::try_from(rate).unwrap_or(u64::MAX);
        self.rate = rate.clamp(measured - measured / SLEW_DIVISOR, measured + measured / SLEW_DIVISOR);
        (self.stamp, self.nanoseconds) = (reading.stamp, here);
    }

    /// Returns the nanoseconds since the first reading.
    #[inline]
    pub(crate) fn time(&self, stamp: u64) -> u64 {
        let scaled = |units: u64| ((u128::from(units) * u128::from(self.rate)) >> FRACTION) as u64;
        if stamp >= self.stamp {
            self.nanoseconds.saturating_add(scaled(stamp - self.stamp))
        } else {
            self.nanoseconds.saturating_sub(scaled(self.stamp - stamp))
        }
    }

    /// Converts ticks to nanoseconds.
    pub(crate) fn duration(&self, ticks: u64) -> u64 {
        ((u128::from(ticks) * u128::from(self.rate)) >> (FRACTION + 4)) as u64
    }

    /// Converts nanoseconds to units of stamps.
    pub(crate) fn units(&self, nanoseconds: u64) -> u64 {
        ((u128::from(nanoseconds) << FRACTION) / u128::from(self.rate)) as u64
    }
}

#[cfg(test)]
mod tests;
