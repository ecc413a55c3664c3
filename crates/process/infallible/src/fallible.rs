//! The counterparts of functions of the standard library that return an error if there is no
//! memory. They work with any global allocator.

use std::alloc::{Layout, alloc, alloc_zeroed};
use std::error::Error;
use std::fmt;

use crate::fallibly;
use crate::oom::message;

/// The error of a request that could not be met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory {
    /// The bytes of the request, `usize::MAX` if they are more.
    pub size: usize,
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = message(self.size);
        text.split(|&byte| byte == 0).take(1).try_for_each(|text| out.write_str(&String::from_utf8_lossy(text)))
    }
}

impl Error for OutOfMemory {}

/// Returns the bytes of elements for an error.
fn bytes_of<T>(count: usize) -> usize {
    count.saturating_mul(size_of::<T>())
}

/// Returns an empty vector with room for so many elements, as [`Vec::with_capacity`] does.
pub fn try_vec<T>(capacity: usize) -> Result<Vec<T>, OutOfMemory> {
    let mut vec = Vec::new();
    fallibly(|| vec.try_reserve_exact(capacity)).map_err(|_| OutOfMemory { size: bytes_of::<T>(capacity) })?;
    Ok(vec)
}

/// Makes room for more elements, as [`Vec::reserve`] does.
fn try_reserve<T>(vec: &mut Vec<T>, more: usize) -> Result<(), OutOfMemory> {
    let size = bytes_of::<T>(vec.len().saturating_add(more));
    fallibly(|| vec.try_reserve(more)).map_err(|_| OutOfMemory { size })
}

/// Appends an element, as [`Vec::push`] does. After an error the vector is as it was.
pub fn try_push<T>(vec: &mut Vec<T>, element: T) -> Result<(), OutOfMemory> {
    try_reserve(vec, 1)?;
    vec.push(element);
    Ok(())
}

/// Appends copies of elements, as [`Vec::extend_from_slice`] does. After an error the vector is as
/// it was.
pub fn try_extend<T: Copy>(vec: &mut Vec<T>, elements: &[T]) -> Result<(), OutOfMemory> {
    try_reserve(vec, elements.len())?;
    vec.extend_from_slice(elements);
    Ok(())
}

/// Copies elements to a new boxed slice, as `Box::from` does.
pub fn try_slice<T: Copy>(elements: &[T]) -> Result<Box<[T]>, OutOfMemory> {
    let layout = Layout::for_value(elements);
    if layout.size() == 0 {
        return Ok(Box::from(elements));
    }
    // SAFETY: `alloc` demands a layout whose size is not 0, as was just compared.
    let block = fallibly(|| unsafe { alloc(layout) }).cast::<T>();
    if block.is_null() {
        return Err(OutOfMemory { size: layout.size() });
    }
    // SAFETY: `copy_from_nonoverlapping` demands room for the elements at the new block, which has
    // their layout. `from_raw` demands a block of the global allocator with the layout of the slice
    // and its elements, which are there now.
    unsafe {
        block.copy_from_nonoverlapping(elements.as_ptr(), elements.len());
        Ok(Box::from_raw(std::ptr::slice_from_raw_parts_mut(block, elements.len())))
    }
}

/// Copies a text, as `String::from` does.
pub fn try_string(text: &str) -> Result<String, OutOfMemory> {
    let mut string = String::new();
    try_push_str(&mut string, text)?;
    Ok(string)
}

/// Appends a text, as [`String::push_str`] does. After an error the string is as it was.
pub fn try_push_str(string: &mut String, text: &str) -> Result<(), OutOfMemory> {
    let size = string.len().saturating_add(text.len());
    fallibly(|| string.try_reserve(text.len())).map_err(|_| OutOfMemory { size })?;
    string.push_str(text);
    Ok(())
}

/// Moves a value to a new block, as [`Box::new`] does. After an error the value is dropped.
pub fn try_box<T>(value: T) -> Result<Box<T>, OutOfMemory> {
    let layout = Layout::new::<T>();
    if layout.size() == 0 {
        return Ok(Box::new(value));
    }
    // SAFETY: `alloc` demands a layout whose size is not 0, as was just compared.
    let block = fallibly(|| unsafe { alloc(layout) }).cast::<T>();
    if block.is_null() {
        return Err(OutOfMemory { size: layout.size() });
    }
    // SAFETY: `write` demands a valid, aligned address, and `from_raw` a block of the global
    // allocator with the layout of a value that is there: both as allocated above.
    unsafe {
        block.write(value);
        Ok(Box::from_raw(block))
    }
}

/// Returns a block of zero bytes, which is not written to if the allocator has such memory.
pub fn try_zeroed(size: usize) -> Result<Box<[u8]>, OutOfMemory> {
    let Ok(layout) = Layout::array::<u8>(size) else { return Err(OutOfMemory { size }) };
    if size == 0 {
        return Ok(Box::default());
    }
    // SAFETY: `alloc_zeroed` demands a layout whose size is not 0, as was just compared.
    let block = fallibly(|| unsafe { alloc_zeroed(layout) });
    if block.is_null() {
        return Err(OutOfMemory { size });
    }
    // SAFETY: `from_raw` demands a block of the global allocator with the layout of the slice,
    // whose bytes are initialised: allocated above, as zeroes.
    unsafe { Ok(Box::from_raw(std::ptr::slice_from_raw_parts_mut(block, size))) }
}

#[cfg(test)]
mod tests;
