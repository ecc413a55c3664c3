//! Everything other than x86-64 Linux: nobody observes, and nothing is observed. The functions here
//! behave as if the kernel knew no system call.

use core::sync::atomic::{AtomicU32, Ordering};

use super::Countdown;

/// System call numbers used by Heapledger.
#[allow(missing_docs, reason = "the names are the kernel's")]
pub mod nr {
    pub const READ: usize = usize::MAX;
    pub const WRITE: usize = usize::MAX;
    pub const OPEN: usize = usize::MAX;
    pub const PREAD64: usize = usize::MAX;
    pub const PWRITE64: usize = usize::MAX;
    pub const CLOSE: usize = usize::MAX;
    pub const STAT: usize = usize::MAX;
    pub const FSTAT: usize = usize::MAX;
    pub const MMAP: usize = usize::MAX;
    pub const MPROTECT: usize = usize::MAX;
    pub const MUNMAP: usize = usize::MAX;
    pub const RT_SIGACTION: usize = usize::MAX;
    pub const RT_SIGPROCMASK: usize = usize::MAX;
    pub const RT_SIGTIMEDWAIT: usize = usize::MAX;
    pub const RT_TGSIGQUEUEINFO: usize = usize::MAX;
    pub const PROCESS_VM_READV: usize = usize::MAX;
    pub const ACCESS: usize = usize::MAX;
    pub const SCHED_YIELD: usize = usize::MAX;
    pub const MREMAP: usize = usize::MAX;
    pub const MINCORE: usize = usize::MAX;
    pub const MADVISE: usize = usize::MAX;
    pub const GETPID: usize = usize::MAX;
    pub const SOCKET: usize = usize::MAX;
    pub const CONNECT: usize = usize::MAX;
    pub const SENDTO: usize = usize::MAX;
    pub const RECVFROM: usize = usize::MAX;
    pub const SENDMSG: usize = usize::MAX;
    pub const SOCKETPAIR: usize = usize::MAX;
    pub const RECVMSG: usize = usize::MAX;
    pub const SETSOCKOPT: usize = usize::MAX;
    pub const GETSOCKOPT: usize = usize::MAX;
    pub const CLONE: usize = usize::MAX;
    pub const EXIT: usize = usize::MAX;
    pub const KILL: usize = usize::MAX;
    pub const FCNTL: usize = usize::MAX;
    pub const FALLOCATE: usize = usize::MAX;
    pub const GETEUID: usize = usize::MAX;
    pub const GETEGID: usize = usize::MAX;
    pub const PRCTL: usize = usize::MAX;
    pub const GETTID: usize = usize::MAX;
    pub const FUTEX: usize = usize::MAX;
    pub const CLOCK_GETTIME: usize = usize::MAX;
    pub const TGKILL: usize = usize::MAX;
    pub const EXIT_GROUP: usize = usize::MAX;
    pub const GETRANDOM: usize = usize::MAX;
    pub const PRLIMIT64: usize = usize::MAX;
    pub const SYSINFO: usize = usize::MAX;
    pub const MEMBARRIER: usize = usize::MAX;
    pub const CLOSE_RANGE: usize = usize::MAX;
}

/// `ENOSYS`, negated as the kernel returns it.
const UNKNOWN_CALL: isize = -38;

/// Does nothing.
///
/// # Safety
///
/// None is needed.
#[inline]
pub unsafe fn syscall(_: usize, _: [usize; 6]) -> isize {
    UNKNOWN_CALL
}

/// Runs nothing.
///
/// # Safety
///
/// None is needed.
pub unsafe fn run_in_clone(_: usize, _: extern "C" fn(*mut u8), _: *mut u8) -> isize {
    UNKNOWN_CALL
}

/// Returns 0 as the address of a symbol: nobody defines it.
#[macro_export]
macro_rules! weak_address {
    ($symbol:literal) => {
        0_usize
    };
}

/// Returns null: there is no observer.
#[inline(always)]
pub fn bridge() -> *const crate::bridge::Bridge {
    core::ptr::null()
}

/// Returns 0: there is no clock.
#[inline(always)]
pub fn ticks() -> u64 {
    0
}

/// Returns 0: there is no clock.
#[inline(always)]
pub fn ticks_after_loads() -> u64 {
    0
}

/// Returns 0: there is no thread pointer.
#[inline(always)]
pub fn thread_pointer() -> usize {
    0
}

/// Returns the state of [`dispatch_path`](crate::hooks::dispatch_path).
#[inline(always)]
pub(crate) fn dispatch_path() -> &'static AtomicU32 {
    static STATE: AtomicU32 = AtomicU32::new(crate::hooks::dispatch_path::UNINITIALISED);
    &STATE
}

/// True if the state of [`dispatch_path`](crate::hooks::dispatch_path) is 0.
#[inline(always)]
pub(crate) fn is_dispatch_direct() -> bool {
    dispatch_path().load(Ordering::Relaxed) == 0
}

/// Counts nothing, and returns false.
#[inline(always)]
pub fn count_down(_: usize, _: u32) -> bool {
    false
}

/// Returns this thread's countdown: nothing has been drawn.
pub fn countdown() -> Countdown {
    Countdown { until_reread: 0, rate: 0, after_reread: 0, stride: 0, reread_at: 0 }
}

/// Does nothing.
pub fn set_countdown(_: Countdown) {}
