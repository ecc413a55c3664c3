//! The addresses of servers, as C takes them.

use std::ffi::{c_char, c_int};
use std::ptr;

use crate::status::{FAILED, OK};

/// Writes an address, with a zero behind it.
///
/// # Safety
///
/// `to` is null, or may be written for `length` bytes.
pub(crate) unsafe fn write_address(address: &str, to: *mut c_char, length: usize) -> c_int {
    let address = address.as_bytes();
    if to.is_null() || length <= address.len() {
        return FAILED;
    }
    // SAFETY: there is room for the address and a zero behind it, by the check above and the
    // caller's contract.
    unsafe {
        ptr::copy_nonoverlapping(address.as_ptr().cast(), to, address.len());
        to.add(address.len()).write(0);
    }
    OK
}
