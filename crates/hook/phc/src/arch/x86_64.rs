//! x86-64: the thread's words, the fast path of allocations, and the entry of the fault handler.

use core::arch::{asm, naked_asm};
use core::ffi::{c_int, c_void};
use core::mem::offset_of;

use heapledger_core::define_thread_words;
use heapledger_core::hooks::{Functions, Pointer};

use crate::{replace, signals};

define_thread_words!("heapledger_phc", 32, pub(crate) word, pub(crate) set_word);

/// Returns the distance of the first word from the thread pointer, which is the same in each
/// thread.
pub(crate) fn word_distance() -> isize {
    let distance: isize;
    // SAFETY: reads the distance from the global offset table, where the dynamic linker has put it,
    // by the initial-exec sequence of the x86-64 TLS ABI.
    unsafe {
        asm!(
            "mov {distance}, qword ptr [rip + heapledger_phc@GOTTPOFF]",
            distance = out(reg) distance,
            options(nostack, preserves_flags, readonly),
        );
    }
    distance
}

/// Defines an allocating function of the replacement: it counts the thread's first word down and
/// goes on to the next table. When the word falls below 0, it goes to the function that samples,
/// with the stack and frame pointers as two more arguments.
macro_rules! counted {
    ($name:ident, $sampling:ident, $sp:literal, $rbp:literal, $($argument:ident: $type:ty),*) => {
        /// # Safety
        ///
        /// The contract of the C function of this name. [`replace::NEXT`] has been set.
        #[unsafe(naked)]
        pub(crate) unsafe extern "C" fn $name($($argument: $type),*) -> Pointer {
            naked_asm!(
                "mov rax, qword ptr [rip + heapledger_phc@GOTTPOFF]",
                "sub qword ptr fs:[rax], 1",
                "js 2f",
                "mov rax, qword ptr [rip + {next}]",
                "jmp qword ptr [rax + {offset}]",
                "2:",
                concat!("mov ", $sp, ", rsp"),
                concat!("mov ", $rbp, ", rbp"),
                "jmp {sampling}",
                next = sym replace::NEXT,
                offset = const offset_of!(Functions, $name),
                sampling = sym replace::$sampling,
            )
        }
    };
}

counted!(malloc, malloc_at_end, "rsi", "rdx", size: usize);
counted!(calloc, calloc_at_end, "rdx", "rcx", count: usize, each: usize);
counted!(memalign, memalign_at_end, "rdx", "rcx", alignment: usize, size: usize);

/// Defines a function of ours that is called for sampled blocks only: it adds the stack and frame
/// pointers to the arguments.
macro_rules! owned {
    ($name:ident, $target:ident, $sp:literal, $rbp:literal, $($argument:ident: $type:ty),* => $result:ty) => {
        /// # Safety
        ///
        /// The contract of the C function of this name.
        #[unsafe(naked)]
        pub(crate) unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            naked_asm!(
                concat!("mov ", $sp, ", rsp"),
                concat!("mov ", $rbp, ", rbp"),
                "jmp {target}",
                target = sym replace::$target,
            )
        }
    };
}

owned!(allocate, allocate_sampled, "rdx", "rcx", size: usize, alignment: usize => Pointer);
owned!(free, free_owned, "rsi", "rdx", block: Pointer => ());
owned!(realloc, realloc_owned, "rdx", "rcx", old: Pointer, size: usize => Pointer);
owned!(usable_size, usable_size_owned, "rsi", "rdx", block: Pointer => usize);

/// Handles a signal of a fault: calls [`signals::on_signal`], and jumps to the function that it
/// returns, if any, with the same arguments. So the program's handler has the frame of the kernel
/// as its caller, as it would have without this one.
///
/// # Safety
///
/// The kernel calls this as the handler of `signal`, with SA_SIGINFO.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn handler(signal: c_int, details: *const c_void, context: *mut c_void) {
    // On entry the stack is 8 off a multiple of 16 (System V psABI), so three words align it for a
    // call.
    naked_asm!(
        "push rdi",
        "push rsi",
        "push rdx",
        "call {on_signal}",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "jz 2f",
        "jmp rax",
        "2:",
        "ret",
        on_signal = sym signals::on_signal,
    )
}

/// Calls a function with an argument on another stack, which ends at `end`.
///
/// # Safety
///
/// `end` is the end of memory that nobody else uses, large enough for the function, and a multiple
/// of 16. The function returns, and is sound to call with the argument.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn call_on_stack(function: extern "C" fn(*mut c_void), argument: *mut c_void, end: usize) {
    naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "mov rsp, rdx",
        "mov rax, rdi",
        "mov rdi, rsi",
        "call rax",
        "mov rsp, rbp",
        "pop rbp",
        "ret",
    )
}

/// Returns from a signal handler.
///
/// # Safety
///
/// A signal handler returns here, with the kernel's signal frame at the stack pointer.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn restore() {
    naked_asm!("mov rax, 15", "syscall")
}

/// The registers of the code that a signal has interrupted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Interrupted {
    pub(crate) pc: u64,
    pub(crate) sp: u64,
    pub(crate) rbp: u64,
    /// The processor's error code of a page fault: bit 1 for a write, bit 4 for an instruction.
    pub(crate) error: u64,
}

impl Interrupted {
    /// Reads the registers from the `ucontext_t` of a signal handler: its `gregs` begin at byte 40,
    /// with rbp, rsp, rip and the error code at indices 10, 15, 16 and 19.
    ///
    /// # Safety
    ///
    /// `context` is the third argument of a handler with SA_SIGINFO, which has not returned.
    pub(crate) unsafe fn read(context: *const c_void) -> Interrupted {
        // SAFETY: the kernel has written a `ucontext_t` there, of more than 24 words.
        let register = |index: usize| unsafe { context.cast::<u64>().add(5 + index).read() };
        Interrupted { pc: register(16), sp: register(15), rbp: register(10), error: register(19) }
    }
}
