//! The malloc family.
//!
//! Each entry point is a thunk of three instructions that adds the caller's stack pointer (at the return address) and
//! frame pointer to the arguments and jumps on: so the unwinder starts at the program's frame, and none of ours needs
//! unwind information. The functions behind make the call through the hook table ([`serve`]), which leads to the next
//! allocator in the program where nothing replaces it, and tell the observers ([`tell`]). `errno` and every result are
//! those of whoever served the call. `malloc`, `calloc`, `realloc` and `free` get here by the [doors](crate::doors).

use core::arch::naked_asm;
use core::ffi::{c_int, c_void};
use core::ptr;

use heapledger_core::Api;
use heapledger_core::hooks::{Caller, Functions, Pointer, serve, tell};

use crate::bottom::set_errno;
use crate::doors::{calloc, free, malloc, realloc};

const ENOMEM: c_int = 12;

/// What the calls go to.
#[inline(always)]
fn served() -> &'static Functions {
    match serve::functions() {
        Some(functions) => functions,
        None => crate::functions(),
    }
}

/// Makes a call: `call!(malloc(size))`.
macro_rules! call {
    ($name:ident($($argument:expr),*)) => {
        // SAFETY: the tables of `serve` are complete; the function is that of this name, with the program's own arguments.
        unsafe { served().$name.unwrap_unchecked()($($argument),*) }
    };
}
/// The calling frame: on entry to a function the return address is at the stack pointer (System V psABI), and the thunk
/// has passed on that of its own entry.
#[inline(always)]
fn caller(sp: u64, rbp: u64) -> Caller {
    Caller { slot: sp, rbp }
}

