//! Purges: the memory of dirty slices goes back to the system.
//!
//! Each arena has a budget. If its dirty pages are more, the thread that exceeds the budget returns
//! those that have been dirty for longest, down to half of the budget, so that the next slice that
//! is given back does not cause a system call again. The budget of the main arena is 2 MiB and a
//! sixteenth of what is used; a large program would otherwise return memory that it needs again at
//! once. That of another arena is what its creator said, or 128 KiB and a 128th of what it uses. A
//! modifier shifts all budgets; an arena may have shifts of its own for modifiers above and below
//! 0.
//!
//! A program may [defer](deferred) purges to moments that it chooses, and may let dirty pages
//! [decay](decay) by their age. It may [watch](hook) purges.

use core::ffi::CStr;
use core::sync::atomic::{AtomicI32, Ordering};

use super::SharedArena;
use super::registry;
use super::space::Space;
use crate::chunk::{ChunkPtr, bits};
use crate::geometry::{PAGE, SLICE};
use crate::options;

pub(crate) mod decay;
pub(crate) mod deferred;
pub(crate) mod hook;
pub(crate) mod public;

pub(crate) use deferred::Deferred;
pub(crate) use deferred::note_reuse;

/// The dirty pages that the main arena keeps in any case: 2 MiB. With 1 MiB, a program that builds
/// and drops some megabytes again and again has twice as many page faults (`rust tree` in
/// `benches/allocator`); with 4 MiB, peaks of such programs are a fifth higher (`rust text`).
const DIRTY_MIN: usize = (2 << 20) / PAGE;
/// The dirty pages that are kept beyond that for each slice that is used: a sixteenth. A large
/// program would otherwise return memory that it needs again at once.
const DIRTY_PER_SLICE: usize = SLICE / PAGE / 16;
/// The dirty pages that other arenas keep in any case: 128 KiB, as in mozjemalloc.
const DIRTY_MIN_OTHERS: usize = (128 << 10) / PAGE;
/// The part of what the main arena keeps for each slice that other arenas keep.
const OTHERS: usize = 8;

/// The number of bits by which budgets are shifted to the left, beside those of the options.
static MODIFIER: AtomicI32 = AtomicI32::new(0);

/// The result of a purge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Purged {
    /// The pages that were returned.
    pub(crate) pages: usize,
    /// True if nothing is left to be done. False if the budget was used up, or if another thread is
    /// purging the arena.
    pub(crate) is_done: bool,
}

impl SharedArena {
    /// Returns the number of dirty pages above which memory is returned to the system.
    pub(crate) fn dirty_max(&self, space: &Space) -> usize {
        let settings = self.settings();
        if !settings.source.can_decommit() {
            return usize::MAX;
        }
        let for_slices = space.slices_used * DIRTY_PER_SLICE;
        let pages = match settings.dirty_max {
            0 if self.is_main() => DIRTY_MIN + for_slices,
            0 => DIRTY_MIN_OTHERS + for_slices / OTHERS,
            pages => pages,
        };
        let modifier = MODIFIER.load(Ordering::Relaxed).saturating_add(options::dirty_shift());
        let own = match modifier.signum() {
            1 => settings.increase_override,
            -1 => settings.decrease_override,
            _ => 0,
        };
        let shift = if own == 0 { modifier } else { own };
        shifted(pages, shift)
    }

    /// Returns the memory of dirty slices while a condition holds for the chunk that has had some
    /// for longest, and until `budget` pages or more were returned. `caller` is for the hook. Waits
    /// for another thread that does the same, or leaves it to that one, as `may_wait` says.
    pub(crate) fn purge(
        &self,
        caller: &'static CStr,
        is_due: &dyn Fn(&Space, ChunkPtr) -> bool,
        budget: usize,
        may_wait: bool,
    ) -> Purged {
        let run = || {
            if !self.is_live() {
                return Purged { pages: 0, is_done: true };
            }
            let mut event = hook::Watch::begin(self, caller);
            let mut pages = 0;
            let mut is_done = false;
            while pages < budget && !is_done {
                let purged = self.purge_chunk(is_due, &mut event);
                pages += purged.pages;
                is_done = purged.is_done;
            }
            event.end(pages);
            Purged { pages, is_done }
        };
        if may_wait { self.purging.with(|()| run()) } else { self.purging.try_with(|()| run()).unwrap_or_default() }
    }

