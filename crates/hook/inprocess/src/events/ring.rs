//! The ring of events: where hooks enter them.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering};

use heapledger_core::arch::ticks;
use heapledger_core::lock::{Guard, Lock};
use heapledger_core::{Blocks, Bytes, Serial, StackId, ThreadId, TypeId};
use heapledger_ledger::mapped::{Vector, Zeroed};
use heapledger_ledger::{Allocation, Key, LiveBlock, Time};

use crate::mode;

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
    /// The value that fills a buffer before events are [read](super::read) into it.
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
    RING.is_on.load(Ordering::Relaxed) && mode::is_sample()
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

pub(super) static RING: Ring =
    Ring { lock: Lock::new(), is_on: AtomicBool::new(false), state: UnsafeCell::new(State::EMPTY) };

pub(super) struct Ring {
    lock: Lock,
    /// True if there is room for any event.
    pub(super) is_on: AtomicBool,
    state: UnsafeCell<State>,
}

// SAFETY: `Sync` demands that threads which share the ring make no data race. `state` is accessed
// in `Ring::with` only, under `lock`, and its events are plain values. The other fields are `Sync`
// themselves.
unsafe impl Sync for Ring {}

pub(super) struct State {
    /// Room for as many events as are kept.
    pub(super) slots: Vector<Event>,
    /// The number of the first event that there was room for.
    pub(super) first: u64,
    /// The number of events so far, which is the number of the next one.
    pub(super) count: u64,
}

impl State {
    const EMPTY: State = State { slots: Vector::new(), first: 0, count: 0 };
}

impl Ring {
    pub(super) fn with<R>(&self, run: impl FnOnce(&mut State) -> R) -> R {
        let _guard: Guard<'_> = self.lock.lock();
        // SAFETY: no other reference to the state exists: this is the only access, and `_guard`
        // holds the lock until `run` has returned.
        run(unsafe { &mut *self.state.get() })
    }
}
