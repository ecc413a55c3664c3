//! The global allocator of a Rust program as something that [hooks](heapledger_core::hooks) can watch and replace.
//!
//! [`Allocator`] passes every call on to the allocator that it wraps. With nothing installed that is all it does, after
//! one comparison and one branch. So it does, after a few instructions more, with calls that an observer which samples lets pass.
//! Else it goes through the hook table: the replacements, if the wrapped allocator is the system's, and the observers.
//!
//! On everything else than x86-64 Linux all calls are passed on.

#[cfg_attr(not(all(target_arch = "x86_64", target_os = "linux")), path = "frame_none.rs")]
mod frame;
#[cfg_attr(not(all(target_arch = "x86_64", target_os = "linux")), path = "settle_none.rs")]
mod settle;

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;

use heapledger_core::Api;
use heapledger_core::hooks::{Functions, Pointer, UsableSize, serve, tell, way};

use frame::with_caller;

/// A global allocator that Heapledger can observe.
///
/// ```
/// #[global_allocator]
/// static ALLOCATOR: heapledger_allocator::Allocator = heapledger_allocator::Allocator::system();
///
/// assert_eq!(vec![1, 2, 3].len(), 3);
/// ```
///
/// It is there to be the program's global allocator, and nothing else: measurements (`HeapSize`) ask what it wraps about all
/// blocks of the standard library's types.
///
/// # Cost
///
/// With nothing installed: two instructions and a branch per call, beside the wrapped allocator's.
#[derive(Debug)]
pub struct Allocator<A = System> {
    inner: A,
    is_system: bool,
    /// Of another allocator than the system's.
    usable_size: Option<UsableSize>,
}

impl Allocator<System> {
    /// The system's allocator: `malloc` of the C library, or of whatever the program links or is given in its place.
    pub const fn system() -> Allocator<System> {
        Allocator { inner: System, is_system: true, usable_size: None }
    }
}

impl<A: GlobalAlloc> Allocator<A> {
    /// Another allocator, such as jemalloc or mimalloc. It can be watched, not replaced: its blocks are freed with their
    /// layouts, which hooks do not know.
    pub const fn wrapping(inner: A) -> Allocator<A> {
        Allocator { inner, is_system: false, usable_size: None }
    }

    /// Names the function by which the wrapped allocator says how large a block is, slop included: what measurements ask,
    /// and what the ledger keeps. Without it they compute.
    ///
    /// ```
    /// # use heapledger_allocator::Allocator;
    /// # use std::alloc::System;
    /// # use std::ffi::c_void;
    /// # unsafe extern "C" { fn malloc_usable_size(block: *const c_void) -> usize; }
    /// # type MiMalloc = System;
    /// # const MI_MALLOC: System = System;
    /// # use malloc_usable_size as mi_usable_size;
    /// // SAFETY: all blocks are mimalloc's.
    /// static ALLOCATOR: Allocator<MiMalloc> = unsafe { Allocator::wrapping(MI_MALLOC).with_usable_size(mi_usable_size) };
    /// ```
    ///
    /// # Safety
    ///
    /// The function says the size of every live block of the wrapped allocator, by its address, in any thread.
    pub const unsafe fn with_usable_size(mut self, function: UsableSize) -> Allocator<A> {
        self.usable_size = Some(function);
        self
    }

    /// What the wrapped allocator is.
    pub const fn inner(&self) -> &A {
        &self.inner
    }
}

