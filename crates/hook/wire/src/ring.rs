//! A single-producer, single-consumer ring of 64-bit words in shared memory.
//!
//! The mapping is one header page ([`RingHeader`]) followed by the data, a power of two of words. Positions only grow;
//! the word of position `p` is at `p & mask`. The producer writes words, then `head` with release; the consumer reads
//! `head` with acquire, copies, then writes `tail` with release. Everything is an atomic, since the other side is
//! another process that may do anything: a hostile producer can make the consumer read nonsense, nothing worse.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::session::ImageCounters;

/// Bytes of the header at the start of a ring's mapping.
pub const HEADER_LENGTH: usize = 4096;

/// The header. Producer's and consumer's words are on separate cache lines.
#[derive(Debug)]
#[repr(C)]
pub struct RingHeader {
    producer: ProducerLine,
    consumer: ConsumerLine,
    /// Only in a common ring.
    pub image: ImageCounters,
    /// Only in a common ring: who may write.
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
    /// Ticks spent in the recorder by the calls that were measured, and their number: one in [`MEASURED_ONE_IN`].
    measured_ticks: AtomicU64,
    measured_calls: AtomicU64,
    /// Events dropped because there was no room for them.
    dropped: AtomicU64,
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

// SAFETY: a `Ring` is a pointer to atomics that live as long as it is used (the contract of `Ring::new`).
unsafe impl Send for Ring {}
// SAFETY: as above; every access through `&Ring` is atomic.
unsafe impl Sync for Ring {}

impl Ring {
    /// A view of a mapping of `length` bytes: [`HEADER_LENGTH`] and a power of two of at least 64 words. `None` when
    /// the length or the alignment is wrong.
    ///
    /// # Safety
    ///
    /// The mapping is readable and writable, stays so while the view or a copy of it is used, and is accessed by
    /// atomics only. Its content may be anything.
    pub unsafe fn new(mapping: NonNull<u8>, length: usize) -> Option<Ring> {
        let words = length.checked_sub(HEADER_LENGTH)? / 8;
        if words < 64 || !words.is_power_of_two() || !mapping.cast::<RingHeader>().is_aligned() {
            return None;
        }
        // SAFETY: `length` is larger than `HEADER_LENGTH`, so the result is inside the mapping.
        let data = unsafe { mapping.add(HEADER_LENGTH) }.cast::<AtomicU64>();
        Some(Ring { header: mapping.cast(), data, mask: words as u64 - 1 })
    }

    /// Bytes of a mapping with room for `capacity` bytes of data.
    pub const fn mapping_length(capacity: usize) -> usize {
        HEADER_LENGTH + capacity
    }

    /// The start of the mapping, to unmap it.
    pub fn mapping(&self) -> NonNull<u8> {
        self.header.cast()
    }

    /// Words of data the ring holds.
    #[inline(always)]
    pub fn capacity(&self) -> u64 {
        self.mask + 1
    }

    /// The header.
    #[inline(always)]
    pub fn header(&self) -> &RingHeader {
        // SAFETY: by the contract of `new` the header is mapped, aligned (checked there) and all atomics, for which any
        // content is valid.
        unsafe { self.header.as_ref() }
    }

