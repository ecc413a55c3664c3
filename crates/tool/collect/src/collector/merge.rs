//! Puts the events of all rings in order, and applies them to their images.
//!
//! The merge ends at the *horizon*: the smallest stamp of an event that may still come. Only rings
//! without copied events limit it, so it moves closer while the merge goes on.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use heapledger_core::{arch, sys};
use heapledger_recording::Time;
use heapledger_wire::event::units;
use heapledger_wire::ring::MEASURED_ONE_IN;

use super::images::Images;
use super::segment::Segment;
use super::slot::Stage;
use crate::clock::Clock;
use crate::early::{EARLY_MAX, Early, Found, Search};
use crate::session_state::Shared;
use crate::source::{Key, Now, Order, Source};

/// The time after which stores of other processors are visible. A ring seen idle gets no event
/// whose stamp is earlier by more than this.
pub(super) const SETTLING: Duration = Duration::from_micros(50);
/// The time for which a busy ring holds up the others.
const BUSY_TIMEOUT: Duration = Duration::from_secs(1);
/// The same when the session ends.
const BUSY_TIMEOUT_AT_END: Duration = Duration::from_millis(50);
/// The maximum number of words that wait to be merged (256 MiB), besides one copy of each ring.
/// Beyond it, rings are left full.
const BACKLOG_MAX: usize = 32 << 20;

/// The rings of a session, and the order of their events.
#[derive(Debug)]
pub(super) struct Merge {
    pub(super) order: Order,
    pub(super) sources: Vec<Source>,
    heap: BinaryHeap<Reverse<(Key, usize)>>,
    /// The images that have ended and are not finished, each with the position of its end in the
    /// order.
    ending: Vec<(Key, usize)>,
    /// The stamp up to which everything has been merged.
    pub(super) horizon: u64,
    pub(super) timeout: Duration,
    pub(super) backlog_max: usize,
    pub(super) costs: RingCosts,
}

/// The costs of the rings.
#[derive(Debug, Default)]
pub(super) struct RingCosts {
    bytes: u64,
    pub(super) bytes_max: u64,
    /// An estimate of the time that the hook took, in ticks.
    pub(super) hook_ticks: u64,
}

impl Merge {
    pub(super) fn new(clock: Clock) -> Merge {
        Merge {
            order: Order { early_max: clock.units(EARLY_MAX.as_nanos() as u64), clock, reached: 0, stamp_max: 0 },
            sources: Vec::new(),
            heap: BinaryHeap::new(),
            ending: Vec::new(),
            horizon: 0,
            timeout: BUSY_TIMEOUT,
            backlog_max: BACKLOG_MAX,
            costs: RingCosts::default(),
        }
    }

    /// Returns the time of a stamp.
    pub(super) fn time(&self, stamp: u64) -> Time {
        Time(self.order.clock.time(stamp))
    }

    pub(super) fn add(&mut self, source: Source) {
        self.costs.bytes += source.ring().length() as u64;
        self.costs.bytes_max = self.costs.bytes_max.max(self.costs.bytes);
        self.sources.push(source);
    }

    /// Notes that an image has ended: nothing more comes into its rings.
    pub(super) fn end_image(&mut self, index: usize, stamp: u64) {
        self.ending.push((Key::of_end(stamp), index));
        for source in self.sources.iter_mut().filter(|source| source.image == index) {
            source.has_ended = true;
        }
    }

    /// True if events up to this stamp may still come into a ring.
    pub(super) fn may_get(&self, stamp: u64) -> bool {
        self.horizon <= stamp && self.sources.iter().any(|source| !source.has_ended)
    }

    /// Lets programs continue that wait for room in a ring, and waits less for busy rings from now
    /// on.
    pub(super) fn end_session(&mut self) {
        for source in &self.sources {
            let waiting = source.ring().ring().waiting();
            waiting.store(0, Ordering::Release);
            sys::futex_wake(waiting, 1);
        }
        self.timeout = BUSY_TIMEOUT_AT_END;
    }

    /// Polls all rings, at a moment with this stamp. Returns the stamp below which no idle ring
    /// will get an event, and the number of words that were copied.
    pub(super) fn poll(&mut self, stamp: u64, images: &mut Images) -> (u64, u64) {
        let clock = &self.order.clock;
        let settling = clock.units(SETTLING.as_nanos() as u64);
        let now = Now {
            floor: stamp.saturating_sub(settling),
            nanoseconds: clock.time(stamp),
            timeout: self.timeout.as_nanos() as u64,
        };
        let mut backlog: usize = self.sources.iter().map(Source::backlog).sum();
        let mut words = 0;
        for source in &mut self.sources {
            let polled = source.poll(now, backlog >= self.backlog_max);
            backlog += polled.words as usize;
            words += polled.words;
            if let Some(slot) = images.slots.get_mut(source.image) {
                slot.lost.add_full(polled.lost_full);
                slot.lost.add_unreadable(polled.lost_unreadable);
            }
        }
        // Read after the last poll: this process may have been stopped for any time since the
        // first.
        let clock = &self.order.clock;
        self.order.stamp_max = units(arch::ticks()).saturating_add(clock.units(1_000_000_000));
        (now.floor, words)
    }

