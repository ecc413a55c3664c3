//! Tells the hook table, at the first call, what the program's allocator is.

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::{c_int, c_void};
#[cfg(feature = "heap")]
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use heapledger_core::arch;
#[cfg(feature = "heap")]
use heapledger_core::block_sampler;
use heapledger_core::hooks::{self, Caller, Functions, Hooks, Observer, Pointer, VERSION, dispatch, dispatch_path};
use heapledger_core::hooks_entry;
use heapledger_core::lock::Lock;

use crate::Allocator;

unsafe extern "C" {
    fn malloc(size: usize) -> *mut c_void;
    fn calloc(count: usize, each: usize) -> *mut c_void;
    fn realloc(old: *mut c_void, size: usize) -> *mut c_void;
    fn free(block: *mut c_void);
    fn posix_memalign(out: *mut *mut c_void, alignment: usize, size: usize) -> c_int;
    fn aligned_alloc(alignment: usize, size: usize) -> *mut c_void;
    fn memalign(alignment: usize, size: usize) -> *mut c_void;
    fn malloc_usable_size(block: Pointer) -> usize;
}

/// The C library's allocator, or the library that replaces it in the whole program.
pub(crate) static SYSTEM: Functions = Functions {
    malloc: Some(malloc),
    calloc: Some(calloc),
    realloc: Some(realloc),
    free: Some(free),
    posix_memalign: Some(posix_memalign),
    aligned_alloc: Some(aligned_alloc),
    memalign: Some(memalign),
    malloc_usable_size: Some(malloc_usable_size),
    ..Functions::EMPTY
};

static LOCK: Lock = Lock::new();

/// Tells the hook table what the program's allocator is. Idempotent. If another thread is doing
/// this already, the caller continues without it: this is one of the first calls, and nothing can
/// have been installed yet.
#[cold]
#[inline(never)]
pub(crate) fn initialise<A: GlobalAlloc>(allocator: &Allocator<A>) {
    let Some(_guard) = LOCK.try_lock() else { return };
    if dispatch_path::is_initialised() {
        return;
    }
    if let Some(functions) = allocator.functions {
        // SAFETY: once, under the lock and since it is not initialised; without an underlying
        // allocator no replacement can be installed. The functions are those of the C library, or
        // those of Heapledger's allocator, which allocate and free as the C functions do.
        unsafe { dispatch::set_underlying(*functions) };
        #[cfg(feature = "heap")]
        if ptr::eq(functions, &raw const crate::heap::FUNCTIONS) {
            block_sampler::set_supported(heapledger_heap::restart_sampling);
        }
    } else if let Some(function) = allocator.usable_size {
        // SAFETY: `set_usable_size` requires a function that returns the size of every live block
        // of the allocator, in any thread, as `with_usable_size` does. It also requires 0 for null,
        // which `with_usable_size` does not.
        unsafe { hooks::set_usable_size(function) };
    }
    dispatch_path::set_initialised();
    if !allocator.is_system {
        forward_to_preloaded(allocator);
    }
}

/// If the preload library watches the malloc exports (`heapledger record`, or `run` with hooks),
/// and the wrapped allocator does not use these, has the preload library notified of this program's
/// calls as well.
fn forward_to_preloaded<A: GlobalAlloc>(allocator: &Allocator<A>) {
    // SAFETY: null, or the table of the preload library, which does not change and is never
    // unloaded. It has as many bytes as it says: that of an older library is shorter.
    let Some((version, observers)) = (unsafe { known_entries(preloaded()) }) else { return };
    if version != VERSION || reaches_malloc(allocator, &observers) {
        return;
    }
    // SAFETY: `tell` is a table of functions that do what an observer's may, and is there for good.
    let installed = unsafe { hooks::install_observer(observers.tell) };
    // There is room: it is the first.
    debug_assert!(installed.is_ok());
}

/// The entries of the preload library's hook table that are used here.
struct Observers {
    tell: *const Observer,
    install: unsafe extern "C" fn(*const Observer) -> c_int,
    remove: unsafe extern "C" fn(*const Observer) -> c_int,
}

/// Reads the version of a hook table, and the entries that are used here. `None` if there is no
/// table, or one without them.
///
/// # Safety
///
/// `table` is null or points to as many bytes as its `size` says, which do not change.
unsafe fn known_entries(table: *const Hooks) -> Option<(u32, Observers)> {
    // SAFETY: `hooks_entry` asks for what this function's `# Safety` does. The version comes before
    // these entries.
    unsafe {
        let remove = hooks_entry!(table, remove_observer)?;
        let install = hooks_entry!(table, install_observer)?;
        Some(((*table).version, Observers { tell: hooks_entry!(table, tell)?, install, remove }))
    }
}

/// True if the wrapped allocator gets its blocks from the malloc exports one by one. Tests this by
/// allocating one block while an observer is installed in the preload library's hook table.
fn reaches_malloc<A: GlobalAlloc>(allocator: &Allocator<A>, observers: &Observers) -> bool {
    static NOTIFIED: AtomicUsize = AtomicUsize::new(0);
    static THREAD: AtomicUsize = AtomicUsize::new(0);
    static PROBE: Observer = Observer { name: c"probe".as_ptr(), ..Observer::new(notified, freed) };
    unsafe extern "C" fn notified(block: Pointer, _: usize, _: Caller) {
        if THREAD.load(Ordering::Relaxed) == arch::thread_pointer() {
            NOTIFIED.store(block.addr(), Ordering::Relaxed);
        }
    }
    unsafe extern "C" fn freed(_: Pointer, _: Caller) {}
    // SAFETY: a size that is not 0, and an alignment that every allocator gives.
    let layout = unsafe { Layout::from_size_align_unchecked(48, 16) };
    THREAD.store(arch::thread_pointer(), Ordering::Relaxed);
    // SAFETY: the table is static, and its functions keep the contract of `Observer`. The block is
    // freed as it was allocated.
    unsafe {
        if (observers.install)(&raw const PROBE) != 0 {
            return true;
        }
        let block = allocator.inner.alloc(layout);
        let notified = NOTIFIED.load(Ordering::Relaxed);
        if !block.is_null() {
            allocator.inner.dealloc(block, layout);
        }
        (observers.remove)(&raw const PROBE);
        notified != 0
    }
}

/// The hook table of the preload library, null where it is not there: by weak reference.
fn preloaded() -> *const Hooks {
    std::ptr::with_exposed_provenance(heapledger_core::weak_address!("heapledger_hooks_v1"))
}
