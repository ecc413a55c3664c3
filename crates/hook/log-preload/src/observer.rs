//! The functions that the hook table calls, each of which writes a line.

use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};

use heapledger_core::hooks::{Arena, Caller, Observer, Pointer};
use heapledger_core::{Api, arch};

use crate::line::Line;
use crate::{fields, log};

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

/// A call with a size behind its first argument, if it has two.
struct Call {
    name: &'static [u8],
    first: Option<usize>,
    size: usize,
}

impl Call {
    fn sized(name: &'static [u8], size: usize) -> Call {
        Call { name, first: None, size }
    }

    /// Returns the call of an allocation with an alignment.
    fn aligned(api: u32, alignment: usize, size: usize) -> Call {
        const POSIX_MEMALIGN: u32 = Api::PosixMemalign as u32;
        const ALIGNED_ALLOC: u32 = Api::AlignedAlloc as u32;
        const VALLOC: u32 = Api::Valloc as u32;
        const PVALLOC: u32 = Api::Pvalloc as u32;
        let is_minimal = IS_MINIMAL.load(Ordering::Relaxed);
        // `pvalloc` is a `valloc` of whole pages; logs do not have it.
        let size = if api == PVALLOC { size.checked_next_multiple_of(PAGE).unwrap_or(size) } else { size };
        let alignment = if matches!(api, VALLOC | PVALLOC) { PAGE } else { alignment };
        match api {
            VALLOC | PVALLOC if !is_minimal => Call::sized(b"valloc", size),
            POSIX_MEMALIGN if !is_minimal => Call { name: b"posix_memalign", first: Some(alignment), size },
            ALIGNED_ALLOC if !is_minimal => Call { name: b"aligned_alloc", first: Some(alignment), size },
            _ => Call { name: b"memalign", first: Some(alignment), size },
        }
    }

    /// # Safety
    ///
    /// As for [`end`].
    unsafe fn write(&self, result: Pointer, arena: *const Arena) {
        let mut line = begun(self.name);
        if let Some(first) = self.first {
            line.decimal(first as u64);
            line.byte(b',');
        }
        line.decimal(self.size as u64);
        // SAFETY: the same contract.
        unsafe { end(line, Some(result), arena) };
    }
}

/// Begins a line with the process, the thread and the function.
fn begun(function: &[u8]) -> Line {
    let mut line = Line::new();
    line.decimal(log::process().into());
    line.byte(b' ');
    // logalloc's number of a thread is that of `pthread_self`, which is the thread's pointer.
    line.decimal(arch::thread_pointer() as u64);
    line.byte(b' ');
    line.text(function);
    line.byte(b'(');
    line
}

/// # Safety
///
/// As for [`fields::add`], for the result of a call that has one.
unsafe fn end(mut line: Line, result: Option<Pointer>, arena: *const Arena) {
    line.byte(b')');
    if let Some(result) = result {
        line.byte(b'=');
        line.address(result as u64);
    }
    // SAFETY: the same contract.
    unsafe { fields::add(&mut line, result.unwrap_or(ptr::null_mut()), arena) };
    line.byte(b'\n');
    log::write(&line);
}

/// Logs a point at which the program asks for statistics.
pub(crate) fn statistics() {
    // SAFETY: there is neither a result nor an arena.
    unsafe { end(begun(b"jemalloc_stats"), None, ptr::null()) };
}

unsafe extern "C" fn malloc(block: Pointer, size: usize, _: Caller) {
    // SAFETY: the contract of `Observer`: the block has just been returned.
    unsafe { Call::sized(b"malloc", size).write(block, ptr::null()) };
}

unsafe extern "C" fn calloc(block: Pointer, count: usize, each: usize, _: Caller) {
    // SAFETY: the contract of `Observer`: the block has just been returned.
    unsafe { Call { name: b"calloc", first: Some(count), size: each }.write(block, ptr::null()) };
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
    const MALLOC: u32 = Api::Malloc as u32;
    const REALLOC: u32 = Api::Realloc as u32;
    const CALLOC: u32 = Api::Calloc as u32;
    let call = match api {
        MALLOC | REALLOC => Call::sized(b"malloc", size),
        CALLOC => Call { name: b"calloc", first: Some(count), size: size.checked_div(count).unwrap_or(0) },
        api => Call::aligned(api, alignment, size),
    };
    // SAFETY: the contract of `Observer`: the block has just been returned, and the arena is one
    // that observers are told of.
    unsafe { call.write(block, arena) };
}

unsafe extern "C" fn free(block: Pointer, _: Caller) {
    let mut line = begun(b"free");
    line.address(block as u64);
    // SAFETY: there is neither a result nor an arena.
    unsafe { end(line, None, ptr::null()) };
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
    let mut line = begun(b"realloc");
    line.address(old as u64);
    line.byte(b',');
    line.decimal(size as u64);
    // SAFETY: the contract of `Observer`: the block is null or has just been returned, and the
    // arena is null or one that observers are told of.
    unsafe { end(line, Some(block), arena) };
}

unsafe extern "C" fn failed(api: u32, size: usize, alignment: usize, count: usize, _: Caller) {
    const MALLOC: u32 = Api::Malloc as u32;
    const CALLOC: u32 = Api::Calloc as u32;
    const REALLOC: u32 = Api::Realloc as u32;
    const REALLOCARRAY: u32 = Api::Reallocarray as u32;
    let null: Pointer = ptr::null_mut();
    let call = match api {
        MALLOC => Call::sized(b"malloc", size),
        // The size is that of the whole.
        CALLOC => Call { name: b"calloc", first: Some(count), size: size / count.max(1) },
        REALLOC | REALLOCARRAY => {
            let mut line = begun(b"realloc");
            line.address(0);
            line.byte(b',');
            line.decimal(size.saturating_mul(count.max(1)) as u64);
            // SAFETY: the result and the arena are null.
            return unsafe { end(line, Some(null), ptr::null()) };
        }
        _ => Call::aligned(api, alignment, size),
    };
    // SAFETY: the result and the arena are null.
    unsafe { call.write(null, ptr::null()) };
}
