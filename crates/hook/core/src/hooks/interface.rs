//! The hook table as other code sees it: hook libraries, and programs that change their hooks at
//! run time.

use core::ffi::c_int;

use super::{
    Arena, Caller, Functions, HookError, Observer, Pointer, Purge, Replacement, VERSION, dispatch, dispatch_path,
    notify, registry,
};
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
    /// See [`install_observer`](super::install_observer). Returns 0, or the number of a
    /// [`HookError`].
    pub install_observer: unsafe extern "C" fn(*const Observer) -> c_int,
    /// See [`remove_observer`](super::remove_observer). Returns 0, or the number of a
    /// [`HookError`].
    pub remove_observer: unsafe extern "C" fn(*const Observer) -> c_int,
    /// See [`install_replacement`](super::install_replacement). Returns 0, or the number of a
    /// [`HookError`].
    pub install_replacement: unsafe extern "C" fn(*const Replacement) -> c_int,
    /// See [`remove_replacement`](super::remove_replacement). Returns 0, or the number of a
    /// [`HookError`].
    pub remove_replacement: unsafe extern "C" fn(*const Replacement) -> c_int,
    /// See [`dispatch_path::set_counted`]: the replacement, the distance of the word, the first
    /// address and the number of addresses. Returns 0, or the number of a [`HookError`].
    pub count_calls: unsafe extern "C" fn(*const Replacement, isize, usize, usize) -> c_int,
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
            real: dispatch::underlying_table(),
            program,
            tell: &raw const NOTIFY,
            install_observer,
            remove_observer,
            install_replacement,
            remove_replacement,
            count_calls,
        }
    }
}

/// Reads an entry of a hook table; `None` in the shorter table of an older library, which does not
/// have the entry.
///
/// The pointer is one to [`Hooks`], which is null or points to as many bytes as its `size` says.
#[macro_export]
macro_rules! hooks_entry {
    ($table:expr, $entry:ident) => {{
        let table: *const $crate::hooks::Hooks = $table;
        let end = core::mem::offset_of!($crate::hooks::Hooks, $entry) + size_of::<usize>();
        if table.is_null() || ((*table).size as usize) < end { None } else { Some((*table).$entry) }
    }};
}

fn number(result: Result<(), HookError>) -> c_int {
    result.err().map_or(0, |error| error as c_int)
}

/// # Safety
///
/// The contract of [`registry::install_observer`].
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
/// The contract of [`registry::install_replacement`].
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

/// # Safety
///
/// `replacement` is as [`install_replacement`] asks for it, which may be called afterwards. The
/// word is in the thread-local storage of the loaded object that has the replacement.
unsafe extern "C" fn count_calls(replacement: *const Replacement, word: isize, first: usize, length: usize) -> c_int {
    // SAFETY: `Replacement::read` asks for null or a table that has as many bytes as its `size`s
    // say, as `install_replacement` does, which this function's `# Safety` refers to.
    match unsafe { Replacement::read(replacement) } {
        Some(replacement) => number(dispatch_path::set_counted(&replacement, word, first, length)),
        None => HookError::Malformed as c_int,
    }
}

static NOTIFY: Observer = Observer {
    name: c"all".as_ptr(),
    calloc: Some(notify_calloc),
    aligned: Some(notify_aligned),
    free_sized: Some(notify_free_sized),
    realloc_begins: Some(notify_realloc_begins),
    realloc_ends: Some(notify_realloc_ends),
    reallocarray_ends: Some(notify_reallocarray_ends),
    failed: Some(notify_failed),
    arena_allocated: Some(notify_arena_allocated),
    arena_realloc_ends: Some(notify_arena_realloc_ends),
    arena_reallocarray_ends: Some(notify_arena_reallocarray_ends),
    arena_created: Some(notify_arena_created),
    arena_disposed: Some(notify_arena_disposed),
    purged: Some(notify_purged),
    ..Observer::new(notify_malloc, notify_free)
};

/// Defines a function of [`NOTIFY`].
macro_rules! notify {
    ($name:ident: $function:ident($($argument:ident: $type:ty),*)) => {
        /// # Safety
        ///
        /// The [contract of notification](notify): that of [`Hooks::tell`].
        unsafe extern "C" fn $name($($argument: $type,)* caller: Caller) {
            // SAFETY: the function asks for the contract of notification, and so does this one.
            unsafe { notify::$function($($argument,)* caller) };
        }
    };
    ($name:ident: $function:ident(api $(, $argument:ident: $type:ty)*)) => {
        /// # Safety
        ///
        /// The [contract of notification](notify): that of [`Hooks::tell`].
        unsafe extern "C" fn $name(api: u32, $($argument: $type,)* caller: Caller) {
            if let Some(api) = u8::try_from(api).ok().and_then(Api::from_number) {
                // SAFETY: the function asks for the contract of notification, and so does this one.
                unsafe { notify::$function(api, $($argument,)* caller) };
            }
        }
    };
}

