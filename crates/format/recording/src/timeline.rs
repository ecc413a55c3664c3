//! Live bytes over time.

use heapledger_core::{Blocks, Bytes};

use crate::columns::{self, CODEC_DELTA, Spec};
use crate::error::{Reason, RecordingError};
use crate::events::TICK_NS;
use crate::frame::{Compressor, EncodedChunk};
use crate::head::{CHUNK_ROWS_MAX, ChunkHead, ChunkKind};
use crate::ids::{ImageId, Live, Time};

/// The live blocks and bytes at a moment: the one with the most bytes in each interval, and before
/// a pause the last one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// The moment.
    pub time: Time,
    /// The live blocks and bytes.
    pub live: Live,
}

/// The most intervals that are kept.
const INTERVALS_MAX: usize = 2048;
/// The length of an interval at first, in nanoseconds: the resolution of the times of events.
const INTERVAL_FIRST: u64 = TICK_NS as u64;

/// Gathers the live bytes over time, in bounded memory.
///
/// Keeps the moment with the most live bytes in each interval of time and, if nothing happens in
/// the next interval, the interval's last moment, so that the amount during the pause is known too.
/// When there are too many intervals, their length doubles; there are never more than 4,096
/// samples.
#[derive(Clone, Debug)]
pub struct Timeline {
    intervals: Vec<Interval>,
    length: u64,
    /// The first moment of the next interval.
    end: u64,
    /// The current interval.
    open: Interval,
}

/// An interval in which something happened.
#[derive(Clone, Copy, Debug, Default)]
struct Interval {
    best: Sample,
    last: Sample,
}

impl Timeline {
    /// Creates a timeline in which nothing has happened yet, and nothing is live.
    #[expect(clippy::new_without_default, reason = "it is not cheap")]
    pub fn new() -> Timeline {
        Timeline { intervals: Vec::new(), length: INTERVAL_FIRST, end: 0, open: Interval::default() }
    }

    /// Adds the live amount at a moment. A moment before the last one given counts as that one,
    /// because processes are not in step.
    #[inline]
    pub fn add(&mut self, time: Time, live: Live) {
        let time = time.max(self.open.last.time);
        if time.0 >= self.end {
            self.next(time);
        }
        let sample = Sample { time, live };
        if live.bytes > self.open.best.live.bytes {
            self.open.best = sample;
        }
        self.open.last = sample;
    }

    /// Returns the moment given last.
    pub fn last_time(&self) -> Time {
        self.open.last.time
    }

    #[cold]
    fn next(&mut self, time: Time) {
        self.close();
        let start = Time(time.0 - time.0 % self.length);
        self.end = start.0.saturating_add(self.length);
        // If intervals have become longer, the moment may be in the one before.
        if let Some(before) = self.intervals.pop_if(|before| before.best.time >= start) {
            self.open = before;
            return;
        }
        // The amount live at the end of the interval is live at the beginning of this one, and may
        // be its largest.
        self.open.best = Sample { time: start, live: self.open.last.live };
    }

    fn close(&mut self) {
        if self.end > 0 {
            self.intervals.push(self.open);
        }
        while self.intervals.len() >= INTERVALS_MAX {
            self.length *= 2;
            let length = self.length;
            self.intervals.dedup_by(|next, kept| {
                let is_same = next.best.time.0 / length == kept.best.time.0 / length;
                if is_same {
                    if next.best.live.bytes > kept.best.live.bytes {
                        kept.best = next.best;
                    }
                    kept.last = next.last;
                }
                is_same
            });
        }
    }

    /// Returns the samples in time order, with the last moment at the end.
    pub fn finish(mut self) -> Vec<Sample> {
        self.close();
        let mut samples = Vec::with_capacity(self.intervals.len());
        for (at, interval) in self.intervals.iter().enumerate() {
            let number = |sample: Sample| sample.time.0 / self.length;
            let is_followed =
                self.intervals.get(at + 1).is_some_and(|next| number(next.best) <= number(interval.last) + 1);
            samples.push(interval.best);
            if !is_followed && interval.best.time < interval.last.time {
                samples.push(interval.last);
            }
        }
        samples
    }
}

const COLUMNS: [Spec; 3] = [
    Spec { id: 1, codec: CODEC_DELTA }, // time
    Spec { id: 2, codec: CODEC_DELTA }, // live.bytes
    Spec { id: 3, codec: CODEC_DELTA }, // live.blocks
];

/// Turns samples into chunks.
#[derive(Debug)]
pub struct TimelineEncoder;

impl TimelineEncoder {
    /// Returns the chunks of the session's timeline, or of one image's. Samples must be in time
    /// order.
    pub fn encode(
        image: Option<ImageId>,
        samples: &[Sample],
        compressor: &mut Compressor,
    ) -> Result<Vec<EncodedChunk>, RecordingError> {
        if !samples.is_sorted_by_key(|sample| sample.time) {
            return Err(RecordingError::Unwritable("a timeline out of order"));
        }
        let encode_part = |part: &[Sample]| {
            let head = ChunkHead {
                image,
                rows: part.len() as u32,
                time_first: part.first().map_or(Time(0), |sample| sample.time),
                time_last: part.last().map_or(Time(0), |sample| sample.time),
                ..ChunkHead::default()
            };
            let rows = part.iter().map(|sample| [sample.time.0, sample.live.bytes.0, sample.live.blocks.0]);
            compressor.encode_chunk(ChunkKind::Timeline, &head, &columns::encode_table(COLUMNS, rows))
        };
        samples.chunks(CHUNK_ROWS_MAX).map(encode_part).collect()
    }
}

/// Appends the samples of a chunk.
pub(crate) fn decode(contents: &[u8], rows: u32, samples: &mut Vec<Sample>) -> Result<(), Reason> {
    columns::decode_table(contents, COLUMNS, rows, |[time, bytes, blocks]| {
        let time = Time(time);
        if samples.last().is_some_and(|before| before.time > time) {
            return Err(Reason::Invalid("a timeline out of order"));
        }
        samples.push(Sample { time, live: Live { bytes: Bytes(bytes), blocks: Blocks(blocks) } });
        Ok(())
    })
}

#[cfg(test)]
mod tests;
