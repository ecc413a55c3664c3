//! The C library's flag that says that the process has one thread only.

use core::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

static UNKNOWN_THREADS: AtomicU8 = AtomicU8::new(0);
static HAS_ONE_THREAD: AtomicPtr<AtomicU8> = AtomicPtr::new((&raw const UNKNOWN_THREADS).cast_mut());

/// Sets the address of a flag that is not 0 while only one thread of the process has ever called
/// the allocator: the C library's flag for a process that has only ever had one thread will do.
///
/// # Safety
///
/// The byte stays readable, and becomes 0 before a second thread can have freed a block that
/// another one allocates: at the latest in its first call of the allocator.
pub unsafe fn watch_threads(has_one: *const u8) {
    HAS_ONE_THREAD.store(has_one.cast_mut().cast(), Ordering::Relaxed);
}

/// Notes that it is not known any more how many threads there are.
pub(crate) fn stop_watching_threads() {
    HAS_ONE_THREAD.store((&raw const UNKNOWN_THREADS).cast_mut().cast(), Ordering::Relaxed);
}

/// True if this thread is known to be the process's only one.
#[inline(always)]
pub(crate) fn has_one_thread() -> bool {
    // SAFETY: a static of ours, or the byte that stays readable by the contract of `watch_threads`.
    unsafe { (*HAS_ONE_THREAD.load(Ordering::Relaxed)).load(Ordering::Relaxed) != 0 }
}
