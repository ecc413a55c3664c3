//! The global allocator of a Rust program, which [hooks](heapledger_core::hooks) can watch and
//! replace.
//!
//! [`Allocator`] passes every call on to the allocator that it wraps. With nothing installed this
//! costs one comparison and one branch; if a sampling observer lets the call pass, a few
//! instructions more. All other calls go through the hook table: to the replacements, if the
//! wrapped allocator is the system's or Heapledger's, and to the observers.
//!
//! On all platforms other than x86-64 Linux every call is passed on.

#[cfg_attr(not(all(target_arch = "x86_64", target_os = "linux")), path = "frame_none.rs")]
mod frame;
#[cfg(all(feature = "heap", target_arch = "x86_64", target_os = "linux"))]
mod heap;
#[cfg_attr(not(all(target_arch = "x86_64", target_os = "linux")), path = "initialise_none.rs")]
mod initialise;

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;

use heapledger_core::Api;
use heapledger_core::hooks::{Functions, Pointer, UsableSize, dispatch, dispatch_path, notify};

use frame::with_caller;

#[cfg(all(feature = "heap", target_arch = "x86_64", target_os = "linux"))]
pub use heapledger_heap::HeapAllocator;

/// A global allocator that Heapledger can observe.
///
/// ```
/// #[global_allocator]
/// static ALLOCATOR: heapledger_allocator::Allocator = heapledger_allocator::Allocator::system();
///
/// assert_eq!(vec![1, 2, 3].len(), 3);
/// ```
///
/// Use it only as the program's global allocator: measurements (`HeapSize`) ask the allocator that
/// it wraps about all blocks of the standard library's types.
///
/// # Cost
///
/// With nothing installed: two instructions and a branch per call, in addition to the wrapped
/// allocator's cost.
#[derive(Debug)]
pub struct Allocator<A = System> {
    inner: A,
    is_system: bool,
    /// The functions of the wrapped allocator, if its blocks are freed without their layouts. Then
    /// hooks may replace it.
    functions: Option<&'static Functions>,
    /// The usable-size function of a wrapped allocator other than the system's, if there is one.
    usable_size: Option<UsableSize>,
}

impl Allocator<System> {
    /// Wraps the system's allocator: `malloc` of the C library, or of the library that replaces it.
    pub const fn system() -> Allocator<System> {
        Allocator { inner: System, is_system: true, functions: Some(&initialise::SYSTEM), usable_size: None }
    }
}

#[cfg(all(feature = "heap", target_arch = "x86_64", target_os = "linux"))]
impl Allocator<HeapAllocator> {
    /// Wraps Heapledger's own allocator. It can be watched and replaced as the system's can, and
    /// its blocks have their usable sizes.
    ///
    /// ```
    /// use heapledger_allocator::{Allocator, HeapAllocator};
    ///
    /// #[global_allocator]
    /// static ALLOCATOR: Allocator<HeapAllocator> = Allocator::heap();
    ///
    /// assert_eq!(vec![1, 2, 3].len(), 3);
    /// ```
    pub const fn heap() -> Allocator<HeapAllocator> {
        Allocator { inner: HeapAllocator, is_system: false, functions: Some(&heap::FUNCTIONS), usable_size: None }
    }
}

impl<A: GlobalAlloc> Allocator<A> {
    /// Wraps another allocator, such as jemalloc or mimalloc. It can be watched, not replaced: its
    /// blocks are freed with their layouts, which hooks do not know.
    pub const fn wrapping(inner: A) -> Allocator<A> {
        Allocator { inner, is_system: false, functions: None, usable_size: None }
    }

    /// Sets the function that returns the usable size of a block of the wrapped allocator, slop
    /// included. Measurements use it, and the ledger keeps these sizes. Without it measurements
    /// compute.
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
    /// static ALLOCATOR: Allocator<MiMalloc> = unsafe {
    /// Allocator::wrapping(MI_MALLOC).with_usable_size(mi_usable_size) };
    /// ```
    ///
    /// # Safety
    ///
    /// The function returns the usable size of every live block of the wrapped allocator, given its
    /// address, in any thread.
    pub const unsafe fn with_usable_size(mut self, function: UsableSize) -> Allocator<A> {
        self.usable_size = Some(function);
        self
    }

    /// Returns the wrapped allocator.
    pub const fn inner(&self) -> &A {
        &self.inner
    }
}

