//! The functions for arenas, as `include/heapledger/arena.h` declares them: makes the calls, and
//! notifies the observers of the arena with each block.
//!
//! An arena that the allocator has created is entered in the [table] of arenas here, since only its
//! label is needed of it; one over malloc is entered where it is created. A number that is not in
//! the table is that of the dummy arena of a replacement without arenas: its blocks are plain ones.
//!
//! An arena over malloc calls it, and that may be a redirected one: calls inside of these functions
//! are nested, as they are in the malloc functions.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, Ordering};

use heapledger_arenas::parameters::Settings;
use heapledger_arenas::table;
use heapledger_core::Api;
use heapledger_core::hooks::arena::{BinStatistics, LightStatistics, PointerInfo, Statistics};
use heapledger_core::hooks::notify::{self, ArenaCall};
use heapledger_core::hooks::{Arena, Pointer};
use heapledger_redirect::nesting;

use crate::calls::{Origin, Program, call, caller, failed};

/// True if the allocator's arenas have parameters of another layout.
static HAS_FOREIGN_PARAMETERS: AtomicBool = AtomicBool::new(false);

/// Makes `heapledger_arena_create` fail from now on: the parameters of the allocator's arenas have
/// another layout, in which it would misread these. Blocks of its arenas go through the other
/// functions as they did.
pub fn refuse_new_arenas() {
    HAS_FOREIGN_PARAMETERS.store(true, Ordering::Relaxed);
}

/// Returns the arena with this number; `None` for a dummy.
fn arena_with(id: usize) -> Option<&'static Arena> {
    table::find(id as u64).and_then(table::Entry::arena)
}

pub(crate) extern "C" fn create_from(parameters: *const c_void, sp: u64, rbp: u64) -> usize {
    if HAS_FOREIGN_PARAMETERS.load(Ordering::Relaxed) {
        return 0;
    }
    let outermost = nesting::begin(sp, rbp);
    let id = call!(Program, create_arena(parameters));
    if arena_with(id).is_none() {
        // SAFETY: `Settings::read` asks for the parameters of `heapledger_arena_create`, which the
        // program has passed.
        let settings = unsafe { Settings::read(parameters) };
        table::insert(id as u64, settings.label(), settings.flags);
    }
    if let (Some(arena), Some(_)) = (arena_with(id), &outermost) {
        // SAFETY: `notify::arena_created` requires the live calling frame of this thread. `sp` and
        // `rbp` are a *passed frame*: only the thunk `heapledger_arena_create` leads here.
        unsafe { notify::arena_created(arena, caller(sp, rbp)) };
    }
    id
}

pub(crate) extern "C" fn dispose_from(id: usize, sp: u64, rbp: u64) {
    let outermost = nesting::begin(sp, rbp);
    if let (Some(arena), Some(_)) = (arena_with(id), &outermost) {
        // SAFETY: `notify::arena_disposed` requires the live calling frame of this thread. `sp` and
        // `rbp` are a *passed frame*: only the thunk `heapledger_arena_dispose` leads here.
        unsafe { notify::arena_disposed(arena, caller(sp, rbp)) };
    }
    call!(Program, dispose_arena(id));
    table::remove(id as u64);
}

pub(crate) extern "C" fn malloc_from(id: usize, size: usize, sp: u64, rbp: u64) -> Pointer {
    let Some(_outermost) = nesting::begin(sp, rbp) else { return call!(Program, arena_malloc(id, size)) };
    let block = call!(Program, arena_malloc(id, size));
    let made = ArenaCall { api: Api::Malloc, size, alignment: 0, count: 0 };
    // SAFETY: `allocated` requires a *passed frame*: only the thunk `heapledger_arena_malloc` leads
    // here.
    unsafe { allocated(id, made, block, sp, rbp) }
}

pub(crate) extern "C" fn calloc_from(id: usize, count: usize, each: usize, sp: u64, rbp: u64) -> Pointer {
    let Some(_outermost) = nesting::begin(sp, rbp) else { return call!(Program, arena_calloc(id, count, each)) };
    let block = call!(Program, arena_calloc(id, count, each));
    let made = ArenaCall { api: Api::Calloc, size: count.saturating_mul(each), alignment: 0, count };
    // SAFETY: `allocated` requires a *passed frame*: only the thunk `heapledger_arena_calloc` leads
    // here.
    unsafe { allocated(id, made, block, sp, rbp) }
}

pub(crate) extern "C" fn memalign_from(id: usize, alignment: usize, size: usize, sp: u64, rbp: u64) -> Pointer {
    let Some(_outermost) = nesting::begin(sp, rbp) else { return call!(Program, arena_memalign(id, alignment, size)) };
    let block = call!(Program, arena_memalign(id, alignment, size));
    let made = ArenaCall { api: Api::Memalign, size, alignment, count: 0 };
    // SAFETY: `allocated` requires a *passed frame*: only the thunk `heapledger_arena_memalign`
    // leads here.
    unsafe { allocated(id, made, block, sp, rbp) }
}

