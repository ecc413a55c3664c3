//! The heaps of threads: a thread gets one at its first allocation, and leaves it to others when it
//! ends.
//!
//! The C library calls functions of this module when threads end and when the process forks, and
//! gets no notice that they are gone. So a library that brings the allocator must not be unloaded.
//!
//! After a fork, the child has its own thread only. The heaps of the others may have been in the
//! middle of a change, so nobody adopts them there; their blocks stay as they are.

use core::ffi::{c_int, c_void};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::arch;
use crate::arena::ARENA;
use crate::heap::{EMPTY, Heap, HeapPtr};
use crate::huge::HUGE;
use crate::locked::Locked;

/// The states of this module.
const NEW: u32 = 0;
const STARTING: u32 = 1;
const STARTED: u32 = 2;
static STATE: AtomicU32 = AtomicU32::new(NEW);
/// The key whose destructor notices that a thread ends. Valid in the state [`STARTED`].
static KEY: AtomicU32 = AtomicU32::new(0);

/// The heaps that no thread has, linked by [`Heap::next`]. Locked first.
static UNOWNED: Locked<Option<HeapPtr>> = Locked::new(None);

unsafe extern "C" {
    fn pthread_key_create(key: *mut u32, destructor: Option<unsafe extern "C" fn(*mut c_void)>) -> c_int;
    fn pthread_setspecific(key: u32, value: *const c_void) -> c_int;
    fn pthread_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> c_int;
}

/// Gives this thread a heap: one that another thread has left, or a new one. `None` if there is no
/// memory.
#[cold]
#[inline(never)]
pub(crate) fn acquire() -> Option<HeapPtr> {
    let heap = pop().or_else(HeapPtr::create)?;
    arch::set_heap(heap);
    // From here on this thread can allocate: what `register` calls may.
    register(heap);
    Some(heap)
}

/// Registers this thread's heap with the C library, which calls [`leave`] when the thread ends.
/// Called again later if that is not possible: while another thread creates the key, or if there is
/// no memory.
pub(crate) fn register(heap: HeapPtr) {
    if heap.is_registered.get() {
        return;
    }
    start();
    if STATE.load(Ordering::Acquire) == STARTED {
        // SAFETY: `pthread_setspecific` demands a key that exists: it was created before the state
        // was stored, and is never deleted. Only `leave` receives the value.
        let error = unsafe { pthread_setspecific(KEY.load(Ordering::Relaxed), heap.as_ptr().cast()) };
        heap.is_registered.set(error == 0);
    }
}

/// Creates the key and registers the handlers of fork(2), once. If the process has no key left, no
/// heap is left to others.
fn start() {
    if STATE.compare_exchange(NEW, STARTING, Ordering::Acquire, Ordering::Relaxed).is_err() {
        return;
    }
    let mut key = 0;
    // SAFETY: functions of the C library with arguments of their types. The handlers and the
    // destructor allocate nothing, and stay where they are: a preloaded library and a program are
    // not unloaded, and docs/allocator.md demands the same of other libraries.
    unsafe {
        pthread_atfork(Some(before_fork), Some(after_fork), Some(after_fork));
        if pthread_key_create(&raw mut key, Some(leave)) == 0 {
            KEY.store(key, Ordering::Relaxed);
            STATE.store(STARTED, Ordering::Release);
        }
    }
}

extern "C" fn before_fork() {
    UNOWNED.lock_for_fork();
    HUGE.lock_for_fork();
    ARENA.lock_for_fork();
}

extern "C" fn after_fork() {
    // SAFETY: `unlock_after_fork` demands that `before_fork` has run: the C library calls one after
    // the other, in the thread that forks and in its copy.
    unsafe {
        ARENA.unlock_after_fork();
        HUGE.unlock_after_fork();
        UNOWNED.unlock_after_fork();
    }
}

/// The key's destructor: releases what this thread does not use, and leaves the heap to others. If
/// another destructor allocates afterwards, the thread gets a heap again. The C library then calls
/// this again, but at most four times in all: a heap that the thread gets in the last of these
/// iterations, or after them, is left to nobody. Its blocks can be freed, and are not used again.
///
/// # Safety
///
/// The C library calls it in the thread that ends, with the value that [`acquire`] has set.
unsafe extern "C" fn leave(heap: *mut c_void) {
    let Some(heap) = NonNull::new(heap.cast::<Heap>()) else { return };
    // SAFETY: `HeapPtr::new` demands a heap that is never freed, as that of a `HeapPtr` is.
    let heap = unsafe { HeapPtr::new(heap) };
    if arch::heap() == heap {
        heap.leave();
        heap.is_registered.set(false);
        arch::set_heap(EMPTY);
        push(heap);
    }
}

fn push(heap: HeapPtr) {
    UNOWNED.with(|heaps| heap.next.set(heaps.replace(heap)));
}

fn pop() -> Option<HeapPtr> {
    UNOWNED.with(|heaps| {
        let heap = (*heaps)?;
        *heaps = heap.next.take();
        Some(heap)
    })
}

/// Releases what is free in the next heap that no thread has: blocks of it may have been freed by
/// others since its thread ended.
pub(crate) fn visit_unowned() {
    if let Some(heap) = pop() {
        heap.trim();
        // The last one next time: the list is a queue.
        UNOWNED.with(|heaps| {
            heap.next.set(None);
            let Some(mut last) = *heaps else { return *heaps = Some(heap) };
            while let Some(next) = last.next.get() {
                last = next;
            }
            last.next.set(Some(heap));
        });
    }
}

/// Releases what is free in all heaps that no thread has.
pub(crate) fn trim_unowned() {
    let mut next = UNOWNED.with(Option::take);
    while let Some(heap) = next {
        next = heap.next.take();
        heap.trim();
        push(heap);
    }
}
