//! The C library's functions that change mappings, in a session that records them.
//!
//! The C library calls these functions itself: for its malloc, for the stacks of threads, for
//! files. These calls do not go through the dynamic linker. So the functions' entries are replaced
//! by jumps to ours, which make the system call and report as the originals do: no displaced
//! instruction is needed, and no call is missed, whoever makes it. Only functions that make the
//! expected system call near their beginning are replaced. glibc's tunable
//! `glibc.cpu.prefer_map_32bit_exec`, which its `mmap` obeys, has no effect then. The dynamic
//! linker's own copies of these functions are not replaced.
//!
//! A call by code that has the `syscall` instruction itself is not seen; the recorder finds its
//! results in `/proc/PID/maps`.

use core::arch::naked_asm;
use core::sync::atomic::{AtomicUsize, Ordering};

use heapledger_core::arch::{self, nr};
use heapledger_core::hooks::Caller;
use heapledger_core::sys::check;
use heapledger_interpose::next::Objects;
use heapledger_interpose::set_errno;
use heapledger_recorder::hook::mappings::{self, MappingCall};
use heapledger_redirect::{nesting, replace_function};
use heapledger_wire::event::{MapCall, MapStep};

const ENOMEM: i32 = 12;

/// The bytes of a function in which its system call has to be.
const CODE_MAX: usize = 64;
/// The beginning of glibc's `syscall`, which moves its arguments: `mov rax, rdi`, `mov rdi, rsi`.
const SYSCALL_CODE: [u8; 6] = [0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7];

/// `endbr64`, with which functions begin in a C library for CET.
const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];

/// The C library's variable with the end of the heap of `brk`, which `sbrk` reads.
static CURRENT_BREAK: AtomicUsize = AtomicUsize::new(0);

/// Replaces the C library's functions, if they are glibc's.
///
/// # Safety
///
/// The process has one thread, and it is in none of these functions.
pub(crate) unsafe fn replace(objects: &Objects<'_>) {
    let find = |name| objects.lookup_in(b"libc.so.6", name);
    CURRENT_BREAK.store(find(c"__curbrk"), Ordering::Relaxed);
    let functions = [
        (c"mmap", nr::MMAP as u64, mmap as *const ()),
        (c"munmap", nr::MUNMAP as u64, munmap as *const ()),
        (c"mremap", nr::MREMAP as u64, mremap as *const ()),
        (c"mprotect", nr::MPROTECT as u64, mprotect as *const ()),
        (c"madvise", nr::MADVISE as u64, madvise as *const ()),
        (c"brk", nr::BRK as u64, brk as *const ()),
        (c"shmat", nr::SHMAT as u64, shmat as *const ()),
        (c"shmdt", nr::SHMDT as u64, shmdt as *const ()),
    ];
    for (name, number, function) in functions {
        let address = find(name);
        if address == 0 || (number == nr::BRK as u64 && CURRENT_BREAK.load(Ordering::Relaxed) == 0) {
            continue;
        }
        // SAFETY: `replace_function` requires a function of the C library, that no thread is in:
        // this function's `# Safety`; and one with the same effect, which ours have.
        unsafe {
            replace_function(address as u64, function as u64, |code: &[u8; CODE_MAX]| makes_call(code, number as u8));
        }
    }
    let address = find(c"syscall");
    if address != 0 {
        // SAFETY: `replace_function` requires what it does for the functions above; ours makes the
        // same system call.
        unsafe {
            let is_expected =
                |code: &[u8; CODE_MAX]| code.strip_prefix(&ENDBR64).unwrap_or(code).starts_with(&SYSCALL_CODE);
            replace_function(address as u64, syscall as *const () as u64, is_expected);
        }
    }
}

/// True if this code makes the system call with this number, and nobody has patched its beginning.
fn makes_call(code: &[u8; CODE_MAX], number: u8) -> bool {
    let is_patched = matches!(code, [0xe9 | 0xeb | 0xcc, ..] | [0xff, 0x25, ..]);
    // `mov eax, NUMBER`, `syscall`.
    let call = [0xb8, number, 0, 0, 0, 0x0f, 0x05];
    !is_patched && code.windows(call.len()).any(|window| window == call)
}

/// Defines a function that passes its six argument registers, in memory, its number and its calling
/// frame on to [`change`].
macro_rules! replacement {
    ($name:ident, $number:expr) => {
        /// The C function of this name, to which that function's entry jumps.
        ///
        /// # Safety
        ///
        /// The contract of the C function.
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            naked_asm!(
                ".cfi_startproc",
                "sub rsp, 56",
                ".cfi_adjust_cfa_offset 56",
                "mov [rsp], rdi",
                "mov [rsp + 8], rsi",
                "mov [rsp + 16], rdx",
                "mov [rsp + 24], rcx",
                "mov [rsp + 32], r8",
                "mov [rsp + 40], r9",
                "mov edi, {number}",
                "mov rsi, rsp",
                "lea rdx, [rsp + 56]",
                "mov rcx, rbp",
                "call {change}",
                "add rsp, 56",
                ".cfi_adjust_cfa_offset -56",
                "ret",
                ".cfi_endproc",
                number = const $number,
                change = sym change,
            )
        }
    };
}

replacement!(mmap, nr::MMAP);
replacement!(munmap, nr::MUNMAP);
replacement!(mremap, nr::MREMAP);
replacement!(mprotect, nr::MPROTECT);
replacement!(madvise, nr::MADVISE);
replacement!(brk, nr::BRK);
replacement!(shmat, nr::SHMAT);
replacement!(shmdt, nr::SHMDT);

