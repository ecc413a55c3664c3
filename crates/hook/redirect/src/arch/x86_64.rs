//! x86-64: the thunk to which all stubs lead, and a thread's word for the outermost call.

use core::arch::{asm, global_asm, naked_asm};
use core::mem::offset_of;

use heapledger_wire::redirection::Site;

use crate::calls;

// The words are initial-exec, as those of `hook/thread` are: an access never allocates. The second
// has the address of the site while the outermost call is one of a redirected entry.
global_asm!(
    ".pushsection .tbss,\"awT\",@nobits",
    ".globl heapledger_outermost",
    ".hidden heapledger_outermost",
    ".type heapledger_outermost, @object",
    ".size heapledger_outermost, 16",
    ".p2align 3",
    "heapledger_outermost:",
    ".zero 16",
    ".popsection",
);

/// Returns this thread's word: the stack pointer of the outermost call, 0 at the start of every
/// thread.
#[inline(always)]
pub(crate) fn outermost() -> u64 {
    read::<0>()
}

/// Returns the thread's word at a distance from the first one in bytes: 0 or 8.
#[inline(always)]
fn read<const DISTANCE: u64>() -> u64 {
    let word;
    // SAFETY: reads one of the thread's own two words at its constant distance from the thread
    // pointer; no other memory, no stack, no flags.
    unsafe {
        asm!(
            "mov {at}, qword ptr [rip + heapledger_outermost@GOTTPOFF]",
            "mov {word}, qword ptr fs:[{at} + {distance}]",
            at = out(reg) _,
            word = lateout(reg) word,
            distance = const DISTANCE,
            options(nostack, preserves_flags, readonly),
        );
    }
    word
}

/// Sets this thread's words: the stack pointer of the outermost call, and the address of the site
/// if it is one of a redirected entry; 0 otherwise. A word of a call that a jump has left does not
/// stay.
#[inline(always)]
pub(crate) fn set_outermost(word: u64, site: u64) {
    // SAFETY: writes the thread's own words at their constant distance from the thread pointer, to
    // which no reference exists; no stack, no flags.
    unsafe {
        asm!(
            "mov {at}, qword ptr [rip + heapledger_outermost@GOTTPOFF]",
            "mov qword ptr fs:[{at} + 8], {site}",
            "mov qword ptr fs:[{at}], {word}",
            at = out(reg) _,
            word = in(reg) word,
            site = in(reg) site,
            options(nostack, preserves_flags),
        );
    }
}

/// Returns the address of the site whose entry this thread's outermost call is of; 0 if it is not
/// one of a redirected entry.
#[inline(always)]
pub(crate) fn site() -> u64 {
    read::<8>()
}

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

/// Returns the address of the thunk, to which every stub jumps.
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
        "mov r10, qword ptr [rip + heapledger_outermost@GOTTPOFF]",
        // The stack grows down: the stack pointer of a call around this one is larger.
        "cmp qword ptr fs:[r10], rsp",
        "ja 2f\n.cfi_remember_state",
        "mov qword ptr fs:[r10], rsp",
        "mov qword ptr fs:[r10 + 8], r11",
        push!("r9"),
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
        "sub rsp, 128\n.cfi_adjust_cfa_offset 128",
        "movups xmmword ptr [rsp], xmm0",
        "movups xmmword ptr [rsp + 16], xmm1",
        "movups xmmword ptr [rsp + 32], xmm2",
        "movups xmmword ptr [rsp + 48], xmm3",
        "movups xmmword ptr [rsp + 64], xmm4",
        "movups xmmword ptr [rsp + 80], xmm5",
        "movups xmmword ptr [rsp + 96], xmm6",
        "movups xmmword ptr [rsp + 112], xmm7",
        "call {call}",
        "mov r10, qword ptr [rip + heapledger_outermost@GOTTPOFF]",
        "mov qword ptr fs:[r10 + 8], 0",
        "mov qword ptr fs:[r10], 0",
        "movups xmm0, xmmword ptr [rsp]",
        "movups xmm1, xmmword ptr [rsp + 16]",
        "movups xmm2, xmmword ptr [rsp + 32]",
        "movups xmm3, xmmword ptr [rsp + 48]",
        "movups xmm4, xmmword ptr [rsp + 64]",
        "movups xmm5, xmmword ptr [rsp + 80]",
        "movups xmm6, xmmword ptr [rsp + 96]",
        "movups xmm7, xmmword ptr [rsp + 112]",
        "add rsp, 128\n.cfi_adjust_cfa_offset -128",
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
        "2: .cfi_restore_state",
        pop!("r10"),
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
        "jmp qword ptr [rsp - 16]\n.cfi_endproc",
        call = sym calls::call,
        pass = const offset_of!(Site, pass),
    )
}

#[cfg(test)]
mod tests;