    /// Returns the memory of one chunk's dirty slices. It was the last chunk if no other one is
    /// due, or if the system has refused to take memory of this one. The lock `purging` is held.
    fn purge_chunk(&self, is_due: &dyn Fn(&Space, ChunkPtr) -> bool, event: &mut hook::Watch<'_>) -> Purged {
        let source = &self.settings().source;
        let nothing = Purged { pages: 0, is_done: true };
        if !source.can_decommit() {
            return nothing;
        }
        // The slices count as used while the system takes their memory, without the space's lock.
        let Some((chunk, slices)) = self.space.with(|space| space.take_dirty(is_due)) else { return nothing };
        let (mut rest, mut refused) = (slices, 0);
        while rest != 0 {
            let first = rest.trailing_zeros() as usize;
            let count = (rest >> first).trailing_ones() as usize;
            // SAFETY: `decommit` demands whole pages of the source that nobody uses, and without
            // content that is needed: slices that are free, and that nobody else takes because they
            // count as used.
            if !unsafe { source.decommit(chunk.slice(first), count * SLICE) } {
                refused |= bits(first, count);
            }
            event.calls += 1;
            rest &= !bits(first, count);
        }
        event.chunks += 1;
        let pages = self.space.with(|space| {
            let before = space.pages_returned;
            space.end_purge(self, chunk, slices, refused);
            space.pages_returned - before
        });
        Purged { pages, is_done: refused != 0 }
    }
}

/// Shifts a budget to the left, or to the right if `shift` is negative.
fn shifted(pages: usize, shift: i32) -> usize {
    let bits = shift.unsigned_abs();
    if shift < 0 {
        return pages.checked_shr(bits).unwrap_or(0);
    }
    // As far as it goes: a budget that is too large for a number is no limit.
    if bits <= pages.leading_zeros() { pages << bits } else { usize::MAX }
}

/// True while an arena has more than half of its budget. For purges of arenas that exceed it.
pub(crate) fn is_above_half(arena: &SharedArena, space: &Space) -> bool {
    space.pages_dirty > arena.dirty_max(space) / 2
}

/// Purges an arena that exceeds its budget, or notes that this has to be done.
#[cold]
pub(crate) fn over_budget(arena: &'static SharedArena) {
    if deferred::is_enabled() {
        deferred::enqueue(arena);
    } else {
        arena.purge(c"budget", &|space, _| is_above_half(arena, space), usize::MAX, false);
    }
}

/// Returns the dirty memory of all arenas to the system. Returns the number of bytes.
pub(crate) fn all(caller: &'static CStr) -> usize {
    let mut pages = 0;
    registry::for_each(|arena| pages += arena.purge(caller, &|_, _| true, usize::MAX, true).pages);
    pages * PAGE
}

/// Returns the dirty memory of all arenas to the system that is above their budgets. Returns the
/// number of bytes.
pub(crate) fn excess(caller: &'static CStr) -> usize {
    let mut pages = 0;
    registry::for_each(|arena| {
        let is_due = |space: &Space, _: ChunkPtr| space.pages_dirty > arena.dirty_max(space);
        pages += arena.purge(caller, &is_due, usize::MAX, true).pages;
    });
    pages * PAGE
}

/// Shifts the budgets of all arenas by so many bits to the left, or to the right if negative. If
/// that lowers them, arenas that have more dirty pages now are purged, or queued if purges are
/// deferred.
pub(crate) fn set_modifier(modifier: i32) {
    if modifier >= MODIFIER.swap(modifier, Ordering::Relaxed) {
        return;
    }
    registry::for_each(|arena| {
        // Under the lock, so that nobody disposes of the arena meanwhile.
        let is_over = arena
            .purging
            .with(|()| arena.is_live() && arena.space.with(|space| space.pages_dirty > arena.dirty_max(space)));
        if is_over {
            over_budget(arena);
        }
    });
}

/// Returns the number of bytes that went back to the system from all arenas so far, by purges and
/// with whole chunks, but not from those that were disposed of.
pub(crate) fn bytes_returned() -> usize {
    let mut pages = 0_usize;
    registry::for_each(|arena| pages = pages.wrapping_add(arena.space.with(|space| space.pages_returned)));
    pages.wrapping_mul(PAGE)
}

#[cfg(all(test, not(loom)))]
mod tests;
