//! Makes the calls: through the replacements that are installed, down to the program's own
//! allocator.
//!
//! [`functions`] is the table that the malloc family calls: the allocator's own functions while
//! there is no replacement, otherwise functions that find the uppermost replacement at each call.
//! The table that a replacement calls next consists of such functions too; their search begins
//! after that replacement.

mod chain;

use core::cell::UnsafeCell;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use super::{Functions, Pointer};
use chain::TABLES;

/// A table that is written once, by [`set_underlying`], before its address is published.
#[derive(Debug)]
#[repr(transparent)]
pub struct Once(UnsafeCell<Functions>);
// SAFETY: written only by `set_underlying`, before its address is published; replacements, which
// lead to these tables, are installed after that.
unsafe impl Sync for Once {}

/// The program's own allocator, with the functions that it was given.
static UNDERLYING_AS_GIVEN: Once = Once(UnsafeCell::new(Functions::EMPTY));
/// The program's own allocator with all functions, missing ones derived: after all replacements,
/// and unobserved. Empty before [`set_underlying`].
pub static UNDERLYING: Once = Once(UnsafeCell::new(Functions::EMPTY));
/// The table that the program's calls go to; null until there is an allocator.
static CURRENT: AtomicPtr<Functions> = AtomicPtr::new(ptr::null_mut());

/// Sets the program's own allocator. Functions that it leaves out are derived from those that it
/// has, as for a [`Replacement`](super::Replacement), or fail.
///
/// # Safety
///
/// Called once, by one thread. The functions are those of one allocator; `malloc`, `calloc`,
/// `realloc` and `free` are not `None`.
pub unsafe fn set_underlying(functions: Functions) {
    let derived = &TABLES[chain::UNDERLYING];
    let complete = Functions {
        memalign: functions.memalign.or(derived.memalign),
        posix_memalign: functions.posix_memalign.or(derived.posix_memalign),
        aligned_alloc: functions.aligned_alloc.or(derived.aligned_alloc),
        valloc: functions.valloc.or(derived.valloc),
        pvalloc: functions.pvalloc.or(derived.pvalloc),
        malloc_usable_size: functions.malloc_usable_size.or(derived.malloc_usable_size),
        malloc_good_size: functions.malloc_good_size.or(derived.malloc_good_size),
        create_arena: functions.create_arena.or(derived.create_arena),
        dispose_arena: functions.dispose_arena.or(derived.dispose_arena),
        arena_malloc: functions.arena_malloc.or(derived.arena_malloc),
        arena_calloc: functions.arena_calloc.or(derived.arena_calloc),
        arena_realloc: functions.arena_realloc.or(derived.arena_realloc),
        arena_free: functions.arena_free.or(derived.arena_free),
        arena_memalign: functions.arena_memalign.or(derived.arena_memalign),
        arena_of: functions.arena_of.or(derived.arena_of),
        statistics: functions.statistics.or(derived.statistics),
        statistics_bins: functions.statistics_bins.or(derived.statistics_bins),
        statistics_light: functions.statistics_light.or(derived.statistics_light),
        pointer_info: functions.pointer_info.or(derived.pointer_info),
        purge_all: functions.purge_all.or(derived.purge_all),
        purge_excess: functions.purge_excess.or(derived.purge_excess),
        set_dirty_modifier: functions.set_dirty_modifier.or(derived.set_dirty_modifier),
        enable_deferred_purge: functions.enable_deferred_purge.or(derived.enable_deferred_purge),
        purge_now: functions.purge_now.or(derived.purge_now),
        thread_local_arena: functions.thread_local_arena.or(derived.thread_local_arena),
        reset_randomisation: functions.reset_randomisation.or(derived.reset_randomisation),
        ..functions
    };
    // SAFETY: by the caller's contract nobody else writes them, and nobody reads them before they
    // are published below.
    unsafe {
        UNDERLYING_AS_GIVEN.0.get().write(functions);
        UNDERLYING.0.get().write(complete);
    }
    CURRENT.store(UNDERLYING.0.get(), Ordering::Release);
}

/// True if there is an allocator.
pub fn has_underlying() -> bool {
    functions().is_some()
}

/// Returns the table that the program's calls go to now; `None` before [`set_underlying`]. It has
/// all functions.
#[inline(always)]
pub fn functions() -> Option<&'static Functions> {
    // SAFETY: null, or one of the tables here, which are static and written before their address is
    // stored.
    unsafe { CURRENT.load(Ordering::Acquire).as_ref() }
}

/// Returns the program's own allocator: after all replacements, and unobserved. It has all
/// functions after [`set_underlying`].
pub const fn underlying_table() -> *const Functions {
    UNDERLYING.0.get()
}

/// Returns the usable size of a block, as the program would be told.
///
/// # Safety
///
/// The block is live, and a function of the table that [`functions`] returns has allocated it; or
/// there is no such table yet.
pub(super) unsafe fn usable_size(block: Pointer) -> usize {
    let function = functions().and_then(|functions| functions.malloc_usable_size);
    // SAFETY: `malloc_usable_size` asks for a live block of the malloc family. This function's
    // `# Safety` asks for the same.
    function.map_or(0, |function| unsafe { function(block) })
}

/// Returns the table that the replacement in a slot calls next.
pub(super) fn next_table(slot: usize) -> *const Functions {
    TABLES.get(slot).map_or(ptr::null(), ptr::from_ref)
}

/// Leads the program's calls to the replacements, or past them when there is none.
pub(super) fn select(has_replacements: bool) {
    if !has_underlying() {
        return;
    }
    let current = if has_replacements { ptr::from_ref(&TABLES[chain::TOP]).cast_mut() } else { UNDERLYING.0.get() };
    CURRENT.store(current, Ordering::Release);
}

/// Returns the program's own allocator, with the functions that it was given. Only after
/// [`set_underlying`].
fn underlying_as_given() -> &'static Functions {
    // SAFETY: written once, before anything that leads to this function was published.
    unsafe { &*UNDERLYING_AS_GIVEN.0.get() }
}
