//! The underlying allocator: the next definitions of the malloc family in the program.

use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

use heapledger_arenas::over_malloc::{self, CFunctions};
use heapledger_core::hooks::arena::{BinStatistics, LightStatistics, PointerInfo, Statistics};
use heapledger_core::hooks::{Functions, Pointer};

use crate::next::{Objects, Scope};
use crate::purges;

static ERRNO_LOCATION: AtomicUsize = AtomicUsize::new(0);

/// Returns the next definitions in the program, to which calls would go without this loaded object.
/// If there are none, functions that return no block. An allocator without arenas gets those over
/// malloc.
pub fn next_allocator(objects: &Objects<'_>) -> Functions {
    let functions = allocator(|name| objects.lookup(Scope::Next, name));
    let functions = with_arenas(functions, |name| objects.lookup(Scope::Next, name));
    // SAFETY: 0, or the allocator's function of this name.
    unsafe { purges::watch_purges(objects.lookup(Scope::Next, c"heapledger_set_purge_hook")) };
    let c_functions = CFunctions {
        register_atfork: register_atfork(objects),
        errno_location: objects.lookup(Scope::Next, c"__errno_location"),
    };
    // SAFETY: 0, or the C library's functions of these names.
    unsafe { over_malloc::set_c_functions(c_functions) };
    over_malloc::with_arenas(Functions {
        malloc: functions.malloc.or(Some(none::malloc)),
        calloc: functions.calloc.or(Some(none::calloc)),
        realloc: functions.realloc.or(Some(none::realloc)),
        free: functions.free.or(Some(none::free)),
        ..functions
    })
}

/// Returns the address of the C library's function that registers handlers around forks.
fn register_atfork(objects: &Objects<'_>) -> usize {
    match objects.lookup(Scope::Next, c"__register_atfork") {
        0 => objects.lookup(Scope::Next, c"pthread_atfork"),
        address => address,
    }
}

/// Returns the function of a name, if it has an address, with a type.
macro_rules! typed {
    ($address:ident, $name:expr, $($type:ty),* => $result:ty) => {{
        const NAME: &CStr = match CStr::from_bytes_with_nul(concat!($name, "\0").as_bytes()) {
            Ok(name) => name,
            Err(_) => unreachable!(),
        };
        let address = $address(NAME);
        // SAFETY: 0 is `None`; otherwise the address of the C function of this name, whose type
        // this is.
        unsafe { core::mem::transmute::<usize, Option<unsafe extern "C" fn($($type),*) -> $result>>(address) }
    }};
}

/// Returns the functions of an allocator, by their addresses; 0 is the address of a function that
/// it does not have.
pub(crate) fn allocator(address: impl Fn(&CStr) -> usize) -> Functions {
    /// Returns the function of this name, with the type that the table has.
    macro_rules! function {
        ($name:ident, $($type:ty),* => $result:ty) => {
            typed!(address, stringify!($name), $($type),* => $result)
        };
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

/// Adds an allocator's own functions for arenas and purges, by their addresses, if it has arenas.
fn with_arenas(functions: Functions, address: impl Fn(&CStr) -> usize) -> Functions {
    /// Returns the function whose name ends so, with the type that the table has.
    macro_rules! function {
        ($name:literal, $($type:ty),* => $result:ty) => {
            typed!(address, concat!("heapledger_", $name), $($type),* => $result)
        };
    }
    Functions {
        create_arena: function!("arena_create", *const c_void => usize),
        dispose_arena: function!("arena_dispose", usize => ()),
        arena_malloc: function!("arena_malloc", usize, usize => Pointer),
        arena_calloc: function!("arena_calloc", usize, usize, usize => Pointer),
        arena_realloc: function!("arena_realloc", usize, Pointer, usize => Pointer),
        arena_free: function!("arena_free", usize, Pointer => ()),
        arena_memalign: function!("arena_memalign", usize, usize, usize => Pointer),
        arena_of: function!("arena_of", Pointer => usize),
        purge_all: function!("purge_all", => usize),
        purge_excess: function!("purge_excess", => usize),
        thread_local_arena: function!("thread_local_arena", bool => ()),
        reset_randomisation: function!("reset_randomisation", bool => ()),
        set_dirty_modifier: function!("set_dirty_modifier", i32 => ()),
        enable_deferred_purge: function!("enable_deferred_purge", bool => bool),
        purge_now: function!("purge_now", bool, u32, usize => c_int),
        statistics: function!("statistics", *mut Statistics, *mut BinStatistics => ()),
        statistics_bins: function!("statistics_bins", => usize),
        statistics_light: function!("statistics_light", *mut LightStatistics => ()),
        pointer_info: function!("pointer_info", *const c_void, *mut PointerInfo => ()),
        ..functions
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
