//! x86-64 Linux: system calls, the time stamp counter, a thread's countdown.
// The system call convention is that of the Linux kernel: number in rax, arguments in rdi, rsi,
// rdx, r10, r8, r9; result in rax; rcx and r11 are clobbered.

use core::arch::{asm, global_asm};
use core::sync::atomic::AtomicU32;

use super::Countdown;

mod preserved;
mod thread_words;

/// System call numbers used by Heapledger.
#[allow(missing_docs, reason = "the names are the kernel's")]
pub mod nr {
    pub const READ: usize = 0;
    pub const WRITE: usize = 1;
    pub const OPEN: usize = 2;
    pub const PREAD64: usize = 17;
    pub const PWRITE64: usize = 18;
    pub const CLOSE: usize = 3;
    pub const STAT: usize = 4;
    pub const FSTAT: usize = 5;
    pub const MMAP: usize = 9;
    pub const MPROTECT: usize = 10;
    pub const MUNMAP: usize = 11;
    pub const RT_SIGACTION: usize = 13;
    pub const RT_SIGPROCMASK: usize = 14;
    pub const RT_SIGTIMEDWAIT: usize = 128;
    pub const RT_TGSIGQUEUEINFO: usize = 297;
    pub const PROCESS_VM_READV: usize = 310;
    pub const ACCESS: usize = 21;
    pub const SCHED_YIELD: usize = 24;
    pub const MREMAP: usize = 25;
    pub const MINCORE: usize = 27;
    pub const MADVISE: usize = 28;
    pub const BRK: usize = 12;
    pub const SHMAT: usize = 30;
    pub const SHMDT: usize = 67;
    pub const GETPID: usize = 39;
    pub const SOCKET: usize = 41;
    pub const CONNECT: usize = 42;
    pub const SENDTO: usize = 44;
    pub const RECVFROM: usize = 45;
    pub const SENDMSG: usize = 46;
    pub const RECVMSG: usize = 47;
    pub const SOCKETPAIR: usize = 53;
    pub const SETSOCKOPT: usize = 54;
    pub const GETSOCKOPT: usize = 55;
    pub const CLONE: usize = 56;
    pub const EXECVE: usize = 59;
    pub const EXECVEAT: usize = 322;
    pub const EXIT: usize = 60;
    pub const KILL: usize = 62;
    pub const FCNTL: usize = 72;
    pub const FALLOCATE: usize = 285;
    pub const GETEUID: usize = 107;
    pub const GETEGID: usize = 108;
    pub const PRCTL: usize = 157;
    pub const GETTID: usize = 186;
    pub const FUTEX: usize = 202;
    pub const CLOCK_GETTIME: usize = 228;
    pub const TGKILL: usize = 234;
    pub const EXIT_GROUP: usize = 231;
    pub const GETRANDOM: usize = 318;
    pub const PRLIMIT64: usize = 302;
    pub const SYSINFO: usize = 99;
    pub const MEMBARRIER: usize = 324;
    pub const CLOSE_RANGE: usize = 436;
}

/// Makes a system call. Returns the kernel's result: −4095..=−1 is a negated error number.
///
/// # Safety
///
/// The contract of the call: every pointer argument is valid for what the kernel does with it, and
/// the call has no effect on memory or process state that breaks assumptions of other code.
#[inline]
pub unsafe fn syscall(number: usize, arguments: [usize; 6]) -> isize {
    // Miri interprets no assembly: there the kernel knows no system call.
    if cfg!(miri) {
        const ENOSYS: isize = 38;
        return -ENOSYS;
    }
    let [a, b, c, d, e, f] = arguments;
    let answer: isize;
    // SAFETY: the kernel's calling convention as stated above; the caller vouches for the contract
    // of the call. Not `nomem`: the kernel reads and writes the memory that the arguments point to.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => answer,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    answer
}

/// Runs `run(task)` in a new kernel thread, with the `flags` of clone(2), on this thread's stack,
/// while this thread is suspended. Returns the new thread's id, or a negated error number if there
/// is none.
///
/// # Safety
///
/// `flags` contain `CLONE_VM` and `CLONE_VFORK`, which make the shared stack safe. No signal may be
/// delivered to the new thread, because it has this thread's thread pointer. `run` returns, and is
/// sound to call with `task` in such a thread.
pub unsafe fn run_in_clone(flags: usize, run: extern "C" fn(*mut u8), task: *mut u8) -> isize {
    let answer: isize;
    // SAFETY: the kernel's calling convention as stated above; clone(2) with stack 0 continues on
    // the same stack pointer. The assembly may push (it is not `nostack`), so nothing of ours lies
    // below the stack pointer, and the stack is aligned for a call. The new thread never leaves the
    // assembly: it calls `run`, which only writes below the stack pointer or where `task` says, and
    // exits. This thread sleeps until then, and has registers of its own.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "mov rdi, r13",
            "call r12",
            "xor edi, edi",
            "mov eax, {exit}",
            "syscall",
            "ud2",
            "2:",
            exit = const nr::EXIT,
            inlateout("rax") nr::CLONE as isize => answer,
            in("rdi") flags, in("rsi") 0, in("rdx") 0, in("r10") 0, in("r8") 0,
            in("r12") run, in("r13") task,
            lateout("rcx") _, lateout("r11") _,
        );
    }
    answer
}

