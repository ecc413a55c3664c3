//! Stands in for the C library on systems on which the ledger has not been tried: it does not start
//! there.

use core::ffi::{c_int, c_void};

use heapledger_thread::KeyFunctions;

unsafe extern "C" fn key_create(_: *mut u32, _: Option<unsafe extern "C" fn(*mut c_void)>) -> c_int {
    -1
}

unsafe extern "C" fn key_delete(_: u32) -> c_int {
    -1
}

unsafe extern "C" fn set_specific(_: u32, _: *const c_void) -> c_int {
    -1
}

/// Functions that fail.
pub(crate) const LIBRARY: KeyFunctions = KeyFunctions { key_create, key_delete, set_specific };

/// Returns false: not supported.
pub(crate) fn watch_forks(_: extern "C" fn(), _: extern "C" fn(), _: extern "C" fn()) -> bool {
    false
}

/// Lists nothing.
pub(crate) fn list_modules() {}

/// Finds nothing.
pub(crate) fn find_first_stack() {}
