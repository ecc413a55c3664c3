//! The loaded object that an address belongs to, according to the dynamic linker.

use core::ffi::{c_char, c_int, c_void};
use core::ptr;

/// `Dl_info` of `<dlfcn.h>`.
#[repr(C)]
pub(crate) struct Object {
    /// The name of its file, which stays.
    pub(crate) file: *const c_char,
    /// The address at which it begins.
    pub(crate) base: *const c_void,
    symbol: *const c_char,
    address: *const c_void,
}

unsafe extern "C" {
    /// Does not allocate.
    fn dladdr(address: *const c_void, info: *mut Object) -> c_int;
}

impl Object {
    /// Returns the object around an address.
    pub(crate) fn of(address: usize) -> Option<Object> {
        let mut object = Object { file: ptr::null(), base: ptr::null(), symbol: ptr::null(), address: ptr::null() };
        // SAFETY: the C library's function of this name, which fills such a structure, and only
        // looks the address up.
        let found = unsafe { dladdr(ptr::without_provenance(address), &raw mut object) };
        (found != 0 && !object.file.is_null()).then_some(object)
    }
}
