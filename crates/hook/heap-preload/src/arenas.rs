//! The functions for arenas and purges, in C.
//!
//! Wrong ids, blocks of other arenas and the disposal of an arena that has blocks abort the program
//! with a message. A failure to allocate sets `errno` to `ENOMEM`.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::offset_of;
use core::{ptr, slice};

use heapledger_heap::arenas::{self, Arena, ArenaId, ChunkCallbacks};
use heapledger_heap::purges::{self, PurgeHook};

use crate::functions::{EINVAL, ENOMEM, fail, or_fail, power_of_two};

/// The longest label in bytes.
const LABEL_MAX: usize = 127;

/// C's `heapledger_arena_params`.
#[derive(Debug)]
#[repr(C)]
pub struct ArenaParams {
    /// The size of the structure that the caller knows. Entries behind it count as 0.
    size: u32,
    /// 1 and 2: randomise or do not; 4: single thread; 8: private.
    flags: u32,
    /// A string, which is copied up to 127 bytes, or null.
    label: *const c_char,
    dirty_max: usize,
    dirty_increase_override: i32,
    dirty_decrease_override: i32,
    bytes_max: usize,
    /// Copied. Null: the system.
    chunks: *const ChunkCallbacks,
}

impl ArenaParams {
    /// Returns parameters of which the entries that the caller does not know are 0.
    ///
    /// # Safety
    ///
    /// As for [`heapledger_arena_create`].
    unsafe fn read(from: *const ArenaParams) -> ArenaParams {
        let mut params = ArenaParams {
            size: 0,
            flags: 0,
            label: ptr::null(),
            dirty_max: 0,
            dirty_increase_override: 0,
            dirty_decrease_override: 0,
            bytes_max: 0,
            chunks: ptr::null(),
        };
        if from.is_null() {
            return params;
        }
        // SAFETY: `size` can be read, and as many bytes as it says: the contract of the C function.
        // At most those of our structure are copied, whose entries have no invalid values.
        unsafe {
            let known = ((*from).size as usize).min(size_of::<ArenaParams>());
            let known = if known < offset_of!(ArenaParams, label) { 0 } else { known };
            ptr::copy_nonoverlapping(from.cast::<u8>(), (&raw mut params).cast(), known);
        }
        params
    }
}

/// Returns the arena with an id of C's.
fn id(arena: u64) -> ArenaId {
    ArenaId::from_raw(arena)
}

/// Creates an arena. Returns its id; 0 if there is no memory, or, with `EINVAL`, if the callbacks
/// have no `map` or no `unmap`.
///
/// # Safety
///
/// `params` is null, or the address of a structure that has the size in its first entry. Its label
/// is null or a string, its callbacks are null or those of [`ChunkCallbacks`], valid for as long as
/// the arena exists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heapledger_arena_create(params: *const ArenaParams) -> u64 {
    // SAFETY: `read` demands the same as this function.
    let params = unsafe { ArenaParams::read(params) };
    let mut builder = Arena::builder()
        .flags(params.flags)
        .dirty_bytes_max(params.dirty_max)
        .dirty_overrides(params.dirty_increase_override, params.dirty_decrease_override)
        .mapped_bytes_max(params.bytes_max);
    if !params.label.is_null() {
        // SAFETY: a string, by this function's `# Safety`: its bytes up to the first null byte can
        // be read, and more are not.
        let label = unsafe {
            let length = (0..LABEL_MAX).take_while(|&at| *params.label.add(at) != 0).count();
            slice::from_raw_parts(params.label.cast(), length)
        };
        builder = builder.label_bytes(label);
    }
    // SAFETY: `as_ref` demands null or a valid structure, and `chunk_callbacks` functions that do
    // what they have to: both by this function's `# Safety`.
    if let Some(callbacks) = unsafe { params.chunks.as_ref() } {
        if callbacks.map.is_none() || callbacks.unmap.is_none() {
            fail(EINVAL);
            return 0;
        }
        // SAFETY: see above.
        builder = unsafe { builder.chunk_callbacks(*callbacks) };
    }
    let Some(arena) = builder.create() else {
        fail(ENOMEM);
        return 0;
    };
    let id = arena.id().to_raw();
    core::mem::forget(arena);
    id
}

/// Disposes of an arena, which has no blocks any more.
///
/// # Safety
///
/// No other thread uses the arena meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heapledger_arena_dispose(arena: u64) {
    // SAFETY: `dispose` demands the same as this function.
    unsafe { arenas::dispose(id(arena)) };
}

/// Allocates in an arena, as `malloc`.
///
/// # Safety
///
/// The arena is not disposed of meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heapledger_arena_malloc(arena: u64, size: usize) -> *mut c_void {
    // The other function is the last that is called: then this one needs no stack frame.
    // SAFETY: both functions demand what this function's `# Safety` does.
    unsafe {
        let block = arenas::allocate_in_at_once(id(arena), size);
        if block.is_null() { malloc_otherwise(arena, size) } else { block.cast() }
    }
}

/// # Safety
///
/// As for [`heapledger_arena_malloc`].
#[inline(never)]
unsafe extern "C" fn malloc_otherwise(arena: u64, size: usize) -> *mut c_void {
    // SAFETY: `allocate_in_otherwise` demands what this function's `# Safety` does.
    or_fail(unsafe { arenas::allocate_in_otherwise(id(arena), size) })
}

