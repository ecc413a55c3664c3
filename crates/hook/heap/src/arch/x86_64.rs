//! x86-64: an initial-exec TLS word, declared in assembly because stable Rust has no
//! `#[thread_local]`. It begins as the address of the empty heap, so that nobody has to test it. A
//! second word has the thread's heap also while an option keeps the first one as it began.

use core::arch::{asm, global_asm};
use core::ptr::NonNull;

pub(crate) use heapledger_core::arch::{thread_pointer, ticks};

use crate::heap::{EMPTY_HEAP, Heap, HeapPtr};

global_asm!(
    ".pushsection .tdata.heapledger_heap,\"awT\",@progbits",
    ".globl heapledger_heap",
    ".hidden heapledger_heap",
    ".type heapledger_heap, @object",
    ".size heapledger_heap, 8",
    ".p2align 3",
    "heapledger_heap:",
    ".quad {empty}",
    ".globl heapledger_own_heap",
    ".hidden heapledger_own_heap",
    ".type heapledger_own_heap, @object",
    ".size heapledger_own_heap, 8",
    "heapledger_own_heap:",
    ".quad {empty}",
    ".popsection",
    empty = sym EMPTY_HEAP,
);

/// Returns this thread's heap; at the start of a thread, the empty one.
#[inline(always)]
pub(crate) fn heap() -> HeapPtr {
    let heap: *mut Heap;
    // SAFETY: reads this thread's copy of the variable declared above, by the initial-exec sequence
    // of the x86-64 TLS ABI.
    unsafe {
        asm!(
            "mov {heap}, qword ptr [rip + heapledger_heap@GOTTPOFF]",
            "mov {heap}, qword ptr fs:[{heap}]",
            heap = out(reg) heap,
            options(nostack, preserves_flags, readonly),
        );
    }
    // SAFETY: `new_unchecked` requires an address other than 0, and `HeapPtr::new` a heap that is
    // never freed: the word begins as `EMPTY_HEAP`'s, and `set_heap` writes those of `HeapPtr`s.
    unsafe { HeapPtr::new(NonNull::new_unchecked(heap)) }
}

/// Sets the heap in which this thread's calls look for blocks at first.
#[inline(always)]
pub(crate) fn set_heap(heap: HeapPtr) {
    // SAFETY: writes this thread's copy of the variable declared above, which only these functions
    // access.
    unsafe {
        asm!(
            "mov {at}, qword ptr [rip + heapledger_heap@GOTTPOFF]",
            "mov qword ptr fs:[{at}], {heap}",
            at = out(reg) _,
            heap = in(reg) heap.as_ptr(),
            options(nostack, preserves_flags),
        );
    }
}

/// Returns this thread's heap, or the empty one.
pub(crate) fn own() -> HeapPtr {
    let heap: *mut Heap;
    // SAFETY: reads this thread's copy of the variable declared above, by the initial-exec sequence
    // of the x86-64 TLS ABI.
    unsafe {
        asm!(
            "mov {heap}, qword ptr [rip + heapledger_own_heap@GOTTPOFF]",
            "mov {heap}, qword ptr fs:[{heap}]",
            heap = out(reg) heap,
            options(nostack, preserves_flags, readonly),
        );
    }
    // SAFETY: `new_unchecked` requires an address other than 0, and `HeapPtr::new` a heap that is
    // never freed: the word begins as `EMPTY_HEAP`'s, and `set_own` writes those of `HeapPtr`s.
    unsafe { HeapPtr::new(NonNull::new_unchecked(heap)) }
}

/// Sets this thread's heap.
pub(crate) fn set_own(heap: HeapPtr) {
    // SAFETY: writes this thread's copy of the variable declared above, which only these functions
    // access.
    unsafe {
        asm!(
            "mov {at}, qword ptr [rip + heapledger_own_heap@GOTTPOFF]",
            "mov qword ptr fs:[{at}], {heap}",
            at = out(reg) _,
            heap = in(reg) heap.as_ptr(),
            options(nostack, preserves_flags),
        );
    }
}
