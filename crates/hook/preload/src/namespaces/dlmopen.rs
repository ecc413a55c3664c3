//! `dlmopen`, of the program and of its namespaces.
//!
//! The dynamic linker uses the return address to find out which object called. So each function
//! here does its own work first, and jumps to the next definition with the stack as it was.

use core::arch::naked_asm;
use core::ffi::c_char;
use core::sync::atomic::AtomicUsize;

use super::{expect_namespace, is_recorded, next_dlmopen};
use crate::linker::find_next;
use crate::unseen;

static DLMOPEN: AtomicUsize = AtomicUsize::new(0);

extern "C" fn dlmopen_begins(namespace: isize, path: *const c_char, caller: usize) -> usize {
    namespace_begins(namespace, path);
    match caller {
        0 => find_next(&DLMOPEN, c"dlmopen"),
        caller => next_dlmopen(caller),
    }
}

fn namespace_begins(namespace: isize, path: *const c_char) {
    const LM_ID_BASE: isize = 0;
    const LM_ID_NEWLM: isize = -1;
    let is_seen = match namespace {
        LM_ID_BASE => true,
        LM_ID_NEWLM => expect_namespace(),
        number => is_recorded(number),
    };
    if !is_seen {
        unseen::record_unseen_namespace(path);
    }
}

/// Defines a function that calls `dlmopen_begins` with a number in `edx`, and jumps to the address
/// that this returns.
macro_rules! dlmopen {
    ($(#[$attribute:meta])* $name:ident, $($number:expr),*) => {
        /// The C function `dlmopen`.
        ///
        /// # Safety
        ///
        /// The contract of glibc.
        $(#[$attribute])*
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            naked_asm!(
                $($number,)*
                "push rdi",
                "push rsi",
                "push rdx",
                "mov edx, eax",
                "call {begins}",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                "test rax, rax",
                "jz 2f",
                "jmp rax",
                "2:",
                "ret",
                begins = sym dlmopen_begins,
            )
        }
    };
}

dlmopen!(
    #[unsafe(no_mangle)]
    dlmopen,
    "xor eax, eax"
);
// The `dlmopen` for the C library of another namespace.
dlmopen!(dlmopen_of_namespace, heapledger_interpose::namespace_stubs!(), "movzx eax, al");
