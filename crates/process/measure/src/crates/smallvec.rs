//! `smallvec`: a block once it has grown out of its own place.

use heapledger_core::Bytes;
use smallvec::{Array, SmallVec};

use crate::{HeapContainer, HeapSize, Meter, sequence};

impl<A: Array> HeapContainer for SmallVec<A> {
    type Element<'c>
        = &'c A::Item
    where
        A: 'c;

    fn shallow_size(&self, meter: &mut Meter) -> Bytes {
        if self.spilled() {
            // SAFETY: it is made into a vector without moving its elements then, by its
            // documentation.
            unsafe { sequence::buffer(self.as_ptr(), self.capacity(), meter) }
        } else {
            Bytes(0)
        }
    }

    fn heap_size_with<'c, F>(&'c self, meter: &mut Meter, mut size: F) -> Bytes
    where
        F: FnMut(&'c A::Item, &mut Meter) -> Bytes,
    {
        self.shallow_size(meter) + self.iter().map(|element| size(element, meter)).sum()
    }
}

impl<A: Array<Item: HeapSize>> HeapSize for SmallVec<A> {
    fn heap_size(&self, meter: &mut Meter) -> Bytes {
        self.shallow_size(meter) + sequence::sum(self.iter(), meter)
    }
}
