//! The tables of a replacement.

use core::ffi::{c_char, c_int, c_void};
use core::mem::offset_of;
use core::ptr;

use super::arena::{BinStatistics, LightStatistics, PointerInfo, Statistics};
use super::{Pointer, VERSION};

/// The functions of the malloc family with their C signatures, and functions for arenas.
///
/// A table that is handed out has all of them. A table inside a [`Replacement`] has those that it
/// replaces. An arena is identified by a number that is not 0.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Functions {
    /// Bytes of this table.
    pub size: u32,
    /// [`VERSION`].
    pub version: u32,
    /// `malloc(size)`.
    pub malloc: Option<unsafe extern "C" fn(usize) -> Pointer>,
    /// `calloc(count, each)`.
    pub calloc: Option<unsafe extern "C" fn(usize, usize) -> Pointer>,
    /// `realloc(old, size)`; `reallocarray` calls it with the product.
    pub realloc: Option<unsafe extern "C" fn(Pointer, usize) -> Pointer>,
    /// `free(block)`; `cfree`, `free_sized` and `free_aligned_sized` call it. Never called with
    /// null.
    pub free: Option<unsafe extern "C" fn(Pointer)>,
    /// `memalign(alignment, size)`.
    pub memalign: Option<unsafe extern "C" fn(usize, usize) -> Pointer>,
    /// `posix_memalign(out, alignment, size)`.
    pub posix_memalign: Option<unsafe extern "C" fn(*mut Pointer, usize, usize) -> c_int>,
    /// `aligned_alloc(alignment, size)`.
    pub aligned_alloc: Option<unsafe extern "C" fn(usize, usize) -> Pointer>,
    /// `valloc(size)`.
    pub valloc: Option<unsafe extern "C" fn(usize) -> Pointer>,
    /// `pvalloc(size)`.
    pub pvalloc: Option<unsafe extern "C" fn(usize) -> Pointer>,
    /// `malloc_usable_size(block)`.
    pub malloc_usable_size: Option<unsafe extern "C" fn(Pointer) -> usize>,
    /// `malloc_good_size(size)`: the usable size of a block of that size. If no allocator has this
    /// function, the usable size of a new block of the program's own allocator; above 64 KiB,
    /// `size`.
    pub malloc_good_size: Option<unsafe extern "C" fn(usize) -> usize>,
    /// `create_arena(parameters)`: the arena's number, 0 if it failed. The parameters are defined
    /// by the allocator, or null.
    pub create_arena: Option<unsafe extern "C" fn(*const c_void) -> usize>,
    /// `dispose_arena(arena)`.
    pub dispose_arena: Option<unsafe extern "C" fn(usize)>,
    /// `arena_malloc(arena, size)`.
    pub arena_malloc: Option<unsafe extern "C" fn(usize, usize) -> Pointer>,
    /// `arena_calloc(arena, count, each)`.
    pub arena_calloc: Option<unsafe extern "C" fn(usize, usize, usize) -> Pointer>,
    /// `arena_realloc(arena, old, size)`.
    pub arena_realloc: Option<unsafe extern "C" fn(usize, Pointer, usize) -> Pointer>,
    /// `arena_free(arena, block)`.
    pub arena_free: Option<unsafe extern "C" fn(usize, Pointer)>,
    /// `arena_memalign(arena, alignment, size)`.
    pub arena_memalign: Option<unsafe extern "C" fn(usize, usize, usize) -> Pointer>,
    /// `arena_of(block)`: the arena of a live block, by its first address; 0 if it is in none that
    /// has a number. If no allocator has this function: 0.
    pub arena_of: Option<unsafe extern "C" fn(Pointer) -> usize>,
    /// `statistics(total, bins)`: fills in the totals, and, if `bins` is not null, one entry for
    /// each of [`Functions::statistics_bins`]. If no allocator has this function: totals of 0.
    pub statistics: Option<unsafe extern "C" fn(*mut Statistics, *mut BinStatistics)>,
    /// `statistics_bins()`: the number of bins. If no allocator has this function: 0.
    pub statistics_bins: Option<unsafe extern "C" fn() -> usize>,
    /// `statistics_light(total)`. If no allocator has this function: 0.
    pub statistics_light: Option<unsafe extern "C" fn(*mut LightStatistics)>,
    /// `pointer_info(address, info)`: the block around an address. If no allocator has this
    /// function: [unknown](super::arena::pointer::UNKNOWN).
    pub pointer_info: Option<unsafe extern "C" fn(*const c_void, *mut PointerInfo)>,
    /// `purge_all()`: gives all unused pages back; returns their bytes, or 0 if it is not known. If
    /// no allocator has this function: 0.
    pub purge_all: Option<unsafe extern "C" fn() -> usize>,
    /// `purge_excess()`: gives unused pages back that exceed the limits; returns their bytes, or 0
    /// if it is not known. If no allocator has this function: 0.
    pub purge_excess: Option<unsafe extern "C" fn() -> usize>,
    /// `set_dirty_modifier(shift)`: shifts the limits of unused pages to the left, or, if negative,
    /// to the right. If no allocator has this function: nothing.
    pub set_dirty_modifier: Option<unsafe extern "C" fn(i32)>,
    /// `enable_deferred_purge(on)`: says if arenas over their limits wait for `purge_now`; returns
    /// the former setting. If no allocator has this function: false, and purges are not deferred.
    pub enable_deferred_purge: Option<unsafe extern "C" fn(bool) -> bool>,
    /// `purge_now(peek_only, reuse_grace_ms, budget)`: purges arenas that wait, whose pages have
    /// not been reused for so long, up to a number of bytes; with `peek_only` none. One of
    /// [`purge_now`](super::arena::purge_now). If no allocator has this function: done.
    pub purge_now: Option<unsafe extern "C" fn(bool, u32, usize) -> c_int>,
    /// `thread_local_arena(on)`: gives the calling thread an arena of its own, or the common one
    /// again. If no allocator has this function: nothing.
    pub thread_local_arena: Option<unsafe extern "C" fn(bool)>,
    /// `reset_randomisation(on)`: says if the places of small blocks are random, and draws new
    /// random numbers for them. If no allocator has this function: nothing.
    pub reset_randomisation: Option<unsafe extern "C" fn(bool)>,
}

