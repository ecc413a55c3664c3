//! Deferred purges: arenas that exceed their budgets wait in a queue until the program says that
//! the moment is good.

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use heapledger_core::sys::monotonic_nanoseconds;

use super::super::SharedArena;
use super::is_above_half;
use crate::geometry::PAGE;
use crate::locked::Locked;

/// The answers of [`purge_now`](crate::purges::purge_now).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum PurgeResult {
    /// No arena waits for a purge.
    Done = 0,
    /// There is more to do at once.
    NeedsMore = 1,
    /// All arenas that wait have just used dirty pages again: ask later.
    WantsLater = 2,
}

/// The state of an arena's deferred purges.
#[derive(Debug)]
pub(crate) struct Deferred {
    /// The next one in the queue. Accessed under its lock.
    next: Cell<Option<&'static SharedArena>>,
    /// True if the arena is in the queue. Changed under its lock.
    is_queued: AtomicBool,
    /// The time at which a dirty page was used again, in nanoseconds of the monotonic clock. Noted
    /// while purges are deferred only.
    reused_at: AtomicU64,
}

impl Deferred {
    pub(crate) const fn new() -> Deferred {
        Deferred { next: Cell::new(None), is_queued: AtomicBool::new(false), reused_at: AtomicU64::new(0) }
    }
}

/// The arenas that wait for a purge. The one that has waited for longest is the first.
#[derive(Debug)]
pub(crate) struct Queue {
    first: Option<&'static SharedArena>,
    last: Option<&'static SharedArena>,
}

/// The queue. Locked before no other lock.
pub(crate) static QUEUE: Locked<Queue> = Locked::new(Queue { first: None, last: None });

static IS_ENABLED: AtomicBool = AtomicBool::new(false);

/// True if purges are deferred.
#[inline(always)]
pub(crate) fn is_enabled() -> bool {
    IS_ENABLED.load(Ordering::Relaxed)
}

/// Defers the purges of arenas that exceed their budgets, or does those that wait and defers no
/// more. Returns the previous state.
pub(crate) fn enable(is_enabled: bool) -> bool {
    let before = IS_ENABLED.swap(is_enabled, Ordering::Relaxed);
    if !is_enabled {
        while let Some(arena) = QUEUE.with(|queue| queue.take(|_| true)) {
            purge(arena, usize::MAX);
        }
    }
    before
}

/// Notes that a dirty page of an arena is used again.
#[inline(always)]
pub(crate) fn note_reuse(arena: &SharedArena) {
    if is_enabled() {
        arena.deferred.reused_at.store(monotonic_nanoseconds(), Ordering::Relaxed);
    }
}

/// Puts an arena at the end of the queue, unless it waits already.
pub(crate) fn enqueue(arena: &'static SharedArena) {
    // Without the lock in the common case: an arena stays over its budget for long.
    if !arena.deferred.is_queued.load(Ordering::Relaxed) {
        QUEUE.with(|queue| queue.push(arena));
    }
}

/// Purges arenas of the queue in which no dirty page was used again for `grace_ms` milliseconds,
/// until `budget` bytes or more were returned. With `peek`, only says what there is to do.
pub(crate) fn purge_now(peek: bool, grace_ms: u32, budget: usize) -> PurgeResult {
    let grace = u64::from(grace_ms) * 1_000_000;
    let now = monotonic_nanoseconds();
    let is_quiet = |arena: &SharedArena| {
        grace == 0 || now.saturating_sub(arena.deferred.reused_at.load(Ordering::Relaxed)) >= grace
    };
    let state = || {
        QUEUE.with(|queue| match queue.first {
            None => PurgeResult::Done,
            Some(_) if queue.has(is_quiet) => PurgeResult::NeedsMore,
            Some(_) => PurgeResult::WantsLater,
        })
    };
    let mut left = budget.div_ceil(PAGE);
    while !peek && left > 0 {
        let Some(arena) = QUEUE.with(|queue| queue.take(is_quiet)) else { break };
        let purged = purge(arena, left);
        left = left.saturating_sub(purged.pages);
        if !purged.is_done {
            enqueue(arena);
            if purged.pages == 0 {
                // Another thread purges this arena.
                break;
            }
        }
    }
    state()
}

fn purge(arena: &'static SharedArena, budget: usize) -> super::Purged {
    arena.purge(c"deferred", &|space, _| is_above_half(arena, space), budget, false)
}

impl Queue {
    fn push(&mut self, arena: &'static SharedArena) {
        if arena.deferred.is_queued.swap(true, Ordering::Relaxed) {
            return;
        }
        arena.deferred.next.set(None);
        match self.last.replace(arena) {
            Some(last) => last.deferred.next.set(Some(arena)),
            None => self.first = Some(arena),
        }
    }

    fn has(&self, is_wanted: impl Fn(&SharedArena) -> bool) -> bool {
        let mut next = self.first;
        while let Some(arena) = next {
            if is_wanted(arena) {
                return true;
            }
            next = arena.deferred.next.get();
        }
        false
    }

    /// Takes the first arena for which a condition holds.
    fn take(&mut self, is_wanted: impl Fn(&SharedArena) -> bool) -> Option<&'static SharedArena> {
        let (mut before, mut next) = (None::<&'static SharedArena>, self.first);
        while let Some(arena) = next.filter(|arena| !is_wanted(arena)) {
            before = Some(arena);
            next = arena.deferred.next.get();
        }
        let arena = next?;
        let behind = arena.deferred.next.take();
        match before {
            Some(before) => before.deferred.next.set(behind),
            None => self.first = behind,
        }
        if behind.is_none() {
            self.last = before;
        }
        arena.deferred.is_queued.store(false, Ordering::Relaxed);
        Some(arena)
    }
}