/// Notifies that a function for arenas has returned a block, or none. Returns it.
///
/// # Safety
///
/// `sp` and `rbp` are a *passed frame* (see [`calls`](crate::calls)).
unsafe fn allocated(id: usize, made: ArenaCall, block: Pointer, sp: u64, rbp: u64) -> Pointer {
    let ArenaCall { api, size, alignment, count } = made;
    if block.is_null() {
        return failed(api, size, alignment, count, sp, rbp);
    }
    let caller = caller(sp, rbp);
    // SAFETY: all of these require the live calling frame of this thread, as this function's
    // `# Safety` does. The call has returned the block.
    unsafe {
        match (arena_with(id), api) {
            (Some(arena), _) => notify::arena_allocated(arena, made, block, caller),
            (None, Api::Calloc) => {
                notify::calloc(block, count, size.checked_div(count).unwrap_or(0), caller);
            }
            (None, Api::Memalign) => notify::aligned(api, block, alignment, size, caller),
            (None, _) => notify::malloc(block, size, caller),
        }
    }
    block
}

pub(crate) extern "C" fn realloc_from(id: usize, old: Pointer, size: usize, sp: u64, rbp: u64) -> Pointer {
    let Some(_outermost) = nesting::begin(sp, rbp) else { return call!(Program, arena_realloc(id, old, size)) };
    if old.is_null() {
        let block = call!(Program, arena_realloc(id, old, size));
        let made = ArenaCall { api: Api::Realloc, size, alignment: 0, count: 0 };
        // SAFETY: `allocated` requires a *passed frame*: only the thunk `heapledger_arena_realloc`
        // leads here.
        return unsafe { allocated(id, made, block, sp, rbp) };
    }
    let caller = caller(sp, rbp);
    // SAFETY: `notify::realloc_begins` requires the live calling frame of this thread. `sp` and
    // `rbp` are a *passed frame*: only the thunk `heapledger_arena_realloc` leads here.
    unsafe { notify::realloc_begins(Api::Realloc, old, caller) };
    let block = call!(Program, arena_realloc(id, old, size));
    // SAFETY: both require the live calling frame of this thread, which is as above: the thunk's
    // caller has yet to be returned to.
    unsafe {
        match arena_with(id) {
            Some(arena) => notify::arena_realloc_ends(arena, old, block, size, caller),
            None => notify::realloc_ends(old, block, size, caller),
        }
    }
    block
}

pub(crate) extern "C" fn free_from(id: usize, block: Pointer, sp: u64, rbp: u64) {
    if !block.is_null() {
        let Some(_outermost) = nesting::begin(sp, rbp) else { return call!(Program, arena_free(id, block)) };
        // SAFETY: `notify::free` requires the live calling frame of this thread. `sp` and `rbp` are
        // a *passed frame*: only the thunk `heapledger_arena_free` leads here.
        unsafe { notify::free(block, caller(sp, rbp)) };
        call!(Program, arena_free(id, block));
    }
}

/// Defines exported functions that make a call through the hook table, of which no observer is
/// notified.
macro_rules! unobserved {
    ($($(#[$doc:meta])* $exported:ident: $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            ///
            /// The contract of the C function.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $exported($($argument: $type),*) -> $result {
                call!(Program, $name($($argument),*))
            }
        )*
    };
}

unobserved! {
    /// Gives all unused pages back to the system. Returns their bytes.
    heapledger_purge_all: purge_all() -> usize;
    /// Gives unused pages back to the system that exceed the limits. Returns their bytes.
    heapledger_purge_excess: purge_excess() -> usize;
    /// Shifts the limits of unused pages.
    heapledger_set_dirty_modifier: set_dirty_modifier(shift: i32) -> ();
    /// Gives the calling thread an arena of its own for the malloc functions, or the common one.
    heapledger_thread_local_arena: thread_local_arena(is_on: bool) -> ();
    /// Says if arenas over their limits wait for `heapledger_purge_now`.
    heapledger_enable_deferred_purge: enable_deferred_purge(is_on: bool) -> bool;
    /// Purges arenas that wait.
    heapledger_purge_now: purge_now(is_peek_only: bool, reuse_grace_milliseconds: u32, budget: usize) -> c_int;
}

/// The arena of a block; 0 if it is in none.
///
/// # Safety
///
/// The contract of the C function: `block` is null or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heapledger_arena_of(block: Pointer) -> usize {
    if block.is_null() { 0 } else { call!(Program, arena_of(block)) }
}

/// Defines functions of the table that are not exported by name.
macro_rules! unnamed {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        $(pub(crate) unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            call!(Program, $name($($argument),*))
        })*
    };
}

unnamed! {
    statistics(total: *mut Statistics, bins: *mut BinStatistics) -> ();
    statistics_bins() -> usize;
    statistics_light(total: *mut LightStatistics) -> ();
    pointer_info(address: *const c_void, info: *mut PointerInfo) -> ();
    reset_randomisation(is_on: bool) -> ();
}
