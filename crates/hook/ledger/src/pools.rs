//! User pools: the blocks of each.
//!
//! A block of a pool is in the register like any other, under a key of its own: so it may have the
//! address of the block that its memory is cut from. This module only has what a register cannot
//! tell at once: all blocks of one pool, for a reset, which frees them by one event.
//!
//! Each pool has a list of its allocations, the latest first. A free does not look for its entry:
//! entries whose block is gone are taken out once they outnumber the live ones.

use crate::mapped::{OutOfMemory, Vector, Zeroed};
use crate::register::Key;

/// The number of entries of freed blocks in each pool that are tolerated, however few blocks are
/// live.
const STALE_MIN: u32 = 64;

/// A list of entries; links are one more than an index, 0 is none.
#[derive(Clone, Copy)]
struct List {
    first: u32,
    length: u32,
    live: u32,
}

#[derive(Clone, Copy)]
struct Entry {
    key: u64,
    serial: u64,
    next: u64,
}

// SAFETY: `Zeroed` requires that every field is valid when all its bytes are zero. All three are
// `u32`. 0 is a valid integer.
unsafe impl Zeroed for List {}
// SAFETY: `Zeroed` requires that every field is valid when all its bytes are zero. All three are
// `u64`. 0 is a valid integer.
unsafe impl Zeroed for Entry {}

/// The pools of one process image.
#[derive(Default)]
pub(crate) struct Pools {
    lists: Vector<List>,
    entries: Vector<Entry>,
    /// The first entry that is in no list.
    free: u32,
}

impl Pools {
    /// Creates an empty set of pools; maps no memory.
    pub(crate) const fn new() -> Pools {
        Pools { lists: Vector::new(), entries: Vector::new(), free: 0 }
    }

    /// Returns the bytes that are mapped, touched or not.
    pub(crate) fn bytes_mapped(&self) -> usize {
        self.lists.bytes_mapped() + self.entries.bytes_mapped()
    }

    /// Returns the pools of a child forked now.
    pub(crate) fn copy(&self) -> Result<Pools, OutOfMemory> {
        let (lists, entries) = (self.lists.copy()?, self.entries.copy()?);
        Ok(Pools { lists, entries, free: self.free })
    }

    /// Makes room for one more block with this key. Until that is entered, nothing has changed.
    pub(crate) fn reserve(&mut self, key: Key) -> Result<(), OutOfMemory> {
        self.lists.grow_to(key.pool() as usize + 1)?;
        if self.free == 0 {
            self.entries.push(Entry { key: 0, serial: 0, next: 0 })?;
            self.free = u32::try_from(self.entries.len()).map_err(|_| OutOfMemory)?;
        }
        Ok(())
    }

    /// Returns how much more memory [`Pools::reserve`] would have mapped in the end.
    pub(crate) fn bytes_to_reserve(&self, key: Key) -> usize {
        let entries = if self.free == 0 { self.entries.bytes_to_grow(self.entries.len() + 1) } else { 0 };
        self.lists.bytes_to_grow(key.pool() as usize + 1) + entries
    }

    /// Enters a block, for which there is room. `displaced` says that it takes the place of one
    /// with its key. `is_live` tells whether a block of the pool, by key and serial, is live.
    pub(crate) fn enter(&mut self, key: Key, serial: u64, displaced: bool, is_live: impl Fn(Key, u64) -> bool) {
        let at = self.free;
        let Some(list) = self.lists.get_mut(key.pool() as usize) else { return };
        let Some(entry) = self.entries.get_mut(at.wrapping_sub(1) as usize) else { return };
        self.free = entry.next as u32;
        *entry = Entry { key: key.0, serial, next: list.first.into() };
        (list.first, list.length) = (at, list.length + 1);
        list.live += u32::from(!displaced);
        if list.length > list.live.saturating_mul(2).saturating_add(STALE_MIN) {
            self.sweep(key.pool(), is_live);
        }
    }

    /// Notes that a block with this key has been freed.
    pub(crate) fn freed(&mut self, key: Key) {
        if let Some(list) = self.lists.get_mut(key.pool() as usize) {
            list.live = list.live.saturating_sub(1);
        }
    }

    /// Takes the latest entry of a pool out.
    pub(crate) fn pop(&mut self, pool: u32) -> Option<Key> {
        let list = self.lists.get_mut(pool as usize)?;
        let at = list.first;
        let entry = self.entries.get_mut(at.checked_sub(1)? as usize)?;
        let key = entry.key;
        (list.first, list.length) = (entry.next as u32, list.length.saturating_sub(1));
        entry.next = self.free.into();
        self.free = at;
        Some(Key(key))
    }

    /// Takes out the entries of a pool whose blocks are gone.
    #[cold]
    fn sweep(&mut self, pool: u32, is_live: impl Fn(Key, u64) -> bool) {
        let Some(list) = self.lists.get_mut(pool as usize) else { return };
        let (mut at, mut last) = (list.first, 0_u32);
        (list.first, list.length) = (0, 0);
        while let Some(index) = at.checked_sub(1)
            && let Some(entry) = self.entries.get_mut(index as usize)
        {
            let next = entry.next as u32;
            if is_live(Key(entry.key), entry.serial) {
                entry.next = 0;
                list.length += 1;
                match last.checked_sub(1).and_then(|last| self.entries.get_mut(last as usize)) {
                    Some(last) => last.next = at.into(),
                    None => list.first = at,
                }
                last = at;
            } else {
                entry.next = self.free.into();
                self.free = at;
            }
            at = next;
        }
        list.live = list.length;
    }
}
