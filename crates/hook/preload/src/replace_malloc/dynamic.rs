//! A library that the program brings at run time: `jemalloc_replace_dynamic` of the protocol.
//!
//! It becomes a replacement of its own, nearer to the program than the library that was loaded with
//! it. There is one, whose functions call those of the library that was brought last. So the number
//! of libraries that can be brought one after the other has no limit.
//!
//! The protocol demands that the tables before and after a change can free each other's blocks: a
//! call that has begun may still be on its way to the former functions.

use core::ffi::{c_int, c_void};

use heapledger_core::fatal::{self, Part::Text};
use heapledger_core::hooks::{self, Functions, HookError, Pointer, Replacement};
use heapledger_core::lock::Lock;

use super::{BELOW, CURRENT, DYNAMIC, ENTRIES, Init, OURS, Once, Table, bridge, replaced};

const EINVAL: c_int = 22;
const ENOMEM: c_int = 12;
const PAGE: usize = 4096;

/// The replacement. Written before it is installed for the first time.
static REPLACEMENT: Once<Replacement> = Once(core::cell::UnsafeCell::new(core::mem::MaybeUninit::uninit()));

/// Held while the functions are changed.
static LOCK: Lock = Lock::new();

/// `jemalloc_replace_dynamic` of the protocol: calls a function of the type of `replace_init`, and
/// installs the functions that it puts in the table, instead of those of the former call. With
/// null, calls take the way again that they took before the first call.
///
/// If the function leaves the table as it is, nothing changes. May be called in any thread; not in
/// a signal handler.
///
/// # Safety
///
/// `init` is null, or a `replace_init`, whose functions stay for ever and keep the protocol.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jemalloc_replace_dynamic(init: Option<Init>) {
    heapledger_interpose::initialise();
    let Some(init) = init else {
        let _guard = LOCK.lock();
        // An error says that there is none.
        _ = hooks::remove_replacement(REPLACEMENT.0.get().cast());
        return;
    };
    // SAFETY: by this function's `# Safety`, `init` is a `replace_init`, and the program calls it
    // now.
    let mut table = unsafe { bridge::ask(init, OURS[DYNAMIC]) };
    if replaced::<DYNAMIC>(&table).is_none() {
        return;
    }
    derive(&mut table);
    let _guard = LOCK.lock();
    // As the protocol has it, calls go past the former library while the table changes.
    _ = hooks::remove_replacement(REPLACEMENT.0.get().cast());
    ENTRIES.store(&table);
    // All of `CURRENT` differs from ours: the functions that the library leaves out are ours again,
    // by one more step.
    let functions = replaced::<DYNAMIC>(&CURRENT).unwrap_or(Functions::EMPTY);
    let replacement = Replacement {
        order: -1,
        name: c"jemalloc_replace_dynamic".as_ptr(),
        functions,
        // The variable holds a pointer to a table.
        ..Replacement::new(BELOW[DYNAMIC].as_ptr().cast())
    };
    // SAFETY: `Once` demands that nobody else reads or writes: the lock is held, and the registry
    // copies the table, in the call below. `install_replacement` requires functions that keep the
    // contract of `Replacement`: those of the library do as far as the protocol demands it, by this
    // function's `# Safety`; ours call nothing else, and `ENTRIES` was filled above.
    let installed = unsafe {
        let replacement = (*REPLACEMENT.0.get()).write(replacement);
        hooks::install_replacement(replacement)
    };
    if let Err(error) = installed {
        let why = match error {
            HookError::Full => "all replacements of this process are taken",
            _ => "this allocator cannot be replaced",
        };
        fatal::print(&[Text("jemalloc_replace_dynamic changed nothing: "), Text(why)]);
    }
}

/// Fills in functions that the library has left out, and that the protocol derives from those that
/// it has replaced.
fn derive(table: &mut Table) {
    let ours = &OURS[DYNAMIC];
    macro_rules! derive {
        ($($name:ident),*) => {
            $(if table.$name as usize == ours.$name as usize {
                table.$name = derived::$name;
            })*
        };
    }
    if table.memalign as usize != ours.memalign as usize {
        derive!(posix_memalign, aligned_alloc, valloc);
    }
    let replaces_malloc = table.malloc as usize != ours.malloc as usize;
    if replaces_malloc && table.moz_create_arena_with_params as usize == ours.moz_create_arena_with_params as usize {
        table.moz_create_arena_with_params = derived::moz_create_arena_with_params;
        table.moz_dispose_arena = derived::moz_dispose_arena;
        table.moz_arena_malloc = derived::moz_arena_malloc;
        table.moz_arena_calloc = derived::moz_arena_calloc;
        table.moz_arena_realloc = derived::moz_arena_realloc;
        table.moz_arena_free = derived::moz_arena_free;
        table.moz_arena_memalign = derived::moz_arena_memalign;
    }
}

/// Functions that are derived from others of the library: those of [`current`](super::current).
mod derived {
    use super::*;
    use crate::replace_malloc::current;

    /// The number of the dummy arena, which is the heap.
    const ONLY_ARENA: usize = 1;

    /// # Safety
    ///
    /// The contract of POSIX.
    pub(super) unsafe extern "C" fn posix_memalign(out: *mut Pointer, alignment: usize, size: usize) -> c_int {
        if !alignment.is_power_of_two() || !alignment.is_multiple_of(size_of::<usize>()) {
            return EINVAL;
        }
        // SAFETY: `current::memalign` requires a library, which has this function in its table.
        let block = unsafe { current::memalign(alignment, size) };
        if block.is_null() {
            return ENOMEM;
        }
        // SAFETY: POSIX requires that `out` is valid for writes.
        unsafe { out.write(block) };
        0
    }

    /// Defines functions that call another of the library's.
    macro_rules! plain {
        ($($name:ident($($argument:tt: $type:ty),*) -> $result:ty = $other:ident($($value:expr),*);)*) => {
            $(
                /// # Safety
                ///
                /// The contract of the function that it calls.
                pub(super) unsafe extern "C" fn $name($($argument: $type),*) -> $result {
                    // SAFETY: the function requires a library, which has this one in its table. The
                    // arguments are the caller's, by this function's `# Safety`.
                    unsafe { current::$other($($value),*) }
                }
            )*
        };
    }

    plain! {
        aligned_alloc(alignment: usize, size: usize) -> Pointer = memalign(alignment, size);
        valloc(size: usize) -> Pointer = memalign(PAGE, size);
        moz_arena_malloc(_: usize, size: usize) -> Pointer = malloc(size);
        moz_arena_calloc(_: usize, count: usize, each: usize) -> Pointer = calloc(count, each);
        moz_arena_realloc(_: usize, old: Pointer, size: usize) -> Pointer = realloc(old, size);
        moz_arena_free(_: usize, block: Pointer) -> () = free(block);
        moz_arena_memalign(_: usize, alignment: usize, size: usize) -> Pointer = memalign(alignment, size);
    }

    pub(super) unsafe extern "C" fn moz_create_arena_with_params(_: *const c_void) -> usize {
        ONLY_ARENA
    }

    pub(super) unsafe extern "C" fn moz_dispose_arena(_: usize) {}
}
