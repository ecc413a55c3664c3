//! The table of an observer.

use core::ffi::c_char;
use core::mem::offset_of;
use core::ptr;

use super::{Arena, Caller, Pointer, Purge, VERSION};

/// Functions that are notified of the calls of the malloc family: of an allocation after it has
/// succeeded, of a free before it happens, in the thread that makes the call.
///
/// `malloc` and `free` must be there. Others that are left out are derived as said at each. Sizes
/// and alignments are in bytes, as the program asked for them; an alignment of 0 means a page.
/// Entry points are numbers of [`Api`](crate::Api).
///
/// # Contract of the functions
///
/// They may be called at any moment, in any thread, also before `main`, in a signal handler, in a
/// thread that is ending, and by a signal while one of them runs. They return, do not unwind, keep
/// `errno`, and do not call the malloc family: memory of their own comes from the system, or from
/// the [`Functions`](super::Functions) below all hooks. The caller's frame is live until they
/// return. A hook that reads a block sees what the program wrote last; the content of a fresh block
/// is undefined.
///
/// The table is read when it is first installed, and may be shorter than it is here, if `size` says
/// so.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Observer {
    /// Bytes of this table.
    pub size: u32,
    /// [`VERSION`].
    pub version: u32,
    /// The position among the observers: smaller numbers are notified first. The recorder's is 0.
    pub order: i32,
    /// 0.
    pub reserved: u32,
    /// A name for display: a string that stays valid for ever, or null.
    pub name: *const c_char,
    /// `malloc(size)` returned `block`.
    pub malloc: Option<unsafe extern "C" fn(block: Pointer, size: usize, caller: Caller)>,
    /// `free(block)` is about to happen; `block` is never null.
    pub free: Option<unsafe extern "C" fn(block: Pointer, caller: Caller)>,
    /// `calloc(count, each)` returned `block`. If left out: `malloc` with the product.
    pub calloc: Option<unsafe extern "C" fn(block: Pointer, count: usize, each: usize, caller: Caller)>,
    /// `memalign`, `aligned_alloc`, `posix_memalign`, `valloc` or `pvalloc` returned `block`. If
    /// left out: `malloc`.
    pub aligned: Option<unsafe extern "C" fn(api: u32, block: Pointer, alignment: usize, size: usize, caller: Caller)>,
    /// `cfree`, `free_sized` or `free_aligned_sized` is about to happen. If left out: `free`.
    pub free_sized:
        Option<unsafe extern "C" fn(api: u32, block: Pointer, size: usize, alignment: usize, caller: Caller)>,
    /// `realloc` or `reallocarray` of `old`, which is not null, is about to happen: another thread
    /// may be given the old block before the call returns. The end of the call follows in the same
    /// thread. If left out: `free`.
    pub realloc_begins: Option<unsafe extern "C" fn(api: u32, old: Pointer, caller: Caller)>,
    /// `realloc(old, size)` has returned `block`. With `old` null it was an allocation, and there
    /// was no `realloc_begins`. With `block` null and a `size` of 0 it was a free. With `block`
    /// null and another size it failed, and `old`, if not null, lives on. If left out: `malloc` for
    /// the new block; after a failure `malloc` for the old one, with its usable size.
    pub realloc_ends: Option<unsafe extern "C" fn(old: Pointer, block: Pointer, size: usize, caller: Caller)>,
    /// `reallocarray(old, count, each)` has returned `block`. If left out: as `realloc` with the
    /// product.
    pub reallocarray_ends:
        Option<unsafe extern "C" fn(old: Pointer, block: Pointer, count: usize, each: usize, caller: Caller)>,
    /// A call failed to return a block; its arguments follow, 0 for those that it does not have.
    /// Not for the reallocation of a block, whose failure `realloc_ends` reports. If left out: not
    /// notified.
    pub failed: Option<unsafe extern "C" fn(api: u32, size: usize, alignment: usize, count: usize, caller: Caller)>,
    /// A function for arenas returned `block`, which is in `arena`. `api` is that of the plain
    /// function, and the arguments that it does not have are 0. If left out: `malloc`, `calloc` or
    /// `aligned`. Blocks of arenas are freed and reallocated as all others are.
    pub arena_allocated: Option<ArenaAllocated>,
    /// Does the same as `realloc_ends` for a block that stays in its arena, by whatever function it
    /// was reallocated. If left out: `realloc_ends`.
    pub arena_realloc_ends:
        Option<unsafe extern "C" fn(arena: *const Arena, old: Pointer, block: Pointer, size: usize, caller: Caller)>,
    /// An arena has been created. If left out: not notified.
    pub arena_created: Option<unsafe extern "C" fn(arena: *const Arena, caller: Caller)>,
    /// An arena is about to be disposed of. If left out: not notified.
    pub arena_disposed: Option<unsafe extern "C" fn(arena: *const Arena, caller: Caller)>,
    /// The allocator has given pages back to the system, in the thread that calls this. If left
    /// out: not notified.
    pub purged: Option<unsafe extern "C" fn(purge: *const Purge)>,
    /// Does the same as `reallocarray_ends` for a block that stays in its arena. If left out:
    /// `arena_realloc_ends` with the product, or, without that, `reallocarray_ends`.
    pub arena_reallocarray_ends: Option<ArenaReallocarrayEnds>,
}

