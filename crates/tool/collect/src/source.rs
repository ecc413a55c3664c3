//! The collector's state of a ring: the words that were copied out of it, and what may still come.

use std::sync::Arc;

use heapledger_recording::Time;
use heapledger_wire::event::{Corrupt, Decoder, Event, code, look_ahead, stack_ahead};

use crate::clock::Clock;
use crate::early::{Early, Found, Pulled, SEARCHED_MAX, Search, allocates, frees};
use crate::image::Image;
use crate::image::threads::RingOwner;
use crate::session_state::Shared;
use crate::shared::SharedRing;

/// The number of words ahead of the decoder for which memory is prefetched.
const PREFETCH_DISTANCE: usize = 24;

/// A ring that is being read.
///
/// Everything up to a *floor* has been copied: no event with a smaller stamp can come any more. The
/// floor of an idle ring is a little before the time at which it was seen idle. The floor of a busy
/// ring stays where it was, or is its last stamp once everything that was copied has been merged,
/// because a producer's stamps never go back.
#[derive(Debug)]
pub(crate) struct Source {
    ring: Arc<SharedRing>,
    /// The index of its image.
    pub(crate) image: usize,
    /// The words that were copied; those before `at` have been merged.
    words: Vec<u64>,
    at: usize,
    /// The number of words that came before `words`.
    words_before: u64,
    /// The index in `words` up to which memory was prefetched.
    prefetched: usize,
    decoder: Decoder,
    pub(crate) ring_owner: RingOwner,
    /// The position of the next event in the order, once it is known.
    pub(crate) next: Option<Key>,
    /// The next event, if it is an allocation of an address that is live.
    pub(crate) early: Option<Early>,
    /// The frees among the later events that were pulled forward.
    pulled: Vec<Pulled>,
    floor: u64,
    /// The largest stamp so far.
    last: u64,
    /// The time since which it has been busy without writing, in nanoseconds.
    busy_since: Option<u64>,
    /// The number of events that its producer has dropped, as far as they have been counted.
    lost_full: u64,
    /// True if its image has ended, so that nothing more will be written.
    pub(crate) has_ended: bool,
    /// True if everything has been copied.
    is_drained: bool,
    /// True if the ring is corrupt: it is emptied, but not read.
    is_corrupt: bool,
}

/// A position in the order of events. Events are ordered by stamp; at equal stamps, releases come
/// before allocations, because an address is handed out again only after its release, and then the
/// ends of images.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key(u128);

impl Key {
    /// The key before those of all events.
    pub(crate) const NONE: Key = Key(0);

    #[inline(always)]
    fn new(stamp: u64, releases: bool) -> Key {
        // Greater than `NONE` even at stamp 0.
        let position = (stamp.min((u64::MAX >> 1) - 1) + 1) << 1 | u64::from(!releases);
        Key(u128::from(position) << 64)
    }

    /// Returns the key of the end of an image, after all events with this stamp.
    pub(crate) fn of_end(stamp: u64) -> Key {
        Key(Key::new(stamp, false).0 | u128::from(u64::MAX))
    }

    /// Returns the last key before all events with this stamp.
    pub(crate) fn before(stamp: u64) -> Key {
        if stamp >= (u64::MAX >> 1) - 1 { Key(u128::MAX) } else { Key((u128::from((stamp + 1) << 1) << 64) - 1) }
    }
}

/// The result of polling a ring.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PollResult {
    /// The number of words that were copied.
    pub(crate) words: u64,
    /// The number of events that the producer has dropped because the ring was full.
    pub(crate) lost_full: u64,
    /// The number of events given up because the ring is corrupt, estimated.
    pub(crate) lost_unreadable: u64,
}

/// A moment, in the forms that a poll of a ring needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    /// The stamp below which no idle ring will get an event.
    pub(crate) floor: u64,
    pub(crate) nanoseconds: u64,
    /// The time for which a busy ring is waited for, in nanoseconds.
    pub(crate) timeout: u64,
}

