//! The tables of a replacement.

use core::ffi::{c_char, c_int, c_void};
use core::mem::offset_of;
use core::ptr;

use super::{Pointer, VERSION};

/// The malloc family as functions, as C has them, and those for arenas.
///
/// A table that is handed out has them all. One that a [`Replacement`] brings has what it replaces. An arena is known by
/// a number that is not 0.
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
    /// `realloc(old, size)`; `reallocarray` is this, of the product.
    pub realloc: Option<unsafe extern "C" fn(Pointer, usize) -> Pointer>,
    /// `free(block)`; `cfree`, `free_sized` and `free_aligned_sized` are this. Null is not passed on to it.
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
    /// `malloc_good_size(size)`: the usable size of a block of that size. If no allocator gives this function, that of a new
    /// block of the program's own allocator; above 64 KiB, `size`.
    pub malloc_good_size: Option<unsafe extern "C" fn(usize) -> usize>,
    /// `create_arena(parameters)`: its number, 0 when it failed. The parameters are the allocator's, or null.
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
    };

    /// Whether the arena functions are those of this table, all or in part.
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

/// An allocator, or a layer over one, in the place of the program's.
///
/// What it leaves out goes to the table below it, with these exceptions:
/// - `posix_memalign`, `aligned_alloc`, `valloc` and `pvalloc` derive from `memalign`, if it gives that;
/// - if it gives `malloc` and none of the arena functions, these become dummies over its plain ones: every arena is
///   number 1, and is the heap.
///
/// # Contract of the functions
///
/// Those of the C functions of these names, towards the program, which sees their results and `errno`. They may be called
/// in any thread, also before `main`, and do not unwind. They do not call the malloc family but through the table below.
///
/// A replacement is given blocks that others allocated: before it was installed, or since, by functions that it leaves
/// out. Either it gives `owns`: then it gets `free`, `realloc` and `malloc_usable_size`, which it must give, only of
/// blocks that it owns, and of these also when it has been removed; never of null: `realloc(NULL, size)` comes as
/// `malloc(size)`. Or it does not: then it gets all of them while it is installed and none after that, `realloc` and
/// `malloc_usable_size` of null too, and passes them on to the table below as they are.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Replacement {
    /// Bytes of this table.
    pub size: u32,
    /// [`VERSION`].
    pub version: u32,
    /// The place among the replacements: the smallest number is nearest to the program.
    pub order: i32,
    /// 0.
    pub reserved: u32,
    /// A name for people: a string that stays, or null.
    pub name: *const c_char,
    /// Where to put the address of the table below, before the first call. That table is complete, stays valid for ever,
    /// and always leads to the next replacement that is installed at the time of a call, or to the program's allocator.
    pub below: *mut *const Functions,
    /// Whether a block, which is not null, is this allocator's. Never waits.
    pub owns: Option<unsafe extern "C" fn(Pointer) -> c_int>,
    /// What it replaces.
    pub functions: Functions,
}

// SAFETY: the table is not written once it is shared; its functions may be called in any thread, by its contract, and
// `below` is written by `install_replacement` alone, before.
unsafe impl Sync for Replacement {}
// SAFETY: as above.
unsafe impl Send for Replacement {}

impl Replacement {
    /// The least that a table must have: up to `functions.malloc`.
    const SIZE_MIN: usize = offset_of!(Replacement, functions) + offset_of!(Functions, calloc);

    /// A table that replaces nothing, of order 0. `below` is the variable for the table below.
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

    /// A copy of a table, with what it does not reach left out. `None`: it is malformed.
    ///
    /// # Safety
    ///
    /// See [`install_replacement`](super::install_replacement).
    pub(super) unsafe fn read(table: *const Replacement) -> Option<Replacement> {
        let mut copy = Replacement::new(ptr::null_mut());
        // SAFETY: by the caller's contract null, or a table that begins with `size` and has as many bytes.
        unsafe { read_table(table, &mut copy, Replacement::SIZE_MIN) }?;
        let Functions { version, free, realloc, malloc_usable_size, .. } = copy.functions;
        let serves_its_own = free.is_some() && realloc.is_some() && malloc_usable_size.is_some();
        let is_well_formed = copy.version == VERSION
            && version == VERSION
            && copy.reserved == 0
            && !copy.below.is_null()
            && (copy.owns.is_none() || serves_its_own);
        is_well_formed.then_some(copy)
    }
}

/// Copies a table that says its length in its first four bytes over one that is empty, as far as both reach.
///
/// # Safety
///
/// `table` is null, or points to as many bytes as its first four say. Any prefix of a `T`, followed by the rest of what
/// `copy` is, is a valid `T`.
pub(super) unsafe fn read_table<T: Copy>(table: *const T, copy: &mut T, size_min: usize) -> Option<()> {
    if table.is_null() || !table.is_aligned() {
        return None;
    }
    // SAFETY: not null, aligned, and by the caller's contract the table begins with its length.
    let size = unsafe { table.cast::<u32>().read() } as usize;
    if size < size_min || !size.is_multiple_of(size_of::<usize>()) {
        return None;
    }
    // SAFETY: both have so many bytes, and `copy` is a variable of our caller's, which nothing else refers to.
    unsafe {
        ptr::copy_nonoverlapping(table.cast::<u8>(), ptr::from_mut(copy).cast::<u8>(), size.min(size_of::<T>()));
    }
    Some(())
}
