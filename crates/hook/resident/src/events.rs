//! What happened to the blocks of a sample, one event after the other: the last so many, for who wants to see them in order.
//!
//! An allocation is entered after it succeeded and before the program has the block, a free before it happens, both under one
//! lock: so the order is that in which it happened, for each address at least. Of a ledger that does not sample there are none.

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
    /// When: a time stamp, see [`age`](crate::overhead::age).
    pub time: Time,
    /// The block.
    pub key: Key,
    /// Bytes that were asked for.
    pub size: Bytes,
    /// Where it was allocated.
    pub stack: StackId,
    /// Whose call it was.
    pub thread: ThreadId,
    /// What it was stamped with.
    pub stamp: TypeId,
    /// How many blocks it stands for.
    pub stands_for: Blocks,
    /// Whether the block is freed.
    pub is_free: bool,
}

// SAFETY: integers, and a `bool` that is false.
unsafe impl Zeroed for Event {}

impl Event {
    /// What a buffer has before it is [read] into.
    pub const NONE: Event = Event {
        time: Time(0),
        key: Key(0),
        size: Bytes(0),
        stack: StackId::ROOT,
        thread: ThreadId(0),
        stamp: TypeId::NONE,
        stands_for: Blocks(0),
        is_free: false,
    };
}

static RING: Ring = Ring { lock: Lock::new(), is_on: AtomicBool::new(false), state: UnsafeCell::new(State::EMPTY) };

struct Ring {
    lock: Lock,
    /// Whether there is room for any.
    is_on: AtomicBool,
    state: UnsafeCell<State>,
}

// SAFETY: the state is reached under the lock only (`Ring::with`).
unsafe impl Sync for Ring {}

struct State {
    /// As many as are kept.
    slots: Vector<Event>,
    /// The number of the first event that there was room for.
    first: u64,
    /// Events so far: the next one's number.
    count: u64,
}

impl State {
    const EMPTY: State = State { slots: Vector::new(), first: 0, count: 0 };
}

impl Ring {
    fn with<R>(&self, run: impl FnOnce(&mut State) -> R) -> R {
        let _guard: Guard<'_> = self.lock.lock();
        // SAFETY: under the lock, and for as long as it is held.
        run(unsafe { &mut *self.state.get() })
    }
}

/// Keeps the last so many events from now on, and none of those that there are. They take 48 bytes each.
///
/// # Errors
///
/// The system gives no memory: then none are kept.
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
    // What there was is given back when the lock no longer is.
    drop(query(replace));
    result
}

/// What was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// How many events it is.
    pub count: usize,
    /// The number of the event that comes next.
    pub next: u64,
    /// How many had been overwritten before they were read.
    pub lost: u64,
}

/// Reads events from this number on, as many as there is room for. `None`: this is a signal handler that interrupted the ledger.
pub fn read(from: u64, into: &mut [Event]) -> Option<Reading> {
    query(|| read_held(from, into))
}

fn read_held(from: u64, into: &mut [Event]) -> Reading {
    RING.with(|state| {
        let kept = state.slots.len() as u64;
        let oldest = state.count.saturating_sub(kept).max(state.first);
        let first = from.clamp(oldest, state.count);
        let count = (state.count - first).min(into.len() as u64);
        for (number, place) in (first..first + count).zip(into) {
            if let Some(event) = state.slots.get((number % kept.max(1)) as usize) {
                *place = *event;
            }
        }
        Reading { count: count as usize, next: first + count, lost: first.saturating_sub(from) }
    })
}

/// The number of the event that comes next.
pub fn next() -> u64 {
    query(|| RING.with(|state| state.count)).unwrap_or(0)
}

/// What is mapped for it.
pub(crate) fn bytes_mapped() -> Bytes {
    Bytes(query(|| RING.with(|state| state.slots.bytes_mapped() as u64)).unwrap_or(0))
}

/// A block has been entered.
#[inline(always)]
pub(crate) fn allocated(new: &Allocation, serial: Serial) {
    if is_wanted() {
        let Allocation { key, size, rate, stack, thread, stamp, .. } = *new;
        let stands_for = Blocks(rate.stands_for(size, serial));
        note(Event { key, size, stack, thread, stamp, stands_for, ..Event::NONE });
    }
}

/// One is about to go.
#[inline(always)]
pub(crate) fn freed(block: &LiveBlock, thread: ThreadId) {
    if is_wanted() {
        let LiveBlock { key, size, stack, stamp, .. } = *block;
        note(Event { key, size, stack, thread, stamp, stands_for: block.stands_for(), is_free: true, ..Event::NONE });
    }
}

/// Whether anybody wants to know.
#[inline(always)]
pub(crate) fn is_wanted() -> bool {
    RING.is_on.load(Ordering::Relaxed) && control::is_sample()
}

#[cold]
fn note(event: Event) {
    RING.with(|state| {
        let kept = state.slots.len() as u64;
        if let Some(place) = state.slots.get_mut((state.count % kept.max(1)) as usize) {
            // As the order is, so are the times.
            *place = Event { time: Time(ticks()), ..event };
            state.count += 1;
        }
    });
}

/// The process is about to fork: nobody else is to hold the lock when it is copied.
pub(crate) fn before_fork() {
    core::mem::forget(RING.lock.lock());
}

/// # Safety
///
/// The calling thread has called [`before_fork`], or is the copy of the one that has.
pub(crate) unsafe fn after_fork() {
    // SAFETY: the caller's contract.
    unsafe { RING.lock.unlock() };
}