impl Source {
    pub(crate) fn new(ring: Arc<SharedRing>, image: usize, tid: u32) -> Source {
        Source {
            ring,
            image,
            words: Vec::new(),
            at: 0,
            words_before: 0,
            prefetched: 0,
            decoder: Decoder::default(),
            ring_owner: RingOwner::new(tid),
            next: None,
            early: None,
            pulled: Vec::new(),
            floor: 0,
            last: 0,
            busy_since: None,
            lost_full: 0,
            has_ended: false,
            is_drained: false,
            is_corrupt: false,
        }
    }

    pub(crate) fn ring(&self) -> &SharedRing {
        &self.ring
    }

    /// Returns the ring, unless it is corrupt.
    pub(crate) fn into_sound_ring(self) -> Option<Arc<SharedRing>> {
        (!self.is_corrupt).then_some(self.ring)
    }

    /// Returns the number of words that are copied and not merged yet.
    pub(crate) fn backlog(&self) -> usize {
        self.words.len() - self.at
    }

    /// True if everything has been copied and merged.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_drained && self.backlog() == 0
    }

    /// True if the ring is so full that its producer will soon wait.
    pub(crate) fn is_pressing(&self) -> bool {
        let ring = self.ring.ring();
        ring.readable() >= ring.capacity() / 4
    }

    /// Polls the ring, and copies its contents. If `is_full`, they are copied only if few words
    /// are left from before: events of other rings may depend on them.
    pub(crate) fn poll(&mut self, now: Now, is_full: bool) -> PollResult {
        // The order matters. A producer that has ended by this line wrote everything before it; one
        // that is idle at the next line wrote its events before that. The amount in the ring is
        // read only after both.
        let ring = self.ring.ring();
        let has_ended = self.has_ended || ring.is_closed();
        let is_busy = ring.is_busy();
        if self.is_corrupt {
            let words = ring.discard();
            self.is_drained = has_ended;
            return PollResult { words, lost_unreadable: words.div_ceil(2), ..PollResult::default() };
        }
        let is_polled = !is_full || self.backlog() < SEARCHED_MAX;
        let mut polled = PollResult { lost_full: self.newly_lost(), ..PollResult::default() };
        if is_polled {
            match self.copy() {
                Ok(words) => polled.words = words,
                Err(Corrupt) => return PollResult { lost_unreadable: self.give_up(), ..polled },
            }
        }
        self.is_drained = has_ended && is_polled;
        let is_stuck = match self.busy_since {
            _ if !is_busy || !is_polled => {
                self.busy_since = None;
                false
            }
            Some(since) if polled.words == 0 => now.nanoseconds.saturating_sub(since) > now.timeout,
            _ => {
                self.busy_since = Some(now.nanoseconds);
                false
            }
        };
        if is_polled {
            if has_ended || is_stuck {
                self.floor = u64::MAX;
            } else if !is_busy {
                self.floor = now.floor;
            } else if self.floor == u64::MAX {
                // It was stuck and has continued, so it limits the order again.
                self.floor = self.last;
            }
        }
        polled
    }

    fn newly_lost(&mut self) -> u64 {
        let before = self.lost_full;
        // A corrupt producer may count backwards.
        self.lost_full = self.ring.ring().lost_full().max(before);
        self.lost_full - before
    }

    fn copy(&mut self) -> Result<u64, Corrupt> {
        let (ring, words) = (self.ring.ring(), &mut self.words);
        if self.at > words.len() / 2 || self.at == words.len() {
            words.drain(..self.at);
            self.words_before += self.at as u64;
            (self.at, self.prefetched) = (0, self.prefetched.saturating_sub(self.at));
        }
        words.reserve(ring.readable().min(ring.capacity()) as usize);
        ring.drain(|word| words.push(word)).map_err(|_| Corrupt)
    }

    /// Marks the ring as corrupt: nothing more is read from it. Returns an estimate of the number
    /// of events lost.
    pub(crate) fn give_up(&mut self) -> u64 {
        self.is_corrupt = true;
        (self.next, self.early) = (None, None);
        self.pulled = Vec::new();
        self.floor = u64::MAX;
        // An event has two words on average.
        let words = self.backlog() as u64 + self.ring.ring().discard();
        self.words = Vec::new();
        (self.at, self.prefetched) = (0, 0);
        self.is_drained = self.has_ended || self.ring.ring().is_closed();
        words.div_ceil(2).max(1)
    }

    /// Returns the stamp below which nothing more can come, once everything that was copied has
    /// been merged.
    pub(crate) fn limit(&self) -> u64 {
        self.floor.max(self.last)
    }

    /// Finds [`Source::next`] without applying anything, for an image that has not started.
    pub(crate) fn peek(&mut self) -> Result<(), Corrupt> {
        let (mut at, mut decoder) = (self.at, self.decoder);
        while let Some((event, length)) = decoder.next(self.words.get(at..).unwrap_or(&[]))? {
            if let Some(releases) = releases(&event) {
                self.next = Some(Key::new(decoder.stamp, releases));
                break;
            }
            at += length;
        }
        Ok(())
    }

    /// Applies events in the order of the ring, up to and including `limit`; events without a
    /// position in the order are applied when they are met. Stops if nothing is left, or at an
    /// event beyond the limit, which is then [`Source::next`]. Also stops before an allocation of a
    /// live address, which is [`Source::early`] until it is known whether another ring has the
    /// free. `Err` means that the words are not valid events.
    pub(crate) fn run(
        &mut self,
        image: &mut Image,
        shared: &mut Shared,
        order: &mut Order,
        limit: Key,
    ) -> Result<(), Corrupt> {
        self.next = None;
        loop {
            let words = self.words.get(self.at..).unwrap_or(&[]);
            let mut decoder = self.decoder;
            let Some((event, length)) = decoder.next(words)? else {
                // Events are published whole, so a part of an event is invalid.
                return if words.is_empty() { Ok(()) } else { Err(Corrupt) };
            };
            let mut time = Time(0);
            if let Some(releases) = releases(&event) {
                if decoder.stamp > order.stamp_max {
                    return Err(Corrupt);
                }
                let (stamp, key) = (decoder.stamp, Key::new(decoder.stamp, releases));
                if key > limit {
                    self.next = Some(key);
                    return Ok(());
                }
                let is_missed = self.early.take().is_some_and(|early| early.is_missed);
                if !releases
                    && !is_missed
                    && let Some(address) = allocates(&event)
                    && image.is_too_early(address)
                {
                    let until = stamp.saturating_add(order.early_max);
                    self.early = Some(Early { address, stamp, until, is_missed: false });
                    self.next = Some(key);
                    return Ok(());
                }
                if stamp < order.reached {
                    image.anomalies.events_late += 1;
                } else {
                    order.reached = stamp;
                }
                time = Time(order.clock.time(order.reached));
            }
            while self.prefetched < (self.at + PREFETCH_DISTANCE).min(self.words.len()) {
                let (length, address) = look_ahead(self.words[self.prefetched]);
                self.prefetched += length;
                if let Some(address) = address {
                    let stack =
                        self.words.get(self.prefetched - length + 1).filter(|_| length > 1).copied().map(stack_ahead);
                    image.prefetch(address, stack);
                }
            }
            match take(&mut self.pulled, self.words_before + self.at as u64) {
                None => image.apply(shared, &mut self.ring_owner, time, &event)?,
                Some(Pulled { pending: Some(pending), .. }) => {
                    image.continue_realloc(shared, &mut self.ring_owner, time, pending);
                }
                Some(Pulled { pending: None, .. }) => {}
            }
            self.decoder = decoder;
            self.last = self.last.max(decoder.stamp);
            self.at += length;
        }
    }

    /// Returns the number of words of the ring that come before the word at this index.
    fn position(&self, at: usize) -> u64 {
        self.words_before + at as u64
    }

    /// Searches the events that have not been merged for the free that made an allocation possible.
    /// If the allocation is the next event of this ring, the search begins after it, and finds the
    /// free of the new block.
    pub(crate) fn search(&self, early: &Early, is_next: bool) -> Search {
        let (address, until) = (early.address, early.until);
        if self.next.is_some_and(|next| next > Key::of_end(until)) {
            return Search::Nothing;
        }
        let (mut at, mut decoder) = (self.at, self.decoder);
        if is_next && let Ok(Some((_, length))) = decoder.next(self.words.get(at..).unwrap_or(&[])) {
            at += length;
        }
        while at - self.at < SEARCHED_MAX {
            let (before, words) = (decoder, self.words.get(at..).unwrap_or(&[]));
            let Ok(Some((event, length))) = decoder.next(words) else {
                let is_open = words.is_empty() && self.floor <= until;
                return if is_open { Search::Unknown } else { Search::Nothing };
            };
            if releases(&event).is_some() {
                let is_of_address = |of: Option<u64>| of == Some(address);
                // After an allocation of the address by this ring itself, its frees are of that
                // block.
                if decoder.stamp > until || is_of_address(allocates(&event)) {
                    return Search::Nothing;
                }
                let is_pulled = || self.pulled.iter().any(|pulled| pulled.at == self.position(at));
                if is_of_address(frees(&event).map(|(address, _)| address)) && !is_pulled() {
                    return Search::Found(Found { at, stamp: decoder.stamp, decoder: before });
                }
            }
            at += length;
        }
        Search::Nothing
    }

    /// Applies a free before everything that has not been merged.
    pub(crate) fn pull(
        &mut self,
        found: Found,
        image: &mut Image,
        shared: &mut Shared,
        time: Time,
    ) -> Result<(), Corrupt> {
        let mut decoder = found.decoder;
        let Some((event, _)) = decoder.next(self.words.get(found.at..).unwrap_or(&[]))? else { return Err(Corrupt) };
        let pending = match frees(&event) {
            Some((address, true)) => Some(image.suspend(&mut self.ring_owner, time, address)),
            _ => {
                image.apply(shared, &mut self.ring_owner, time, &event)?;
                None
            }
        };
        self.pulled.push(Pulled { at: self.position(found.at), pending });
        image.anomalies.events_reordered += 1;
        Ok(())
    }
}