/// Allocates in an arena, as `calloc`.
///
/// # Safety
///
/// The arena is not disposed of meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heapledger_arena_calloc(arena: u64, count: usize, size: usize) -> *mut c_void {
    match count.checked_mul(size) {
        // SAFETY: `allocate_zeroed_in` demands what this function's `# Safety` does.
        Some(size) => or_fail(unsafe { arenas::allocate_zeroed_in(id(arena), size) }),
        None => fail(ENOMEM),
    }
}

/// Allocates in an arena, as `memalign`.
///
/// # Safety
///
/// The arena is not disposed of meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heapledger_arena_memalign(arena: u64, alignment: usize, size: usize) -> *mut c_void {
    match power_of_two(alignment) {
        // SAFETY: `allocate_aligned_in` demands what this function's `# Safety` does.
        Some(alignment) => or_fail(unsafe { arenas::allocate_aligned_in(id(arena), size, alignment) }),
        None => fail(EINVAL),
    }
}

/// Changes the size of a block of an arena, as `realloc`: with the size 0 it frees, and returns
/// null.
///
/// # Safety
///
/// The contract of `realloc`. The arena is not disposed of meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heapledger_arena_realloc(arena: u64, block: *mut c_void, size: usize) -> *mut c_void {
    if size == 0 && !block.is_null() {
        // SAFETY: the caller's block, by the contract of this function.
        unsafe { arenas::free_in(id(arena), block.cast()) };
        return ptr::null_mut();
    }
    // SAFETY: `reallocate_in` demands null or a block of this allocator that nobody else uses,
    // and that the arena stays: the contract of this function.
    or_fail(unsafe { arenas::reallocate_in(id(arena), block.cast(), size) })
}

/// Frees a block of an arena, as `free`.
///
/// # Safety
///
/// The contract of `free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heapledger_arena_free(arena: u64, block: *mut c_void) {
    // SAFETY: `free_in` demands null or a block of this allocator that nobody uses any more: the
    // contract of this function.
    unsafe { arenas::free_in(id(arena), block.cast()) };
}

/// Returns the id of the arena of a block; 0 if the address is not in memory of the allocator.
///
/// # Safety
///
/// The address is not in memory of the allocator, or it is that of a block that nobody frees
/// meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heapledger_arena_of(block: *const c_void) -> u64 {
    // SAFETY: `arena_of` demands the same as this function.
    unsafe { arenas::arena_of(block.cast()) }.map_or(0, ArenaId::to_raw)
}

/// Gives this thread an arena for what it allocates with the malloc functions, or returns it to the
/// main arena.
#[unsafe(no_mangle)]
pub extern "C" fn heapledger_thread_local_arena(is_enabled: bool) {
    arenas::use_thread_local_arena(is_enabled);
}

/// Returns the dirty memory of all arenas to the system. Returns the number of bytes.
#[unsafe(no_mangle)]
pub extern "C" fn heapledger_purge_all() -> usize {
    purges::purge_all()
}

/// Returns the dirty memory of all arenas that is above their budgets. Returns the number of bytes.
#[unsafe(no_mangle)]
pub extern "C" fn heapledger_purge_excess() -> usize {
    purges::purge_excess()
}

/// Shifts the budgets of all arenas by a number of bits.
#[unsafe(no_mangle)]
pub extern "C" fn heapledger_set_dirty_modifier(modifier: i32) {
    purges::set_dirty_modifier(modifier);
}

/// Lets dirty pages go back to the system after some seconds. 0 switches that off.
#[unsafe(no_mangle)]
pub extern "C" fn heapledger_set_dirty_decay(seconds: u32) {
    purges::set_dirty_decay(seconds);
}

/// Defers purges, or ends that. Returns the previous state.
#[unsafe(no_mangle)]
pub extern "C" fn heapledger_enable_deferred_purge(is_enabled: bool) -> bool {
    purges::enable_deferred_purge(is_enabled)
}

/// Does purges that were deferred, of `budget` bytes. Returns 0 if none is left, 1 if there is more
/// to do, 2 if the program should ask later.
#[unsafe(no_mangle)]
pub extern "C" fn heapledger_purge_now(peek: bool, grace_ms: u32, budget: usize) -> c_int {
    purges::purge_now(peek, grace_ms, budget) as c_int
}

/// Sets the function that is told of purges. Null removes it.
///
/// # Safety
///
/// The contract of [`PurgeHook`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heapledger_set_purge_hook(hook: Option<PurgeHook>) {
    // SAFETY: `set_purge_hook` demands the same as this function.
    unsafe { purges::set_purge_hook(hook) };
}

/// Returns an arena with this label that is not private. 0 if there is none.
///
/// # Safety
///
/// `label` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heapledger_arena_find(label: *const c_char) -> u64 {
    if label.is_null() {
        return 0;
    }
    // SAFETY: `from_ptr` demands a string, as this function's `# Safety` does.
    let label = unsafe { CStr::from_ptr(label) }.to_bytes();
    let label = label.get(..LABEL_MAX).unwrap_or(label);
    arenas::find_by_label(label).map_or(0, ArenaId::to_raw)
}
