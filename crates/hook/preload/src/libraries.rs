//! The hook libraries: preloaded beside this one, and asked once to install their hooks.

use core::ffi::c_int;

use heapledger_core::hooks::{Functions, Hooks};

use crate::bridge::heapledger_hooks_v1;
use heapledger_family::next::lookup_at;

/// `heapledger_hook_init`: see include/heapledger/hooks.h.
type Init = unsafe extern "C" fn(*const Functions, *const Hooks) -> c_int;

/// Has each library install its hooks, in the order of the paths. What they say is theirs: a library that installs
/// nothing changes nothing.
pub(crate) fn invite<'a>(paths: impl Iterator<Item = &'a [u8]>) {
    for path in paths {
        let address = lookup_at(path, c"heapledger_hook_init");
        if address != 0 {
            // SAFETY: the library says by the name that the function is of this type; who put it here has checked its
            // version.
            let init = unsafe { core::mem::transmute::<usize, Init>(address) };
            // SAFETY: both tables are static, and complete: there is an allocator.
            unsafe { init(heapledger_hooks_v1.real, &raw const heapledger_hooks_v1) };
        }
    }
}
