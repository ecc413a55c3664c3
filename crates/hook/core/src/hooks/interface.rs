//! The hook table as other code sees it: hook libraries, and programs that change their hooks at
//! run time.

use core::ffi::c_int;

use super::{Caller, Error, Functions, Observer, Pointer, Replacement, VERSION, registry, serve, tell};
use crate::Api;

/// The functions and tables that a loaded object with a registry offers. Entries are only ever
/// appended: a user checks `size`.
#[derive(Debug)]
#[repr(C)]
pub struct Hooks {
    /// Bytes of this table.
    pub size: u32,
    /// [`VERSION`].
    pub version: u32,
    /// The program's own allocator: below all replacements, and unobserved. Hooks may allocate from
    /// it.
    pub real: *const Functions,
    /// The malloc family as the program calls it: through the replacements, and with the observers
    /// notified.
    pub program: *const Functions,
    /// Functions that notify all observers, in their order: for a program that allocates blocks by
    /// other means than the malloc family, and wants them seen as if by it. The blocks are live at
    /// these calls, and `caller` is a live frame of the calling thread.
    pub tell: *const Observer,
    /// See [`install_observer`](super::install_observer). Returns 0, or the number of an [`Error`].
    pub install_observer: unsafe extern "C" fn(*const Observer) -> c_int,
    /// See [`remove_observer`](super::remove_observer). Returns 0, or the number of an [`Error`].
    pub remove_observer: unsafe extern "C" fn(*const Observer) -> c_int,
    /// See [`install_replacement`](super::install_replacement). Returns 0, or the number of an
    /// [`Error`].
    pub install_replacement: unsafe extern "C" fn(*const Replacement) -> c_int,
    /// See [`remove_replacement`](super::remove_replacement). Returns 0, or the number of an
    /// [`Error`].
    pub remove_replacement: unsafe extern "C" fn(*const Replacement) -> c_int,
}

// SAFETY: the table is not written; everything that it points to is static, and complete before
// anybody is given the table.
unsafe impl Sync for Hooks {}

impl Hooks {
    /// Returns the table of this loaded object, whose program calls these functions.
    pub const fn new(program: &'static Functions) -> Hooks {
        Hooks {
            size: size_of::<Hooks>() as u32,
            version: VERSION,
            real: serve::real_table(),
            program,
            tell: &raw const TELL,
            install_observer,
            remove_observer,
            install_replacement,
            remove_replacement,
        }
    }
}

fn number(result: Result<(), Error>) -> c_int {
    result.err().map_or(0, |error| error as c_int)
}

/// # Safety
///
/// That of [`registry::install_observer`].
unsafe extern "C" fn install_observer(observer: *const Observer) -> c_int {
    // SAFETY: `registry::install_observer` asks for null or a table of its `size`, whose functions
    // keep the contract of `Observer` for ever. This function's `# Safety` asks for the same.
    number(unsafe { registry::install_observer(observer) })
}

/// # Safety
///
/// Nothing is asked of the caller: the address is only compared.
unsafe extern "C" fn remove_observer(observer: *const Observer) -> c_int {
    number(registry::remove_observer(observer))
}

/// # Safety
///
/// That of [`registry::install_replacement`].
unsafe extern "C" fn install_replacement(replacement: *const Replacement) -> c_int {
    // SAFETY: `registry::install_replacement` asks for null or a table of its `size`s, whose
    // functions keep the contract of `Replacement` for ever. This function's `# Safety` asks for
    // the same.
    number(unsafe { registry::install_replacement(replacement) })
}

/// # Safety
///
/// Nothing is asked of the caller: the address is only compared.
unsafe extern "C" fn remove_replacement(replacement: *const Replacement) -> c_int {
    number(registry::remove_replacement(replacement))
}

static TELL: Observer = Observer {
    name: c"all".as_ptr(),
    calloc: Some(tell_calloc),
    aligned: Some(tell_aligned),
    free_sized: Some(tell_free_sized),
    realloc_begins: Some(tell_realloc_begins),
    realloc_ends: Some(tell_realloc_ends),
    reallocarray_ends: Some(tell_reallocarray_ends),
    failed: Some(tell_failed),
    ..Observer::new(tell_malloc, tell_free)
};

/// Defines a function of [`TELL`].
macro_rules! tell {
    ($name:ident: $function:ident($($argument:ident: $type:ty),*)) => {
        /// # Safety
        ///
        /// The [contract of telling](tell): that of [`Hooks::tell`].
        unsafe extern "C" fn $name($($argument: $type,)* caller: Caller) {
            // SAFETY: the function asks for the contract of telling, and so does this one.
            unsafe { tell::$function($($argument,)* caller) };
        }
    };
    ($name:ident: $function:ident(api $(, $argument:ident: $type:ty)*)) => {
        /// # Safety
        ///
        /// The [contract of telling](tell): that of [`Hooks::tell`].
        unsafe extern "C" fn $name(api: u32, $($argument: $type,)* caller: Caller) {
            if let Some(api) = u8::try_from(api).ok().and_then(Api::from_number) {
                // SAFETY: the function asks for the contract of telling, and so does this one.
                unsafe { tell::$function(api, $($argument,)* caller) };
            }
        }
    };
}

tell!(tell_malloc: malloc(block: Pointer, size: usize));
tell!(tell_free: free(block: Pointer));
tell!(tell_calloc: calloc(block: Pointer, count: usize, each: usize));
tell!(tell_aligned: aligned(api, block: Pointer, alignment: usize, size: usize));
tell!(tell_free_sized: free_sized(api, block: Pointer, size: usize, alignment: usize));
tell!(tell_realloc_begins: realloc_begins(api, old: Pointer));
tell!(tell_realloc_ends: realloc_ends(old: Pointer, block: Pointer, size: usize));
tell!(tell_reallocarray_ends: reallocarray_ends(old: Pointer, block: Pointer, count: usize, each: usize));
tell!(tell_failed: failed(api, size: usize, alignment: usize, count: usize));
