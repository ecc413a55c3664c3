//! A single-producer, single-consumer ring of 64-bit words in shared memory.
//!
//! The mapping is one header page ([`RingHeader`]) followed by the data, a power of two of words.
//! Positions only grow; the word of position `p` is at `p & mask`. The producer writes words, then
//! `head` with release; the consumer reads `head` with acquire, copies, then writes `tail` with
//! release. Everything is an atomic, because the other side is another process that may do
//! anything: a hostile producer can make the consumer read nonsense, nothing worse.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::session::ImageCounters;

/// The size in bytes of the header at the start of a ring's mapping.
pub const HEADER_LENGTH: usize = 4096;

/// The header. The producer's and the consumer's words are on separate cache lines.
#[derive(Debug)]
#[repr(C)]
pub struct RingHeader {
    producer: ProducerLine,
    consumer: ConsumerLine,
    /// Used only in a common ring.
    pub image: ImageCounters,
    /// The lock that a writer must hold; used only in a common ring.
    pub common: heapledger_core::lock::Lock,
}

#[derive(Debug)]
#[repr(C, align(64))]
struct ProducerLine {
    head: AtomicU64,
    /// Not 0 between the moment an event's stamp is taken and the moment it is published.
    busy: AtomicU32,
    /// 1 when no more will be written.
    closed: AtomicU32,
    /// Ticks spent in the recorder by the calls that were measured, and their number: one in
    /// [`MEASURED_ONE_IN`].
    measured_ticks: AtomicU64,
    measured_calls: AtomicU64,
    /// Events lost because there was no room for them.
    lost_full: AtomicU64,
}

#[derive(Debug)]
#[repr(C, align(64))]
struct ConsumerLine {
    tail: AtomicU64,
    /// 1 while the producer waits for space; a futex.
    waiting: AtomicU32,
}

const _: () = assert!(size_of::<RingHeader>() <= HEADER_LENGTH);

/// A mapped ring, seen from either side.
#[derive(Clone, Copy, Debug)]
pub struct Ring {
    header: NonNull<RingHeader>,
    data: NonNull<AtomicU64>,
    mask: u64,
}

// SAFETY: a `Ring` is a pointer to atomics that live as long as it is used (the contract of
// `Ring::new`).
unsafe impl Send for Ring {}
// SAFETY: a `Ring` is an address of atomics that live as long as it is used (the contract of
// `Ring::new`); every access through `&Ring` is atomic.
unsafe impl Sync for Ring {}

impl Ring {
    /// Returns a view of a mapping of `length` bytes: [`HEADER_LENGTH`] and a power of two of at
    /// least 64 words. `None` if the length or the alignment is wrong.
    ///
    /// # Safety
    ///
    /// The mapping is readable and writable, stays so while the view or a copy of it is used, and
    /// is accessed only by atomics. Its content may be anything.
    pub unsafe fn new(mapping: NonNull<u8>, length: usize) -> Option<Ring> {
        let words = length.checked_sub(HEADER_LENGTH)? / 8;
        if words < 64 || !words.is_power_of_two() || !mapping.cast::<RingHeader>().is_aligned() {
            return None;
        }
        // SAFETY: `length` is larger than `HEADER_LENGTH`, so the result is inside the mapping.
        let data = unsafe { mapping.add(HEADER_LENGTH) }.cast::<AtomicU64>();
        Some(Ring { header: mapping.cast(), data, mask: words as u64 - 1 })
    }

    /// Returns the length of a mapping with room for `capacity` bytes of data.
    pub const fn mapping_length(capacity: usize) -> usize {
        HEADER_LENGTH + capacity
    }

    /// Returns the start of the mapping, to unmap it.
    pub fn mapping(&self) -> NonNull<u8> {
        self.header.cast()
    }

    /// Returns the number of words of data that the ring holds.
    #[inline(always)]
    pub fn capacity(&self) -> u64 {
        self.mask + 1
    }

    /// Returns the header.
    #[inline(always)]
    pub fn header(&self) -> &RingHeader {
        // SAFETY: by the contract of `new` the header is mapped, aligned (checked there) and
        // accessed only by atomics, for which any content is valid.
        unsafe { self.header.as_ref() }
    }

    #[inline(always)]
    fn word(&self, position: u64) -> &AtomicU64 {
        // SAFETY: `position & mask` is below the capacity, and the data of that many words is
        // mapped.
        unsafe { self.data.add((position & self.mask) as usize).as_ref() }
    }

    /// Writes one word at a position that [`Ring::head`] has not passed. Producer only.
    #[inline(always)]
    pub fn put(&self, position: u64, word: u64) {
        self.word(position).store(word, Ordering::Relaxed);
    }

    /// Publishes everything below `head`. Producer only.
    #[inline(always)]
    pub fn publish(&self, head: u64) {
        self.header().producer.head.store(head, Ordering::Release);
    }

