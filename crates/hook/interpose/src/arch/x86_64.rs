//! x86-64: `malloc` and the others for one observer that samples, in as few instructions as
//! possible.
//!
//! Each jumps to the next allocator: an entry point leads here while there is one observer, which
//! samples, and no replacement. Calls whose block may be in the sample, by `filter::may_contain` or
//! because the [`countdown`] ends, go to the thunk that notifies the observer. The rate at which
//! the countdown was drawn is not checked here. No register is changed except those that a call may
//! change (System V psABI), and no word of the stack. The observer is not notified of a request
//! that fails here.
//!
//! [`countdown`]: heapledger_core::countdown

use core::arch::naked_asm;
use core::mem::offset_of;

use heapledger_core::filter;
use heapledger_core::hooks::{Functions, Pointer, dispatch};

use crate::thunks;

/// Counts a block whose size is in this register, a block of 0 bytes as one of 1. If the block may
/// be in the sample, counts nothing and jumps to `{hooked}`. Bytes that an interrupting signal
/// handler counts are lost. The largest sizes exceed any countdown.
macro_rules! count_down {
    ($size:literal) => {
        concat!(
            "cmp ",
            $size,
            ", 1\n",
            "mov r9, qword ptr [rip + heapledger_countdown@GOTTPOFF]\n",
            "mov r8, qword ptr fs:[r9]\n",
            "sbb r8, ",
            $size,
            "\n",
            "jbe {hooked}\n",
            "mov qword ptr fs:[r9], r8",
        )
    };
}

/// Jumps to 4 with a block, in rdi, that may be in the sample by its large region.
macro_rules! check_large_region {
    () => {
        "mov eax, edi
        shr eax, {shift_large}
        lea r8, [rip + {large}]
        cmp byte ptr [r8 + rax], 0
        jne 4f"
    };
}

/// The rest of that check: jumps back to 5 if the block is not in the sample by its small region,
/// and to `{hooked}` otherwise.
macro_rules! check_small_region {
    () => {
        "4: mov eax, edi
        shr eax, {shift_small}
        and eax, {mask_small}
        lea r8, [rip + {small}]
        cmp byte ptr [r8 + rax], 0
        je 5b
        jmp {hooked}"
    };
}

/// `malloc`.
///
/// # Safety
///
/// The contract of the C function.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn malloc(size: usize) -> Pointer {
    naked_asm!(
        count_down!("rdi"),
        "jmp qword ptr [rip + {next} + {offset}]",
        hooked = sym thunks::malloc_hooked,
        next = sym dispatch::UNDERLYING,
        offset = const offset_of!(Functions, malloc),
    )
}

/// `calloc`.
///
/// # Safety
///
/// The contract of the C function.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn calloc(count: usize, each: usize) -> Pointer {
    naked_asm!(
        "mov rax, rdi",
        "mul rsi",
        "jo {hooked}",
        count_down!("rax"),
        "jmp qword ptr [rip + {next} + {offset}]",
        hooked = sym thunks::calloc_hooked,
        next = sym dispatch::UNDERLYING,
        offset = const offset_of!(Functions, calloc),
    )
}

/// `realloc`.
///
/// # Safety
///
/// The contract of the C function.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn realloc(old: Pointer, size: usize) -> Pointer {
    naked_asm!(
        check_large_region!(),
        "5:",
        count_down!("rsi"),
        "jmp qword ptr [rip + {next} + {offset}]",
        check_small_region!(),
        hooked = sym thunks::realloc_hooked,
        next = sym dispatch::UNDERLYING,
        offset = const offset_of!(Functions, realloc),
        shift_large = const filter::SHIFT_LARGE,
        large = sym filter::LARGE,
        shift_small = const filter::SHIFT_SMALL,
        mask_small = const filter::MASK_SMALL,
        small = sym filter::SMALL,
    )
}

/// `free`. A null pointer goes on to the next allocator if nothing in the sample is near 0; there
/// is no test for null.
///
/// # Safety
///
/// The contract of the C function.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn free(block: Pointer) {
    naked_asm!(
        check_large_region!(),
        "5: jmp qword ptr [rip + {next} + {offset}]",
        check_small_region!(),
        hooked = sym thunks::free_hooked,
        next = sym dispatch::UNDERLYING,
        offset = const offset_of!(Functions, free),
        shift_large = const filter::SHIFT_LARGE,
        large = sym filter::LARGE,
        shift_small = const filter::SHIFT_SMALL,
        mask_small = const filter::MASK_SMALL,
        small = sym filter::SMALL,
    )
}

/// The entry points for a replacement that counts calls
/// ([`set_counted`](heapledger_core::hooks::dispatch_path::set_counted)).
///
/// An allocation counts the thread's word down, and goes to the hook table when the word falls
/// below 0; a free compares the address with the range of the replacement's blocks. No register is
/// changed except those that a call may change, and no word of the stack.
pub(crate) mod counted {
    use core::arch::naked_asm;
    use core::mem::offset_of;

