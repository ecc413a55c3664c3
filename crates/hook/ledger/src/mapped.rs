//! Growable storage for plain data, straight from the kernel: no allocator below it, errors instead
//! of panics.

use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;
use core::slice;

pub(crate) mod source;

/// The error that there is no room for what was to be recorded: the kernel refused memory, or the
/// 2³⁷ serials of one process image are used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory;

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the ledger is out of memory")
    }
}

impl core::error::Error for OutOfMemory {}

/// Plain data for which zeroed memory is a valid value.
///
/// # Safety
///
/// Every field is valid when all its bytes are zero.
pub unsafe trait Zeroed: Copy {}

// SAFETY: a type without bytes is valid whatever its bytes are.
unsafe impl Zeroed for () {}
// SAFETY: `Zeroed` requires that all bytes zero are a valid value. They are the `u32` 0.
unsafe impl Zeroed for u32 {}
// SAFETY: `Zeroed` requires that all bytes zero are a valid value. They are the `u64` 0.
unsafe impl Zeroed for u64 {}

/// The unit in which the kernel maps memory, and the largest size of an element.
pub const PAGE: usize = 4096;

/// A slice of plain data in memory of its own that can grow at its end. An empty one owns nothing.
pub struct Vector<T: Zeroed> {
    start: NonNull<T>,
    length: usize,
    // In elements. All of them are initialised: zero until written.
    capacity: usize,
    owned: PhantomData<T>,
}

// SAFETY: `Send` demands that another thread may use and drop the vector. It alone refers to its
// memory, which may be given back in any thread, and its elements are `Send`.
unsafe impl<T: Zeroed + Send> Send for Vector<T> {}
// SAFETY: the vector owns its elements; a shared vector only hands out shared elements.
unsafe impl<T: Zeroed + Sync> Sync for Vector<T> {}

impl<T: Zeroed> Vector<T> {
    const ELEMENT: () = assert!(size_of::<T>() > 0 && size_of::<T>() <= PAGE);

    /// Creates an empty vector.
    pub const fn new() -> Vector<T> {
        let () = Self::ELEMENT;
        Vector { start: NonNull::dangling(), length: 0, capacity: 0, owned: PhantomData }
    }

    /// Creates a vector of exactly `length` zeroed elements. Pages cost nothing until they are
    /// written.
    pub fn zeroed(length: usize) -> Result<Vector<T>, OutOfMemory> {
        let () = Self::ELEMENT;
        if length == 0 {
            return Ok(Vector::new());
        }
        let bytes = length.checked_mul(size_of::<T>()).ok_or(OutOfMemory)?;
        let bytes = bytes.checked_next_multiple_of(PAGE).ok_or(OutOfMemory)?;
        let start = source::map(bytes)?.cast();
        Ok(Vector { start, length, capacity: bytes / size_of::<T>(), owned: PhantomData })
    }

    /// Makes the vector at least `length` long; new elements are zero. On error the vector is
    /// unchanged.
    #[inline(always)]
    pub fn grow_to(&mut self, length: usize) -> Result<(), OutOfMemory> {
        if length > self.length {
            self.lengthen(length)?;
        }
        Ok(())
    }

    #[cold]
    fn lengthen(&mut self, length: usize) -> Result<(), OutOfMemory> {
        if length > self.capacity {
            let mut grown = Vector::zeroed(length.max(self.capacity.saturating_mul(2)))?;
            for (new, old) in grown.iter_mut().zip(self.iter()) {
                *new = *old;
            }
            *self = grown;
        }
        self.length = length;
        Ok(())
    }

    /// Appends an element. On error the vector is unchanged.
    pub fn push(&mut self, element: T) -> Result<(), OutOfMemory> {
        self.grow_to(self.length.checked_add(1).ok_or(OutOfMemory)?)?;
        if let Some(last) = self.last_mut() {
            *last = element;
        }
        Ok(())
    }

    /// Creates an empty vector whose memory, for `capacity` elements, has been touched.
    pub(crate) fn ready(capacity: usize) -> Result<Vector<T>, OutOfMemory> {
        let mut vector = Vector::zeroed(capacity)?;
        vector.touch();
        vector.length = 0;
        Ok(vector)
    }

    /// Makes the kernel provide the memory now, rather than when it is written.
    pub(crate) fn touch(&mut self) {
        for page in (0..self.capacity * size_of::<T>()).step_by(PAGE) {
            // SAFETY: within what `zeroed` mapped, which is this vector's alone; a zero is written
            // over a zero, since nothing has been written.
            unsafe { self.start.cast::<u8>().add(page).write_volatile(0) };
        }
    }

