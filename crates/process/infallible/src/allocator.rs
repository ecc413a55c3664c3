//! The wrapper of a global allocator that never returns null.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;

use crate::handle_oom;

std::thread_local! {
    /// The number of [`fallibly`] that this thread is in. Without a destructor, so that the
    /// allocator can read it at any time.
    static FALLIBLE: Cell<u32> = const { Cell::new(0) };
}

/// Runs a function in which [`Infallible`] returns null if there is no memory, in this thread. So
/// functions such as `Vec::try_reserve` return their errors.
///
/// Functions that cannot fail, such as `Vec::push`, end the program with the message of the
/// standard library if there is no memory, without the handler.
pub fn fallibly<R>(run: impl FnOnce() -> R) -> R {
    /// Leaves the function even if it panics.
    struct Guard;
    impl Drop for Guard {
        fn drop(&mut self) {
            FALLIBLE.set(FALLIBLE.get() - 1);
        }
    }
    FALLIBLE.set(FALLIBLE.get() + 1);
    let _guard = Guard;
    run()
}

/// A global allocator that does not return null: what the allocator in it cannot meet goes to
/// [`handle_oom`], except within [`fallibly`].
///
/// It costs a comparison per request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Infallible<A>(A);

impl<A> Infallible<A> {
    /// Wraps an allocator.
    pub const fn new(inner: A) -> Infallible<A> {
        Infallible(inner)
    }

    /// Returns the wrapped allocator.
    pub const fn inner(&self) -> &A {
        &self.0
    }
}

/// Makes a request until it is met, or is not to be made again.
#[inline(always)]
fn until_met(size: usize, attempt: impl Fn() -> *mut u8) -> *mut u8 {
    let block = attempt();
    if block.is_null() { again(size, attempt) } else { block }
}

#[cold]
#[inline(never)]
fn again(size: usize, attempt: impl Fn() -> *mut u8) -> *mut u8 {
    loop {
        if FALLIBLE.get() > 0 {
            return std::ptr::null_mut();
        }
        handle_oom(size);
        let block = attempt();
        if !block.is_null() {
            return block;
        }
    }
}

// SAFETY: `GlobalAlloc` demands blocks of the layout that stay valid, and no unwinding. Every
// result is the wrapped allocator's, for the same arguments; `handle_oom` returns or aborts.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Infallible<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: `alloc` demands a layout whose size is not 0, as this method's contract does.
        until_met(layout.size(), || unsafe { self.0.alloc(layout) })
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: `alloc_zeroed` demands a layout whose size is not 0, as this method's contract
        // does.
        until_met(layout.size(), || unsafe { self.0.alloc_zeroed(layout) })
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: `dealloc` demands a block that the wrapped allocator returned for this layout, as
        // this method's contract does.
        unsafe { self.0.dealloc(block, layout) };
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: `realloc` demands a block that the wrapped allocator returned for this layout,
        // and a size that is not 0, as this method's contract does. After a failure the block is as
        // it was, so that the call can be made again.
        until_met(size, || unsafe { self.0.realloc(block, layout, size) })
    }
}
