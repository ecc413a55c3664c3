//! The usable size of a block, as its allocator gives it.

use core::ffi::c_void;
#[cfg(not(all(test, loom)))]
use core::{
    mem, ptr,
    sync::atomic::{AtomicPtr, Ordering},
};

#[cfg(not(all(test, loom)))]
use super::dispatch;

/// A function that returns the usable size of a live block, given its address, such as
/// `malloc_usable_size`.
pub type UsableSize = unsafe extern "C" fn(*const c_void) -> usize;

/// The function of an allocator that is not the underlying allocator of the hook table.
#[cfg(not(all(test, loom)))]
static OTHER: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// Sets the function of this loaded object's allocator, if replacements cannot be put in front of
/// it.
///
/// # Safety
///
/// The function returns the size of every live block of the allocator, and 0 for a null pointer, in
/// any thread.
#[cfg(not(all(test, loom)))]
pub unsafe fn set_usable_size(function: UsableSize) {
    OTHER.store((function as *const ()).cast_mut(), Ordering::Release);
}

/// The allocator of the block that a thread notifies the observers of.
#[derive(Clone, Copy, Debug)]
pub enum BlockAllocator {
    /// The one that calls of this loaded object go to.
    Usual,
    /// One whose entry points have been redirected, with its function for usable sizes if it is
    /// known.
    Redirected(Option<UsableSize>),
}

/// A `fn() -> BlockAllocator`, or null.
#[cfg(not(all(test, loom)))]
static BLOCK_ALLOCATOR: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// Sets the function that says from which allocator the block is that the calling thread notifies
/// the observers of.
#[cfg(not(all(test, loom)))]
pub fn set_block_allocator(function: fn() -> BlockAllocator) {
    BLOCK_ALLOCATOR.store(function as *mut (), Ordering::Release);
}

/// Returns the function that gives the usable sizes of blocks of this object's allocator, through
/// the replacements if there are any; inside a call of a redirected entry, that of its allocator.
/// `None` if there is no such function, or before
/// [initialisation](super::dispatch_path::set_initialised).
#[cfg(not(all(test, loom)))]
#[inline(always)]
pub fn usable_size() -> Option<UsableSize> {
    let block_allocator = BLOCK_ALLOCATOR.load(Ordering::Acquire);
    if !block_allocator.is_null() {
        // SAFETY: `transmute` requires that the pointer is a `fn() -> BlockAllocator`. It is not
        // null, and `set_block_allocator`, which stores all others, makes them from one.
        let function = unsafe { mem::transmute::<*mut (), fn() -> BlockAllocator>(block_allocator) };
        if let BlockAllocator::Redirected(own) = function() {
            return own;
        }
    }
    if let Some(functions) = dispatch::functions() {
        // SAFETY: both types take a pointer and return a size; neither function writes through the
        // pointer, which is all that the types differ in.
        return functions.malloc_usable_size.map(|function| unsafe { mem::transmute(function) });
    }
    let other = OTHER.load(Ordering::Acquire);
    // SAFETY: null, or stored by `set_usable_size` with this type; `None` of an optional function
    // is null.
    unsafe { mem::transmute::<*mut (), Option<UsableSize>>(other) }
}
