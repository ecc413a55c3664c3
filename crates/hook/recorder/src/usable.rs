//! Usable sizes: the allocator's own figure for each block, in a session that records them.

use heapledger_core::hooks::{self, Pointer};

use crate::session;

/// Returns the usable size of a block of the program's allocator, in bytes; 0 if the session does
/// not record usable sizes, or the allocator does not say.
///
/// # Safety
///
/// *Live block*: an allocation function of the program's allocator, reached through the hook table,
/// has just returned `address` to this thread, and nobody has freed it. 0 is allowed.
#[inline(always)]
pub(crate) unsafe fn usable_size(address: u64) -> u64 {
    if !session::wants_usable() {
        return 0;
    }
    // SAFETY: `asked` requires a *live block*; this function's `# Safety` requires the same.
    unsafe { asked(address) }
}

/// # Safety
///
/// See [`usable_size`].
#[inline]
unsafe fn asked(address: u64) -> u64 {
    let block: Pointer = core::ptr::with_exposed_provenance_mut(address as usize);
    // SAFETY: the function requires a live block of the allocator behind the hook table, or a null
    // pointer: this function's `# Safety` gives that. `session::stop_usable` has been called if
    // blocks of other allocators come here.
    hooks::usable_size().map_or(0, |function| unsafe { function(block) } as u64)
}
