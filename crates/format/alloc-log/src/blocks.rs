//! A hash table of live blocks, by their keys.

use std::hash::{BuildHasher, Hasher};

/// A hash table from the keys of blocks to values, with open addressing and linear probing.
///
/// Blocks that are near each other in memory are near each other in the table, since programs
/// often allocate and free neighbours in turn: groups of 32 addresses, 16 bytes apart, are 32
/// adjacent slots, and only the position of the group is hashed. With millions of live blocks, the
/// table is larger than the caches, and this saves most of their misses. The hash has a random
/// seed, so that no log can be made to collide.
///
/// At most half of the slots are in use, each of 8 bytes and the value. At least a sixteenth is, so
/// that a table gives back the memory of its largest time.
#[derive(Clone, Debug)]
pub struct BlockMap<V> {
    /// A power of two many; none before the first block.
    slots: Vec<(u64, V)>,
    length: usize,
    seed: u64,
    /// The value of the block whose key is [`FREE`].
    of_free: Option<V>,
}

/// The key in a slot that is not in use.
const FREE: u64 = u64::MAX;
/// The number of neighbours that are kept together, as a power of two.
const GROUP_BITS: u32 = 5;
/// The slots of the smallest table.
const SLOTS_MIN: usize = 8;

impl<V> Default for BlockMap<V> {
    fn default() -> BlockMap<V> {
        let seed = foldhash::fast::RandomState::default().build_hasher().finish() | 1;
        BlockMap { slots: Vec::new(), length: 0, seed, of_free: None }
    }
}

impl<V: Copy + Default> BlockMap<V> {
    /// True if there is no block.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of blocks.
    pub fn len(&self) -> usize {
        self.length + usize::from(self.of_free.is_some())
    }

    /// Returns the value of a block.
    #[inline]
    pub fn get(&self, key: u64) -> Option<V> {
        if key == FREE {
            return self.of_free;
        }
        let at = self.find(key)?;
        (self.slots[at].0 == key).then(|| self.slots[at].1)
    }

    /// Adds a block, or replaces its value. Returns the value that it had.
    #[inline]
    pub fn insert(&mut self, key: u64, value: V) -> Option<V> {
        if key == FREE {
            return self.of_free.replace(value);
        }
        if self.length >= self.slots.len() / 2 {
            self.resize((self.slots.len() * 2).max(SLOTS_MIN));
        }
        let at = self.find(key)?;
        let (had, before) = std::mem::replace(&mut self.slots[at], (key, value));
        if had == key {
            return Some(before);
        }
        self.length += 1;
        None
    }

    /// Removes a block, and returns its value.
    #[inline]
    pub fn remove(&mut self, key: u64) -> Option<V> {
        if key == FREE {
            return self.of_free.take();
        }
        let mut hole = self.find(key)?;
        if self.slots[hole].0 != key {
            return None;
        }
        let (value, mask) = (self.slots[hole].1, self.slots.len() - 1);
        self.length -= 1;
        // Entries behind the hole move up, unless that puts them before the slot that they belong
        // to: a search for them must not meet a free slot.
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let key = self.slots[at].0;
            if key == FREE {
                break;
            }
            let distance = |from: usize| at.wrapping_sub(from) & mask;
            if distance(self.home(key)) >= distance(hole) {
                self.slots[hole] = self.slots[at];
                hole = at;
            }
        }
        self.slots[hole].0 = FREE;
        if self.length < self.slots.len() / 16 && self.slots.len() > SLOTS_MIN {
            self.resize(self.slots.len() / 2);
        }
        Some(value)
    }

    /// Returns the slot of a key, or the free one in which it would be; `None` if there are no
    /// slots.
    #[inline]
    fn find(&self, key: u64) -> Option<usize> {
        let mask = self.slots.len().checked_sub(1)?;
        let mut at = self.home(key);
        // At least half of the slots are free.
        while self.slots[at].0 != key && self.slots[at].0 != FREE {
            at = (at + 1) & mask;
        }
        Some(at)
    }

    /// Returns the slot at which the search for a key begins.
    #[inline]
    fn home(&self, key: u64) -> usize {
        // Addresses are multiples of 16; the numbers of a munged log, which are in the upper half,
        // follow each other.
        let place = if key >> 63 == 0 { key.rotate_right(4) } else { key };
        let group = place >> GROUP_BITS ^ self.seed.rotate_left(32);
        // The upper and the lower half of the product both depend on all bits of the group.
        let product = u128::from(group) * u128::from(self.seed);
        let hash = (product >> 64) as u64 ^ product as u64;
        ((hash << GROUP_BITS | place & ((1 << GROUP_BITS) - 1)) as usize) & (self.slots.len() - 1)
    }

    #[cold]
    fn resize(&mut self, length: usize) {
        let before = std::mem::replace(&mut self.slots, vec![(FREE, V::default()); length]);
        for entry in before.into_iter().filter(|entry| entry.0 != FREE) {
            if let Some(at) = self.find(entry.0) {
                self.slots[at] = entry;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_gives_memory_back() {
        let mut table = BlockMap::default();
        (0..10_000).for_each(|key| _ = table.insert(key * 16, key));
        assert_eq!(table.slots.len(), 32_768);
        for key in 0..9_990 {
            assert_eq!(table.remove(key * 16), Some(key));
        }
        assert!(table.slots.len() <= 256, "{}", table.slots.len());
        assert!((9_990..10_000).all(|key| table.get(key * 16) == Some(key)));
        (9_990..10_000).for_each(|key| _ = table.remove(key * 16));
        assert_eq!((table.slots.len(), table.len()), (SLOTS_MIN, 0));
    }
}
