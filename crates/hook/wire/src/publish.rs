//! The producer's side of a ring: waiting for space, waking the collector, writing whole events.

use core::sync::atomic::Ordering;

use heapledger_core::sys;

use crate::event::{STEP_END, Words, units, with_step};
use crate::ring::Ring;
use crate::session::SessionPage;
use crate::stall::{POLL_MILLISECONDS, Watchdog};

/// The producer's private state, in addition to the shared ring.
#[derive(Debug)]
#[repr(C)]
pub struct Producer {
    ring: Ring,
    head: u64,
    /// The consumer's position when it was last read.
    tail_seen: u64,
    /// The position up to which there is space and no quarter of the ring ends.
    fast_end: u64,
    /// The stamp of the last event, in units; compact events carry the difference to it.
    pub last: u64,
}

/// The reason why an event was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteError {
    /// The collector is gone, or has ended the session: nobody will make space.
    Disconnected,
    /// There is no space now because the recorder is stalled; there may be space later.
    NoSpace,
}

impl Producer {
    /// Returns a producer that continues at the ring's present position. There must be one producer
    /// for a ring at a time.
    pub fn new(ring: Ring) -> Producer {
        Producer { ring, head: ring.head(), tail_seen: ring.tail(), fast_end: 0, last: 0 }
    }

    /// Returns the ring.
    #[inline(always)]
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Returns the position at which the next event is written.
    pub fn position(&self) -> u64 {
        self.head
    }

    /// Marks the start of an event: from here on a stamp may be taken.
    #[inline(always)]
    pub fn begin(&self) {
        self.ring.set_busy(true);
    }

    /// Marks the end of an event, whether it was published or not.
    #[inline(always)]
    pub fn end(&self) {
        self.ring.set_busy(false);
    }

    /// Stamps, writes and publishes a compact event if nothing else has to be done. Otherwise
    /// returns false and does nothing: a sync event has to come first, or there may be no space, or
    /// the collector has to be woken. Then use [`Producer::step`] and [`Producer::write`].
    #[inline(always)]
    pub fn write_fast<const N: usize>(&mut self, ticks: u64, words: [u64; N]) -> bool {
        let now = units(ticks);
        let step = now.wrapping_sub(self.last);
        let is_written = step < STEP_END && self.write_unstamped_fast(with_step(words, step));
        if is_written {
            self.last = now;
        }
        is_written
    }

    /// Writes and publishes an event that needs no stamp, if nothing else has to be done.
    #[inline(always)]
    pub fn write_unstamped_fast<const N: usize>(&mut self, words: [u64; N]) -> bool {
        let (ring, head) = (self.ring, self.head);
        let end = head + N as u64;
        if end > self.fast_end {
            return false;
        }
        for (offset, word) in words.into_iter().enumerate() {
            ring.put(head + offset as u64, word);
        }
        self.head = end;
        ring.publish(end);
        true
    }

    /// Writes and publishes an event, waiting for space if there is none. Wakes the collector when
    /// a quarter of the ring was crossed.
    ///
    /// `is_gone` is called about every 100 ms of waiting and returns true if the collector is gone.
    /// If the collector is stalled for too long, the event is not written: see [`Watchdog`].
    pub fn write(
        &mut self,
        session: &SessionPage,
        is_gone: impl Fn() -> bool,
        words: Words<'_>,
    ) -> Result<(), WriteError> {
        let count = words.len() as u64;
        if self.head + count - self.tail_seen > self.ring.capacity() {
            self.wait_for_space(session, is_gone, count)?;
        }
        for (offset, &word) in words.iter().enumerate() {
            self.ring.put(self.head + offset as u64, word);
        }
        let quarter = self.ring.capacity() / 4;
        let crossed = (self.head ^ (self.head + count)) & quarter != 0;
        self.head += count;
        self.ring.publish(self.head);
        if crossed {
            session.ring_doorbell();
        }
        let quarter_end = self.head | (quarter - 1);
        self.fast_end = quarter_end.min(self.tail_seen + self.ring.capacity());
        Ok(())
    }

    /// Returns the time difference that a compact event carries for the stamp `ticks`, or `None` if
    /// a sync event must come first. Stamps never go backwards: a difference below zero counts as
    /// zero.
    pub fn step(&mut self, ticks: u64) -> Option<u64> {
        let now = units(ticks);
        let step = now.saturating_sub(self.last);
        if step >= STEP_END {
            return None;
        }
        self.last += step;
        Some(step)
    }

    /// True if at least that many eighths of the ring are free.
    pub fn has_free(&mut self, eighths: u64) -> bool {
        let used_max = self.ring.capacity() / 8 * (8 - eighths);
        if self.head - self.tail_seen > used_max {
            self.tail_seen = self.ring.tail();
        }
        self.head - self.tail_seen <= used_max
    }

    /// The number of drops between two checks whether the collector is gone.
    const DROPS_PER_CHECK: u64 = 1 << 16;

    /// Counts an event that is not written for lack of space. `Err` if the collector is found to be
    /// gone.
    #[cold]
    pub fn drop_event(&mut self, session: &SessionPage, is_gone: impl Fn() -> bool) -> Result<(), WriteError> {
        self.ring.add_lost_full();
        session.ring_doorbell();
        let is_check_due = self.ring.lost_full().is_multiple_of(Producer::DROPS_PER_CHECK);
        if session.is_over() || (is_check_due && is_gone()) { Err(WriteError::Disconnected) } else { Ok(()) }
    }

    #[cold]
    fn wait_for_space(
        &mut self,
        session: &SessionPage,
        is_gone: impl Fn() -> bool,
        count: u64,
    ) -> Result<(), WriteError> {
        if count > self.ring.capacity() {
            return Err(WriteError::Disconnected);
        }
        let waiting = self.ring.waiting();
        let mut iterations = 0_u32;
        let mut watchdog = Watchdog::new(session.heartbeat());
        loop {
            self.tail_seen = self.ring.tail();
            if self.head + count - self.tail_seen <= self.ring.capacity() {
                return Ok(());
            }
            if session.is_over() || (iterations % 5 == 4 && is_gone()) {
                return Err(WriteError::Disconnected);
            }
            if watchdog.has_stalled(session, session.heartbeat()) {
                // The next words are not written on the fast path either, because they belong to
                // the same event.
                self.fast_end = 0;
                return Err(WriteError::NoSpace);
            }
            waiting.store(1, Ordering::Relaxed);
            core::sync::atomic::fence(Ordering::SeqCst);
            if self.head + count - self.ring.tail() > self.ring.capacity() {
                session.ring_doorbell();
                sys::futex_wait(waiting, 1, Some(POLL_MILLISECONDS));
            }
            waiting.store(0, Ordering::Relaxed);
            iterations = iterations.wrapping_add(1);
        }
    }
}
