//! The thunks of the malloc family.
//!
//! Each entry point is a thunk of three instructions that adds the caller's stack pointer (at the
//! return address) and frame pointer to the arguments and jumps on: so the unwinder starts at the
//! program's frame, and none of ours needs unwind information. The functions behind ([`calls`])
//! make the call and notify the observers. `malloc`, `calloc`, `realloc` and `free` get here
//! through the [entry points](crate::entry_points).

use core::arch::naked_asm;
use core::ffi::{c_int, c_void};

use heapledger_core::hooks::Pointer;

use crate::{arenas, calls};

/// Defines a thunk that adds rsp and rbp to one, two or three arguments; then 0 for the program's
/// namespace, if there is a register for that.
macro_rules! thunk {
    ($(#[$attribute:meta])* $name:ident, $target:path, $sp:literal, $rbp:literal, $($number:literal,)? $($argument:ident: $type:ty),* => $result:ty) => {
        /// The C function of this name.
        ///
        /// # Safety
        ///
        /// The contract of the C function.
        $(#[$attribute])*
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            naked_asm!(
                concat!("mov ", $sp, ", rsp"),
                concat!("mov ", $rbp, ", rbp"),
                $(concat!("xor ", $number, ", ", $number),)?
                "jmp {target}",
                target = sym $target,
            )
        }
    };
}

/// Defines an exported thunk.
macro_rules! export {
    ($($thunk:tt)*) => {
        thunk!(#[unsafe(no_mangle)] $($thunk)*);
    };
}

thunk!(malloc_hooked, calls::malloc_from, "rsi", "rdx", size: usize => Pointer);
thunk!(calloc_hooked, calls::calloc_from, "rdx", "rcx", count: usize, each: usize => Pointer);
thunk!(realloc_hooked, calls::realloc_from, "rdx", "rcx", old: Pointer, size: usize => Pointer);
thunk!(free_hooked, calls::free_from, "rsi", "rdx", block: Pointer => ());

// The same in a program in which entry points have been redirected.
thunk!(malloc_outermost, calls::malloc_outermost, "rsi", "rdx", size: usize => Pointer);
thunk!(calloc_outermost, calls::calloc_outermost, "rdx", "rcx", count: usize, each: usize => Pointer);
thunk!(realloc_outermost, calls::realloc_outermost, "rdx", "rcx", old: Pointer, size: usize => Pointer);
thunk!(free_outermost, calls::free_outermost, "rsi", "rdx", block: Pointer => ());

export!(reallocarray, calls::reallocarray_from, "rcx", "r8", "r9d", old: Pointer, count: usize, each: usize => Pointer);
export!(memalign, calls::memalign_from, "rdx", "rcx", "r8d", alignment: usize, size: usize => Pointer);
export!(aligned_alloc, calls::aligned_alloc_from, "rdx", "rcx", "r8d", alignment: usize, size: usize => Pointer);
export!(posix_memalign, calls::posix_memalign_from, "rcx", "r8", "r9d", out: *mut Pointer, alignment: usize, size: usize => c_int);
export!(valloc, calls::valloc_from, "rsi", "rdx", "ecx", size: usize => Pointer);
export!(pvalloc, calls::pvalloc_from, "rsi", "rdx", "ecx", size: usize => Pointer);
export!(cfree, calls::cfree_from, "rsi", "rdx", "ecx", block: Pointer => ());
export!(free_sized, calls::free_sized_from, "rdx", "rcx", "r8d", block: Pointer, size: usize => ());
export!(free_aligned_sized, calls::free_aligned_sized_from, "rcx", "r8", "r9d", block: Pointer, alignment: usize, size: usize => ());

// The functions of `include/heapledger/arena.h`.
export!(heapledger_arena_create, arenas::create_from, "rsi", "rdx", parameters: *const c_void => usize);
export!(heapledger_arena_dispose, arenas::dispose_from, "rsi", "rdx", arena: usize => ());
export!(heapledger_arena_malloc, arenas::malloc_from, "rdx", "rcx", arena: usize, size: usize => Pointer);
export!(heapledger_arena_calloc, arenas::calloc_from, "rcx", "r8", arena: usize, count: usize, each: usize => Pointer);
export!(heapledger_arena_realloc, arenas::realloc_from, "rcx", "r8", arena: usize, old: Pointer, size: usize => Pointer);
export!(heapledger_arena_free, arenas::free_from, "rdx", "rcx", arena: usize, block: Pointer => ());
export!(heapledger_arena_memalign, arenas::memalign_from, "rcx", "r8", arena: usize, alignment: usize, size: usize => Pointer);

/// The functions of a program that asks for them, by names that lead here in any program.
pub(crate) mod own {
    use super::*;

    thunk!(memalign, calls::memalign_from, "rdx", "rcx", "r8d", alignment: usize, size: usize => Pointer);
    thunk!(aligned_alloc, calls::aligned_alloc_from, "rdx", "rcx", "r8d", alignment: usize, size: usize => Pointer);
    thunk!(posix_memalign, calls::posix_memalign_from, "rcx", "r8", "r9d", out: *mut Pointer, alignment: usize, size: usize => c_int);
    thunk!(valloc, calls::valloc_from, "rsi", "rdx", "ecx", size: usize => Pointer);
    thunk!(arena_malloc, arenas::malloc_from, "rdx", "rcx", arena: usize, size: usize => Pointer);
    thunk!(arena_calloc, arenas::calloc_from, "rcx", "r8", arena: usize, count: usize, each: usize => Pointer);
    thunk!(arena_realloc, arenas::realloc_from, "rcx", "r8", arena: usize, old: Pointer, size: usize => Pointer);
    thunk!(arena_free, arenas::free_from, "rdx", "rcx", arena: usize, block: Pointer => ());
    thunk!(arena_memalign, arenas::memalign_from, "rcx", "r8", arena: usize, alignment: usize, size: usize => Pointer);
}