notify!(notify_malloc: malloc(block: Pointer, size: usize));
notify!(notify_free: free(block: Pointer));
notify!(notify_calloc: calloc(block: Pointer, count: usize, each: usize));
notify!(notify_aligned: aligned(api, block: Pointer, alignment: usize, size: usize));
notify!(notify_free_sized: free_sized(api, block: Pointer, size: usize, alignment: usize));
notify!(notify_realloc_begins: realloc_begins(api, old: Pointer));
notify!(notify_realloc_ends: realloc_ends(old: Pointer, block: Pointer, size: usize));
notify!(notify_reallocarray_ends: reallocarray_ends(old: Pointer, block: Pointer, count: usize, each: usize));
notify!(notify_failed: failed(api, size: usize, alignment: usize, count: usize));

/// Returns an arena that other code tells of. `None` if it is null, or not a structure that an
/// observer was given: C declares only the first part, without the name.
///
/// # Safety
///
/// `arena` is null, or points to as many bytes as it says, as the contract of [`Hooks::tell`] asks.
unsafe fn told<'a>(arena: *const Arena) -> Option<&'a Arena> {
    // SAFETY: `as_ref` asks for null or a live structure, as this function's `# Safety` does. Only
    // its first word is read before its size is known.
    unsafe {
        let is_whole = !arena.is_null() && arena.is_aligned() && (*arena).size as usize >= size_of::<Arena>();
        is_whole.then(|| &*arena)
    }
}

/// # Safety
///
/// The contract of [`Hooks::tell`]; `arena` comes from an observer of another table.
unsafe extern "C" fn notify_arena_allocated(
    arena: *const Arena,
    api: u32,
    block: Pointer,
    size: usize,
    alignment: usize,
    count: usize,
    caller: Caller,
) {
    // SAFETY: the contract of `Hooks::tell`, which this function asks for, is that of notification;
    // and `told` asks for an arena of an observer.
    unsafe {
        let Some(api) = u8::try_from(api).ok().and_then(Api::from_number) else { return };
        match (told(arena), api) {
            (Some(arena), _) => {
                notify::arena_allocated(arena, notify::ArenaCall { api, size, alignment, count }, block, caller);
            }
            _ if arena.is_null() => {}
            (None, Api::Calloc) => notify::calloc(block, count, size.checked_div(count).unwrap_or(0), caller),
            (None, Api::Memalign) => notify::aligned(api, block, alignment, size, caller),
            (None, _) => notify::malloc(block, size, caller),
        }
    }
}

/// # Safety
///
/// See [`notify_arena_allocated`].
unsafe extern "C" fn notify_arena_realloc_ends(
    arena: *const Arena,
    old: Pointer,
    block: Pointer,
    size: usize,
    caller: Caller,
) {
    // SAFETY: `told` and `notify::arena_realloc_ends` ask for what `notify_arena_allocated` does.
    unsafe {
        match told(arena) {
            Some(arena) => notify::arena_realloc_ends(arena, old, block, size, caller),
            None if arena.is_null() => {}
            None => notify::realloc_ends(old, block, size, caller),
        }
    }
}

/// # Safety
///
/// See [`notify_arena_allocated`].
unsafe extern "C" fn notify_arena_reallocarray_ends(
    arena: *const Arena,
    old: Pointer,
    block: Pointer,
    count: usize,
    each: usize,
    caller: Caller,
) {
    // SAFETY: `told` and `notify::arena_reallocarray_ends` ask for what `notify_arena_allocated`
    // does.
    unsafe {
        match told(arena) {
            Some(arena) => notify::arena_reallocarray_ends(arena, old, block, count, each, caller),
            None if arena.is_null() => {}
            None => notify::reallocarray_ends(old, block, count, each, caller),
        }
    }
}

/// # Safety
///
/// See [`notify_arena_allocated`].
unsafe extern "C" fn notify_arena_created(arena: *const Arena, caller: Caller) {
    // SAFETY: `told` and `notify::arena_created` ask for what `notify_arena_allocated` does.
    unsafe {
        if let Some(arena) = told(arena) {
            notify::arena_created(arena, caller);
        }
    }
}

/// # Safety
///
/// See [`notify_arena_allocated`].
unsafe extern "C" fn notify_arena_disposed(arena: *const Arena, caller: Caller) {
    // SAFETY: `told` and `notify::arena_disposed` ask for what `notify_arena_allocated` does.
    unsafe {
        if let Some(arena) = told(arena) {
            notify::arena_disposed(arena, caller);
        }
    }
}

/// # Safety
///
/// The contract of [`Hooks::tell`]; `purge` is null or points to as many bytes as it says.
unsafe extern "C" fn notify_purged(purge: *const Purge) {
    // SAFETY: the first word is read before the size is known; then the structure is whole, by this
    // function's `# Safety`. `notify::purged` asks for the contract of notification, which
    // `Hooks::tell` asks for.
    unsafe {
        if !purge.is_null() && purge.is_aligned() && (*purge).size as usize >= size_of::<Purge>() {
            notify::purged(&*purge);
        }
    }
}
