//! `arrayvec`: no blocks of its own.

use arrayvec::{ArrayString, ArrayVec};
use heapledger_core::Bytes;

use crate::{HeapSize, Meter, sequence};

impl<T: HeapSize, const N: usize> HeapSize for ArrayVec<T, N> {
    fn heap_size(&self, meter: &mut Meter) -> Bytes {
        sequence::sum(self.iter(), meter)
    }

    fn owns_nothing() -> bool {
        T::owns_nothing()
    }
}

impl<const N: usize> HeapSize for ArrayString<N> {
    fn heap_size(&self, _: &mut Meter) -> Bytes {
        Bytes(0)
    }

    fn owns_nothing() -> bool {
        true
    }
}
