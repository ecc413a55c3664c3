//! Finds the blocks with a given lifetime. A lifetime is known only when the block is freed, long
//! after a replay has counted the block, so it is determined beforehand: one bit per allocation.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use heapledger_core::{Bytes, Serial, ThreadId};
use heapledger_recording::{Damage, Event, EventKind, FreedBlock, ImageId, Recording, Time};

use crate::error::Error;
use crate::events::{THREADS_MAX, bytes_of, events_in, for_each_chunk};
use crate::progress::Progress;

/// A condition on the lifetimes of blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LifetimeCondition {
    /// The lifetime is in this range, in nanoseconds. A block that was never freed lived until the
    /// end of its image.
    Time(RangeInclusive<u64>),
    /// The block was freed after at most this many nanoseconds.
    Freed(u64),
    /// The block was freed before the thread that allocated it had made more than this many further
    /// allocations. Not meaningful for a sample.
    Allocations(u64),
}

/// The blocks of some images that meet a condition on their lifetimes.
#[derive(Debug, Default)]
pub(crate) struct MatchingBlocks {
    images: HashMap<ImageId, Bits>,
    /// Parts of the recording that could not be read.
    pub(crate) damage: Vec<Damage>,
}

impl MatchingBlocks {
    /// Reads all events of these images, one image after the other.
    pub(crate) fn find(
        recording: &Recording<'_>,
        images: &[ImageId],
        lifetime: &LifetimeCondition,
        memory_max: Bytes,
        progress: Progress<'_>,
    ) -> Result<MatchingBlocks, Error> {
        let (mut done, all) = (0, events_in(recording, images));
        let mut found = MatchingBlocks::default();
        let mut bytes_kept = 0;
        // If the recorder did not finish: the last time that is known.
        let latest = || recording.chunks().iter().map(|chunk| chunk.head.time_last).max().unwrap_or_default();
        let session_end = recording.footer().map_or_else(latest, |footer| footer.time);
        for &image in images {
            let mut matcher =
                LifetimeMatcher { lifetime, allocated_at: HashMap::new(), threads: Vec::new(), bits: Bits::default() };
            for_each_chunk(recording, image, &mut found.damage, |events| {
                events.iter().for_each(|event| matcher.event(event));
                done += events.len() as u64;
                progress(done, all);
                let bytes = bytes_kept + bytes_of(&matcher.allocated_at) + matcher.bits.bytes();
                if bytes > memory_max.0 { Err(Error::MemoryLimit(memory_max)) } else { Ok(()) }
            })?;
            let end = recording.image_end(image).map(|end| end.time);
            let bits = matcher.finish(end.unwrap_or(session_end));
            bytes_kept += bits.bytes();
            found.images.insert(image, bits);
        }
        Ok(found)
    }

    /// True if the block meets the condition.
    pub(crate) fn has(&self, image: ImageId, serial: Serial) -> bool {
        self.images.get(&image).is_some_and(|bits| bits.has(serial))
    }
}

struct LifetimeMatcher<'l> {
    lifetime: &'l LifetimeCondition,
    /// For each live block, the time of its allocation. For [`LifetimeCondition::Allocations`]
    /// instead its thread (20 bits), and above that the ordinal of its allocation in the thread.
    allocated_at: HashMap<Serial, u64>,
    /// The number of allocations that each thread has made.
    threads: Vec<u64>,
    bits: Bits,
}

