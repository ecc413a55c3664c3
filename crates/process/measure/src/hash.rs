//! Hash tables.

use std::collections::{HashMap, HashSet};
use std::ptr;

use heapledger_core::Bytes;

use crate::{HeapContainer, HeapSize, Meter};

/// Returns the size in bytes that a table of hashbrown, which the standard library uses, requests
/// for a capacity and an element size. This is a lower bound if elements have been removed.
pub(crate) fn table_bytes(capacity: usize, element: usize) -> usize {
    let buckets = match capacity {
        0 => return 0,
        1..4 => 4,
        4..8 => 8,
        _ => (capacity.saturating_mul(8) / 7).next_power_of_two(),
    };
    bytes_of(buckets, element)
}

/// Returns the size of the buckets, with a control byte for each and for one more group.
fn bytes_of(buckets: usize, element: usize) -> usize {
    const GROUP: usize = 16;
    buckets.saturating_mul(element).next_multiple_of(GROUP).saturating_add(buckets + GROUP)
}

/// Returns the size of the block of a table of `T`s that lies in a value. The block is found by an
/// element in it, else by a word of the value.
pub(crate) fn table<T>(element: Option<*const u8>, capacity: usize, value: &impl Sized, meter: &mut Meter) -> Bytes {
    let bytes = table_bytes(capacity, size_of::<T>());
    let known = match element.filter(|_| size_of::<T>() > 0) {
        Some(element) => meter.extent_around(element),
        None if capacity > 0 => meter.extent_in_words(value, |extent| is_table(extent.bytes, bytes, size_of::<T>())),
        None => return Bytes(0),
    };
    match (known, element) {
        (Some(extent), _) => meter.known(extent),
        (None, Some(element)) if size_of::<T>() > 0 => meter.computed_around(element, bytes),
        _ => meter.computed(bytes),
    }
}

/// True if a block of `bytes` bytes can be a table of such elements, at least as large as computed.
pub(crate) fn is_table(bytes: u64, computed: usize, element: usize) -> bool {
    let tables = (2..48).map(|bits| bytes_of(1 << bits, element));
    tables.skip_while(|&table| table < computed).any(|table| table as u64 == bytes)
}

impl<K, V, S> HeapContainer for HashMap<K, V, S> {
    type Element<'c>
        = (&'c K, &'c V)
    where
        Self: 'c;

    fn shallow_size(&self, meter: &mut Meter) -> Bytes {
        let pair = self.iter().next().map(|(key, value)| {
            if size_of::<K>() > 0 { ptr::from_ref(key).cast::<u8>() } else { ptr::from_ref(value).cast::<u8>() }
        });
        table::<(K, V)>(pair, self.capacity(), self, meter)
    }

    fn heap_size_with<'c, F>(&'c self, meter: &mut Meter, mut size: F) -> Bytes
    where
        F: FnMut((&'c K, &'c V), &mut Meter) -> Bytes,
    {
        self.shallow_size(meter) + self.iter().map(|pair| size(pair, meter)).sum()
    }
}

impl<K: HeapSize, V: HeapSize, S: HeapSize> HeapSize for HashMap<K, V, S> {
    fn heap_size(&self, meter: &mut Meter) -> Bytes {
        let own = self.shallow_size(meter) + self.hasher().heap_size(meter);
        if K::owns_nothing() && V::owns_nothing() {
            return own;
        }
        own + self.iter().map(|(key, value)| key.heap_size(meter) + value.heap_size(meter)).sum()
    }
}

impl<T, S> HeapContainer for HashSet<T, S> {
    type Element<'c>
        = &'c T
    where
        Self: 'c;

    fn shallow_size(&self, meter: &mut Meter) -> Bytes {
        let element = self.iter().next().map(|element| ptr::from_ref(element).cast());
        table::<T>(element, self.capacity(), self, meter)
    }

    fn heap_size_with<'c, F>(&'c self, meter: &mut Meter, mut size: F) -> Bytes
    where
        F: FnMut(&'c T, &mut Meter) -> Bytes,
    {
        self.shallow_size(meter) + self.iter().map(|element| size(element, meter)).sum()
    }
}

impl<T: HeapSize, S: HeapSize> HeapSize for HashSet<T, S> {
    fn heap_size(&self, meter: &mut Meter) -> Bytes {
        self.shallow_size(meter) + self.hasher().heap_size(meter) + crate::sequence::sum(self.iter(), meter)
    }
}
