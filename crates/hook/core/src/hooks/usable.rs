//! How large a block is, by its allocator's own word.

use core::ffi::c_void;
#[cfg(not(all(test, loom)))]
use core::{
    mem, ptr,
    sync::atomic::{AtomicPtr, Ordering},
};

#[cfg(not(all(test, loom)))]
use super::serve;

/// A function that says how many bytes of a live block, by its address, may be used: `malloc_usable_size` and the like.
pub type UsableSize = unsafe extern "C" fn(*const c_void) -> usize;

/// That of an allocator which is not at the bottom of the table.
#[cfg(not(all(test, loom)))]
static OTHER: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// Names the function of the artefact's allocator, where that is none that replacements can be put in front of.
///
/// # Safety
///
/// The function says the size of every live block of the allocator, and of a null pointer 0, in any thread.
#[cfg(not(all(test, loom)))]
pub unsafe fn set_usable_size(function: UsableSize) {
    OTHER.store((function as *const ()).cast_mut(), Ordering::Release);
}

/// The function to ask about blocks of the artefact's allocator: what replacements say, if there are any. `None`: nobody
/// can be asked, or [settling](super::way::settle) is still to come.
#[cfg(not(all(test, loom)))]
#[inline(always)]
pub fn usable_size() -> Option<UsableSize> {
    if let Some(functions) = serve::functions() {
        // SAFETY: both take a pointer, which neither writes through: they differ in what the type says of that.
        return functions.malloc_usable_size.map(|function| unsafe { mem::transmute(function) });
    }
    let other = OTHER.load(Ordering::Acquire);
    // SAFETY: null, or stored by `set_usable_size`, of that type; `Option` of a function is null for `None`.
    unsafe { mem::transmute::<*mut (), Option<UsableSize>>(other) }
}
