//! `hashbrown`: the standard library's tables come from it; it also tells how large its tables are.

use std::hash::{BuildHasher, Hash};
use std::ptr;

use hashbrown::{HashMap, HashSet, HashTable};
use heapledger_core::Bytes;

use crate::{HeapContainer, HeapSize, Meter, sequence};

/// The block of a table, of so many bytes, that lies in a value: known by an element in it, else by
/// a word of the value.
fn table(element: Option<*const u8>, bytes: usize, value: &impl Sized, meter: &mut Meter) -> Bytes {
    if bytes == 0 {
        return Bytes(0);
    }
    let known = match element {
        Some(element) => meter.extent_around(element),
        None => meter.extent_in_words(value, |extent| extent.bytes == bytes as u64),
    };
    match (known, element) {
        (Some(extent), _) => meter.known(extent),
        (None, Some(element)) => meter.computed_around(element, bytes),
        (None, None) => meter.computed(bytes),
    }
}

/// Returns the address of an element in a table, unless its size is zero.
fn address_if_sized<T>(element: &T) -> Option<*const u8> {
    (size_of::<T>() > 0).then_some(ptr::from_ref(element).cast())
}

impl<K: Eq + Hash, V, S: BuildHasher> HeapContainer for HashMap<K, V, S> {
    type Element<'c>
        = (&'c K, &'c V)
    where
        Self: 'c;

    fn shallow_size(&self, meter: &mut Meter) -> Bytes {
        let element =
            self.iter().next().and_then(|(key, value)| address_if_sized(key).or_else(|| address_if_sized(value)));
        table(element, self.allocation_size(), self, meter)
    }

    fn heap_size_with<'c, F>(&'c self, meter: &mut Meter, mut size: F) -> Bytes
    where
        F: FnMut((&'c K, &'c V), &mut Meter) -> Bytes,
    {
        self.shallow_size(meter) + self.iter().map(|pair| size(pair, meter)).sum()
    }
}

impl<K: HeapSize + Eq + Hash, V: HeapSize, S: HeapSize + BuildHasher> HeapSize for HashMap<K, V, S> {
    fn heap_size(&self, meter: &mut Meter) -> Bytes {
        let own = self.shallow_size(meter) + self.hasher().heap_size(meter);
        if K::owns_nothing() && V::owns_nothing() {
            return own;
        }
        own + self.iter().map(|(key, value)| key.heap_size(meter) + value.heap_size(meter)).sum()
    }
}

impl<T: Eq + Hash, S: BuildHasher> HeapContainer for HashSet<T, S> {
    type Element<'c>
        = &'c T
    where
        Self: 'c;

    fn shallow_size(&self, meter: &mut Meter) -> Bytes {
        table(self.iter().next().and_then(address_if_sized), self.allocation_size(), self, meter)
    }

    fn heap_size_with<'c, F>(&'c self, meter: &mut Meter, mut size: F) -> Bytes
    where
        F: FnMut(&'c T, &mut Meter) -> Bytes,
    {
        self.shallow_size(meter) + self.iter().map(|element| size(element, meter)).sum()
    }
}

impl<T: HeapSize + Eq + Hash, S: HeapSize + BuildHasher> HeapSize for HashSet<T, S> {
    fn heap_size(&self, meter: &mut Meter) -> Bytes {
        self.shallow_size(meter) + self.hasher().heap_size(meter) + sequence::sum(self.iter(), meter)
    }
}

impl<T> HeapContainer for HashTable<T> {
    type Element<'c>
        = &'c T
    where
        Self: 'c;

    fn shallow_size(&self, meter: &mut Meter) -> Bytes {
        table(self.iter().next().and_then(address_if_sized), self.allocation_size(), self, meter)
    }

    fn heap_size_with<'c, F>(&'c self, meter: &mut Meter, mut size: F) -> Bytes
    where
        F: FnMut(&'c T, &mut Meter) -> Bytes,
    {
        self.shallow_size(meter) + self.iter().map(|element| size(element, meter)).sum()
    }
}

impl<T: HeapSize> HeapSize for HashTable<T> {
    fn heap_size(&self, meter: &mut Meter) -> Bytes {
        self.shallow_size(meter) + sequence::sum(self.iter(), meter)
    }
}
