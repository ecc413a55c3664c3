//! The functions by which the end of a thread is noticed.

use core::ffi::{CStr, c_int, c_void};

use heapledger_thread::KeyFunctions;

/// Returns the functions of a C library by which we notice a thread's end. `address` returns a
/// function's address.
pub(crate) fn thread_library(address: impl Fn(&CStr) -> usize) -> Option<KeyFunctions> {
    /// Returns the function of this name, of the type that the structure requires.
    macro_rules! function {
        ($name:literal, $($type:ty),*) => {{
            let address = address($name);
            // SAFETY: 0 is `None`; otherwise the C library's function of this name, whose type this
            // is.
            unsafe { core::mem::transmute::<usize, Option<unsafe extern "C" fn($($type),*) -> c_int>>(address) }?
        }};
    }
    Some(KeyFunctions {
        key_create: function!(c"pthread_key_create", *mut u32, Option<unsafe extern "C" fn(*mut c_void)>),
        key_delete: function!(c"pthread_key_delete", u32),
        set_specific: function!(c"pthread_setspecific", u32, *const c_void),
    })
}
