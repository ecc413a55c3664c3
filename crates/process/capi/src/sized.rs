//! Structures that C passes are *sized*: the first field, a `u32`, is the number of bytes that the
//! caller's version of the structure has. The pointer is aligned, and that many bytes may be read.
//! If the structure is for an answer, they may be written, too. The size ends where a field ends.
//! Nobody else changes the structure during the call.

use std::ffi::c_int;
use std::{mem, ptr};

use crate::status::{FAILED, OK};

/// Takes what a caller, who may know fewer fields, gives.
///
/// # Safety
///
/// `from` is null or *sized* (see the module). Any prefix of a `T`, up to the end of a field, over
/// the rest of `to` is a `T`.
pub(crate) unsafe fn read<T: Copy>(from: *const T, to: &mut T) {
    if !from.is_null() {
        // SAFETY: by this function's `# Safety` the first four bytes are an aligned number, and
        // that many bytes may be read: `length` is no more than that. `to` has `size_of::<T>()`
        // bytes, which is no less than `length`, and is a `&mut`, so the two do not overlap. By the
        // same section the bytes over `to` make a `T`.
        unsafe {
            let length = (from.cast::<u32>().read() as usize).min(size_of::<T>());
            ptr::copy_nonoverlapping(from.cast::<u8>(), ptr::from_mut(to).cast::<u8>(), length);
        }
    }
}

/// Gives a caller what it has room for; its first field stays.
///
/// # Safety
///
/// `to` is null or *sized* (see the module), for an answer.
pub(crate) unsafe fn write<T: Copy>(to: *mut T, from: T) -> c_int {
    const SIZE: usize = mem::size_of::<u32>();
    if to.is_null() {
        return FAILED;
    }
    // SAFETY: by this function's `# Safety` the first four bytes are an aligned number, and that
    // many bytes may be written. `length` is no more than that, and than the size of the parameter
    // `from`, which is this call's own, so the two do not overlap. `length - SIZE` is above 0 by
    // the check.
    unsafe {
        let length = (to.cast::<u32>().read() as usize).min(size_of::<T>());
        if length <= SIZE {
            return FAILED;
        }
        let (to, from) = (to.cast::<u8>(), ptr::from_ref(&from).cast::<u8>());
        ptr::copy_nonoverlapping(from.add(SIZE), to.add(SIZE), length - SIZE);
    }
    OK
}