    /// Merges what is complete. Returns true if there was too much for one iteration.
    pub(super) fn merge(&mut self, floor: u64, segment: &Segment, images: &mut Images, shared: &mut Shared) -> bool {
        let events_max = shared.events + segment.iteration_events_max();
        let begins = segment.begins();
        let mut heap = std::mem::take(&mut self.heap);
        heap.clear();
        let mut horizon = u64::MAX;
        for index in 0..self.sources.len() {
            if self.sources[index].next.is_none() {
                self.find_next(index, images, shared);
            }
            match self.sources[index].next {
                Some(key) => heap.push(Reverse((key, index))),
                None => horizon = horizon.min(self.sources[index].limit()),
            }
        }
        let mut is_cut = false;
        while let Some(Reverse((key, index))) = heap.pop() {
            let mut limit = Key::before(horizon);
            if key > limit {
                break;
            }
            if let Some(Reverse((other, _))) = heap.peek() {
                limit = limit.min(*other);
            }
            // An image that comes after an end must not meet what was live before.
            self.finish_ended(key, begins, images, shared);
            self.run(index, limit, images, shared);
            if let Some(early) = self.sources[index].early
                && !self.settle(index, early, images, shared)
            {
                // Nothing after it can be merged before more events have come.
                horizon = horizon.min(early.stamp);
            }
            match self.sources[index].next {
                Some(key) => heap.push(Reverse((key, index))),
                None => horizon = horizon.min(self.sources[index].limit()),
            }
            if shared.events >= events_max {
                is_cut = true;
                break;
            }
        }
        if !is_cut {
            // Without rings there is no limit, but time does not go on beyond `floor`.
            self.horizon = self.horizon.max(horizon.min(floor));
            self.finish_ended(Key::before(self.horizon), begins, images, shared);
        }
        self.heap = heap;
        is_cut
    }

    /// Releases the rings that have been read to their end.
    pub(super) fn retire(&mut self, images: &mut Images) {
        let mut index = 0;
        while let Some(source) = self.sources.get(index) {
            if !source.is_complete() {
                index += 1;
                continue;
            }
            let source = self.sources.swap_remove(index);
            self.costs.bytes -= source.ring().length() as u64;
            let (ticks, _) = source.ring().ring().measured();
            self.costs.hook_ticks = self.costs.hook_ticks.saturating_add(ticks.saturating_mul(MEASURED_ONE_IN));
            images.retire(source);
        }
    }

    /// Advances a ring to its next event that has a position in the order.
    fn find_next(&mut self, index: usize, images: &mut Images, shared: &mut Shared) {
        let source = &mut self.sources[index];
        let slot = &mut images.slots[source.image];
        if !matches!(slot.stage, Stage::New) {
            self.run(index, Key::NONE, images, shared);
        } else if source.peek().is_err() {
            slot.lost.add_unreadable(source.give_up());
        }
    }

    fn run(&mut self, index: usize, limit: Key, images: &mut Images, shared: &mut Shared) {
        let image = self.sources[index].image;
        if matches!(images.slots[image].stage, Stage::New) {
            images.start(image, shared);
        }
        let (source, slot) = (&mut self.sources[index], &mut images.slots[image]);
        let Stage::Running(running) = &mut slot.stage else { return };
        if source.run(running, shared, &mut self.order, limit).is_err() {
            slot.lost.add_unreadable(source.give_up());
        }
    }

    /// Pulls forward the free that must have come before an allocation of a live address: the first
    /// free of the address, unless the thread of the allocation makes it. Returns false if the free
    /// may still come.
    #[cold]
    fn settle(&mut self, index: usize, early: Early, images: &mut Images, shared: &mut Shared) -> bool {
        let image = self.sources[index].image;
        let mut earliest: Option<(Found, usize)> = None;
        for (other, source) in self.sources.iter().enumerate() {
            if source.image != image {
                continue;
            }
            match source.search(&early, other == index) {
                Search::Found(found) if earliest.is_none_or(|(known, _)| found.stamp < known.stamp) => {
                    earliest = Some((found, other));
                }
                Search::Found(_) | Search::Nothing => {}
                Search::Unknown => return false,
            }
        }
        let slot = &mut images.slots[image];
        let Stage::Running(running) = &mut slot.stage else { return true };
        match earliest.filter(|(_, other)| *other != index) {
            Some((found, other)) => {
                let time = Time(self.order.clock.time(early.stamp.max(self.order.reached)));
                let source = &mut self.sources[other];
                if source.pull(found, running, shared, time).is_err() {
                    slot.lost.add_unreadable(source.give_up());
                }
            }
            None => self.sources[index].early = Some(Early { is_missed: true, ..early }),
        }
        true
    }

    /// Finishes the images that ended before `limit` and whose events are all merged.
    fn finish_ended(&mut self, limit: Key, begins: Time, images: &mut Images, shared: &mut Shared) {
        let mut at = 0;
        while let Some(&(end, index)) = self.ending.get(at) {
            let is_complete = || self.sources.iter().all(|source| source.image != index || source.is_complete());
            if end <= limit && is_complete() {
                self.ending.remove(at);
                images.finish(index, begins, shared);
            } else {
                at += 1;
            }
        }
    }
}
