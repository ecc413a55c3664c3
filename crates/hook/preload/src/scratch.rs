//! Memory for the environment of a child, kept for the next one: a vfork child runs in its parent's
//! memory, and cannot give back the memory that it has taken there once it has become another
//! program.

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use heapledger_core::{arch, sys};
use heapledger_recorder::hook::processes;
use heapledger_recorder::session;

/// A thread's memory. A vfork child has the thread pointer of the thread that waits for it, and so
/// its memory.
struct Scratch {
    /// The thread pointer of its thread; 0 if it is free.
    owner: AtomicUsize,
    memory: AtomicPtr<u8>,
    length: AtomicUsize,
}

/// The memory kept in processes that are not recorded, but have hooks. A new thread often has the
/// thread pointer of one that has ended.
static KEPT: [Scratch; 64] = [const {
    Scratch { owner: AtomicUsize::new(0), memory: AtomicPtr::new(ptr::null_mut()), length: AtomicUsize::new(0) }
}; 64];

/// Returns memory of the calling thread, of at least this length, which is valid until it asks
/// again; null if there is none.
pub(crate) fn memory(length: usize) -> *mut u8 {
    if session::is_on() {
        return processes::scratch(length);
    }
    let own = arch::thread_pointer();
    let take = |kept: &&Scratch| match kept.owner.load(Ordering::Relaxed) {
        0 => kept.owner.compare_exchange(0, own, Ordering::Relaxed, Ordering::Relaxed).is_ok(),
        owner => owner == own,
    };
    // If all are taken by other threads, memory is left behind.
    let Some(kept) = KEPT.iter().find(take) else { return sys::map_private(length).unwrap_or(ptr::null_mut()) };
    if kept.length.load(Ordering::Relaxed) < length {
        let Ok(memory) = sys::map_private(length) else { return ptr::null_mut() };
        let old = kept.memory.swap(memory, Ordering::Relaxed);
        let old_length = kept.length.swap(length, Ordering::Relaxed);
        if !old.is_null() {
            // SAFETY: mapped here with this length for this thread, which asks anew.
            unsafe { sys::unmap(old, old_length) };
        }
    }
    kept.memory.load(Ordering::Relaxed)
}