/// The state that is common to all rings when events are put in order.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) clock: Clock,
    /// The stamp of the latest event. An event with a smaller stamp is late, and counts as of this
    /// time.
    pub(crate) reached: u64,
    /// The largest stamp that a working recorder can have by now.
    pub(crate) stamp_max: u64,
    /// [`EARLY_MAX`](crate::early::EARLY_MAX) in the unit of stamps.
    pub(crate) early_max: u64,
}

/// Removes and returns the event at this position in its ring, if it was pulled forward.
#[inline(always)]
fn take(pulled: &mut Vec<Pulled>, position: u64) -> Option<Pulled> {
    if pulled.is_empty() {
        return None;
    }
    let index = pulled.iter().position(|pulled| pulled.at == position)?;
    Some(pulled.swap_remove(index))
}

/// Returns whether an event makes an address free for others; `None` if it has no position in the
/// order.
#[inline(always)]
fn releases(event: &Event<'_>) -> Option<bool> {
    match event {
        Event::Free { .. } | Event::ReallocBegin { .. } => Some(true),
        Event::Malloc { .. } | Event::Calloc { .. } | Event::ReallocEnd { .. } | Event::WithUsable { .. } => {
            Some(false)
        }
        Event::Node { .. } | Event::Nothing => None,
        Event::Extended { code, .. } => Some(matches!(*code, code::FREE | code::REALLOC_BEGIN)),
    }
}

#[cfg(test)]
mod tests;
