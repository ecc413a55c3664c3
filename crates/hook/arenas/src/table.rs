//! The table of the arenas that the process has, by their numbers.
//!
//! A hash table with open addressing. A look-up takes no lock: it is made for an arena that is
//! live, by the contract of the functions for arenas, so its entry does not change meanwhile.

use core::cell::UnsafeCell;
use core::ptr;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use heapledger_core::hooks::Arena;
use heapledger_core::lock::Lock;

use crate::forks;
use crate::labels::intern;

/// The number of arenas that a process can have at a time.
pub const ARENAS_MAX: usize = 4096;
/// The arenas at which the table counts as full: searches stay short.
const FULL: usize = ARENAS_MAX - ARENAS_MAX / 8;

/// An entry that has never been used: searches end here.
const UNUSED: u64 = 0;
/// An entry whose arena has been disposed of. No arena has this number: it is that of the dummy
/// arena of allocators without arenas.
const DISPOSED: u64 = 1;

/// The largest generation: what the register of blocks keeps of one.
const GENERATION_MAX: u64 = heapledger_ledger::SERIAL_MAX.0;

/// An arena that the process has.
pub struct Entry {
    /// Written last when an arena is entered.
    id: AtomicU64,
    arena: UnsafeCell<Option<Arena>>,
    /// The ordinal of the arena among all that were entered, from 1; up to 37 bits, which are
    /// enough for a new arena each microsecond of a day.
    generation: AtomicU64,
    /// Over malloc: the live blocks.
    pub(crate) blocks: AtomicU64,
    /// Over malloc: their requested bytes.
    pub(crate) bytes: AtomicU64,
    /// Over malloc: the limit of `bytes`.
    pub(crate) bytes_max: AtomicU64,
}

// SAFETY: `Sync` demands that shared use makes no data race. `arena` is written under `LOCK` while
// `id` says that the entry is unused or disposed of; then nobody reads it, by the contract of
// `find`. The store of `id` (Release) publishes it.
unsafe impl Sync for Entry {}

impl core::fmt::Debug for Entry {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.debug_struct("Entry").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Entry {
    /// Returns the arena; `None` if it has been disposed of.
    pub fn arena(&self) -> Option<&Arena> {
        // SAFETY: the entry was found by a look-up for a live arena, since which nobody writes it.
        unsafe { (*self.arena.get()).as_ref() }
    }

    /// Returns the generation: a number that no arena had here before. `None` if the arena has been
    /// disposed of.
    pub(crate) fn generation(&self) -> Option<u64> {
        let is_live = ![UNUSED, DISPOSED].contains(&self.id.load(Ordering::Acquire));
        is_live.then(|| self.generation.load(Ordering::Relaxed))
    }

