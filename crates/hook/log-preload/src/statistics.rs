//! Statistics points: logalloc has a line `jemalloc_stats()` where a program asks its allocator for
//! statistics. With the C library, programs do so by the functions here, which the C library always
//! has: so a program finds nothing that it would not find without us.

use core::ffi::{CStr, c_int, c_void};
use core::mem;
use core::sync::atomic::{AtomicUsize, Ordering};

use heapledger_dynsym::{Objects, Scope};

use crate::observer;

/// The next definition of `malloc_stats`; 0 if there is none.
static MALLOC_STATS: AtomicUsize = AtomicUsize::new(0);
/// The next definition of `malloc_info`; 0 if there is none.
static MALLOC_INFO: AtomicUsize = AtomicUsize::new(0);

/// Finds the next definitions. Call it when the library starts.
pub(crate) fn find_next() {
    // SAFETY: `at_start` asks that no object is loaded or unloaded meanwhile. Heapledger calls hook
    // libraries within the first call of the allocator, when the process has one thread, which is
    // here.
    let objects = unsafe { Objects::at_start() };
    let find = |to: &AtomicUsize, name: &CStr| to.store(objects.lookup(Scope::Next, name), Ordering::Relaxed);
    find(&MALLOC_STATS, c"malloc_stats");
    find(&MALLOC_INFO, c"malloc_info");
}

/// Logs the point, and prints the statistics of the C library's allocator.
///
/// # Safety
///
/// The contract of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_stats() {
    observer::statistics();
    // SAFETY: 0, or the address of the C library's function of this name and type; 0 is `None`.
    let next = unsafe { mem::transmute::<usize, Option<unsafe extern "C" fn()>>(MALLOC_STATS.load(Ordering::Relaxed)) };
    if let Some(next) = next {
        // SAFETY: that of the C library's function, which the caller of this one has promised.
        unsafe { next() };
    }
}

/// Logs the point, and writes the statistics of the C library's allocator to a stream.
///
/// # Safety
///
/// The contract of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_info(options: c_int, stream: *mut c_void) -> c_int {
    observer::statistics();
    type Info = unsafe extern "C" fn(c_int, *mut c_void) -> c_int;
    // SAFETY: 0, or the address of the C library's function of this name and type; 0 is `None`.
    let next = unsafe { mem::transmute::<usize, Option<Info>>(MALLOC_INFO.load(Ordering::Relaxed)) };
    // SAFETY: that of the C library's function, which the caller of this one has promised.
    next.map_or(-1, |next| unsafe { next(options, stream) })
}