// SAFETY: every call is served by the wrapped allocator, or by a replacement, which is an allocator by its contract; both
// are given what `GlobalAlloc`'s caller vouches for. Observers are only told.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Allocator<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if way::passes_malloc(layout.size()) {
            // SAFETY: passed on; the same below.
            return unsafe { self.inner.alloc(layout) };
        }
        // SAFETY: passed on; the same below.
        unsafe { self.alloc_watched(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if way::passes_malloc(layout.size()) {
            // SAFETY: see `alloc`.
            return unsafe { self.inner.alloc_zeroed(layout) };
        }
        // SAFETY: see `alloc`.
        unsafe { self.alloc_zeroed_watched(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if way::passes_free(block.cast()) {
            // SAFETY: see `alloc`.
            return unsafe { self.inner.dealloc(block, layout) };
        }
        // SAFETY: see `alloc`.
        unsafe { self.dealloc_watched(block, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if way::passes_realloc(old.cast(), size) {
            // SAFETY: see `alloc`.
            return unsafe { self.inner.realloc(old, layout, size) };
        }
        // SAFETY: see `alloc`.
        unsafe { self.realloc_watched(old, layout, size) }
    }
}

/// Alignments that `malloc` gives by itself, as the standard library's `System` knows.
const MALLOC_ALIGNMENT: usize = 16;

/// Whether `System` serves this by `malloc` and the like, not by `posix_memalign`.
fn is_plain(layout: Layout) -> bool {
    layout.align() <= MALLOC_ALIGNMENT && layout.align() <= layout.size()
}

/// The contracts of all are those of [`GlobalAlloc`].
impl<A: GlobalAlloc> Allocator<A> {
    /// # Safety
    ///
    /// See above.
    #[cold]
    #[inline(never)]
    unsafe fn alloc_watched(&self, layout: Layout) -> *mut u8 {
        let block = match self.functions() {
            // SAFETY: the tables of `serve` are complete, and hold the C functions of these names.
            Some(functions) => unsafe { malloc_of(functions, layout) },
            // SAFETY: passed on.
            None => unsafe { self.inner.alloc(layout) },
        };
        tell_allocation(block, layout);
        block
    }

    /// # Safety
    ///
    /// See above.
    #[cold]
    #[inline(never)]
    unsafe fn alloc_zeroed_watched(&self, layout: Layout) -> *mut u8 {
        let block = match self.functions() {
            Some(Functions { calloc: Some(calloc), .. }) if is_plain(layout) => {
                // SAFETY: the C function.
                unsafe { calloc(layout.size(), 1).cast::<u8>() }
            }
            Some(functions) => {
                // SAFETY: as in `alloc_watched`; a block has as many bytes as were asked for.
                unsafe {
                    let block = malloc_of(functions, layout);
                    if !block.is_null() {
                        block.write_bytes(0, layout.size());
                    }
                    block
                }
            }
            // SAFETY: passed on.
            None => unsafe { self.inner.alloc_zeroed(layout) },
        };
        if is_plain(layout) && !block.is_null() {
            // SAFETY: the frame is ours, and live until we return; here and in all calls of `tell`.
            with_caller(|caller| unsafe { tell::calloc(block.cast(), layout.size(), 1, caller) });
        } else {
            tell_allocation(block, layout);
        }
        block
    }

    /// # Safety
    ///
    /// See above.
    #[cold]
    #[inline(never)]
    unsafe fn dealloc_watched(&self, block: *mut u8, layout: Layout) {
        let functions = self.functions();
        // SAFETY: see `alloc_zeroed_watched`.
        with_caller(|caller| unsafe { tell::free(block.cast(), caller) });
        match functions.and_then(|functions| functions.free) {
            // SAFETY: the block came from these functions, or from `System`, which is below them.
            Some(free) => unsafe { free(block.cast()) },
            // SAFETY: passed on.
            None => unsafe { self.inner.dealloc(block, layout) },
        }
    }

    /// # Safety
    ///
    /// See above.
    #[cold]
    #[inline(never)]
    unsafe fn realloc_watched(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let functions = self.functions();
        // SAFETY: by the contract of `GlobalAlloc::realloc` the size, rounded up to the alignment, is no larger than
        // `isize::MAX`.
        let new_layout = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        if self.is_system && !(is_plain(layout) && is_plain(new_layout)) {
            // As `System` does it: the C library would not keep the alignment.
            // SAFETY: passed on; the blocks are different, and have so many bytes.
            unsafe {
                let block = self.alloc_watched(new_layout);
                if !block.is_null() {
                    ptr::copy_nonoverlapping(old, block, layout.size().min(size));
                    self.dealloc_watched(old, layout);
                }
                return block;
            }
        }
        // SAFETY: see `alloc_zeroed_watched`.
        with_caller(|caller| unsafe { tell::realloc_begins(Api::Realloc, old.cast(), caller) });
        let block = match functions.and_then(|functions| functions.realloc) {
            // SAFETY: as in `dealloc_watched`.
            Some(realloc) => unsafe { realloc(old.cast(), size).cast::<u8>() },
            // SAFETY: passed on.
            None => unsafe { self.inner.realloc(old, layout, size) },
        };
        // SAFETY: see `alloc_zeroed_watched`.
        with_caller(|caller| unsafe { tell::realloc_ends(old.cast(), block.cast(), size, caller) });
        block
    }

    /// What serves the calls where the wrapped allocator is the system's; `None` where it is another.
    fn functions(&self) -> Option<&'static Functions> {
        if !way::is_settled() {
            settle::settle(self);
        }
        let is_served = cfg!(all(target_arch = "x86_64", target_os = "linux")) && self.is_system;
        if is_served { serve::functions() } else { None }
    }
}

/// `System::alloc`, by these functions.
///
/// # Safety
///
/// The functions are an allocator's, and complete; the size is not 0.
unsafe fn malloc_of(functions: &Functions, layout: Layout) -> *mut u8 {
    if is_plain(layout) {
        // SAFETY: the caller's contract.
        return functions.malloc.map_or(ptr::null_mut(), |malloc| unsafe { malloc(layout.size()).cast() });
    }
    let Some(posix_memalign) = functions.posix_memalign else { return ptr::null_mut() };
    let mut block: Pointer = ptr::null_mut();
    // SAFETY: the caller's contract; `posix_memalign` wants a multiple of the size of a pointer.
    let error = unsafe { posix_memalign(&mut block, layout.align().max(size_of::<Pointer>()), layout.size()) };
    if error == 0 { block.cast() } else { ptr::null_mut() }
}

/// A call for a block of this layout returned.
fn tell_allocation(block: *mut u8, layout: Layout) {
    let (size, alignment) = (layout.size(), layout.align());
    with_caller(|caller| {
        // SAFETY: see `alloc_zeroed_watched`.
        unsafe {
            if block.is_null() {
                tell::failed(Api::Malloc, size, alignment, 0, caller);
            } else if is_plain(layout) {
                tell::malloc(block.cast(), size, caller);
            } else {
                tell::aligned(Api::PosixMemalign, block.cast(), alignment, size, caller);
            }
        }
    });
}
