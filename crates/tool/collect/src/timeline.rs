//! Live bytes over time, in bounded memory.

use heapledger_recording::{Live, Sample, Time};

/// The most samples that are kept.
const SAMPLES_MAX: usize = 2048;
/// The length of an interval at first, in nanoseconds.
const INTERVAL_FIRST: u64 = 1_000_000;

/// Of each interval of time the moment with the most live bytes. When there are too many intervals, their length
/// doubles.
#[derive(Debug)]
pub(crate) struct Timeline {
    samples: Vec<Sample>,
    interval: u64,
    /// The first moment of the next interval.
    end: u64,
    /// The largest so far of the current interval.
    best: Sample,
    /// The latest of the current interval.
    last: Sample,
}

impl Timeline {
    pub(crate) fn new() -> Timeline {
        Timeline {
            samples: Vec::new(),
            interval: INTERVAL_FIRST,
            end: 0,
            best: Sample::default(),
            last: Sample::default(),
        }
    }

    /// What is live at a moment that is not before the one given last.
    #[inline]
    pub(crate) fn add(&mut self, time: Time, live: Live) {
        if time.0 >= self.end {
            self.next(time);
        }
        let sample = Sample { time, live };
        if live.bytes > self.best.live.bytes {
            self.best = sample;
        }
        self.last = sample;
    }

    /// The moment given last.
    pub(crate) fn last_time(&self) -> Time {
        self.last.time
    }

    #[cold]
    fn next(&mut self, time: Time) {
        self.close();
        // What was live at the end of the interval is so at the beginning of this one, and may be its largest.
        self.best = Sample { time: Time(time.0 - time.0 % self.interval), live: self.last.live };
        self.end = time.0.saturating_add(self.interval - time.0 % self.interval);
    }

    fn close(&mut self) {
        if self.end > 0 {
            self.samples.push(self.best);
        }
        while self.samples.len() >= SAMPLES_MAX {
            self.interval *= 2;
            let interval = self.interval;
            self.samples.dedup_by(|next, kept| {
                let is_same = next.time.0 / interval == kept.time.0 / interval;
                if is_same && next.live.bytes > kept.live.bytes {
                    *kept = *next;
                }
                is_same
            });
        }
    }

    /// The samples, with the last moment at the end.
    pub(crate) fn finish(mut self) -> Vec<Sample> {
        self.close();
        if self.samples.last().is_some_and(|sample| sample.time < self.last.time) {
            self.samples.push(self.last);
        }
        self.samples
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heapledger_core::{Blocks, Bytes};

    fn live(bytes: u64) -> Live {
        Live { bytes: Bytes(bytes), blocks: Blocks(1) }
    }

    #[test]
    fn each_interval_keeps_its_largest() {
        let mut timeline = Timeline::new();
        for (time, bytes) in [(0, 5), (10, 9), (20, 3), (INTERVAL_FIRST + 1, 2), (INTERVAL_FIRST + 2, 1)] {
            timeline.add(Time(time), live(bytes));
        }
        let samples: Vec<_> = timeline.finish().iter().map(|sample| (sample.time.0, sample.live.bytes.0)).collect();
        assert_eq!(samples, [(10, 9), (INTERVAL_FIRST, 3), (INTERVAL_FIRST + 2, 1)]);
    }

    #[test]
    fn a_long_session_stays_bounded_and_keeps_the_peak() {
        let mut timeline = Timeline::new();
        for step in 0..100_000_u64 {
            let bytes = if step == 31_337 { 1_000_000 } else { step % 1_000 };
            timeline.add(Time(step * 700_000), live(bytes));
        }
        let samples = timeline.finish();
        assert!((SAMPLES_MAX / 4..=SAMPLES_MAX + 1).contains(&samples.len()), "{}", samples.len());
        assert!(samples.is_sorted_by_key(|sample| sample.time));
        assert!(samples.contains(&Sample { time: Time(31_337 * 700_000), live: live(1_000_000) }));
    }

    #[test]
    fn nothing_happened() {
        assert!(Timeline::new().finish().is_empty());
    }
}
