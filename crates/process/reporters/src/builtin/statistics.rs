//! The statistics that allocators print about themselves.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt::Write;
use std::mem;
use std::ptr;

use heapledger_core::weak_address;

/// Returns the statistics that the allocators of this process print about themselves, each in its
/// own format: glibc's `malloc_info`, jemalloc's `malloc_stats_print`, mimalloc's
/// `mi_stats_print_out`. For people: the format differs from version to version.
///
/// It takes the allocators' locks, one after the other.
pub fn allocator_statistics() -> String {
    let mut text = String::new();
    if let Some(info) = glibc() {
        let _ = write!(text, "glibc, malloc_info:\n\n{info}\n");
    }
    let jemalloc = [weak_address!("malloc_stats_print"), weak_address!("_rjem_malloc_stats_print")];
    if let Some(address) = jemalloc.into_iter().find(|&address| address != 0) {
        type Print = unsafe extern "C" fn(unsafe extern "C" fn(*mut c_void, *const c_char), *mut c_void, *const c_char);
        let mut printed = String::new();
        // SAFETY: jemalloc's function of these names, a function for its pieces of text, and what
        // that expects. No options.
        unsafe { mem::transmute::<usize, Print>(address)(of_jemalloc, (&raw mut printed).cast(), ptr::null()) };
        let _ = write!(text, "jemalloc, malloc_stats_print:\n\n{printed}\n");
    }
    let mimalloc = weak_address!("mi_stats_print_out");
    if mimalloc != 0 {
        type Print = unsafe extern "C" fn(unsafe extern "C" fn(*const c_char, *mut c_void), *mut c_void);
        let mut printed = String::new();
        // SAFETY: mimalloc's function of this name, a function for its pieces of text, and what
        // that expects.
        unsafe { mem::transmute::<usize, Print>(mimalloc)(of_mimalloc, (&raw mut printed).cast()) };
        let _ = write!(text, "mimalloc, mi_stats_print_out:\n\n{printed}\n");
    }
    text
}

fn glibc() -> Option<String> {
    type Info = unsafe extern "C" fn(c_int, *mut libc::FILE) -> c_int;
    let address = weak_address!("malloc_info");
    if address == 0 {
        return None;
    }
    let (mut start, mut length): (*mut c_char, usize) = (ptr::null_mut(), 0);
    // SAFETY: the C library's functions; the stream is closed before what it has written is read,
    // and that is freed.
    unsafe {
        let stream = libc::open_memstream(&raw mut start, &raw mut length);
        if stream.is_null() {
            return None;
        }
        let error = mem::transmute::<usize, Info>(address)(0, stream);
        libc::fclose(stream);
        if start.is_null() {
            return None;
        }
        let text = String::from_utf8_lossy(std::slice::from_raw_parts(start.cast(), length)).into_owned();
        libc::free(start.cast());
        (error == 0).then_some(text)
    }
}

/// # Safety
///
/// `printed` is the `String` that [`allocator_statistics`] has passed to the allocator. That passes
/// it on, one call at a time. `piece` is a text that ends with NUL and stays during the call.
unsafe extern "C" fn of_jemalloc(printed: *mut c_void, piece: *const c_char) {
    // SAFETY: by this function's `# Safety` `printed` is a live `String` that nobody else uses
    // during the call. `CStr::from_ptr` requires a text that ends with NUL, as `piece` is by the
    // same section.
    unsafe { (*printed.cast::<String>()).push_str(&CStr::from_ptr(piece).to_string_lossy()) };
}

/// # Safety
///
/// As in [`of_jemalloc`].
unsafe extern "C" fn of_mimalloc(piece: *const c_char, printed: *mut c_void) {
    // SAFETY: `of_jemalloc` requires the string and a piece of text, and this function's `# Safety`
    // is the same.
    unsafe { of_jemalloc(printed, piece) };
}
