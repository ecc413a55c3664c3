//! The malloc family.
//!
//! Each entry point is a thunk of three instructions that adds the caller's stack pointer (at the return address) and
//! frame pointer to the arguments and jumps on: so the unwinder starts at the program's frame, and none of ours needs
//! unwind information. The functions behind call the next allocator in the program through [`Next`] and the recorder
//! around it. `errno` and every result are the next allocator's.

use core::arch::naked_asm;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

use heapledger_core::Api;
use heapledger_core::hooks::Caller;
use heapledger_record::hook;
use heapledger_wire::event::ReallocOutcome;

use crate::init;

type Pointer = *mut c_void;

/// The next definitions in the program, looked up at the first call of any.
#[derive(Debug)]
pub(crate) struct Next {
    pub(crate) malloc: AtomicUsize,
    pub(crate) calloc: AtomicUsize,
    pub(crate) realloc: AtomicUsize,
    pub(crate) free: AtomicUsize,
    pub(crate) memalign: AtomicUsize,
    pub(crate) aligned_alloc: AtomicUsize,
    pub(crate) posix_memalign: AtomicUsize,
    pub(crate) valloc: AtomicUsize,
    pub(crate) pvalloc: AtomicUsize,
    pub(crate) malloc_usable_size: AtomicUsize,
}

pub(crate) static NEXT: Next = Next {
    malloc: AtomicUsize::new(0),
    calloc: AtomicUsize::new(0),
    realloc: AtomicUsize::new(0),
    free: AtomicUsize::new(0),
    memalign: AtomicUsize::new(0),
    aligned_alloc: AtomicUsize::new(0),
    posix_memalign: AtomicUsize::new(0),
    valloc: AtomicUsize::new(0),
    pvalloc: AtomicUsize::new(0),
    malloc_usable_size: AtomicUsize::new(0),
};

/// Calls a next definition: `next!(field(arguments) -> Type or else_value)`.
macro_rules! next {
    ($field:ident($($name:ident: $type:ty),*) -> $result:ty, or $otherwise:expr) => {{
        let mut address = NEXT.$field.load(Ordering::Relaxed);
        if address == 0 {
            init::initialise();
            address = NEXT.$field.load(Ordering::Relaxed);
        }
        if address == 0 {
            $otherwise
        } else {
            // SAFETY: the address is that of the next definition of the C function of this name, whose type this is.
            let function = unsafe { core::mem::transmute::<usize, unsafe extern "C" fn($($type),*) -> $result>(address) };
            // SAFETY: the program's own arguments, passed on.
            unsafe { function($($name),*) }
        }
    }};
}

const ENOMEM: c_int = 12;
const EINVAL: c_int = 22;

/// The calling frame: on entry to a function the return address is at the stack pointer (System V psABI), and the thunk
/// has passed on that of its own entry.
#[inline(always)]
fn caller(sp: u64, rbp: u64) -> Caller {
    Caller { slot: sp, rbp }
}