/// The numbers of the system calls that [`syscall`] passes on, as bits from that of `mmap` on.
/// `brk` is not among them: the C library's variable would not be kept.
const PASSED_ON: u64 = 1
    | 1 << (nr::MPROTECT - nr::MMAP)
    | 1 << (nr::MUNMAP - nr::MMAP)
    | 1 << (nr::MREMAP - nr::MMAP)
    | 1 << (nr::MADVISE - nr::MMAP)
    | 1 << (nr::SHMAT - nr::MMAP)
    | 1 << (nr::SHMDT - nr::MMAP);

/// The C function of this name, to which its entry jumps. All but a few system calls are made here
/// at once.
///
/// # Safety
///
/// The contract of the C function.
#[unsafe(naked)]
unsafe extern "C" fn syscall() {
    naked_asm!(
        ".cfi_startproc",
        "lea rax, [rdi - {first}]",
        "cmp rax, 63",
        "ja 2f",
        "movabs r11, {passed_on}",
        "bt r11, rax",
        "jc 3f",
        "2:",
        "mov rax, rdi",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "mov r10, r8",
        "mov r8, r9",
        "mov r9, [rsp + 8]",
        "syscall",
        "cmp rax, -4095",
        "jae 4f",
        "ret",
        "4:",
        "mov rdi, rax",
        "jmp {fail}",
        "3:",
        "mov rax, [rsp + 8]",
        "sub rsp, 56",
        ".cfi_adjust_cfa_offset 56",
        "mov [rsp], rsi",
        "mov [rsp + 8], rdx",
        "mov [rsp + 16], rcx",
        "mov [rsp + 24], r8",
        "mov [rsp + 32], r9",
        "mov [rsp + 40], rax",
        // The number is in rdi.
        "mov rsi, rsp",
        "lea rdx, [rsp + 56]",
        "mov rcx, rbp",
        "call {change}",
        "add rsp, 56",
        ".cfi_adjust_cfa_offset -56",
        "ret",
        ".cfi_endproc",
        first = const nr::MMAP,
        passed_on = const PASSED_ON,
        fail = sym fail,
        change = sym change_by_syscall,
    )
}

/// Sets `errno` from the result of a system call that has failed, and returns -1.
extern "C" fn fail(result: i64) -> i64 {
    set_errno(-(result as i32));
    -1
}

extern "C" fn change(number: u64, arguments: &[u64; 6], slot: u64, rbp: u64) -> i64 {
    // SAFETY: `make` requires a live calling frame, which the replacements pass.
    unsafe { make(number, false, arguments, Caller { slot, rbp }) }
}

extern "C" fn change_by_syscall(number: u64, arguments: &[u64; 6], slot: u64, rbp: u64) -> i64 {
    // SAFETY: `make` requires a live calling frame, which `syscall` passes.
    unsafe { make(number, true, arguments, Caller { slot, rbp }) }
}

/// Makes the call and records it. Returns what the C function returns.
///
/// # Safety
///
/// *Live caller* (`heapledger_recorder::hook`) holds for `caller`; the arguments are those of the
/// program's call.
unsafe fn make(number: u64, is_syscall: bool, arguments: &[u64; 6], caller: Caller) -> i64 {
    let stack = caller.slot;
    let around = nesting::around(stack);
    let is_allocators = around.is_some();
    // The stack of an allocator's call is that of the call of the malloc function.
    let caller = match around.and_then(|around| around.registers) {
        // A signal handler that has interrupted the hook is told apart by its own frame.
        Some([slot, rbp]) if !mappings::is_inside() => Caller { slot, rbp },
        _ => caller,
    };
    if number == nr::BRK as u64 {
        let [wanted, ..] = *arguments;
        // In a sandbox too: the call is the program's.
        // SAFETY: `arch::syscall` requires valid pointers, and no effect that breaks assumptions:
        // the call is the program's own, and has no pointers.
        let call = || unsafe { arch::syscall(number as usize, [wanted as usize, 0, 0, 0, 0, 0]) };
        return set_break(wanted, call, |now, before| {
            let (call, step, address, arguments) = (MapCall::Brk, MapStep::Done, now, [before, 0, 0]);
            // SAFETY: `record` requires *live caller*: by this function's `# Safety`, the frame is
            // that of the call, or of the call of a malloc function around it, which has yet to
            // return, too.
            unsafe {
                mappings::record(MappingCall { call, step, is_allocators, address, length: 0, arguments }, caller)
            };
        });
    }
    // SAFETY: `mappings::make` requires *live caller* as above, and arguments of a call that the
    // program makes: this function's `# Safety`.
    finish(unsafe { mappings::make(number, arguments, (is_syscall, is_allocators), stack, caller) })
}

/// Makes a call of `brk` for this address by `call`, and records it by `record`, with the new break
/// and the old one. Returns what the C function returns.
fn set_break(wanted: u64, call: impl FnOnce() -> isize, record: impl FnOnce(u64, u64)) -> i64 {
    let known = core::ptr::with_exposed_provenance_mut::<u64>(CURRENT_BREAK.load(Ordering::Relaxed));
    // SAFETY: `replace` has found glibc's `__curbrk` there before it replaced `brk`. The original
    // reads and writes it without a lock, as these two do.
    let before = unsafe { known.read_volatile() };
    let now = call() as u64;
    // SAFETY: as for the read above: glibc's variable, to which the original writes the same.
    unsafe { known.write_volatile(now) };
    // 0 before the first call.
    if before != 0 && now != before {
        record(now, before);
    }
    if now < wanted {
        set_errno(ENOMEM);
        return -1;
    }
    0
}

/// Returns the result of a C function whose system call returned this.
fn finish(result: isize) -> i64 {
    match check(result) {
        Ok(_) => result as i64,
        Err(_) => fail(result as i64),
    }
}
