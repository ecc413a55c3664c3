//! The source of mapped memory: the kernel; under Miri and in unit tests, which let memory run out,
//! the standard allocator.

#[cfg(not(any(test, miri)))]
pub(super) use kernel::{discard, map, unmap};
#[cfg(any(test, miri))]
pub(super) use standard::{discard, map, unmap};

#[cfg(not(any(test, miri)))]
mod kernel {
    use core::ptr::NonNull;

    use heapledger_core::sys;

    use crate::OutOfMemory;

    /// The size from which memory is mapped in large pages: these take at most half as much memory
    /// again.
    const HUGE_FROM: usize = 4 << 20;

    /// Maps zeroed memory, page-aligned, between two guard pages that are inaccessible: running
    /// over either end is a fault, not a change of other memory. `bytes` is a positive multiple of
    /// the page.
    pub(in crate::mapped) fn map(bytes: usize) -> Result<NonNull<u8>, OutOfMemory> {
        sys::map_guarded(bytes, bytes >= HUGE_FROM).ok().and_then(NonNull::new).ok_or(OutOfMemory)
    }

    /// Gives memory back.
    ///
    /// # Safety
    ///
    /// [`map`] returned `start` for `bytes`; nothing refers to the memory any more.
    pub(in crate::mapped) unsafe fn unmap(start: NonNull<u8>, bytes: usize) {
        // SAFETY: `sys::unmap_guarded` requires that `map_guarded` returned `start` for `bytes`,
        // and that nothing refers to the memory. This function's `# Safety` requires the same of
        // `map`, which returns what `map_guarded` does.
        unsafe { sys::unmap_guarded(start.as_ptr(), bytes) };
    }

    /// Gives a part of mapped memory back, in whole pages; it is zero from then on.
    ///
    /// # Safety
    ///
    /// The range consists of whole pages of memory that [`map`] returned and that still is mapped;
    /// nothing refers to the range any more.
    pub(in crate::mapped) unsafe fn discard(start: NonNull<u8>, bytes: usize) {
        // SAFETY: `sys::discard` requires a page-aligned range of a private mapping of the
        // caller's, whose content is not needed. This function's `# Safety` requires whole pages of
        // what `map` returned, a private mapping, and that nothing refers to them.
        unsafe { sys::discard(start.as_ptr(), bytes) };
    }
}

#[cfg(any(test, miri))]
pub(crate) mod standard {
    extern crate std;

    use core::cell::Cell;
    use core::ptr::NonNull;
    use std::alloc::{Layout, alloc_zeroed, dealloc};
    use std::thread_local;

    use crate::OutOfMemory;
    use crate::mapped::PAGE;

    thread_local! {
        static MAPPINGS_LEFT: Cell<usize> = const { Cell::new(usize::MAX) };
    }

    /// Runs `work` while only `mappings` more mappings succeed on this thread.
    #[cfg(test)]
    pub(crate) fn with_mappings<R>(mappings: usize, work: impl FnOnce() -> R) -> R {
        MAPPINGS_LEFT.set(mappings);
        let result = work();
        MAPPINGS_LEFT.set(usize::MAX);
        result
    }

    fn layout(bytes: usize) -> Result<Layout, OutOfMemory> {
        Layout::from_size_align(bytes, PAGE).map_err(|_| OutOfMemory)
    }

    pub(in crate::mapped) fn map(bytes: usize) -> Result<NonNull<u8>, OutOfMemory> {
        let left = MAPPINGS_LEFT.get();
        if left == 0 || bytes == 0 {
            return Err(OutOfMemory);
        }
        if left != usize::MAX {
            MAPPINGS_LEFT.set(left - 1);
        }
        // SAFETY: `alloc_zeroed` requires a layout whose size is not zero: `bytes` is not, as
        // tested above.
        NonNull::new(unsafe { alloc_zeroed(layout(bytes)?) }).ok_or(OutOfMemory)
    }

    /// # Safety
    ///
    /// The contract of the kernel's `unmap`.
    pub(in crate::mapped) unsafe fn unmap(start: NonNull<u8>, bytes: usize) {
        if let Ok(layout) = layout(bytes) {
            // SAFETY: `map` allocated `start` with this layout, and nothing refers to the memory
            // any more.
            unsafe { dealloc(start.as_ptr(), layout) };
        }
    }

    /// Does nothing: memory is given back only as a whole.
    ///
    /// # Safety
    ///
    /// The contract of the kernel's `discard`.
    pub(in crate::mapped) unsafe fn discard(_: NonNull<u8>, _: usize) {}
}
