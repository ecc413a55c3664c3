//! The allocators of the namespaces that `dlmopen` makes: those of their own C libraries.

use core::cell::UnsafeCell;
use core::ffi::CStr;
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use heapledger_core::hooks::Functions;

use crate::underlying::allocator;

/// The maximum number of namespaces in glibc, the program's own included, whose number is 0.
pub const NAMESPACES_MAX: usize = 16;

/// A namespace's allocator.
struct Allocator {
    functions: UnsafeCell<MaybeUninit<Functions>>,
    /// A `fn(usize)` that is called before anything else at the namespace's first call; null from
    /// then on.
    on_first_call: AtomicPtr<()>,
}

// SAFETY: the functions are written only by `set_allocator`, before its namespace can call a stub.
unsafe impl Sync for Allocator {}

static ALLOCATORS: [Allocator; NAMESPACES_MAX] = [const {
    Allocator { functions: UnsafeCell::new(MaybeUninit::zeroed()), on_first_call: AtomicPtr::new(ptr::null_mut()) }
}; NAMESPACES_MAX];

/// Sets the allocator of a namespace by the addresses of its functions, and the function to call at
/// its first call. Returns false if it does not have all of them.
///
/// # Safety
///
/// The namespace has been made just now: none of its calls has been redirected here. The addresses
/// are those of the functions of these names; 0 if there is none.
pub unsafe fn set_allocator(namespace: usize, address: impl Fn(&CStr) -> usize, on_first_call: fn(usize)) -> bool {
    let Some(own) = ALLOCATORS.get(namespace) else { return false };
    let functions = allocator(address);
    let Functions { malloc, calloc, realloc, free, memalign, posix_memalign, aligned_alloc, valloc, pvalloc, .. } =
        functions;
    let has_all = malloc.is_some()
        && calloc.is_some()
        && realloc.is_some()
        && free.is_some()
        && memalign.is_some()
        && posix_memalign.is_some()
        && aligned_alloc.is_some()
        && valloc.is_some()
        && pvalloc.is_some();
    if has_all {
        // SAFETY: nobody reads it, because by the caller's contract no call of the namespace is
        // redirected here yet.
        unsafe { (*own.functions.get()).write(functions) };
        own.on_first_call.store(on_first_call as *mut (), Ordering::Release);
    }
    has_all
}

/// Returns the functions that a namespace's calls go to. Called only by its thunks.
#[inline(always)]
pub(crate) fn functions(namespace: usize) -> &'static Functions {
    let own = &ALLOCATORS[namespace % NAMESPACES_MAX];
    if !own.on_first_call.load(Ordering::Relaxed).is_null() {
        begin(own, namespace);
    }
    // SAFETY: written, with all functions for which there is a thunk, before a thunk of the
    // namespace could be called.
    unsafe { (*own.functions.get()).assume_init_ref() }
}

#[cold]
#[inline(never)]
fn begin(own: &Allocator, namespace: usize) {
    let on_first_call = own.on_first_call.swap(ptr::null_mut(), Ordering::Acquire);
    if !on_first_call.is_null() {
        // SAFETY: `transmute` requires that the pointer is a `fn(usize)`. It is not null, and
        // `set_allocator`, which stores all others, makes them from a `fn(usize)`.
        unsafe { core::mem::transmute::<*mut (), fn(usize)>(on_first_call)(namespace) };
    }
}
