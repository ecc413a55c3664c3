//! The underlying allocator: the next definitions of the malloc family in the program.

use core::ffi::{CStr, c_int};
use core::sync::atomic::{AtomicUsize, Ordering};

use heapledger_core::hooks::{Functions, Pointer};

use crate::next::{Objects, Scope};

static ERRNO_LOCATION: AtomicUsize = AtomicUsize::new(0);

/// Returns the next definitions in the program, to which calls would go without this loaded object.
/// If there are none, functions that return no block.
pub fn next_allocator(objects: &Objects<'_>) -> Functions {
    let functions = allocator(|name| objects.lookup(Scope::Next, name));
    Functions {
        malloc: functions.malloc.or(Some(none::malloc)),
        calloc: functions.calloc.or(Some(none::calloc)),
        realloc: functions.realloc.or(Some(none::realloc)),
        free: functions.free.or(Some(none::free)),
        ..functions
    }
}

/// Returns the functions of an allocator, by their addresses; 0 is the address of a function that
/// it does not have.
pub(crate) fn allocator(address: impl Fn(&CStr) -> usize) -> Functions {
    /// Returns the function of this name, with the type that the table has.
    macro_rules! function {
        ($name:ident, $($type:ty),* => $result:ty) => {{
            const NAME: &CStr = match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => unreachable!(),
            };
            let address = address(NAME);
            // SAFETY: 0 is `None`; otherwise the address of the C function of this name, whose type
            // this is.
            unsafe { core::mem::transmute::<usize, Option<unsafe extern "C" fn($($type),*) -> $result>>(address) }
        }};
    }
    Functions {
        malloc: function!(malloc, usize => Pointer),
        calloc: function!(calloc, usize, usize => Pointer),
        realloc: function!(realloc, Pointer, usize => Pointer),
        free: function!(free, Pointer => ()),
        memalign: function!(memalign, usize, usize => Pointer),
        posix_memalign: function!(posix_memalign, *mut Pointer, usize, usize => c_int),
        aligned_alloc: function!(aligned_alloc, usize, usize => Pointer),
        valloc: function!(valloc, usize => Pointer),
        pvalloc: function!(pvalloc, usize => Pointer),
        malloc_usable_size: function!(malloc_usable_size, Pointer => usize),
        ..Functions::EMPTY
    }
}

/// The functions of a program without an allocator.
mod none {
    use heapledger_core::hooks::Pointer;

    pub(super) unsafe extern "C" fn malloc(_: usize) -> Pointer {
        core::ptr::null_mut()
    }

    pub(super) unsafe extern "C" fn calloc(_: usize, _: usize) -> Pointer {
        core::ptr::null_mut()
    }

    pub(super) unsafe extern "C" fn realloc(_: Pointer, _: usize) -> Pointer {
        core::ptr::null_mut()
    }

    pub(super) unsafe extern "C" fn free(_: Pointer) {}
}

pub(crate) fn find_errno(objects: &Objects<'_>) {
    ERRNO_LOCATION.store(objects.lookup(Scope::Next, c"__errno_location"), Ordering::Release);
}

/// Sets `errno`, for the few results that are our own.
pub fn set_errno(number: c_int) {
    let address = ERRNO_LOCATION.load(Ordering::Relaxed);
    if address != 0 {
        // SAFETY: the C library's `__errno_location`, which returns this thread's `errno`.
        unsafe { *core::mem::transmute::<usize, extern "C" fn() -> *mut c_int>(address)() = number };
    }
}
