//! x86-64: the thunk to which all stubs lead.

use core::arch::naked_asm;
use core::mem::offset_of;

#[cfg(placed)]
use heapledger_core::thread_slots as slots;
use heapledger_wire::redirection::Site;

use crate::calls;

#[cfg(placed)]
#[path = "x86_64/placed_words.rs"]
mod words;
#[cfg(not(placed))]
mod words;

pub(crate) use words::{outermost, set_outermost, site};

/// The bytes that the thunk takes for the vector registers, and for what it keeps.
const AREA: usize = if cfg!(placed) { 144 } else { 128 };

/// The registers of a call of a redirected entry, as the thunk saves them.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Registers {
    /// The result is returned in it, unless the function has none.
    pub(crate) rax: u64,
    /// The arguments, from the first to the sixth.
    pub(crate) arguments: [u64; 6],
    r10: u64,
    r11: u64,
    /// The return address of the call.
    pub(crate) return_address: u64,
}

impl Registers {
    /// Returns the stack pointer by which the thunk has marked the call: it had pushed r10 last.
    pub(crate) fn mark(&self) -> u64 {
        (&raw const self.r10).expose_provenance() as u64
    }
}

/// The way on after [`calls::call`]: returned in rax and rdx.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Next {
    /// 0: return to the caller. Otherwise go on in the original, with the registers of the call.
    pub(crate) goes_on: u64,
    /// The address to go on at: [`Site::pass`].
    pub(crate) pass: u64,
}

/// The thunk, to which every stub jumps. It is not to be called otherwise.
pub const THUNK: unsafe extern "C" fn() = redirected;

/// Returns the address of the thunk.
pub fn thunk_address() -> u64 {
    (redirected as *const ()).expose_provenance() as u64
}

/// Pushes a register, and says so to unwinders.
macro_rules! push {
    ($register:literal) => {
        concat!("push ", $register, "\n.cfi_adjust_cfa_offset 8")
    };
}

/// Pops a register, and says so to unwinders.
macro_rules! pop {
    ($register:literal) => {
        concat!("pop ", $register, "\n.cfi_adjust_cfa_offset -8")
    };
}

/// Defines the thunk, with these further operands of its assembly.
macro_rules! define_thunk {
    ($($operands:tt)*) => {
        /// The thunk. A stub jumps here with the address of its [`Site`] in r11, and has pushed the
        /// program's r11. Restores every register but rax, and rax as well if the function has no result:
        /// gcc lets callers in the same file keep values in registers that the original leaves alone
        /// (`-fipa-ra`). Of the vector registers, this loaded object uses the first eight only, which the
        /// test `laws` checks; the original may use what it likes.
        ///
        /// A nested call goes on in the original at once.
        #[unsafe(naked)]
        unsafe extern "C" fn redirected() {
            naked_asm!(
                // The stub has pushed r11. So unwinders find the program's caller, where they start inside
                // of the allocator.
                ".cfi_startproc\n.cfi_def_cfa_offset 16",
                push!("r10"),
                words::begin!(),
                push!("r8"),
                push!("rcx"),
                push!("rdx"),
                push!("rsi"),
                push!("rdi"),
                push!("rax"),
                "mov rdi, rsp",
                "mov rsi, r11",
                "mov rdx, rbp",
                // rsp was 8 below a multiple of 16 at the entry, and nine words have been pushed.
                "sub rsp, {area}\n.cfi_adjust_cfa_offset {area}",
                words::keep!(),
                "movups xmmword ptr [rsp], xmm0",
                "movups xmmword ptr [rsp + 16], xmm1",
                "movups xmmword ptr [rsp + 32], xmm2",
                "movups xmmword ptr [rsp + 48], xmm3",
                "movups xmmword ptr [rsp + 64], xmm4",
                "movups xmmword ptr [rsp + 80], xmm5",
                "movups xmmword ptr [rsp + 96], xmm6",
                "movups xmmword ptr [rsp + 112], xmm7",
                "call {call}",
                words::end!(),
                "movups xmm0, xmmword ptr [rsp]",
                "movups xmm1, xmmword ptr [rsp + 16]",
                "movups xmm2, xmmword ptr [rsp + 32]",
                "movups xmm3, xmmword ptr [rsp + 48]",
                "movups xmm4, xmmword ptr [rsp + 64]",
                "movups xmm5, xmmword ptr [rsp + 80]",
                "movups xmm6, xmmword ptr [rsp + 96]",
                "movups xmm7, xmmword ptr [rsp + 112]",
                "add rsp, {area}\n.cfi_adjust_cfa_offset -{area}",
                "test rax, rax",
                "jnz 3f",
                pop!("rax"),
                pop!("rdi"),
                pop!("rsi"),
                pop!("rdx"),
                pop!("rcx"),
                pop!("r8"),
                pop!("r9"),
                pop!("r10"),
                pop!("r11"),
                "ret",
                // Nested.
                "2:",
                words::nested!(),
                "jmp qword ptr [r11 + {pass}]",
                // On in the original, whose address takes the slot of r9. It is read from below the stack
                // pointer: signal handlers leave 128 bytes there alone (System V psABI, the red zone).
                "3: .cfi_def_cfa_offset 80",
                "mov r9, qword ptr [rsp + 48]",
                "mov qword ptr [rsp + 48], rdx",
                pop!("rax"),
                pop!("rdi"),
                pop!("rsi"),
                pop!("rdx"),
                pop!("rcx"),
                pop!("r8"),
                "add rsp, 8\n.cfi_adjust_cfa_offset -8",
                pop!("r10"),
                "jmp qword ptr [rsp - 16]",
                words::slow!(),
                call = sym calls::call,
                pass = const offset_of!(Site, pass),
                area = const AREA,
                $($operands)*
            )
        }
    };
}

#[cfg(not(placed))]
define_thunk!();
#[cfg(placed)]
define_thunk! {
    multiplier = const slots::MULTIPLIER,
    hash_shift = const 64 - slots::SLOTS_BITS,
    slot_bits = const slots::SLOT_LENGTH_BITS,
    table = sym slots::TABLE,
    thread_id_at = sym slots::THREAD_ID_AT,
    thread = const offset_of!(slots::ThreadSlot, thread),
    id = const offset_of!(slots::ThreadSlot, id),
    outermost = const offset_of!(slots::ThreadSlot, outermost),
    site = const offset_of!(slots::ThreadSlot, site),
    inside = const offset_of!(slots::ThreadSlot, inside),
    enter = sym slots::enter,
}

#[cfg(test)]
mod tests;