    #[inline(always)]
    fn word(&self, position: u64) -> &AtomicU64 {
        // SAFETY: `position & mask` is below the capacity, and the data of that many words is mapped.
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

    /// Makes the ring as new, for its next producer. Only when neither side uses it.
    pub fn reset(&self) {
        for index in 0..HEADER_LENGTH / 8 {
            // SAFETY: by the contract of `new` the header's page is mapped and accessed by atomics only; `index` is
            // below its number of words. Zero is what a fresh mapping holds.
            unsafe { self.header.cast::<AtomicU64>().add(index).as_ref() }.store(0, Ordering::Relaxed);
        }
    }

    /// Marks the producer as busy (a stamp may be taken) or idle.
    #[inline(always)]
    pub fn set_busy(&self, busy: bool) {
        self.header().producer.busy.store(u32::from(busy), Ordering::Release);
    }

    /// Whether the producer is between stamp and publication.
    pub fn is_busy(&self) -> bool {
        self.header().producer.busy.load(Ordering::Acquire) != 0
    }

    /// The position up to which words are published.
    #[inline]
    pub fn head(&self) -> u64 {
        self.header().producer.head.load(Ordering::Acquire)
    }

    /// The position up to which words have been consumed.
    #[inline]
    pub fn tail(&self) -> u64 {
        self.header().consumer.tail.load(Ordering::Acquire)
    }

    /// Says that no more will be written.
    pub fn close(&self) {
        self.header().producer.closed.store(1, Ordering::Release);
    }

    /// Whether the producer has closed the ring.
    pub fn is_closed(&self) -> bool {
        self.header().producer.closed.load(Ordering::Acquire) != 0
    }

    /// Adds one measured call of the recorder. Producer only. A call that took very long is left out: most of that time
    /// another thread had the processor, or the ring was full; counted as many times over as calls go unmeasured, it
    /// would drown the others.
    pub fn add_measured(&self, ticks: u64) {
        if ticks > MEASURED_TICKS_MAX {
            return;
        }
        let line = &self.header().producer;
        line.measured_ticks.store(line.measured_ticks.load(Ordering::Relaxed).wrapping_add(ticks), Ordering::Relaxed);
        line.measured_calls.store(line.measured_calls.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Ticks spent in measured calls, and their number.
    pub fn measured(&self) -> (u64, u64) {
        let line = &self.header().producer;
        (line.measured_ticks.load(Ordering::Relaxed), line.measured_calls.load(Ordering::Relaxed))
    }

    /// Counts an event that was dropped because there was no room for it. Producer only.
    pub fn add_dropped(&self) {
        let dropped = &self.header().producer.dropped;
        dropped.store(dropped.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Events dropped because there was no room for them; any number where the producer has gone wild.
    pub fn dropped(&self) -> u64 {
        self.header().producer.dropped.load(Ordering::Relaxed)
    }

    /// The futex on which the producer waits for space.
    pub fn waiting(&self) -> &AtomicU32 {
        &self.header().consumer.waiting
    }

    /// How many words are published and not consumed; more than the capacity where the producer has gone wild.
    #[inline]
    pub fn readable(&self) -> u64 {
        self.head().wrapping_sub(self.tail())
    }

    /// Gives up all published words, whatever the positions say, so that the producer never waits. Consumer only.
    /// Returns how many there were, at most the capacity.
    pub fn discard(&self) -> u64 {
        let head = self.head();
        let count = head.wrapping_sub(self.tail()).min(self.capacity());
        self.consumed_up_to(head);
        count
    }

    /// Hands all published words to `take`, then frees their space and wakes a waiting producer.
    /// Consumer only. Returns how many words there were.
    ///
    /// A head that claims more than the ring holds is a producer gone wild: nothing is taken and `Err` returned.
    pub fn drain(&self, mut take: impl FnMut(u64)) -> Result<u64, Wild> {
        let (head, tail) = (self.head(), self.tail());
        let count = head.wrapping_sub(tail);
        if count > self.capacity() {
            return Err(Wild);
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
        // The producer stores `waiting` and then looks at `tail`; we store `tail` and then look at `waiting`. Without
        // a full barrier both could read the old value, and the producer would sleep its whole timeout.
        core::sync::atomic::fence(Ordering::SeqCst);
        if self.waiting().load(Ordering::Relaxed) != 0 {
            self.waiting().store(0, Ordering::Release);
            heapledger_core::sys::futex_wake(self.waiting(), 1);
        }
    }
}

/// A ring whose positions make no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wild;

/// One call of the recorder in this many is timed, for the overhead estimate. Prime, since calls come in patterns.
pub const MEASURED_ONE_IN: u64 = 61;
/// The longest call that is taken for one: some 50 µs.
const MEASURED_TICKS_MAX: u64 = 1 << 17;
