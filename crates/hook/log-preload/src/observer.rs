//! The functions that the hook table calls, each of which writes a line.

use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};

use heapledger_core::Api;
use heapledger_core::hooks::{Arena, Caller, Observer, Pointer};

use crate::fields;
use crate::line::{Line, Name};
use crate::log::{self, Logged};

/// The observer of all calls, which is called after the checks and before the recorder.
static OBSERVER: Observer = Observer {
    name: c"log".as_ptr(),
    order: -50,
    calloc: Some(calloc),
    aligned: Some(aligned),
    free_sized: Some(free_sized),
    realloc_begins: Some(realloc_begins),
    realloc_ends: Some(realloc_ends),
    failed: Some(failed),
    arena_allocated: Some(arena_allocated),
    arena_realloc_ends: Some(arena_realloc_ends),
    ..Observer::new(malloc, free)
};

/// True if `posix_memalign`, `aligned_alloc` and `valloc` are logged as `memalign`.
static IS_MINIMAL: AtomicBool = AtomicBool::new(false);

/// The alignment and the granularity of `valloc` and `pvalloc`, in bytes.
const PAGE: usize = 4096;

/// Returns the observer.
pub(crate) fn chosen() -> *const Observer {
    &raw const OBSERVER
}

/// Sets whether only the functions of logalloc's minimal log are named.
pub(crate) fn set_minimal(is_minimal: bool) {
    IS_MINIMAL.store(is_minimal, Ordering::Relaxed);
}

const MALLOC: Name = Name::new(b"malloc(");
const CALLOC: Name = Name::new(b"calloc(");
const REALLOC: Name = Name::new(b"realloc(0x");
const MEMALIGN: Name = Name::new(b"memalign(");
const POSIX_MEMALIGN: Name = Name::new(b"posix_memalign(");
const ALIGNED_ALLOC: Name = Name::new(b"aligned_alloc(");
const VALLOC: Name = Name::new(b"valloc(");

/// A call with a size behind its first argument, if it has two.
struct Call {
    name: Name,
    first: Option<usize>,
    size: usize,
}

impl Call {
    #[inline(always)]
    const fn sized(name: Name, size: usize) -> Call {
        Call { name, first: None, size }
    }

    /// Returns the call of an allocation with an alignment.
    fn aligned(api: u32, alignment: usize, size: usize) -> Call {
        const API_POSIX_MEMALIGN: u32 = Api::PosixMemalign as u32;
        const API_ALIGNED_ALLOC: u32 = Api::AlignedAlloc as u32;
        const API_VALLOC: u32 = Api::Valloc as u32;
        const API_PVALLOC: u32 = Api::Pvalloc as u32;
        let is_minimal = IS_MINIMAL.load(Ordering::Relaxed);
        // `pvalloc` is a `valloc` of whole pages; logs do not have it.
        let size = if api == API_PVALLOC { size.checked_next_multiple_of(PAGE).unwrap_or(size) } else { size };
        let alignment = if matches!(api, API_VALLOC | API_PVALLOC) { PAGE } else { alignment };
        match api {
            API_VALLOC | API_PVALLOC if !is_minimal => Call::sized(VALLOC, size),
            API_POSIX_MEMALIGN if !is_minimal => Call { name: POSIX_MEMALIGN, first: Some(alignment), size },
            API_ALIGNED_ALLOC if !is_minimal => Call { name: ALIGNED_ALLOC, first: Some(alignment), size },
            _ => Call { name: MEMALIGN, first: Some(alignment), size },
        }
    }

    /// Logs the call.
    ///
    /// # Safety
    ///
    /// As for [`fields::add`].
    #[inline(always)]
    unsafe fn write(self, result: Pointer, arena: *const Arena) {
        log::write(Allocation { call: self, result, arena });
    }
}

/// An allocation and its result, for which the contract of [`fields::add`] holds.
struct Allocation {
    call: Call,
    result: Pointer,
    arena: *const Arena,
}

impl Logged for Allocation {
    #[inline(always)]
    fn write(&self, line: &mut Line<'_>) {
        line.name(self.call.name);
        if let Some(first) = self.call.first {
            line.decimal(first as u64);
            line.text(b",");
        }
        line.decimal(self.call.size as u64);
        // SAFETY: the contract of `fields::add` holds for the fields of an `Allocation`.
        unsafe { end(line, self.result, self.arena) };
    }
}

/// A reallocation and its result, for which the contract of [`fields::add`] holds.
struct Reallocation {
    old: Pointer,
    size: usize,
    result: Pointer,
    arena: *const Arena,
}

impl Logged for Reallocation {
    #[inline(always)]
    fn write(&self, line: &mut Line<'_>) {
        line.name(REALLOC);
        line.hexadecimal(self.old as u64);
        line.text(b",");
        line.decimal(self.size as u64);
        // SAFETY: the contract of `fields::add` holds for the fields of a `Reallocation`.
        unsafe { end(line, self.result, self.arena) };
    }
}

/// A free.
struct Free(Pointer);