// SAFETY: every call is answered by the wrapped allocator, or by a replacement, which is an
// allocator by its contract; both get arguments that the caller of `GlobalAlloc` vouches for.
// Observers are only notified.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Allocator<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if dispatch_path::may_bypass_malloc(layout.size()) {
            // SAFETY: `inner.alloc` requires what `GlobalAlloc::alloc` does. Our caller keeps that
            // for the same arguments.
            return unsafe { self.inner.alloc(layout) };
        }
        // SAFETY: `alloc_hooked` requires what `GlobalAlloc::alloc` does. Our caller keeps that
        // for the same arguments.
        unsafe { self.alloc_hooked(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if dispatch_path::may_bypass_malloc(layout.size()) {
            // SAFETY: `inner.alloc_zeroed` requires what `GlobalAlloc::alloc_zeroed` does. Our
            // caller keeps that for the same arguments.
            return unsafe { self.inner.alloc_zeroed(layout) };
        }
        // SAFETY: `alloc_zeroed_hooked` requires what `GlobalAlloc::alloc_zeroed` does. Our caller
        // keeps that for the same arguments.
        unsafe { self.alloc_zeroed_hooked(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if dispatch_path::may_bypass_free(block.cast()) {
            // SAFETY: `inner.dealloc` requires a block that `inner` allocated, with its layout. Our
            // caller vouches for the layout. The block is an *inner block*: no replacement has a
            // block if the free passes.
            return unsafe { self.inner.dealloc(block, layout) };
        }
        // SAFETY: `dealloc_hooked` requires what `GlobalAlloc::dealloc` does. Our caller keeps
        // that for the same arguments.
        unsafe { self.dealloc_hooked(block, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if dispatch_path::may_bypass_realloc(old.cast(), size) {
            // SAFETY: `inner.realloc` requires a block that `inner` allocated, with its layout, and
            // a size that is not 0. Our caller vouches for layout and size. The block is an *inner
            // block*: no replacement has a block if the call passes.
            return unsafe { self.inner.realloc(old, layout, size) };
        }
        // SAFETY: `realloc_hooked` requires what `GlobalAlloc::realloc` does. Our caller keeps
        // that for the same arguments.
        unsafe { self.realloc_hooked(old, layout, size) }
    }
}

/// The alignment that `malloc` guarantees, as assumed by the standard library's `System`.
const MALLOC_ALIGNMENT: usize = 16;

/// True if `System` allocates this layout with `malloc` and the like, not with `posix_memalign`.
fn is_plain(layout: Layout) -> bool {
    layout.align() <= MALLOC_ALIGNMENT && layout.align() <= layout.size()
}

/// The contracts of all are those of [`GlobalAlloc`], for the method before `_hooked`.
///
/// **Inner block**: a live block is one of `inner`, unless a replacement that is installed has
/// allocated it. Replacements are installed only for an allocator with `functions`, which are below
/// them and allocate as `inner` does. One that is removed either keeps handling its blocks, which
/// counts as installed, or has none of its own.
impl<A: GlobalAlloc> Allocator<A> {
    /// # Safety
    ///
    /// See above.
    #[cold]
    #[inline(never)]
    unsafe fn alloc_hooked(&self, layout: Layout) -> *mut u8 {
        let block = match self.functions() {
            // SAFETY: the tables of `dispatch` are complete, and hold the C functions of these
            // names.
            Some(functions) => unsafe { malloc_of(functions, layout) },
            // SAFETY: `inner.alloc` requires what `GlobalAlloc::alloc` does, which this function's
            // `# Safety` requires of the same layout.
            None => unsafe { self.inner.alloc(layout) },
        };
        notify_allocation(block, layout);
        block
    }

    /// # Safety
    ///
    /// See above.
    #[cold]
    #[inline(never)]
    unsafe fn alloc_zeroed_hooked(&self, layout: Layout) -> *mut u8 {
        let block = match self.functions() {
            Some(Functions { calloc: Some(calloc), .. }) if is_plain(layout) => {
                // SAFETY: `calloc` takes any two numbers, by the contract of the C function. The
                // tables of `dispatch` hold the C functions of these names.
                unsafe { calloc(layout.size(), 1).cast::<u8>() }
            }
            Some(functions) => {
                // SAFETY: `malloc_of` requires an allocator's functions, complete, as the tables of
                // `dispatch` are, and a size that is not 0, as `GlobalAlloc` does. `write_bytes`
                // requires a block of `layout.size()` bytes: as many were asked for.
                unsafe {
                    let block = malloc_of(functions, layout);
                    if !block.is_null() {
                        block.write_bytes(0, layout.size());
                    }
                    block
                }
            }
            // SAFETY: `inner.alloc_zeroed` requires what `GlobalAlloc::alloc_zeroed` does, which
            // this function's `# Safety` requires of the same layout.
            None => unsafe { self.inner.alloc_zeroed(layout) },
        };
        if is_plain(layout) && !block.is_null() {
            // SAFETY: `notify::calloc` requires the live calling frame of this thread. On x86-64
            // Linux `with_caller` gives it: an *own frame*.
            with_caller(|caller| unsafe { notify::calloc(block.cast(), layout.size(), 1, caller) });
        } else {
            notify_allocation(block, layout);
        }
        block
    }

    /// # Safety
    ///
    /// See above.
    #[cold]
    #[inline(never)]
    unsafe fn dealloc_hooked(&self, block: *mut u8, layout: Layout) {
        let functions = self.functions();
        // SAFETY: `notify::free` requires the live calling frame of this thread. On x86-64 Linux
        // `with_caller` gives it: an *own frame*.
        with_caller(|caller| unsafe { notify::free(block.cast(), caller) });
        match functions.and_then(|functions| functions.free) {
            // SAFETY: the block came from these functions, or from `inner`, which is below them.
            Some(free) => unsafe { free(block.cast()) },
            // SAFETY: `inner.dealloc` requires a block that `inner` allocated, with its layout.
            // This function's `# Safety` vouches for the layout. The block is an *inner block*:
            // without functions there are no replacements.
            None => unsafe { self.inner.dealloc(block, layout) },
        }
    }

    /// # Safety
    ///
    /// See above.
    #[cold]
    #[inline(never)]
    unsafe fn realloc_hooked(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let functions = self.functions();
        // SAFETY: by the contract of `GlobalAlloc::realloc` the size, rounded up to the alignment,
        // is no larger than `isize::MAX`.
        let new_layout = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        if functions.is_some() && !(is_plain(layout) && is_plain(new_layout)) {
            // As `System` does it: the C function would not keep the alignment.
            // SAFETY: `alloc_hooked` and `dealloc_hooked` require what `GlobalAlloc` does, which
            // our caller keeps for `old`, `layout` and `size`. Both blocks are live while the bytes
            // are copied, so they do not overlap, and have that many bytes.
            unsafe {
                let block = self.alloc_hooked(new_layout);
                if !block.is_null() {
                    ptr::copy_nonoverlapping(old, block, layout.size().min(size));
                    self.dealloc_hooked(old, layout);
                }
                return block;
            }
        }
        // SAFETY: `notify::realloc_begins` requires the live calling frame of this thread. On
        // x86-64 Linux `with_caller` gives it: an *own frame*.
        with_caller(|caller| unsafe { notify::realloc_begins(Api::Realloc, old.cast(), caller) });
        let block = match functions.and_then(|functions| functions.realloc) {
            // SAFETY: `realloc` requires a live block of the same allocator, as `dealloc_hooked`
            // does for `free`: the block came from these functions, or from `inner`, which is below
            // them.
            Some(realloc) => unsafe { realloc(old.cast(), size).cast::<u8>() },
            // SAFETY: `inner.realloc` requires a block that `inner` allocated, with its layout, and
            // a size that is not 0. This function's `# Safety` vouches for layout and size. The
            // block is an *inner block*: without functions there are no replacements.
            None => unsafe { self.inner.realloc(old, layout, size) },
        };
        // SAFETY: `notify::realloc_ends` requires the live calling frame of this thread. On x86-64
        // Linux `with_caller` gives it: an *own frame*.
        with_caller(|caller| unsafe { notify::realloc_ends(old.cast(), block.cast(), size, caller) });
        block
    }

    /// Returns the functions that allocate if hooks may replace the wrapped allocator; `None` if
    /// they may not.
    fn functions(&self) -> Option<&'static Functions> {
        if !dispatch_path::is_initialised() {
            initialise::initialise(self);
        }
        let can_be_replaced = cfg!(all(target_arch = "x86_64", target_os = "linux")) && self.functions.is_some();
        if can_be_replaced { dispatch::functions() } else { None }
    }
}

/// Allocates as `System::alloc` does, with these functions.
///
/// # Safety
///
/// The functions are an allocator's, and complete; the size is not 0.
unsafe fn malloc_of(functions: &Functions, layout: Layout) -> *mut u8 {
    if is_plain(layout) {
        // SAFETY: `malloc` takes any size, by the contract of the C function. This function's
        // `# Safety` requires that it is one.
        return functions.malloc.map_or(ptr::null_mut(), |malloc| unsafe { malloc(layout.size()).cast() });
    }
    let Some(posix_memalign) = functions.posix_memalign else { return ptr::null_mut() };
    let mut block: Pointer = ptr::null_mut();
    // SAFETY: `posix_memalign` requires a variable to write to, which `block` is, and a power of
    // two that is a multiple of the size of a pointer: the larger of two powers of two is. This
    // function's `# Safety` requires that the function is the C function.
    let error = unsafe { posix_memalign(&mut block, layout.align().max(size_of::<Pointer>()), layout.size()) };
    if error == 0 { block.cast() } else { ptr::null_mut() }
}

/// Notifies observers that a call for a block of this layout has returned.
fn notify_allocation(block: *mut u8, layout: Layout) {
    let (size, alignment) = (layout.size(), layout.align());
    with_caller(|caller| {
        // SAFETY: the functions of `notify` require the live calling frame of this thread. On
        // x86-64 Linux `with_caller` gives it: an *own frame*.
        unsafe {
            if block.is_null() {
                notify::failed(Api::Malloc, size, alignment, 0, caller);
            } else if is_plain(layout) {
                notify::malloc(block.cast(), size, caller);
            } else {
                notify::aligned(Api::PosixMemalign, block.cast(), alignment, size, caller);
            }
        }
    });
}