impl Functions {
    /// A table without functions.
    pub const EMPTY: Functions = Functions {
        size: size_of::<Functions>() as u32,
        version: VERSION,
        malloc: None,
        calloc: None,
        realloc: None,
        free: None,
        memalign: None,
        posix_memalign: None,
        aligned_alloc: None,
        valloc: None,
        pvalloc: None,
        malloc_usable_size: None,
        malloc_good_size: None,
        create_arena: None,
        dispose_arena: None,
        arena_malloc: None,
        arena_calloc: None,
        arena_realloc: None,
        arena_free: None,
        arena_memalign: None,
        arena_of: None,
        statistics: None,
        statistics_bins: None,
        statistics_light: None,
        pointer_info: None,
        purge_all: None,
        purge_excess: None,
        set_dirty_modifier: None,
        enable_deferred_purge: None,
        purge_now: None,
        thread_local_arena: None,
        reset_randomisation: None,
    };

    /// True if this table has at least one arena function.
    pub(super) fn has_arenas(&self) -> bool {
        self.create_arena.is_some()
            || self.dispose_arena.is_some()
            || self.arena_malloc.is_some()
            || self.arena_calloc.is_some()
            || self.arena_realloc.is_some()
            || self.arena_free.is_some()
            || self.arena_memalign.is_some()
    }
}

