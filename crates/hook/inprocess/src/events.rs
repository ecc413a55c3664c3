//! The latest allocations and frees of sampled blocks, in order; a bounded number of them.
//!
//! An allocation is entered after it succeeded and before the program has the block, a free before
//! it happens. Both are entered under one lock, so the events of each address, at least, are in the
//! order in which they happened. A ledger that does not sample keeps no events.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering};

use heapledger_core::arch::ticks;
use heapledger_core::lock::{Guard, Lock};
use heapledger_core::{Blocks, Bytes, Serial, StackId, ThreadId, TypeId};
use heapledger_ledger::mapped::{Vector, Zeroed};
use heapledger_ledger::{Allocation, Key, LiveBlock, OutOfMemory, Time};

use crate::block::query;
use crate::control;

/// An allocation or a free.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// The time of the event, as a time stamp: see [`age`](crate::overhead::age).
    pub time: Time,
    /// The block.
    pub key: Key,
    /// The requested size.
    pub size: Bytes,
    /// The stack of the allocation.
    pub stack: StackId,
    /// The thread that made the call.
    pub thread: ThreadId,
    /// The block's stamp.
    pub stamp: TypeId,
    /// The block's weight: the number of blocks that it counts for.
    pub weight: Blocks,
    /// True if the block is freed.
    pub is_free: bool,
}

// SAFETY: `Zeroed` requires that every field is valid when all its bytes are zero. All are
// integers, for which 0 is valid, except `is_free`, for which 0 is `false`.
unsafe impl Zeroed for Event {}

impl Event {
    /// The value that fills a buffer before events are [read] into it.
    pub const NONE: Event = Event {
        time: Time(0),
        key: Key(0),
        size: Bytes(0),
        stack: StackId::ROOT,
        thread: ThreadId(0),
        stamp: TypeId::NONE,
        weight: Blocks(0),
        is_free: false,
    };
}

static RING: Ring = Ring { lock: Lock::new(), is_on: AtomicBool::new(false), state: UnsafeCell::new(State::EMPTY) };

struct Ring {
    lock: Lock,
    /// True if there is room for any event.
    is_on: AtomicBool,
    state: UnsafeCell<State>,
}

// SAFETY: `Sync` demands that threads which share the ring make no data race. `state` is accessed
// in `Ring::with` only, under `lock`, and its events are plain values. The other fields are `Sync`
// themselves.
unsafe impl Sync for Ring {}

struct State {
    /// Room for as many events as are kept.
    slots: Vector<Event>,
    /// The number of the first event that there was room for.
    first: u64,
    /// The number of events so far, which is the number of the next one.
    count: u64,
}

impl State {
    const EMPTY: State = State { slots: Vector::new(), first: 0, count: 0 };
}

impl Ring {
    fn with<R>(&self, run: impl FnOnce(&mut State) -> R) -> R {
        let _guard: Guard<'_> = self.lock.lock();
        // SAFETY: no other reference to the state exists: this is the only access, and `_guard`
        // holds the lock until `run` has returned.
        run(unsafe { &mut *self.state.get() })
    }
}

/// Keeps the last `count` events from now on, and drops those that there are. Each takes 48 bytes.
///
/// # Errors
///
/// The system gives no memory: no events are kept then.
pub fn keep(count: usize) -> Result<(), OutOfMemory> {
    let (slots, result) = match Vector::zeroed(count) {
        Ok(slots) => (slots, Ok(())),
        Err(error) => (Vector::new(), Err(error)),
    };
    let replace = || {
        RING.with(|state| {
            RING.is_on.store(!slots.is_empty(), Ordering::Relaxed);
            state.first = state.count;
            core::mem::replace(&mut state.slots, slots)
        })
    };
    // The earlier buffer is unmapped only after the lock is released.
    drop(query(replace));
    result
}

/// The result of a [read].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The number of events that were read.
    pub count: usize,
    /// The number of the next event to read.
    pub next: u64,
    /// The number of events that had been overwritten before they were read.
    pub lost: u64,
}

/// Reads events from this number on, as many as there is room for. `None` in a signal handler that
/// interrupted the ledger.
pub fn read(from: u64, into: &mut [Event]) -> Option<Reading> {
    query(|| read_held(from, into))
}

fn read_held(from: u64, into: &mut [Event]) -> Reading {
    RING.with(|state| {
        let kept = state.slots.len() as u64;
        let oldest = state.count.saturating_sub(kept).max(state.first);
        let first = from.clamp(oldest, state.count);
        let count = (state.count - first).min(into.len() as u64);
        for (number, slot) in (first..first + count).zip(into) {
            if let Some(event) = state.slots.get((number % kept.max(1)) as usize) {
                *slot = *event;
            }
        }
        Reading { count: count as usize, next: first + count, lost: first.saturating_sub(from) }
    })
}

/// Returns the number of the event that comes next.
pub fn next() -> u64 {
    query(|| RING.with(|state| state.count)).unwrap_or(0)
}

/// Returns the number of bytes mapped for events.
pub(crate) fn bytes_mapped() -> Bytes {
    Bytes(query(|| RING.with(|state| state.slots.bytes_mapped() as u64)).unwrap_or(0))
}

/// Notes that a block has been entered.
#[inline(always)]
pub(crate) fn allocated(new: &Allocation, serial: Serial) {
    if is_wanted() {
        let Allocation { key, size, rate, stack, thread, stamp, .. } = *new;
        let weight = Blocks(rate.weight(size, serial));
        push(Event { key, size, stack, thread, stamp, weight, ..Event::NONE });
    }
}

/// Notes that a block is about to be freed.
#[inline(always)]
pub(crate) fn freed(block: &LiveBlock, thread: ThreadId) {
    if is_wanted() {
        let LiveBlock { key, size, stack, stamp, .. } = *block;
        push(Event { key, size, stack, thread, stamp, weight: block.weight(), is_free: true, ..Event::NONE });
    }
}

/// True if events are kept and the ledger samples.
#[inline(always)]
pub(crate) fn is_wanted() -> bool {
    RING.is_on.load(Ordering::Relaxed) && control::is_sample()
}

#[cold]
fn push(event: Event) {
    RING.with(|state| {
        let kept = state.slots.len() as u64;
        if let Some(slot) = state.slots.get_mut((state.count % kept.max(1)) as usize) {
            // Taken under the lock, so that times are in the order of the events.
            *slot = Event { time: Time(ticks()), ..event };
            state.count += 1;
        }
    });
}

/// Takes the lock before the process forks, so that no other thread holds it in the copy.
pub(crate) fn before_fork() {
    core::mem::forget(RING.lock.lock());
}

/// # Safety
///
/// The calling thread has called [`before_fork`], or is the copy of the one that has.
pub(crate) unsafe fn after_fork() {
    // SAFETY: `Lock::unlock` requires that this thread, or the one that it was copied from by a
    // fork, took the lock and forgot the guard. `before_fork` does both, and this function's
    // `# Safety` requires that call.
    unsafe { RING.lock.unlock() };
}
