//! Containers with all elements in one block, one after the other.

use std::collections::{BinaryHeap, VecDeque};

use heapledger_core::Bytes;

use crate::{HeapContainer, HeapSize, Meter};

impl<T: HeapSize> HeapSize for [T] {
    fn heap_size(&self, meter: &mut Meter) -> Bytes {
        sum(self.iter(), meter)
    }
}

impl<T: HeapSize, const N: usize> HeapSize for [T; N] {
    fn heap_size(&self, meter: &mut Meter) -> Bytes {
        sum(self.iter(), meter)
    }

    fn owns_nothing() -> bool {
        T::owns_nothing()
    }
}

/// Returns the bytes that the elements own.
#[inline]
pub(crate) fn sum<'t, T: HeapSize + 't>(elements: impl Iterator<Item = &'t T>, meter: &mut Meter) -> Bytes {
    if T::owns_nothing() { Bytes(0) } else { elements.map(|element| element.heap_size(meter)).sum() }
}

/// Returns the size of the block of `capacity` elements at an address.
///
/// # Safety
///
/// If the capacity and the size of `T` are not 0, `start` is the beginning of a live block of the
/// global allocator.
pub(crate) unsafe fn buffer<T>(start: *const T, capacity: usize, meter: &mut Meter) -> Bytes {
    let bytes = capacity.saturating_mul(size_of::<T>());
    // SAFETY: `Meter::block` requires null, or where a live block of the global allocator begins.
    // By this function's `# Safety` `start` is such a place unless the size is 0, which the
    // condition excludes.
    if bytes == 0 { Bytes(0) } else { unsafe { meter.block(start, bytes) } }
}

/// Implements both traits for a container of `T`: the block in `shallow`, the elements in `iter()`.
macro_rules! sequence {
    ($type:ident, $of:ident, $meter:ident => $shallow:expr) => {
        impl<T> HeapContainer for $type<T> {
            type Element<'c>
                = &'c T
            where
                T: 'c;

            fn shallow_size(&self, $meter: &mut Meter) -> Bytes {
                let $of = self;
                $shallow
            }

            fn heap_size_with<'c, F>(&'c self, meter: &mut Meter, mut size: F) -> Bytes
            where
                F: FnMut(&'c T, &mut Meter) -> Bytes,
            {
                self.shallow_size(meter) + self.iter().map(|element| size(element, meter)).sum()
            }
        }

        impl<T: HeapSize> HeapSize for $type<T> {
            fn heap_size(&self, meter: &mut Meter) -> Bytes {
                self.shallow_size(meter) + sum(self.iter(), meter)
            }
        }
    };
}

sequence!(Vec, vector, meter => vector_block(vector, meter));
sequence!(BinaryHeap, heap, meter => heap_block(heap, meter));
sequence!(VecDeque, deque, meter => ring(deque, meter));

fn vector_block<T>(vector: &Vec<T>, meter: &mut Meter) -> Bytes {
    // SAFETY: by its documentation a vector's elements begin where its block does, if it has
    // capacity and they take room.
    unsafe { buffer(vector.as_ptr(), vector.capacity(), meter) }
}

fn heap_block<T>(heap: &BinaryHeap<T>, meter: &mut Meter) -> Bytes {
    // SAFETY: the elements are in a vector: by its documentation it is made of one and into one
    // without moving them.
    unsafe { buffer(heap.as_slice().as_ptr(), heap.capacity(), meter) }
}

/// Returns the size of the block of a deque.
fn ring<T>(deque: &VecDeque<T>, meter: &mut Meter) -> Bytes {
    let bytes = deque.capacity().saturating_mul(size_of::<T>());
    if bytes == 0 {
        return Bytes(0);
    }
    match start_of_ring(deque) {
        // SAFETY: it is where the buffer begins, which is a block of the global allocator.
        Some(start) => unsafe { meter.block(start, bytes) },
        // If the deque is empty, this is the address of the next element.
        None => meter.block_around_or(deque.as_slices().0.as_ptr(), bytes),
    }
}

/// Returns the beginning of a deque's buffer, if it has capacity and its elements have a size.
fn start_of_ring<T>(deque: &VecDeque<T>) -> Option<*const T> {
    let (front, back) = deque.as_slices();
    if !back.is_empty() {
        // The deque has wrapped around: the elements at the back begin at the buffer's beginning.
        return Some(back.as_ptr());
    }
    // A deque is four words: the buffer, the index of the first element, the length and the
    // capacity. The last two are known, and the first two lead to the first element.
    const { assert!(size_of::<VecDeque<T>>() == size_of::<[usize; 4]>()) };
    // SAFETY: these are the bytes of the value, all of them initialised: the four have no room for
    // padding.
    let words = unsafe { std::ptr::from_ref(deque).cast::<[usize; 4]>().read() };
    let capacity = words.iter().position(|&word| word == deque.capacity())?;
    let is_length = |at: usize| at != capacity && words[at] == deque.len();
    let length = (0..4).find(|&at| is_length(at))?;
    let mut others = (0..4).filter(|&at| at != capacity && at != length).map(|at| words[at]);
    let (one, other) = (others.next()?, others.next()?);
    let leads = |start: usize, first: usize| {
        first < deque.capacity() && start.wrapping_add(first * size_of::<T>()) == front.as_ptr().addr()
    };
    let start = if leads(one, other) { one } else { Some(other).filter(|&start| leads(start, one))? };
    Some(front.as_ptr().with_addr(start))
}