/// Evaluates to the address of a symbol as a number, 0 if nobody defines it: a weak reference,
/// which stable Rust cannot make. It is read from the global offset table, so that the reference
/// stays weak in programs that are not position-independent.
#[macro_export]
macro_rules! weak_address {
    ($symbol:literal) => {{
        let address: usize;
        // SAFETY: reads an entry of the global offset table, which the linker has filled in and
        // nobody writes again.
        unsafe {
            core::arch::asm!(
                concat!(".weak ", $symbol),
                concat!("mov {}, qword ptr [rip + ", $symbol, "@GOTPCREL]"),
                out(reg) address,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        address
    }};
}

/// Returns the address of the observer's table, null if there is none.
#[inline(always)]
pub fn bridge() -> *const crate::bridge::Bridge {
    core::ptr::with_exposed_provenance(crate::weak_address!("heapledger_bridge_v1"))
}

/// Returns the time stamp counter; it may be read before earlier loads have finished.
#[inline(always)]
pub fn ticks() -> u64 {
    // SAFETY: rdtsc is available in user mode on every x86-64 Linux (the kernel leaves CR4.TSD
    // clear unless the program itself asked for PR_TSC_SIGSEGV) and has no memory effect.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Returns the time stamp counter, read only once all earlier loads have their values.
///
/// A free is stamped with this, so that its stamp cannot precede the moment the thread received the
/// pointer.
#[inline(always)]
pub fn ticks_after_loads() -> u64 {
    // SAFETY: lfence is part of SSE2, which x86-64 always has.
    unsafe { core::arch::x86_64::_mm_lfence() };
    ticks()
}

/// Returns the thread pointer (the FS base): on x86-64 glibc, the address of the thread control
/// block, which lies at the top of the thread's stack mapping for every thread but the first.
#[inline(always)]
pub fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: the x86-64 TLS ABI stores the FS base itself at %fs:0; reading it has no side effect.
    unsafe {
        asm!("mov {}, qword ptr fs:[0]", out(reg) pointer, options(nostack, preserves_flags, readonly));
    }
    pointer
}

// The fields of a `Countdown`. Initial-exec, as the words of a thread's block are (`hook/thread`):
// two instructions, and never a call of `__tls_get_addr`. Zero at the start of every thread.
//
// The assembly that accesses them rests on **the thread's countdown**: `@GOTTPOFF` is an entry of
// the global offset table. It holds the offset from the FS base to this thread's copy of these 40
// bytes (the initial-exec sequence of the x86-64 TLS ABI). Only the functions below and the entry
// points of `hook/interpose` access the copy: in its own thread, and by assembly.
#[cfg(not(placed))]
global_asm!(
    ".pushsection .tbss,\"awT\",@nobits",
    ".globl heapledger_countdown",
    ".hidden heapledger_countdown",
    ".type heapledger_countdown, @object",
    ".size heapledger_countdown, 40",
    ".p2align 6",
    "heapledger_countdown:",
    ".zero 40",
    ".popsection",
);

// One word, on a cache line of its own, because every allocator call reads it. Addressed relative
// to the instruction pointer: a static of another crate would be found through the global offset
// table, by one load more.
#[cfg(not(any(miri, all(test, loom))))]
global_asm!(
    ".pushsection .data.heapledger_way,\"aw\",@progbits",
    ".globl heapledger_dispatch_path",
    ".hidden heapledger_dispatch_path",
    ".type heapledger_dispatch_path, @object",
    ".size heapledger_dispatch_path, 64",
    ".p2align 6",
    "heapledger_dispatch_path:",
    ".long {uninitialised}",
    ".zero 60",
    ".popsection",
    uninitialised = const crate::hooks::dispatch_path::UNINITIALISED,
);

/// Returns the state of [`dispatch_path`](crate::hooks::dispatch_path).
#[cfg(not(any(miri, all(test, loom))))]
#[inline(always)]
pub(crate) fn dispatch_path() -> &'static AtomicU32 {
    unsafe extern "C" {
        safe static heapledger_dispatch_path: AtomicU32;
    }
    &heapledger_dispatch_path
}

/// Returns the state of [`dispatch_path`](crate::hooks::dispatch_path), which is defined without
/// assembly here.
#[cfg(miri)]
pub(crate) fn dispatch_path() -> &'static AtomicU32 {
    static STATE: AtomicU32 = AtomicU32::new(crate::hooks::dispatch_path::UNINITIALISED);
    &STATE
}

