//! `indexmap`: a vector of entries, and a hash table of their numbers, to which no element leads.

use std::ptr;

use heapledger_core::Bytes;
use indexmap::{IndexMap, IndexSet};

use crate::hash::{is_table, table_bytes};
use crate::{HeapContainer, HeapSize, Meter, sequence};

/// The blocks of a map with room for so many entries.
fn blocks(entries: *const u8, entry: usize, capacity: usize, value: &impl Sized, meter: &mut Meter) -> Bytes {
    if capacity == 0 {
        return Bytes(0);
    }
    // SAFETY: the slice of all entries begins where their vector does, by the documentation of
    // both, and there is one: there is room for an entry, which has a hash in it.
    let own = unsafe { meter.block(entries, capacity.saturating_mul(entry)) };
    let numbers = table_bytes(capacity, size_of::<usize>());
    let is_numbers =
        |address: u64, bytes: u64| address != entries.addr() as u64 && is_table(bytes, numbers, size_of::<usize>());
    own + match meter.extent_in_words(value, |extent| is_numbers(extent.address, extent.bytes)) {
        Some(extent) => meter.known(extent),
        None => meter.computed(numbers),
    }
}

impl<K, V, S> HeapContainer for IndexMap<K, V, S> {
    type Element<'c>
        = (&'c K, &'c V)
    where
        Self: 'c;

    fn shallow_size(&self, meter: &mut Meter) -> Bytes {
        let entries = ptr::from_ref(self.as_slice()).cast();
        blocks(entries, size_of::<(usize, K, V)>(), self.capacity(), self, meter)
    }

    fn heap_size_with<'c, F>(&'c self, meter: &mut Meter, mut size: F) -> Bytes
    where
        F: FnMut((&'c K, &'c V), &mut Meter) -> Bytes,
    {
        self.shallow_size(meter) + self.iter().map(|pair| size(pair, meter)).sum()
    }
}

impl<K: HeapSize, V: HeapSize, S: HeapSize> HeapSize for IndexMap<K, V, S> {
    fn heap_size(&self, meter: &mut Meter) -> Bytes {
        let own = self.shallow_size(meter) + self.hasher().heap_size(meter);
        own + sequence::sum(self.keys(), meter) + sequence::sum(self.values(), meter)
    }
}

impl<T, S> HeapContainer for IndexSet<T, S> {
    type Element<'c>
        = &'c T
    where
        Self: 'c;

    fn shallow_size(&self, meter: &mut Meter) -> Bytes {
        let entries = ptr::from_ref(self.as_slice()).cast();
        blocks(entries, size_of::<(usize, T)>(), self.capacity(), self, meter)
    }

    fn heap_size_with<'c, F>(&'c self, meter: &mut Meter, mut size: F) -> Bytes
    where
        F: FnMut(&'c T, &mut Meter) -> Bytes,
    {
        self.shallow_size(meter) + self.iter().map(|element| size(element, meter)).sum()
    }
}

impl<T: HeapSize, S: HeapSize> HeapSize for IndexSet<T, S> {
    fn heap_size(&self, meter: &mut Meter) -> Bytes {
        self.shallow_size(meter) + self.hasher().heap_size(meter) + sequence::sum(self.iter(), meter)
    }
}