/// Defines a thunk that adds rsp and rbp to one, two or three arguments.
macro_rules! thunk {
    ($(#[$attribute:meta])* $name:ident, $target:ident, $sp:literal, $rbp:literal, $($argument:ident: $type:ty),* => $result:ty) => {
        /// The C function of this name.
        ///
        /// # Safety
        ///
        /// As C has it.
        $(#[$attribute])*
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            naked_asm!(
                concat!("mov ", $sp, ", rsp"),
                concat!("mov ", $rbp, ", rbp"),
                "jmp {target}",
                target = sym $target,
            )
        }
    };
}

/// Defines an exported one.
macro_rules! export {
    ($($thunk:tt)*) => {
        thunk!(#[unsafe(no_mangle)] $($thunk)*);
    };
}

thunk!(malloc_told, malloc_from, "rsi", "rdx", size: usize => Pointer);
thunk!(calloc_told, calloc_from, "rdx", "rcx", count: usize, each: usize => Pointer);
thunk!(realloc_told, realloc_from, "rdx", "rcx", old: Pointer, size: usize => Pointer);
thunk!(free_told, free_from, "rsi", "rdx", block: Pointer => ());

export!(reallocarray, reallocarray_from, "rcx", "r8", old: Pointer, count: usize, each: usize => Pointer);
export!(memalign, memalign_from, "rdx", "rcx", alignment: usize, size: usize => Pointer);
export!(aligned_alloc, aligned_alloc_from, "rdx", "rcx", alignment: usize, size: usize => Pointer);
export!(posix_memalign, posix_memalign_from, "rcx", "r8", out: *mut Pointer, alignment: usize, size: usize => c_int);
export!(valloc, valloc_from, "rsi", "rdx", size: usize => Pointer);
export!(pvalloc, pvalloc_from, "rsi", "rdx", size: usize => Pointer);
export!(cfree, cfree_from, "rsi", "rdx", block: Pointer => ());
export!(free_sized, free_sized_from, "rdx", "rcx", block: Pointer, size: usize => ());
export!(free_aligned_sized, free_aligned_sized_from, "rcx", "r8", block: Pointer, alignment: usize, size: usize => ());

/// `malloc_usable_size`: nobody is told.
///
/// # Safety
///
/// As C has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(block: Pointer) -> usize {
    call!(malloc_usable_size(block))
}

/// The family as the program calls it, with the arenas, which have no names of their own.
pub static PROGRAM: Functions = Functions {
    malloc: Some(malloc),
    calloc: Some(calloc),
    realloc: Some(realloc),
    free: Some(free),
    memalign: Some(memalign),
    posix_memalign: Some(posix_memalign),
    aligned_alloc: Some(aligned_alloc),
    valloc: Some(valloc),
    pvalloc: Some(pvalloc),
    malloc_usable_size: Some(malloc_usable_size),
    malloc_good_size: Some(malloc_good_size),
    create_arena: Some(create_arena),
    dispose_arena: Some(dispose_arena),
    arena_malloc: Some(arena_malloc),
    arena_calloc: Some(arena_calloc),
    arena_realloc: Some(arena_realloc),
    arena_free: Some(arena_free),
    arena_memalign: Some(arena_memalign),
    ..Functions::EMPTY
};

thunk!(arena_malloc, arena_malloc_from, "rdx", "rcx", arena: usize, size: usize => Pointer);
thunk!(arena_calloc, arena_calloc_from, "rcx", "r8", arena: usize, count: usize, each: usize => Pointer);
thunk!(arena_realloc, arena_realloc_from, "rcx", "r8", arena: usize, old: Pointer, size: usize => Pointer);
thunk!(arena_free, arena_free_from, "rdx", "rcx", arena: usize, block: Pointer => ());
thunk!(arena_memalign, arena_memalign_from, "rcx", "r8", arena: usize, alignment: usize, size: usize => Pointer);

unsafe extern "C" fn malloc_good_size(size: usize) -> usize {
    call!(malloc_good_size(size))
}

unsafe extern "C" fn create_arena(parameters: *const c_void) -> usize {
    call!(create_arena(parameters))
}

unsafe extern "C" fn dispose_arena(arena: usize) {
    call!(dispose_arena(arena));
}

extern "C" fn malloc_from(size: usize, sp: u64, rbp: u64) -> Pointer {
    let block = call!(malloc(size));
    if block.is_null() {
        return failed(Api::Malloc, size, 0, 0, sp, rbp);
    }
    // SAFETY: the thunk passed the caller's registers; here and below.
    unsafe { tell::malloc(block, size, caller(sp, rbp)) };
    block
}

extern "C" fn calloc_from(count: usize, each: usize, sp: u64, rbp: u64) -> Pointer {
    let block = call!(calloc(count, each));
    if block.is_null() {
        return failed(Api::Calloc, count.saturating_mul(each), 0, count, sp, rbp);
    }
    // SAFETY: as in `malloc_from`.
    unsafe { tell::calloc(block, count, each, caller(sp, rbp)) };
    block
}

extern "C" fn realloc_from(old: Pointer, size: usize, sp: u64, rbp: u64) -> Pointer {
    let block = reallocate(Api::Realloc, old, size, sp, rbp);
    // SAFETY: as in `malloc_from`.
    unsafe { tell::realloc_ends(old, block, size, caller(sp, rbp)) };
    block
}

extern "C" fn reallocarray_from(old: Pointer, count: usize, each: usize, sp: u64, rbp: u64) -> Pointer {
    let Some(size) = count.checked_mul(each) else {
        // The next allocator's `reallocarray` might come back through `realloc`: answer here as glibc does.
        set_errno(ENOMEM);
        return failed(Api::Reallocarray, usize::MAX, 0, count, sp, rbp);
    };
    let block = reallocate(Api::Reallocarray, old, size, sp, rbp);
    // SAFETY: as in `malloc_from`.
    unsafe { tell::reallocarray_ends(old, block, count, each, caller(sp, rbp)) };
    block
}

#[inline(always)]
fn reallocate(api: Api, old: Pointer, size: usize, sp: u64, rbp: u64) -> Pointer {
    if !old.is_null() {
        // SAFETY: as in `malloc_from`.
        unsafe { tell::realloc_begins(api, old, caller(sp, rbp)) };
    }
    call!(realloc(old, size))
}

extern "C" fn memalign_from(alignment: usize, size: usize, sp: u64, rbp: u64) -> Pointer {
    aligned(Api::Memalign, call!(memalign(alignment, size)), alignment, size, sp, rbp)
}

extern "C" fn aligned_alloc_from(alignment: usize, size: usize, sp: u64, rbp: u64) -> Pointer {
    aligned(Api::AlignedAlloc, call!(aligned_alloc(alignment, size)), alignment, size, sp, rbp)
}

extern "C" fn valloc_from(size: usize, sp: u64, rbp: u64) -> Pointer {
    aligned(Api::Valloc, call!(valloc(size)), 0, size, sp, rbp)
}

extern "C" fn pvalloc_from(size: usize, sp: u64, rbp: u64) -> Pointer {
    aligned(Api::Pvalloc, call!(pvalloc(size)), 0, size, sp, rbp)
}

extern "C" fn posix_memalign_from(out: *mut Pointer, alignment: usize, size: usize, sp: u64, rbp: u64) -> c_int {
    let error = call!(posix_memalign(out, alignment, size));
    if error == 0 {
        // SAFETY: the call succeeded, so it has written the block's address to `out`.
        aligned(Api::PosixMemalign, unsafe { out.read() }, alignment, size, sp, rbp);
    } else {
        failed(Api::PosixMemalign, size, alignment, 0, sp, rbp);
    }
    error
}

fn aligned(api: Api, block: Pointer, alignment: usize, size: usize, sp: u64, rbp: u64) -> Pointer {
    if block.is_null() {
        return failed(api, size, alignment, 0, sp, rbp);
    }
    // SAFETY: as in `malloc_from`.
    unsafe { tell::aligned(api, block, alignment, size, caller(sp, rbp)) };
    block
}

extern "C" fn free_from(block: Pointer, sp: u64, rbp: u64) {
    if !block.is_null() {
        // SAFETY: as in `malloc_from`.
        unsafe { tell::free(block, caller(sp, rbp)) };
        call!(free(block));
    }
}

extern "C" fn cfree_from(block: Pointer, sp: u64, rbp: u64) {
    free_with(Api::Cfree, block, 0, 0, sp, rbp);
}

extern "C" fn free_sized_from(block: Pointer, size: usize, sp: u64, rbp: u64) {
    free_with(Api::FreeSized, block, size, 0, sp, rbp);
}

extern "C" fn free_aligned_sized_from(block: Pointer, alignment: usize, size: usize, sp: u64, rbp: u64) {
    free_with(Api::FreeAlignedSized, block, size, alignment, sp, rbp);
}

fn free_with(api: Api, block: Pointer, size: usize, alignment: usize, sp: u64, rbp: u64) {
    if !block.is_null() {
        // SAFETY: as in `malloc_from`.
        unsafe { tell::free_sized(api, block, size, alignment, caller(sp, rbp)) };
        call!(free(block));
    }
}

// Of arenas observers are told what they are told of the plain functions.

extern "C" fn arena_malloc_from(arena: usize, size: usize, sp: u64, rbp: u64) -> Pointer {
    let block = call!(arena_malloc(arena, size));
    if block.is_null() {
        return failed(Api::Malloc, size, 0, 0, sp, rbp);
    }
    // SAFETY: as in `malloc_from`.
    unsafe { tell::malloc(block, size, caller(sp, rbp)) };
    block
}

extern "C" fn arena_calloc_from(arena: usize, count: usize, each: usize, sp: u64, rbp: u64) -> Pointer {
    let block = call!(arena_calloc(arena, count, each));
    if block.is_null() {
        return failed(Api::Calloc, count.saturating_mul(each), 0, count, sp, rbp);
    }
    // SAFETY: as in `malloc_from`.
    unsafe { tell::calloc(block, count, each, caller(sp, rbp)) };
    block
}

extern "C" fn arena_realloc_from(arena: usize, old: Pointer, size: usize, sp: u64, rbp: u64) -> Pointer {
    let caller = caller(sp, rbp);
    if !old.is_null() {
        // SAFETY: as in `malloc_from`.
        unsafe { tell::realloc_begins(Api::Realloc, old, caller) };
    }
    let block = call!(arena_realloc(arena, old, size));
    // SAFETY: as in `malloc_from`.
    unsafe { tell::realloc_ends(old, block, size, caller) };
    block
}

extern "C" fn arena_free_from(arena: usize, block: Pointer, sp: u64, rbp: u64) {
    if !block.is_null() {
        // SAFETY: as in `malloc_from`.
        unsafe { tell::free(block, caller(sp, rbp)) };
        call!(arena_free(arena, block));
    }
}

extern "C" fn arena_memalign_from(arena: usize, alignment: usize, size: usize, sp: u64, rbp: u64) -> Pointer {
    aligned(Api::Memalign, call!(arena_memalign(arena, alignment, size)), alignment, size, sp, rbp)
}

/// A call returned no block. Returns null, for convenience.
#[cold]
#[inline(never)]
fn failed(api: Api, size: usize, alignment: usize, count: usize, sp: u64, rbp: u64) -> Pointer {
    // SAFETY: as in `malloc_from`.
    unsafe { tell::failed(api, size, alignment, count, caller(sp, rbp)) };
    ptr::null_mut()
}