impl Logged for Free {
    #[inline(always)]
    fn write(&self, line: &mut Line<'_>) {
        // Not a `Name`, whose word may be longer than the line.
        line.text(b"free(0x");
        line.hexadecimal(self.0 as u64);
        end_without_result(line);
    }
}

/// A point at which the program asks for statistics.
struct Statistics;

impl Logged for Statistics {
    fn write(&self, line: &mut Line<'_>) {
        line.text(b"jemalloc_stats(");
        end_without_result(line);
    }
}

/// Adds the result of a call, its fields, and the end of the line.
///
/// # Safety
///
/// As for [`fields::add`].
#[inline(always)]
unsafe fn end(line: &mut Line<'_>, result: Pointer, arena: *const Arena) {
    line.text(b")=0x");
    line.hexadecimal(result as u64);
    // SAFETY: the same contract.
    unsafe { fields::add(line, result, arena) };
    line.text(b"\n");
}

/// Adds the end of the line of a call without a result.
#[inline(always)]
fn end_without_result(line: &mut Line<'_>) {
    line.text(b")");
    // SAFETY: there is neither a result nor an arena.
    unsafe { fields::add(line, ptr::null_mut(), ptr::null()) };
    line.text(b"\n");
}

/// Logs a point at which the program asks for statistics.
pub(crate) fn statistics() {
    log::write(Statistics);
}

unsafe extern "C" fn malloc(block: Pointer, size: usize, _: Caller) {
    // SAFETY: the contract of `Observer`: the block has just been returned.
    unsafe { Call::sized(MALLOC, size).write(block, ptr::null()) };
}

unsafe extern "C" fn calloc(block: Pointer, count: usize, each: usize, _: Caller) {
    // SAFETY: the contract of `Observer`: the block has just been returned.
    unsafe { Call { name: CALLOC, first: Some(count), size: each }.write(block, ptr::null()) };
}

unsafe extern "C" fn aligned(api: u32, block: Pointer, alignment: usize, size: usize, _: Caller) {
    // SAFETY: the contract of `Observer`: the block has just been returned.
    unsafe { Call::aligned(api, alignment, size).write(block, ptr::null()) };
}

unsafe extern "C" fn arena_allocated(
    arena: *const Arena,
    api: u32,
    block: Pointer,
    size: usize,
    alignment: usize,
    count: usize,
    _: Caller,
) {
    const API_MALLOC: u32 = Api::Malloc as u32;
    const API_REALLOC: u32 = Api::Realloc as u32;
    const API_CALLOC: u32 = Api::Calloc as u32;
    let call = match api {
        API_MALLOC | API_REALLOC => Call::sized(MALLOC, size),
        API_CALLOC => Call { name: CALLOC, first: Some(count), size: size.checked_div(count).unwrap_or(0) },
        api => Call::aligned(api, alignment, size),
    };
    // SAFETY: the contract of `Observer`: the block has just been returned, and the arena is one
    // that observers are told of.
    unsafe { call.write(block, arena) };
}

unsafe extern "C" fn free(block: Pointer, _: Caller) {
    log::write(Free(block));
}

unsafe extern "C" fn free_sized(_: u32, block: Pointer, _: usize, _: usize, caller: Caller) {
    // SAFETY: only `OBSERVER` leads to either function, with what it gives both.
    unsafe { free(block, caller) };
}

/// Does nothing: the line is written when the result is known.
unsafe extern "C" fn realloc_begins(_: u32, _: Pointer, _: Caller) {}

unsafe extern "C" fn realloc_ends(old: Pointer, block: Pointer, size: usize, caller: Caller) {
    // SAFETY: as there, for a block in no arena.
    unsafe { arena_realloc_ends(ptr::null(), old, block, size, caller) };
}

unsafe extern "C" fn arena_realloc_ends(arena: *const Arena, old: Pointer, block: Pointer, size: usize, _: Caller) {
    // By the contract of `Observer`, the block is null or has just been returned, and the arena is
    // null or one that observers are told of.
    let call = Reallocation { old, size, result: block, arena };
    if block.is_null() { log::write_without_block(&call) } else { log::write(call) }
}

unsafe extern "C" fn failed(api: u32, size: usize, alignment: usize, count: usize, caller: Caller) {
    const API_MALLOC: u32 = Api::Malloc as u32;
    const API_CALLOC: u32 = Api::Calloc as u32;
    const API_REALLOC: u32 = Api::Realloc as u32;
    const API_REALLOCARRAY: u32 = Api::Reallocarray as u32;
    let null: Pointer = ptr::null_mut();
    let call = match api {
        API_MALLOC => Call::sized(MALLOC, size),
        // The size is that of the whole.
        API_CALLOC => Call { name: CALLOC, first: Some(count), size: size / count.max(1) },
        API_REALLOC | API_REALLOCARRAY => {
            let size = size.saturating_mul(count.max(1));
            // SAFETY: all pointers are null.
            return unsafe { arena_realloc_ends(ptr::null(), null, null, size, caller) };
        }
        _ => Call::aligned(api, alignment, size),
    };
    // The contract of `fields::add` holds: the result and the arena are null.
    log::write_without_block(&Allocation { call, result: null, arena: ptr::null() });
}