/// See [`Observer::arena_reallocarray_ends`].
pub type ArenaReallocarrayEnds =
    unsafe extern "C" fn(arena: *const Arena, old: Pointer, block: Pointer, count: usize, each: usize, caller: Caller);

/// See [`Observer::arena_allocated`].
pub type ArenaAllocated = unsafe extern "C" fn(
    arena: *const Arena,
    api: u32,
    block: Pointer,
    size: usize,
    alignment: usize,
    count: usize,
    caller: Caller,
);

// SAFETY: the table is not written once it is shared; its functions may be called in any thread, by
// its contract.
unsafe impl Sync for Observer {}
// SAFETY: a table owns nothing. Its functions may be called in any thread, by its contract, and
// `name` is null or a string that stays valid for ever.
unsafe impl Send for Observer {}

impl Observer {
    /// The minimum size of a table: up to and including `free`.
    const SIZE_MIN: usize = offset_of!(Observer, calloc);

    /// Returns a table with the two functions that it must have, of order 0.
    pub const fn new(
        malloc: unsafe extern "C" fn(block: Pointer, size: usize, caller: Caller),
        free: unsafe extern "C" fn(block: Pointer, caller: Caller),
    ) -> Observer {
        Observer { malloc: Some(malloc), free: Some(free), ..Observer::EMPTY }
    }

    const EMPTY: Observer = Observer {
        size: size_of::<Observer>() as u32,
        version: VERSION,
        order: 0,
        reserved: 0,
        name: ptr::null(),
        malloc: None,
        free: None,
        calloc: None,
        aligned: None,
        free_sized: None,
        realloc_begins: None,
        realloc_ends: None,
        reallocarray_ends: None,
        failed: None,
        arena_allocated: None,
        arena_realloc_ends: None,
        arena_created: None,
        arena_disposed: None,
        purged: None,
        arena_reallocarray_ends: None,
    };

    /// Copies a table; entries beyond its size are left out. `None` if the table is malformed.
    ///
    /// # Safety
    ///
    /// See [`install_observer`](super::install_observer).
    pub(super) unsafe fn read(table: *const Observer) -> Option<Observer> {
        let mut copy = Observer::EMPTY;
        // SAFETY: `read_table` asks for null or a table that begins with its size: the `# Safety`
        // of `install_observer` says so. It also asks that prefixes are valid: they consist of
        // whole words, no field extends over the end of one, and the entries that follow are
        // `None`.
        unsafe { super::replacement::read_table(table, &mut copy, Observer::SIZE_MIN) }?;
        (copy.version == VERSION && copy.reserved == 0 && copy.malloc.is_some() && copy.free.is_some()).then_some(copy)
    }
}
