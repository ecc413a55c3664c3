//! The dynamic linker's functions that are called here, and `dlclose`, which unloads modules.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

use heapledger_interpose::next::{IterateObjects, Objects, Scope};
use heapledger_unwind::modules;

static DLCLOSE: AtomicUsize = AtomicUsize::new(0);
static DL_ITERATE_PHDR: AtomicUsize = AtomicUsize::new(0);

/// Looks up the functions that are called here. Called once, at start.
pub(crate) fn look_up(objects: &Objects<'_>) {
    for (address, name) in [(&DLCLOSE, c"dlclose"), (&DL_ITERATE_PHDR, c"dl_iterate_phdr")] {
        address.store(objects.lookup(Scope::Next, name), Ordering::Release);
    }
}

/// Returns the function at a looked-up address.
macro_rules! function {
    ($address:ident: fn($($type:ty),*) -> $result:ty) => {{
        let address = $address.load(core::sync::atomic::Ordering::Acquire);
        // SAFETY: null is `None`; otherwise the C library's function of the name it was looked up
        // by, of this type.
        unsafe { core::mem::transmute::<usize, Option<unsafe extern "C" fn($($type),*) -> $result>>(address) }
    }};
}
pub(crate) use function;

/// Returns the next definition of a function, and keeps it in `cache`; 0 if there is none yet. May
/// be called at any time.
pub(crate) fn find_next(cache: &AtomicUsize, name: &CStr) -> usize {
    let known = cache.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    let search = |objects: &Objects<'_>| objects.lookup(Scope::Next, name);
    let found = match iterate_objects() {
        // SAFETY: the C library's function of this name, by which it was looked up.
        Some(iterate) => unsafe { Objects::locked(iterate, search) }.unwrap_or(0),
        // SAFETY: `iterate_objects` is looked up by the first call of a malloc function, which
        // precedes the second thread and has not been made yet: there is one thread.
        None => search(&unsafe { Objects::at_start() }),
    };
    cache.store(found, Ordering::Relaxed);
    found
}

/// The C function of this name.
///
/// # Safety
///
/// The contract of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlclose(handle: *mut c_void) -> c_int {
    close(handle, DLCLOSE.load(Ordering::Acquire))
}

/// Closes a library by the `dlclose` at this address, of the program's C library or of another one;
/// 0 if there is none.
pub(crate) fn close(handle: *mut c_void, dlclose: usize) -> c_int {
    let before = modules_unloaded();
    // SAFETY: 0 is `None`; otherwise the function of this name, of this type.
    let dlclose = unsafe { core::mem::transmute::<usize, Option<unsafe extern "C" fn(*mut c_void) -> c_int>>(dlclose) };
    let result = match dlclose {
        // SAFETY: `dlclose` requires a handle from `dlopen`: it is one of *the program's
        // arguments*.
        Some(dlclose) => unsafe { dlclose(handle) },
        None => -1,
    };
    if modules_unloaded() != before {
        modules::advance_epoch();
    }
    result
}

/// Returns the C library's `dl_iterate_phdr`.
pub(crate) fn iterate_objects() -> Option<IterateObjects> {
    let address = DL_ITERATE_PHDR.load(Ordering::Acquire);
    // SAFETY: null is `None`; otherwise the C library's function of the name it was looked up by,
    // of this type.
    unsafe { core::mem::transmute::<usize, Option<IterateObjects>>(address) }
}

/// Returns the number of modules that have been unloaded so far in this process.
fn modules_unloaded() -> u64 {
    /// The head of `struct dl_phdr_info` of `<link.h>`.
    #[repr(C)]
    struct Info {
        address: u64,
        name: *const c_char,
        headers: *const c_void,
        header_count: u16,
        added: u64,
        removed: u64,
    }
    type Callback = unsafe extern "C" fn(*const Info, usize, *mut u64) -> c_int;
    /// # Safety
    ///
    /// The contract of `dl_iterate_phdr`: `info` has `length` bytes. `removed` is the caller's
    /// variable.
    unsafe extern "C" fn first(info: *const Info, length: usize, removed: *mut u64) -> c_int {
        if length >= size_of::<Info>() {
            // SAFETY: the C library says that the structure is that long; `removed` is our caller's
            // variable.
            unsafe { *removed = (*info).removed };
        }
        1
    }
    let mut removed = 0;
    if let Some(iterate) = function!(DL_ITERATE_PHDR: fn(Callback, *mut u64) -> c_int) {
        // SAFETY: the callback takes what the C library documents, and returns 1 to stop.
        unsafe { iterate(first, &mut removed) };
    }
    removed
}