    /// Returns the position in the table.
    pub(crate) fn index(&'static self) -> u32 {
        ((ptr::from_ref(self).addr() - ENTRIES.as_ptr().addr()) / size_of::<Entry>()) as u32
    }
}

static ENTRIES: [Entry; ARENAS_MAX] = [const {
    Entry {
        id: AtomicU64::new(UNUSED),
        arena: UnsafeCell::new(None),
        generation: AtomicU64::new(0),
        blocks: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
        bytes_max: AtomicU64::new(0),
    }
}; ARENAS_MAX];
/// The number of arenas in the table.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// The last generation. Written under the lock.
static ENTERED: AtomicU64 = AtomicU64::new(0);
static LOCK: Lock = Lock::new();

/// True if the process has an arena. Costs one load.
#[inline(always)]
pub fn is_any() -> bool {
    COUNT.load(Ordering::Relaxed) != 0
}

/// Enters an arena under its number. `None` if the table is full, or the number is none of an
/// arena. If a live arena has the number already, it keeps it, and `None` is returned.
pub fn insert(id: u64, label: &[u8], flags: u32) -> Option<&'static Entry> {
    if id == UNUSED || id == DISPOSED {
        return None;
    }
    let label = intern(label);
    let _reopened = forks::reopen();
    let _guard = LOCK.lock();
    if COUNT.load(Ordering::Relaxed) >= FULL {
        return None;
    }
    let mut free = None;
    for entry in probe(id) {
        match entry.id.load(Ordering::Acquire) {
            UNUSED => {
                free = free.or(Some(entry));
                break;
            }
            DISPOSED => free = free.or(Some(entry)),
            other if other == id => return None,
            _ => {}
        }
    }
    let entry = free?;
    let arena = Arena { size: size_of::<Arena>() as u32, flags, id, label: label.text(), name: label.name() };
    // SAFETY: under the lock, in an entry that is unused or disposed of: nobody reads it.
    unsafe { *entry.arena.get() = Some(arena) };
    entry.blocks.store(0, Ordering::Relaxed);
    entry.bytes.store(0, Ordering::Relaxed);
    entry.bytes_max.store(u64::MAX, Ordering::Relaxed);
    let generation = ENTERED.load(Ordering::Relaxed) % GENERATION_MAX + 1;
    ENTERED.store(generation, Ordering::Relaxed);
    entry.generation.store(generation, Ordering::Relaxed);
    entry.id.store(id, Ordering::Release);
    COUNT.store(COUNT.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    Some(entry)
}

/// Returns the entry of a live arena. `None` if no arena that was entered has this number.
#[inline]
pub fn find(id: u64) -> Option<&'static Entry> {
    if id == UNUSED || id == DISPOSED {
        return None;
    }
    for entry in probe(id) {
        match entry.id.load(Ordering::Acquire) {
            UNUSED => return None,
            other if other == id => return Some(entry),
            _ => {}
        }
    }
    None
}

/// Returns the entry at a position.
pub(crate) fn at(index: u32) -> Option<&'static Entry> {
    ENTRIES.get(index as usize)
}

/// Takes the arena with this number out, if it is there.
pub fn remove(id: u64) {
    let _reopened = forks::reopen();
    let _guard = LOCK.lock();
    let Some(entry) = find(id) else { return };
    entry.id.store(DISPOSED, Ordering::Release);
    COUNT.store(COUNT.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
    // Searches end at the next unused entry, so those before it that were disposed of are not
    // needed. Without this, there would be no unused entry left after as many arenas as the table
    // has entries, and each search for a number that is not there would read the whole table.
    let position = entry.index() as usize;
    let is_needed = entry_at(position + 1).id.load(Ordering::Relaxed) != UNUSED;
    let backwards = (1..=ARENAS_MAX).map(|back| entry_at(position + 1 + ARENAS_MAX - back));
    backwards
        .take_while(|entry| !is_needed && entry.id.load(Ordering::Relaxed) == DISPOSED)
        .for_each(|entry| entry.id.store(UNUSED, Ordering::Release));
}

/// Returns the entry at a position, counted around the table.
fn entry_at(position: usize) -> &'static Entry {
    // Below the length.
    ENTRIES.get(position % ARENAS_MAX).unwrap_or(&ENTRIES[0])
}

/// Returns all entries, beginning with the one for this number.
fn probe(id: u64) -> impl Iterator<Item = &'static Entry> {
    let start = (id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % ARENAS_MAX;
    ENTRIES.iter().skip(start).chain(ENTRIES.iter().take(start))
}

/// Holds the lock, so that a forked child gets a whole table.
pub(crate) fn before_fork() {
    core::mem::forget(LOCK.lock());
}

/// Releases the lock, in the parent and in the child.
///
/// # Safety
///
/// The calling thread called [`before_fork`], or is its copy in the child.
pub(crate) unsafe fn after_fork() {
    // SAFETY: `Lock::unlock` asks that this thread, or the one that it is a copy of, took the lock
    // and forgot the guard. `before_fork` did.
    unsafe { LOCK.unlock() };
}

#[cfg(test)]
mod tests;