    /// Copies another vector's elements to a zeroed vector, in the memory that it has if that is
    /// enough.
    pub(crate) fn copy_from(&mut self, other: &[T]) -> Result<(), OutOfMemory> {
        if other.len() > self.capacity {
            *self = Vector::zeroed(other.len())?;
        }
        self.length = other.len();
        self.copy_from_slice(other);
        Ok(())
    }

    /// Returns a vector of the same elements.
    pub(crate) fn copy(&self) -> Result<Vector<T>, OutOfMemory> {
        let mut copy = Vector::zeroed(self.length)?;
        for (new, old) in copy.iter_mut().zip(self.iter()) {
            *new = *old;
        }
        Ok(copy)
    }

    /// Returns the elements, from the first; memory is given back as they are taken.
    pub(crate) fn consume(self) -> Consumed<T> {
        Consumed { vector: ManuallyDrop::new(self), taken: 0, bytes_released: 0 }
    }

    /// Returns the bytes that the vector has mapped, touched or not.
    pub fn bytes_mapped(&self) -> usize {
        (self.capacity * size_of::<T>()).next_multiple_of(PAGE)
    }

    /// Returns the bytes that a vector of this length has mapped.
    pub(crate) fn bytes_for(length: usize) -> usize {
        length.saturating_mul(size_of::<T>()).saturating_add(PAGE - 1) & !(PAGE - 1)
    }

    /// Returns how much more [`Vector::grow_to`] would have mapped in the end.
    pub(crate) fn bytes_to_grow(&self, length: usize) -> usize {
        if length <= self.capacity {
            return 0;
        }
        Self::bytes_for(length.max(self.capacity.saturating_mul(2))) - self.bytes_mapped()
    }
}

impl<T: Zeroed> Default for Vector<T> {
    fn default() -> Vector<T> {
        Vector::new()
    }
}

impl<T: Zeroed> Deref for Vector<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `start` is aligned, and valid for `capacity >= length` elements, all initialised
        // (mapped zeroed, and zero is valid for `T`); empty, it dangles as an empty slice may. The
        // borrow of `self` is that of the slice.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl<T: Zeroed> DerefMut for Vector<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: `from_raw_parts_mut` requires what `from_raw_parts` does in `deref`: `length`
        // aligned, initialised elements. `&mut self` makes the borrow the only one.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

impl<T: Zeroed> Drop for Vector<T> {
    fn drop(&mut self) {
        if self.capacity > 0 {
            let bytes = self.bytes_mapped();
            // SAFETY: exactly this range was mapped by `zeroed`, which rounded the same way, and
            // the owner goes.
            unsafe { source::unmap(self.start.cast(), bytes) };
        }
    }
}

impl<T: Zeroed + fmt::Debug> fmt::Debug for Vector<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// See [`Vector::consume`].
pub(crate) struct Consumed<T: Zeroed> {
    // The vector as it was, of which the first `bytes_released` bytes are lost.
    vector: ManuallyDrop<Vector<T>>,
    taken: usize,
    bytes_released: usize,
}

/// The bytes that are given back at a time: a large page.
const RELEASED_TOGETHER: usize = 2 << 20;

impl<T: Zeroed> Iterator for Consumed<T> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        if self.taken >= self.vector.length {
            return None;
        }
        // SAFETY: `taken < length`, and the element lies after all of the released memory: that
        // ended at or before the element taken before, see below. It is initialised, as all are,
        // and `T` is `Copy`.
        let element = unsafe { self.vector.start.add(self.taken).read() };
        let bytes_taken = self.taken * size_of::<T>();
        if bytes_taken - self.bytes_released >= RELEASED_TOGETHER {
            // SAFETY: this part of what `zeroed` mapped is not released yet, is a multiple of the
            // page from its start, and ends at or before the element just read; nobody refers to
            // it, for elements are handed out by value.
            unsafe { source::discard(self.vector.start.cast().add(self.bytes_released), RELEASED_TOGETHER) };
            self.bytes_released += RELEASED_TOGETHER;
        }
        self.taken += 1;
        Some(element)
    }
}

impl<T: Zeroed> Drop for Consumed<T> {
    fn drop(&mut self) {
        // SAFETY: the vector is not used, or dropped, anywhere else: its owner goes.
        unsafe { ManuallyDrop::drop(&mut self.vector) };
    }
}