/// An allocator, or a layer over one, that replaces the program's.
///
/// Functions that it leaves out go to the next table, with these exceptions:
/// - `posix_memalign`, `aligned_alloc`, `valloc` and `pvalloc` are derived from `memalign`, if it
///   has that;
/// - if it has `malloc`, no `owns`, and none of the arena functions, these become dummies over its
///   plain ones: every arena is number 1, and is the heap. With `owns` it is a layer: the arenas
///   are those of the allocator below it, and it does not see their blocks.
///
/// # Contract of the functions
///
/// They behave towards the program as the C functions of these names do; the program sees their
/// results and `errno`. They may be called in any thread, also before `main`, and do not unwind.
/// They call the malloc family only through the next table.
///
/// A replacement is passed blocks that others allocated: before it was installed, or since, by
/// functions that it leaves out. There are two ways to handle these. If it has `owns`, then its
/// `free`, `realloc` and `malloc_usable_size`, which it must have, are called only for blocks that
/// it owns, and for these even after it was removed; never for null: `realloc(NULL, size)` comes as
/// `malloc(size)`.
///
/// If it has no `owns`, these functions are called for all blocks while it is installed and for
/// none after that, `realloc` and `malloc_usable_size` for null too; it must pass blocks of others
/// on to the next table unchanged.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Replacement {
    /// Bytes of this table.
    pub size: u32,
    /// [`VERSION`].
    pub version: u32,
    /// The position among the replacements: the smallest number is nearest to the program.
    pub order: i32,
    /// 0.
    pub reserved: u32,
    /// A name for display: a string that stays valid for ever, or null.
    pub name: *const c_char,
    /// The variable that receives the address of the next table, before the first call. That table
    /// is complete, stays valid for ever, and always leads to the next replacement that is
    /// installed at the time of a call, or to the program's allocator.
    pub below: *mut *const Functions,
    /// Returns non-zero if a block, which is not null, is this allocator's. It may take a lock that
    /// nobody holds while waiting or calling other code, and does not call the malloc family.
    pub owns: Option<unsafe extern "C" fn(Pointer) -> c_int>,
    /// The functions that it replaces.
    pub functions: Functions,
}

// SAFETY: the table is not written once it is shared; its functions may be called in any thread, by
// its contract, and `below` is written by `install_replacement` alone, before.
unsafe impl Sync for Replacement {}
// SAFETY: a table owns nothing. Its functions may be called in any thread, by its contract, `name`
// is null or a string that stays valid for ever, and `below` is only written by
// `install_replacement`.
unsafe impl Send for Replacement {}

impl Replacement {
    /// The minimum size of a table: up to and including `functions.malloc`.
    const SIZE_MIN: usize = offset_of!(Replacement, functions) + offset_of!(Functions, calloc);

    /// Returns a table that replaces nothing, of order 0. `below` is the variable that receives the
    /// address of the next table.
    pub const fn new(below: *mut *const Functions) -> Replacement {
        Replacement {
            size: size_of::<Replacement>() as u32,
            version: VERSION,
            order: 0,
            reserved: 0,
            name: ptr::null(),
            below,
            owns: None,
            functions: Functions::EMPTY,
        }
    }

    /// Copies a table; entries beyond its size are left out. `None` if the table is malformed.
    ///
    /// # Safety
    ///
    /// See [`install_replacement`](super::install_replacement).
    pub(super) unsafe fn read(table: *const Replacement) -> Option<Replacement> {
        let mut copy = Replacement::new(ptr::null_mut());
        // SAFETY: `read_table` asks for null or a table that begins with its size: the `# Safety`
        // of `install_replacement` says so. It also asks that prefixes are valid: they consist of
        // whole words, no field extends over the end of one, and the entries that follow are
        // `None`.
        unsafe { read_table(table, &mut copy, Replacement::SIZE_MIN) }?;
        let Functions { version, free, realloc, malloc_usable_size, .. } = copy.functions;
        let handles_own_blocks = free.is_some() && realloc.is_some() && malloc_usable_size.is_some();
        let is_well_formed = copy.version == VERSION
            && version == VERSION
            && copy.reserved == 0
            && !copy.below.is_null()
            && (copy.owns.is_none() || handles_own_blocks);
        is_well_formed.then_some(copy)
    }
}

/// Copies a table, whose first four bytes are its length, over an empty one, as far as both reach.
///
/// # Safety
///
/// `table` is null, or points to as many bytes as its first four say. Any prefix of a `T` that has
/// whole words, followed by the rest of `copy`'s present value, is a valid `T`.
pub(super) unsafe fn read_table<T: Copy>(table: *const T, copy: &mut T, size_min: usize) -> Option<()> {
    if table.is_null() || !table.is_aligned() {
        return None;
    }
    // SAFETY: not null, aligned, and by the caller's contract the table begins with its length.
    let size = unsafe { table.cast::<u32>().read() } as usize;
    if size < size_min || !size.is_multiple_of(size_of::<usize>()) {
        return None;
    }
    // SAFETY: both have that many bytes, which are whole words, and `copy` is the caller's
    // exclusive variable, so they do not overlap. The result is a valid `T`: the `# Safety` section
    // demands it.
    unsafe {
        ptr::copy_nonoverlapping(table.cast::<u8>(), ptr::from_mut(copy).cast::<u8>(), size.min(size_of::<T>()));
    }
    Some(())
}