impl LifetimeMatcher<'_> {
    fn event(&mut self, event: &Event) {
        match event.kind {
            EventKind::Alloc { serial, .. } => self.allocated(event, serial),
            EventKind::Free { block } => self.freed(event.time, block),
            EventKind::Realloc { old, serial, .. } => {
                self.freed(event.time, old);
                self.allocated(event, serial);
            }
            EventKind::Failed { .. } | EventKind::Reattributed { .. } => {}
        }
    }

    fn allocated(&mut self, event: &Event, serial: Serial) {
        let allocated_at = match self.lifetime {
            LifetimeCondition::Time(_) | LifetimeCondition::Freed(_) => event.time.0,
            LifetimeCondition::Allocations(_) => {
                let ThreadId(thread) = event.thread.min(ThreadId(THREADS_MAX - 1));
                // The ordinal has 44 bits, more allocations than a thread can make in its life.
                *self.allocations_of(thread) += 1;
                *self.allocations_of(thread) * u64::from(THREADS_MAX) + u64::from(thread)
            }
        };
        self.allocated_at.insert(serial, allocated_at);
    }

    fn allocations_of(&mut self, thread: u32) -> &mut u64 {
        let at = thread as usize;
        if at >= self.threads.len() {
            self.threads.resize(at + 1, 0);
        }
        &mut self.threads[at]
    }

    fn freed(&mut self, time: Time, block: FreedBlock) {
        let FreedBlock::Known(serial) = block else { return };
        let Some(allocated_at) = self.allocated_at.remove(&serial) else { return };
        let matches = match self.lifetime {
            LifetimeCondition::Time(range) => range.contains(&time.0.saturating_sub(allocated_at)),
            LifetimeCondition::Freed(most) => time.0.saturating_sub(allocated_at) <= *most,
            LifetimeCondition::Allocations(most) => {
                let (ordinal, thread) = (allocated_at / u64::from(THREADS_MAX), allocated_at % u64::from(THREADS_MAX));
                *self.allocations_of(thread as u32) - ordinal <= *most
            }
        };
        if matches {
            self.bits.set(serial);
        }
    }

    fn finish(mut self, end: Time) -> Bits {
        if let LifetimeCondition::Time(range) = self.lifetime {
            let matching = self
                .allocated_at
                .iter()
                .filter(|(_, allocated_at)| range.contains(&end.0.saturating_sub(**allocated_at)));
            matching.for_each(|(serial, _)| self.bits.set(*serial));
        }
        self.bits
    }
}

/// A set of serials, in pages: the serials of a damaged file can have gaps.
#[derive(Debug, Default)]
struct Bits {
    pages: Vec<Option<Box<Page>>>,
    pages_there: u64,
}

type Page = [u64; 64];
/// The number of serials on a page.
const PAGE: u64 = 64 * 64;
/// Serials have 37 bits.
const PAGES_MAX: u64 = (1 << 37) / PAGE;

impl Bits {
    fn set(&mut self, serial: Serial) {
        let page = serial.0 / PAGE;
        if page >= PAGES_MAX {
            return;
        }
        let page = page as usize;
        if page >= self.pages.len() {
            self.pages.resize(page + 1, None);
        }
        let page = self.pages[page].get_or_insert_with(|| {
            self.pages_there += 1;
            Box::new([0; 64])
        });
        page[(serial.0 % PAGE / 64) as usize] |= 1 << (serial.0 % 64);
    }

    fn has(&self, serial: Serial) -> bool {
        let page = self.pages.get((serial.0 / PAGE) as usize).and_then(Option::as_ref);
        page.is_some_and(|page| page[(serial.0 % PAGE / 64) as usize] & 1 << (serial.0 % 64) != 0)
    }

    fn bytes(&self) -> u64 {
        self.pages.len() as u64 * 8 + self.pages_there * size_of::<Page>() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_serials() {
        let mut bits = Bits::default();
        for serial in [0, 63, 64, 4095, 4096, 1_000_000] {
            assert!(!bits.has(Serial(serial)));
            bits.set(Serial(serial));
            assert!(bits.has(Serial(serial)) && !bits.has(Serial(serial + 1)) || serial == 63 || serial == 4095);
        }
        bits.set(Serial(u64::MAX));
        assert!(!bits.has(Serial(u64::MAX)) && bits.bytes() < 8 * 1024);
    }
}