/// Defines an exported thunk that adds rsp and rbp to one, two or three arguments.
macro_rules! thunk {
    ($name:ident, $target:ident, $sp:literal, $rbp:literal, $($argument:ident: $type:ty),* => $result:ty) => {
        /// The C function of this name.
        ///
        /// # Safety
        ///
        /// As C has it.
        #[unsafe(no_mangle)]
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

thunk!(malloc, malloc_from, "rsi", "rdx", size: usize => Pointer);
thunk!(calloc, calloc_from, "rdx", "rcx", count: usize, each: usize => Pointer);
thunk!(realloc, realloc_from, "rdx", "rcx", old: Pointer, size: usize => Pointer);
thunk!(reallocarray, reallocarray_from, "rcx", "r8", old: Pointer, count: usize, each: usize => Pointer);
thunk!(memalign, memalign_from, "rdx", "rcx", alignment: usize, size: usize => Pointer);
thunk!(aligned_alloc, aligned_alloc_from, "rdx", "rcx", alignment: usize, size: usize => Pointer);
thunk!(posix_memalign, posix_memalign_from, "rcx", "r8", out: *mut Pointer, alignment: usize, size: usize => c_int);
thunk!(valloc, valloc_from, "rsi", "rdx", size: usize => Pointer);
thunk!(pvalloc, pvalloc_from, "rsi", "rdx", size: usize => Pointer);
thunk!(free, free_from, "rsi", "rdx", block: Pointer => ());
thunk!(cfree, cfree_from, "rsi", "rdx", block: Pointer => ());
thunk!(free_sized, free_sized_from, "rdx", "rcx", block: Pointer, size: usize => ());
thunk!(free_aligned_sized, free_aligned_sized_from, "rcx", "r8", block: Pointer, alignment: usize, size: usize => ());

/// `malloc_usable_size`: no event, the next allocator's answer.
///
/// # Safety
///
/// As C has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(block: Pointer) -> usize {
    next!(malloc_usable_size(block: Pointer) -> usize, or 0)
}

extern "C" fn malloc_from(size: usize, sp: u64, rbp: u64) -> Pointer {
    let block = next!(malloc(size: usize) -> Pointer, or core::ptr::null_mut());
    if block.is_null() {
        return failed(Api::Malloc, size, 0, 0, sp, rbp);
    }
    // SAFETY: the thunk passed the caller's registers.
    unsafe { hook::malloc(block as u64, size as u64, caller(sp, rbp)) };
    block
}

extern "C" fn calloc_from(count: usize, each: usize, sp: u64, rbp: u64) -> Pointer {
    let block = next!(calloc(count: usize, each: usize) -> Pointer, or core::ptr::null_mut());
    if block.is_null() {
        return failed(Api::Calloc, count.saturating_mul(each), 0, count, sp, rbp);
    }
    // SAFETY: the thunk passed the caller's registers.
    unsafe { hook::calloc(block as u64, count as u64, each as u64, caller(sp, rbp)) };
    block
}

extern "C" fn realloc_from(old: Pointer, size: usize, sp: u64, rbp: u64) -> Pointer {
    reallocate(Api::Realloc, old, size, 0, sp, rbp)
}

extern "C" fn reallocarray_from(old: Pointer, count: usize, each: usize, sp: u64, rbp: u64) -> Pointer {
    let Some(size) = count.checked_mul(each) else {
        // The next allocator's `reallocarray` might come back through `realloc`: answer here as glibc does.
        init::set_errno(ENOMEM);
        return failed(Api::Reallocarray, usize::MAX, 0, count, sp, rbp);
    };
    reallocate(Api::Reallocarray, old, size, count, sp, rbp)
}

#[inline(always)]
fn reallocate(api: Api, old: Pointer, size: usize, count: usize, sp: u64, rbp: u64) -> Pointer {
    if !old.is_null() {
        hook::reallocation_begins(api, old as u64, sp + 8);
    }
    let block = next!(realloc(old: Pointer, size: usize) -> Pointer, or core::ptr::null_mut());
    if old.is_null() {
        if block.is_null() {
            return failed(api, size, 0, count, sp, rbp);
        }
        // SAFETY: the thunk passed the caller's registers.
        unsafe { hook::allocation(api, block as u64, size as u64, 0, count as u64, caller(sp, rbp)) };
        return block;
    }
    let outcome = match (block.is_null(), size) {
        (false, _) => ReallocOutcome::Returned,
        // glibc frees; so do jemalloc and tcmalloc where they return null here.
        (true, 0) => ReallocOutcome::Freed,
        (true, _) => ReallocOutcome::Failed,
    };
    // SAFETY: the thunk passed the caller's registers.
    unsafe { hook::reallocation_ends(api, outcome, block as u64, size as u64, count as u64, caller(sp, rbp)) };
    block
}

extern "C" fn memalign_from(alignment: usize, size: usize, sp: u64, rbp: u64) -> Pointer {
    let block = next!(memalign(alignment: usize, size: usize) -> Pointer, or core::ptr::null_mut());
    aligned(Api::Memalign, block, alignment, size, sp, rbp)
}

extern "C" fn aligned_alloc_from(alignment: usize, size: usize, sp: u64, rbp: u64) -> Pointer {
    let block = next!(aligned_alloc(alignment: usize, size: usize) -> Pointer, or core::ptr::null_mut());
    aligned(Api::AlignedAlloc, block, alignment, size, sp, rbp)
}

extern "C" fn valloc_from(size: usize, sp: u64, rbp: u64) -> Pointer {
    let block = next!(valloc(size: usize) -> Pointer, or core::ptr::null_mut());
    aligned(Api::Valloc, block, 0, size, sp, rbp)
}

extern "C" fn pvalloc_from(size: usize, sp: u64, rbp: u64) -> Pointer {
    let block = next!(pvalloc(size: usize) -> Pointer, or core::ptr::null_mut());
    aligned(Api::Pvalloc, block, 0, size, sp, rbp)
}

extern "C" fn posix_memalign_from(out: *mut Pointer, alignment: usize, size: usize, sp: u64, rbp: u64) -> c_int {
    let error = next!(posix_memalign(out: *mut Pointer, alignment: usize, size: usize) -> c_int, or EINVAL);
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
    // SAFETY: the thunk passed the caller's registers.
    unsafe { hook::allocation(api, block as u64, size as u64, alignment as u64, 0, caller(sp, rbp)) };
    block
}

extern "C" fn free_from(block: Pointer, sp: u64, _rbp: u64) {
    if !block.is_null() {
        hook::free(block as u64, sp + 8);
        release(block);
    }
}

extern "C" fn cfree_from(block: Pointer, sp: u64, _rbp: u64) {
    if !block.is_null() {
        hook::free_with(Api::Cfree, block as u64, 0, 0, sp + 8);
        release(block);
    }
}

extern "C" fn free_sized_from(block: Pointer, size: usize, sp: u64, _rbp: u64) {
    if !block.is_null() {
        hook::free_with(Api::FreeSized, block as u64, size as u64, 0, sp + 8);
        release(block);
    }
}

extern "C" fn free_aligned_sized_from(block: Pointer, alignment: usize, size: usize, sp: u64, _rbp: u64) {
    if !block.is_null() {
        hook::free_with(Api::FreeAlignedSized, block as u64, size as u64, alignment as u64, sp + 8);
        release(block);
    }
}

#[inline(always)]
fn release(block: Pointer) {
    next!(free(block: Pointer) -> (), or ());
}

/// A call returned no block. Returns null, for convenience.
#[cold]
#[inline(never)]
fn failed(api: Api, size: usize, alignment: usize, count: usize, sp: u64, rbp: u64) -> Pointer {
    // SAFETY: the thunk passed the caller's registers.
    unsafe { hook::failure(api, size as u64, alignment as u64, count as u64, caller(sp, rbp)) };
    core::ptr::null_mut()
}
