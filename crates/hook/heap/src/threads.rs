//! The heaps of threads: a thread gets one at its first allocation, and one of an arena at its
//! first allocation there. It leaves them to others when it ends.
//!
//! The C library calls functions of this module when threads end and when the process forks, and
//! gets no notice that they are gone. So a library that brings the allocator must not be unloaded.
//!
//! After a fork, the child has its own thread only. The heaps of the others may have been in the
//! middle of a change, so nobody adopts them there; their blocks stay as they are.

use core::ffi::{c_int, c_void};
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicU32, Ordering};

use heapledger_core::print::Printer;
use heapledger_core::thread_key;

use crate::arch;
use crate::arena::purge::deferred::QUEUE;
use crate::arena::purge::public::set_dirty_decay;
use crate::arena::registry::{self, REGISTRY};
use crate::arena::{MAIN, heaps};
use crate::base::BASE_ALLOCATOR;
use crate::heap::{EMPTY, Heap, HeapPtr};
use crate::huge::{self, HUGE};
use crate::{StatisticsFormat, options, os, readers, shortage, write_statistics};

/// The states of this module.
const NEW: u32 = 0;
const STARTING: u32 = 1;
const STARTED: u32 = 2;
static STATE: AtomicU32 = AtomicU32::new(NEW);
/// The key whose destructor notices that a thread ends. Valid in the state [`STARTED`].
static KEY: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" {
    fn pthread_key_create(key: *mut u32, destructor: Option<unsafe extern "C" fn(*mut c_void)>) -> c_int;
    fn pthread_key_delete(key: u32) -> c_int;
    fn pthread_setspecific(key: u32, value: *const c_void) -> c_int;
    fn __cxa_atexit(run: extern "C" fn(*mut c_void), argument: *mut c_void, object: *const c_void) -> c_int;
    fn pthread_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> c_int;
}

/// Returns this thread's home heap. If it has none, it gets one that another thread has left, or a
/// new one. `None` if there is no memory.
#[cold]
#[inline(never)]
pub(crate) fn acquire() -> Option<HeapPtr> {
    let own = arch::own();
    if !own.is_empty() {
        return Some(own);
    }
    options::start();
    let heap = MAIN.adopt(None, None)?;
    set_own(heap);
    // From here on this thread can allocate: what `register` calls may.
    register(heap);
    Some(heap)
}

/// Makes a heap this thread's home heap.
fn set_own(heap: HeapPtr) {
    arch::set_own(heap);
    // While an option fills memory, the common path finds no heap.
    if !options::is_slow() {
        arch::set_heap(heap);
    }
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

/// Reads the options, and registers the handlers of fork(2), before a thread takes a lock of the
/// allocator that a fork of another thread could copy.
#[inline(never)]
pub(crate) fn prepare() {
    options::start();
    if STATE.load(Ordering::Acquire) == NEW {
        start();
    }
}

/// Creates the key and registers the handlers of fork(2), and sets the decay of the options, once.
/// If the process has no key left, no heap is left to others.
#[cold]
fn start() {
    if STATE.compare_exchange(NEW, STARTING, Ordering::Acquire, Ordering::Relaxed).is_err() {
        return;
    }
    shortage::start();
    let seconds = options::decay();
    if seconds != 0 {
        set_dirty_decay(seconds);
    }
    // SAFETY: functions of the C library with arguments of their types. The handlers and the
    // destructor allocate nothing, and stay where they are: a preloaded library and a program are
    // not unloaded, and docs/allocator.md demands the same of other libraries.
    unsafe {
        #[cfg(not(miri))]
        pthread_atfork(Some(before_fork), Some(after_fork), Some(after_fork_in_child));
        if let Some(key) = thread_key::create_last(pthread_key_create, pthread_key_delete, leave) {
            KEY.store(key, Ordering::Relaxed);
            STATE.store(STARTED, Ordering::Release);
        }
        if options::prints_at_exit() {
            __cxa_atexit(print, ptr::null_mut(), ptr::null());
        }
    }
}

/// Prints the statistics to standard error, when the process exits.
extern "C" fn print(_: *mut c_void) {
    let mut printer = Printer::new(2);
    let _ = write_statistics(StatisticsFormat::Text, &mut printer);
    printer.finish();
}

/// Takes all locks, in their order.
extern "C" fn before_fork() {
    REGISTRY.lock_for_fork();
    // No arena can be added now.
    registry::for_each(|arena| arena.purging.lock_for_fork());
    registry::for_each(|arena| arena.lock_heaps_for_fork());
    heaps::lock_spare_for_fork();
    QUEUE.lock_for_fork();
    HUGE.lock_for_fork();
    registry::for_each(|arena| arena.space.lock_for_fork());
    BASE_ALLOCATOR.lock_for_fork();
    os::lock_for_fork();
    options::lock_for_fork();
    shortage::before_fork();
}

extern "C" fn after_fork() {
    // SAFETY: `unlock_after_fork` demands that `before_fork` has run: the C library calls one after
    // the other, in the thread that forks and in its copy. The arenas are those of then, because
    // the registry is unlocked last.
    unsafe {
        options::unlock_after_fork();
        os::unlock_after_fork();
        BASE_ALLOCATOR.unlock_after_fork();
        registry::for_each(|arena| arena.space.unlock_after_fork());
        HUGE.unlock_after_fork();
        QUEUE.unlock_after_fork();
        heaps::unlock_spare_after_fork();
        registry::for_each(|arena| arena.unlock_heaps_after_fork());
        registry::for_each(|arena| arena.purging.unlock_after_fork());
        REGISTRY.unlock_after_fork();
    }
}

extern "C" fn after_fork_in_child() {
    after_fork();
    let home = arch::own();
    registry::for_each(|arena| arena.keep(home));
    readers::reset();
    shortage::after_fork();
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
    if arch::own() == heap {
        heap.is_registered.set(false);
        arch::set_heap(EMPTY);
        arch::set_own(EMPTY);
        heap.take_siblings(|sibling| sibling.arena().leave(sibling));
        heap.arena().leave(heap);
    }
}

/// Does what has to be done now and then: all of this thread's heap was visited since the last
/// time.
#[cold]
pub(crate) fn visit(heap: HeapPtr) {
    heap.arena().visit_unowned();
    if heap.is_at_home(heap) {
        if !heap.arena().is_main() {
            MAIN.visit_unowned();
        }
        huge::tick(false);
        register(heap);
        // Blocks of them may have been freed by other threads since this thread used them.
        heap.each_sibling(|sibling| sibling.arena().trim_own(sibling));
    }
}

/// Makes another one of this thread's heaps its home heap.
pub(crate) fn move_home(from: HeapPtr, to: HeapPtr) {
    from.take_siblings(|heap| {
        heap.set_home(to);
        if heap != to {
            to.add_sibling(heap);
        }
    });
    from.set_home(to);
    to.add_sibling(from);
    from.is_registered.set(false);
    set_own(to);
    register(to);
}

/// Releases what is free in this thread's heaps, and in all heaps that no thread has.
pub(crate) fn trim() {
    let home = arch::own();
    if !home.is_empty() {
        home.arena().trim_own(home);
        home.each_sibling(|sibling| sibling.arena().trim_own(sibling));
    }
    registry::for_each(|arena| arena.trim_unowned());
}