    use heapledger_core::hooks::dispatch_path::{COUNTED, Counted};
    use heapledger_core::hooks::{Functions, Pointer, dispatch};

    use crate::thunks;

    /// Defines a function that allocates a block.
    macro_rules! allocates {
        ($name:ident, $hooked:ident, $($argument:ident: $type:ty),*) => {
            /// The C function of this name.
            ///
            /// # Safety
            ///
            /// The contract of the C function.
            #[unsafe(naked)]
            pub(crate) unsafe extern "C" fn $name($($argument: $type),*) -> Pointer {
                naked_asm!(
                    "mov rax, qword ptr [rip + {counted} + {word}]",
                    "sub qword ptr fs:[rax], 1",
                    "js {hooked}",
                    "jmp qword ptr [rip + {next} + {offset}]",
                    counted = sym COUNTED,
                    word = const offset_of!(Counted, word),
                    hooked = sym thunks::$hooked,
                    next = sym dispatch::UNDERLYING,
                    offset = const offset_of!(Functions, $name),
                )
            }
        };
    }

    allocates!(malloc, malloc_hooked, size: usize);
    allocates!(calloc, calloc_hooked, count: usize, each: usize);

    /// `realloc`: of null, it counts as a call of `malloc`.
    ///
    /// # Safety
    ///
    /// The contract of the C function.
    #[unsafe(naked)]
    pub(crate) unsafe extern "C" fn realloc(old: Pointer, size: usize) -> Pointer {
        naked_asm!(
            "test rdi, rdi",
            "jz 2f",
            "mov rax, rdi",
            "sub rax, qword ptr [rip + {counted} + {first}]",
            "cmp rax, qword ptr [rip + {counted} + {length}]",
            "jb {hooked}",
            "jmp qword ptr [rip + {next} + {offset}]",
            "2:",
            "mov rax, qword ptr [rip + {counted} + {word}]",
            "sub qword ptr fs:[rax], 1",
            "js {hooked}",
            "jmp qword ptr [rip + {next} + {offset}]",
            counted = sym COUNTED,
            word = const offset_of!(Counted, word),
            first = const offset_of!(Counted, first),
            length = const offset_of!(Counted, length),
            hooked = sym thunks::realloc_hooked,
            next = sym dispatch::UNDERLYING,
            offset = const offset_of!(Functions, realloc),
        )
    }

    /// `free`. Null is not in the range, and goes on to the next allocator.
    ///
    /// # Safety
    ///
    /// The contract of the C function.
    #[unsafe(naked)]
    pub(crate) unsafe extern "C" fn free(block: Pointer) {
        naked_asm!(
            "mov rax, rdi",
            "sub rax, qword ptr [rip + {counted} + {first}]",
            "cmp rax, qword ptr [rip + {counted} + {length}]",
            "jb {hooked}",
            "jmp qword ptr [rip + {next} + {offset}]",
            counted = sym COUNTED,
            first = const offset_of!(Counted, first),
            length = const offset_of!(Counted, length),
            hooked = sym thunks::free_hooked,
            next = sym dispatch::UNDERLYING,
            offset = const offset_of!(Functions, free),
        )
    }
}

/// The entry points of an armed program: each looks at one word, and jumps to the next allocator.
///
/// No register is changed, and no word of the stack, unless somebody has made a request.
pub(crate) mod armed {
    use core::arch::naked_asm;
    use core::mem::offset_of;

    use heapledger_core::hooks::dispatch_path::REQUESTED;
    use heapledger_core::hooks::{Functions, Pointer, dispatch};

    use crate::{entry_points, thunks};

    /// Defines a function of at most two arguments. After a request it marks that a call has begun,
    /// if entries have been redirected: the next allocator's may be one of them.
    macro_rules! entry {
        ($name:ident, $observed:ident, $($argument:ident: $type:ty),* => $result:ty) => {
            /// The C function of this name.
            ///
            /// # Safety
            ///
            /// The contract of the C function.
            #[unsafe(naked)]
            pub(crate) unsafe extern "C" fn $name($($argument: $type),*) -> $result {
                naked_asm!(
                    "cmp dword ptr [rip + {requested}], 0",
                    "jne 2f",
                    "jmp qword ptr [rip + {next} + {offset}]",
                    // The stack pointer becomes a multiple of 16, as a call requires.
                    "2:",
                    "push rdi",
                    "push rsi",
                    "sub rsp, 8",
                    "call {handle}",
                    "add rsp, 8",
                    "pop rsi",
                    "pop rdi",
                    "jmp {observed}",
                    requested = sym REQUESTED,
                    next = sym dispatch::UNDERLYING,
                    offset = const offset_of!(Functions, $name),
                    handle = sym entry_points::requested,
                    observed = sym thunks::$observed,
                )
            }
        };
    }

    entry!(malloc, malloc_outermost, size: usize => Pointer);
    entry!(calloc, calloc_outermost, count: usize, each: usize => Pointer);
    entry!(realloc, realloc_outermost, old: Pointer, size: usize => Pointer);
    entry!(free, free_outermost, block: Pointer => ());
}