    /// Resets the ring for its next producer. Only when neither side uses it.
    pub fn reset(&self) {
        for index in 0..HEADER_LENGTH / 8 {
            // SAFETY: by the contract of `new` the header's page is mapped and accessed only by
            // atomics; `index` is below its number of words. A fresh mapping holds zeroes, too.
            unsafe { self.header.cast::<AtomicU64>().add(index).as_ref() }.store(0, Ordering::Relaxed);
        }
    }

    /// Marks the producer as busy (a stamp may be taken) or idle.
    #[inline(always)]
    pub fn set_busy(&self, busy: bool) {
        self.header().producer.busy.store(u32::from(busy), Ordering::Release);
    }

    /// True if the producer is between stamp and publication.
    pub fn is_busy(&self) -> bool {
        self.header().producer.busy.load(Ordering::Acquire) != 0
    }

    /// Returns the position up to which words are published.
    #[inline]
    pub fn head(&self) -> u64 {
        self.header().producer.head.load(Ordering::Acquire)
    }

    /// Returns the position up to which words have been consumed.
    #[inline]
    pub fn tail(&self) -> u64 {
        self.header().consumer.tail.load(Ordering::Acquire)
    }

    /// Declares that no more will be written.
    pub fn close(&self) {
        self.header().producer.closed.store(1, Ordering::Release);
    }

    /// True if the producer has closed the ring.
    pub fn is_closed(&self) -> bool {
        self.header().producer.closed.load(Ordering::Acquire) != 0
    }

    /// Adds one measured call of the recorder. Producer only. A call that took very long is left
    /// out: most of that time another thread had the processor, or the ring was full; multiplied by
    /// the number of calls that go unmeasured, it would distort the estimate.
    pub fn add_measured(&self, ticks: u64) {
        if ticks > MEASURED_TICKS_MAX {
            return;
        }
        let line = &self.header().producer;
        line.measured_ticks.store(line.measured_ticks.load(Ordering::Relaxed).wrapping_add(ticks), Ordering::Relaxed);
        line.measured_calls.store(line.measured_calls.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Returns the ticks spent in measured calls, and their number.
    pub fn measured(&self) -> (u64, u64) {
        let line = &self.header().producer;
        (line.measured_ticks.load(Ordering::Relaxed), line.measured_calls.load(Ordering::Relaxed))
    }

    /// Counts an event that is lost because there is no room for it. Producer only.
    pub fn add_lost_full(&self) {
        let lost = &self.header().producer.lost_full;
        lost.store(lost.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Returns the number of events lost because there was no room for them; any number if the ring
    /// is corrupt.
    pub fn lost_full(&self) -> u64 {
        self.header().producer.lost_full.load(Ordering::Relaxed)
    }

    /// Returns the futex on which the producer waits for space.
    pub fn waiting(&self) -> &AtomicU32 {
        &self.header().consumer.waiting
    }

    /// Returns the number of words that are published and not consumed; more than the capacity if
    /// the ring is corrupt.
    #[inline]
    pub fn readable(&self) -> u64 {
        self.head().wrapping_sub(self.tail())
    }

    /// Discards all published words, whatever the positions are, so that the producer never waits.
    /// Consumer only. Returns how many there were, at most the capacity.
    pub fn discard(&self) -> u64 {
        let head = self.head();
        let count = head.wrapping_sub(self.tail()).min(self.capacity());
        self.consumed_up_to(head);
        count
    }

    /// Passes all published words to `take`, then frees their space and wakes a waiting producer.
    /// Consumer only. Returns how many words there were.
    ///
    /// If the head claims more than the ring holds, the ring is corrupt: takes nothing and returns
    /// `Err`.
    pub fn drain(&self, mut take: impl FnMut(u64)) -> Result<u64, CorruptRing> {
        let (head, tail) = (self.head(), self.tail());
        let count = head.wrapping_sub(tail);
        if count > self.capacity() {
            return Err(CorruptRing);
        }
        if count == 0 {
            return Ok(0);
        }
        for position in tail..head {
            take(self.word(position).load(Ordering::Relaxed));
        }
        self.consumed_up_to(head);
        Ok(count)
    }

    fn consumed_up_to(&self, head: u64) {
        self.header().consumer.tail.store(head, Ordering::Release);
        // The producer stores `waiting` and then reads `tail`; we store `tail` and then read
        // `waiting`. Without a full barrier both could read the old value, and the producer would
        // sleep its whole timeout.
        core::sync::atomic::fence(Ordering::SeqCst);
        if self.waiting().load(Ordering::Relaxed) != 0 {
            self.waiting().store(0, Ordering::Release);
            heapledger_core::sys::futex_wake(self.waiting(), 1);
        }
    }
}

/// The error for a corrupt ring, whose positions make no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CorruptRing;

/// One call of the recorder in this many is timed, for the overhead estimate. Prime, because calls
/// come in patterns.
pub const MEASURED_ONE_IN: u64 = 61;
/// The longest call that is counted, in ticks: some 50 µs.
const MEASURED_TICKS_MAX: u64 = 1 << 17;
