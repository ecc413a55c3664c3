//! The malloc family for namespaces that `dlmopen` makes.
//!
//! Each has a C library of its own, and its calls go to the functions of that library only: a thunk
//! has a stub for each namespace, which passes the namespace's number. Observers are notified of
//! these calls as of the program's. Replacements are for the program's own calls and are not
//! called.

use core::arch::naked_asm;
use core::cell::UnsafeCell;
use core::ffi::CStr;
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use heapledger_core::hooks::Functions;

use crate::thunks;
use crate::underlying::allocator;

/// The maximum number of namespaces in glibc, the program's own included, whose number is 0.
pub const NAMESPACES_MAX: usize = 16;

/// The size of a stub in bytes.
const STUB: usize = 4;

/// Begins a function with a stub for each namespace, which puts its number into `al`, a register in
/// which only variadic functions take an argument, and then jumps behind the stubs. See [`stub`].
#[macro_export]
macro_rules! namespace_stubs {
    () => {
        // Two instructions of two bytes each: `mov al, n`, and a jump behind the last stub.
        ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15
        .byte 0xb0, \\n, 0xeb, 60 - 4 * \\n
        .endr"
    };
}

/// Returns the address of a namespace's stub in a function that begins with [`namespace_stubs`].
pub fn stub(function: *const (), namespace: usize) -> usize {
    function as usize + namespace % NAMESPACES_MAX * STUB
}

/// A namespace's allocator.
struct Allocator {
    functions: UnsafeCell<MaybeUninit<Functions>>,
    /// A `fn(usize)` that is called before anything else at the namespace's first call; null from
    /// then on.
    on_first_call: AtomicPtr<()>,
}

// SAFETY: the functions are written only by `set_allocator`, before its namespace can call a stub.
unsafe impl Sync for Allocator {}

static ALLOCATORS: [Allocator; NAMESPACES_MAX] = [const {
    Allocator { functions: UnsafeCell::new(MaybeUninit::zeroed()), on_first_call: AtomicPtr::new(ptr::null_mut()) }
}; NAMESPACES_MAX];

/// Sets the allocator of a namespace by the addresses of its functions, and the function to call at
/// its first call. Returns false if it does not have all of them.
///
/// # Safety
///
/// The namespace has been made just now: none of its calls has been redirected here. The addresses
/// are those of the functions of these names; 0 if there is none.
pub unsafe fn set_allocator(namespace: usize, address: impl Fn(&CStr) -> usize, on_first_call: fn(usize)) -> bool {
    let Some(own) = ALLOCATORS.get(namespace) else { return false };
    let functions = allocator(address);
    let Functions { malloc, calloc, realloc, free, memalign, posix_memalign, aligned_alloc, valloc, pvalloc, .. } =
        functions;
    let has_all = malloc.is_some()
        && calloc.is_some()
        && realloc.is_some()
        && free.is_some()
        && memalign.is_some()
        && posix_memalign.is_some()
        && aligned_alloc.is_some()
        && valloc.is_some()
        && pvalloc.is_some();
    if has_all {
        // SAFETY: nobody reads it, because by the caller's contract no call of the namespace is
        // redirected here yet.
        unsafe { (*own.functions.get()).write(functions) };
        own.on_first_call.store(on_first_call as *mut (), Ordering::Release);
    }
    has_all
}

/// Returns the functions that a namespace's calls go to. Called only by its thunks.
#[inline(always)]
pub(crate) fn functions(namespace: usize) -> &'static Functions {
    let own = &ALLOCATORS[namespace % NAMESPACES_MAX];
    if !own.on_first_call.load(Ordering::Relaxed).is_null() {
        begin(own, namespace);
    }
    // SAFETY: written, with all functions for which there is a thunk, before a thunk of the
    // namespace could be called.
    unsafe { (*own.functions.get()).assume_init_ref() }
}

#[cold]
#[inline(never)]
fn begin(own: &Allocator, namespace: usize) {
    let on_first_call = own.on_first_call.swap(ptr::null_mut(), Ordering::Acquire);
    if !on_first_call.is_null() {
        // SAFETY: `transmute` requires that the pointer is a `fn(usize)`. It is not null, and
        // `set_allocator`, which stores all others, makes them from a `fn(usize)`.
        unsafe { core::mem::transmute::<*mut (), fn(usize)>(on_first_call)(namespace) };
    }
}

/// Defines the thunks, each with the function that makes the call, and the registers in which that
/// function takes the caller's stack pointer, the frame pointer and the namespace, after one, two
/// or three arguments.
macro_rules! namespace_thunks {
    ($($name:ident, $target:ident, $sp:literal, $rbp:literal, $number:literal;)*) => {
        /// The functions that are redirected in a namespace's C library, each with its thunk: see
        /// [`stub`].
        pub const REDIRECTED: [(&CStr, *const ()); [$(stringify!($name)),*].len()] = [$((
            match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => unreachable!(),
            },
            $name as *const (),
        )),*];

        $(#[unsafe(naked)]
        unsafe extern "C" fn $name() {
            naked_asm!(
                namespace_stubs!(),
                concat!("movzx ", $number, ", al"),
                concat!("mov ", $sp, ", rsp"),
                concat!("mov ", $rbp, ", rbp"),
                "jmp {target}",
                target = sym thunks::$target,
            )
        })*
    };
}

namespace_thunks! {
    malloc, malloc_of, "rsi", "rdx", "ecx";
    calloc, calloc_of, "rdx", "rcx", "r8d";
    realloc, realloc_of, "rdx", "rcx", "r8d";
    free, free_of, "rsi", "rdx", "ecx";
    reallocarray, reallocarray_from, "rcx", "r8", "r9d";
    memalign, memalign_from, "rdx", "rcx", "r8d";
    aligned_alloc, aligned_alloc_from, "rdx", "rcx", "r8d";
    posix_memalign, posix_memalign_from, "rcx", "r8", "r9d";
    valloc, valloc_from, "rsi", "rdx", "ecx";
    pvalloc, pvalloc_from, "rsi", "rdx", "ecx";
    cfree, cfree_from, "rsi", "rdx", "ecx";
    free_sized, free_sized_from, "rdx", "rcx", "r8d";
    free_aligned_sized, free_aligned_sized_from, "rcx", "r8", "r9d";
}