/// True if the state of [`dispatch_path`](crate::hooks::dispatch_path) is 0.
#[inline(always)]
pub(crate) fn is_dispatch_direct() -> bool {
    #[cfg(not(miri))]
    // SAFETY: reads the variable above, which is never removed, as a relaxed load of an aligned
    // word does.
    unsafe {
        asm!(
            "cmp dword ptr [rip + heapledger_dispatch_path], 0",
            "jne {other}",
            other = label { return false },
            options(nostack, readonly),
        );
        true
    }
    #[cfg(miri)]
    {
        dispatch_path().load(core::sync::atomic::Ordering::Relaxed) == 0
    }
}

/// Subtracts `size`, at most [`isize::MAX`], from this thread's countdown and returns true, if it
/// was drawn at this rate and is larger than `size`. Otherwise returns false and leaves it
/// unchanged.
///
/// A signal handler sees the countdown before or after the subtraction, because one instruction
/// makes it. If it subtracted too much, the countdown is 0 or less until it is restored, so that
/// nobody else counts meanwhile.
#[cfg(not(placed))]
#[inline(always)]
pub fn count_down(size: usize, rate: u32) -> bool {
    // SAFETY: accesses the first 16 bytes of the thread's countdown (see there). `rax` and the
    // flags are declared as changed, and the stack is not used.
    unsafe {
        asm!(
            "mov rax, qword ptr [rip + heapledger_countdown@GOTTPOFF]",
            "cmp dword ptr fs:[rax + 8], {rate:e}",
            "jne {other_rate}",
            "sub qword ptr fs:[rax], {size}",
            "jle {too_much}",
            rate = in(reg) rate,
            size = in(reg) size,
            other_rate = label { return false },
            too_much = label {
                count_up(size);
                return false
            },
            out("rax") _,
            options(nostack),
        );
    }
    true
}

/// Adds to this thread's countdown. Inlined, so that no register need be saved for a call on the
/// fast path.
#[cfg(not(placed))]
#[inline(always)]
fn count_up(size: usize) {
    // SAFETY: accesses the first 8 bytes of the thread's countdown (see there). The flags are
    // declared as changed, and the stack is not used.
    unsafe {
        asm!(
            "mov {at}, qword ptr [rip + heapledger_countdown@GOTTPOFF]",
            "add qword ptr fs:[{at}], {size}",
            at = out(reg) _,
            size = in(reg) size,
            options(nostack),
        );
    }
}

/// Subtracts from this thread's countdown, in a library without thread-local storage.
#[cfg(placed)]
#[inline(always)]
pub fn count_down(size: usize, rate: u32) -> bool {
    crate::thread_slots::current().count_down(size, rate)
}

/// Returns this thread's countdown.
#[cfg(placed)]
pub fn countdown() -> Countdown {
    crate::thread_slots::current().countdown()
}

/// Sets this thread's countdown.
#[cfg(placed)]
pub fn set_countdown(to: Countdown) {
    crate::thread_slots::current().set_countdown(to);
}

/// Returns this thread's countdown.
#[cfg(not(placed))]
pub fn countdown() -> Countdown {
    let (until_reread, rate, after_reread, stride, reread_at): (i64, u64, u64, u64, u64);
    // SAFETY: reads the 40 bytes of the thread's countdown (see there). Nothing is written, and
    // moves change no flags.
    unsafe {
        asm!(
            "mov {at}, qword ptr [rip + heapledger_countdown@GOTTPOFF]",
            "mov {until_reread}, qword ptr fs:[{at}]",
            "mov {rate}, qword ptr fs:[{at} + 8]",
            "mov {after_reread}, qword ptr fs:[{at} + 16]",
            "mov {stride}, qword ptr fs:[{at} + 24]",
            "mov {reread_at}, qword ptr fs:[{at} + 32]",
            at = out(reg) _,
            until_reread = out(reg) until_reread,
            rate = out(reg) rate,
            after_reread = out(reg) after_reread,
            stride = out(reg) stride,
            reread_at = out(reg) reread_at,
            options(nostack, preserves_flags, readonly),
        );
    }
    Countdown { until_reread, rate, after_reread, stride, reread_at }
}

/// Sets this thread's countdown.
#[cfg(not(placed))]
pub fn set_countdown(to: Countdown) {
    // SAFETY: writes the 40 bytes of the thread's countdown (see there). Moves change no flags, and
    // the stack is not used. Nobody counts in between, because the countdown is 0.
    unsafe {
        asm!(
            "mov {at}, qword ptr [rip + heapledger_countdown@GOTTPOFF]",
            "mov qword ptr fs:[{at}], 0",
            "mov qword ptr fs:[{at} + 8], {rate}",
            "mov qword ptr fs:[{at} + 16], {after_reread}",
            "mov qword ptr fs:[{at} + 24], {stride}",
            "mov qword ptr fs:[{at} + 32], {reread_at}",
            "mov qword ptr fs:[{at}], {until_reread}",
            at = out(reg) _,
            until_reread = in(reg) to.until_reread,
            rate = in(reg) to.rate,
            after_reread = in(reg) to.after_reread,
            stride = in(reg) to.stride,
            reread_at = in(reg) to.reread_at,
            options(nostack, preserves_flags),
        );
    }
}
