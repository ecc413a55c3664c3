//! Operations off the common path, for links of both kinds: see [`keys`](crate::keys).

use core::ptr;

use super::RunPtr;
use crate::block::Block;
use crate::keys::Key;

impl RunPtr {
    /// Takes a block as [`Run::pop`], or for a class above the direct ones, as [`Run::pop_latest`]
    /// does. For keyed links.
    pub(crate) fn pop_keyed(self, is_latest: bool) -> *mut Block {
        let local = self.local_free.get();
        let is_local = is_latest && !local.is_null();
        if is_local && !self.count_down() {
            return ptr::null_mut();
        }
        let (list, block) = if is_local { (&self.local_free, local) } else { (&self.free, self.free.get()) };
        if !block.is_null() {
            // SAFETY: `next` demands a block of a free list, as in `pop`; `clear` one that the
            // caller owns, as it does when it is out of the list.
            unsafe {
                list.set(self.key().next(block));
                Key::clear(block);
            }
            self.used.set(self.used.get().wrapping_add(1));
        }
        block
    }

    /// Gives a block back as [`Run::give_back`] does, however links are written.
    ///
    /// # Safety
    ///
    /// As for [`Run::give_back`].
    pub(crate) unsafe fn give_back_any(self, block: *mut Block) -> u32 {
        let key = self.key();
        if key.is_plain() {
            // SAFETY: `give_back` demands what this function's `# Safety` does.
            return unsafe { self.give_back(block) };
        }
        // SAFETY: `set_next` demands a block that the caller owns: see this function's `# Safety`.
        unsafe { key.set_next(block, self.local_free.get()) };
        self.local_free.set(block);
        let used = self.used.get().wrapping_sub(1);
        self.used.set(used);
        used
    }

    /// Gives a block back that this thread does not own the run of. True if the caller has to
    /// notify the owner.
    ///
    /// # Safety
    ///
    /// `block` is a block of this run that nobody uses any more.
    pub(crate) unsafe fn give_back_remotely(self, block: *mut Block) -> bool {
        let key = self.key();
        // SAFETY: `set_next` demands a block that the caller owns, of 16 bytes and aligned to 16:
        // that of `push`, before it is in the list.
        let link = |block, next| unsafe { key.set_next(block, next) };
        // SAFETY: `push` demands a block of the list's run that the caller owns: by this function's
        // `# Safety` it is one of this run, and nobody else uses it.
        unsafe { self.remote.push(block, link) }
    }
}
