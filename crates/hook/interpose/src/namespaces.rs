//! The malloc family for namespaces that `dlmopen` makes.
//!
//! Each has a C library of its own, and its calls go to the functions of that library only: a thunk
//! has a stub for each namespace, which passes the namespace's number. Observers are notified of
//! these calls as of the program's. Replacements are for the program's own calls and are not
//! called.

use core::arch::naked_asm;
use core::ffi::CStr;

use crate::allocators::NAMESPACES_MAX;
use crate::calls;

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
                target = sym calls::$target,
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
