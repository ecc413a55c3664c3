//! `dashmap`: a block of shards, each a table behind a lock.

use std::hash::{BuildHasher, Hash};

use dashmap::DashMap;
use dashmap::mapref::multiple::RefMulti;
use heapledger_core::Bytes;

use crate::{HeapContainer, HeapSize, Meter};

/// Waits for the lock of each shard in turn: this thread must not hold a mutable reference into the
/// map.
impl<K: Eq + Hash, V, S: BuildHasher + Clone> HeapContainer for DashMap<K, V, S> {
    type Element<'c>
        = RefMulti<'c, K, V>
    where
        Self: 'c;

    fn shallow_size(&self, meter: &mut Meter) -> Bytes {
        let shards = self.shards();
        // SAFETY: the slice is all of a box, which begins where its block does; there is always a
        // shard.
        let own = unsafe { meter.block(shards.as_ptr(), size_of_val(shards)) };
        own + shards
            .iter()
            .map(|shard| {
                let (start, layout) = shard.read().allocation_info();
                // SAFETY: by its documentation this is what is freed with the table; of no bytes,
                // nothing is.
                if layout.size() == 0 { Bytes(0) } else { unsafe { meter.block(start.as_ptr(), layout.size()) } }
            })
            .sum()
    }

    fn heap_size_with<'c, F>(&'c self, meter: &mut Meter, mut size: F) -> Bytes
    where
        F: FnMut(RefMulti<'c, K, V>, &mut Meter) -> Bytes,
    {
        self.shallow_size(meter) + self.iter().map(|element| size(element, meter)).sum()
    }
}

/// See [`HeapContainer`].
impl<K: HeapSize + Eq + Hash, V: HeapSize, S: HeapSize + BuildHasher + Clone> HeapSize for DashMap<K, V, S> {
    fn heap_size(&self, meter: &mut Meter) -> Bytes {
        let own = self.shallow_size(meter) + self.hasher().heap_size(meter);
        if K::owns_nothing() && V::owns_nothing() {
            return own;
        }
        own + self.iter().map(|pair| pair.key().heap_size(meter) + pair.value().heap_size(meter)).sum()
    }
}
