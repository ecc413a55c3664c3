//! Arenas for Rust programs.

use core::alloc::Layout;
use core::ptr::NonNull;

use super::blocks;
use super::ids::ArenaId;
use super::source::{ChunkCallbacks, Source};
use super::statistics::{ArenaStatistics, arena_statistics};
use super::{LABEL_MAX, NOT_RANDOMISED, PRIVATE, RANDOMISED, SINGLE_THREAD, Settings, disposal, registry};
use crate::arch::thread_pointer;
use crate::from_heap::ALIGNMENT;
use crate::geometry::PAGE;

/// An arena: memory for blocks that are kept apart from all others.
///
/// Any thread may allocate from it, without a lock, and any thread may free. Blocks may also be
/// freed and reallocated by the functions without an arena; they stay in the arena.
///
/// When it is dropped, its memory goes back to the system. The program is aborted with a message if
/// there are still blocks in it.
///
/// ```
/// use core::alloc::Layout;
/// use heapledger_heap::arenas::Arena;
///
/// let arena = Arena::builder().label("parser").create().expect("no memory");
/// let block = arena.allocate(Layout::new::<[u64; 100]>()).expect("no memory");
/// assert_eq!(arena.statistics().huge_blocks, 0);
/// // SAFETY: a block of the arena, which nobody uses.
/// unsafe { arena.free(block) };
/// ```
#[cfg_attr(
    feature = "allocator-api2",
    doc = r#"
With the feature `allocator-api2`, an arena is an allocator for that crate's collections:

```
use allocator_api2::vec::Vec;
use heapledger_heap::arenas::Arena;

let arena = Arena::builder().label("words").create().unwrap();
let mut words = Vec::new_in(&arena);
words.extend(["an", "arena", "of", "its", "own"]);
assert_eq!(words.len(), 5);
let boxed = allocator_api2::boxed::Box::new_in([7_u8; 5000], &arena);
assert_eq!(boxed[4999], 7);
assert!(arena.statistics().run_bytes >= 5000);
```"#
)]
#[derive(Debug)]
pub struct Arena {
    id: ArenaId,
}

impl Arena {
    /// Returns a builder for an arena with the usual properties.
    pub const fn builder() -> ArenaBuilder {
        ArenaBuilder { settings: Settings::DEFAULT, dirty_bytes_max: 0 }
    }

    /// Takes an arena over from an id, for example from C.
    ///
    /// # Safety
    ///
    /// The id is that of an arena, of which nobody else disposes. It is not the main one.
    pub const unsafe fn from_id(id: ArenaId) -> Arena {
        Arena { id }
    }

    /// Returns the id.
    pub const fn id(&self) -> ArenaId {
        self.id
    }

    /// Allocates a block. `None` if there is no memory, or if the arena's limit does not allow it.
    pub fn allocate(&self, layout: Layout) -> Option<NonNull<u8>> {
        // SAFETY: `allocate_aligned_in` demands that the arena is not disposed of meanwhile: that
        // is done by `drop`, which nobody can call while `self` is borrowed, or by unsafe
        // functions.
        NonNull::new(unsafe { blocks::allocate_aligned_in(self.id, layout.size(), layout.align()) })
    }

    /// Allocates a block of zero bytes. `None` as for [`Arena::allocate`].
    pub fn allocate_zeroed(&self, layout: Layout) -> Option<NonNull<u8>> {
        if layout.align() <= ALIGNMENT {
            // SAFETY: `allocate_zeroed_in` demands that the arena stays: see `allocate`.
            return NonNull::new(unsafe { blocks::allocate_zeroed_in(self.id, layout.size()) });
        }
        let block = self.allocate(layout)?;
        // SAFETY: `write_bytes` demands that many writable bytes: the block is new, of that size.
        unsafe { block.write_bytes(0, layout.size()) };
        Some(block)
    }

    /// Changes the size of a block, in place if possible. Returns the block, which may have moved.
    /// It is aligned to [`ALIGNMENT`](crate::ALIGNMENT) only. `None` if there is no memory to grow:
    /// then the old block is as it was. Aborts the program if the block is of another arena.
    ///
    /// # Safety
    ///
    /// The block is of this allocator, and nobody else uses it. If another one is returned, nobody
    /// uses it any more.
    pub unsafe fn reallocate(&self, block: NonNull<u8>, size: usize) -> Option<NonNull<u8>> {
        // SAFETY: `reallocate_in` demands the same as this function's `# Safety`, and that the
        // arena stays: see `allocate`.
        NonNull::new(unsafe { blocks::reallocate_in(self.id, block.as_ptr(), size) })
    }

    /// Frees a block. Aborts the program if it is of another arena.
    ///
    /// # Safety
    ///
    /// The block is of this allocator, and nobody uses it any more.
    pub unsafe fn free(&self, block: NonNull<u8>) {
        // SAFETY: `free_in` demands the same as this function's `# Safety`.
        unsafe { blocks::free_in(self.id, block.as_ptr()) };
    }

    /// Returns the memory that the arena has. Takes some locks.
    pub fn statistics(&self) -> ArenaStatistics {
        arena_statistics(self.id).unwrap_or_default()
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        disposal::dispose(self.id.to_raw());
    }
}

/// The properties of a new arena.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct ArenaBuilder {
    settings: Settings,
    dirty_bytes_max: usize,
}

impl ArenaBuilder {
    /// Sets the label, for messages and hooks. What is behind the first 127 bytes is left out.
    pub fn label(self, label: &str) -> ArenaBuilder {
        self.label_bytes(label.as_bytes())
    }

    /// Sets the label to bytes, up to the first null byte.
    pub fn label_bytes(mut self, label: &[u8]) -> ArenaBuilder {
        self.settings.label = [0; LABEL_MAX + 1];
        for (to, &from) in
            self.settings.label.iter_mut().take(LABEL_MAX).zip(label.iter().take_while(|&&byte| byte != 0))
        {
            *to = from;
        }
        self
    }

    /// Sets the dirty memory above which the arena returns memory to the system, in bytes. 0 stands
    /// for 128 KiB and a 128th of what the arena uses.
    pub fn dirty_bytes_max(mut self, bytes: usize) -> ArenaBuilder {
        self.dirty_bytes_max = bytes;
        self
    }

    /// Sets the shifts of the arena's budget that take the place of the global modifier: `increase`
    /// while that is above 0, `decrease` while it is below. 0 leaves the modifier as it is.
    pub fn dirty_overrides(mut self, increase: i32, decrease: i32) -> ArenaBuilder {
        (self.settings.increase_override, self.settings.decrease_override) = (increase, decrease);
        self
    }

    /// Sets the limit of the memory that the arena maps, in bytes. It maps chunks of 4 MiB, and
    /// huge blocks; so the least useful limit is 4 MiB. 0 stands for no limit.
    pub fn mapped_bytes_max(mut self, bytes: usize) -> ArenaBuilder {
        self.settings.bytes_max = bytes;
        self
    }

    /// Lets only the thread that creates the arena use it: others abort the program.
    pub fn single_thread(self) -> ArenaBuilder {
        self.flags(SINGLE_THREAD)
    }

    /// Hands the blocks of fresh memory out in random order. Blocks that were freed come in the
    /// order of the frees, as without.
    pub fn randomise(self) -> ArenaBuilder {
        self.flags(RANDOMISED)
    }

    /// Keeps the arena's id secret: [`find_by_label`](super::blocks::find_by_label) does not find
    /// it, and [`pointer_info`](crate::pointer_info), [`walk`](crate::walk()) and messages do not
    /// tell it. The id is a random number of 64 bits, so that only code which was given it can
    /// allocate in the arena or dispose of it. Purge hooks, which programs set for themselves, are
    /// told.
    pub fn private(self) -> ArenaBuilder {
        self.flags(PRIVATE)
    }

    /// Sets flags as those of C: 1 and 2 randomise or do not, 4 is [`ArenaBuilder::single_thread`],
    /// and 8 [`ArenaBuilder::private`]. Others are ignored.
    pub fn flags(mut self, flags: u32) -> ArenaBuilder {
        self.settings.flags |= flags & (RANDOMISED | NOT_RANDOMISED | SINGLE_THREAD | PRIVATE);
        self
    }

    /// Sets functions that give the arena its memory.
    ///
    /// # Safety
    ///
    /// The functions do what [`ChunkCallbacks`] says for as long as the arena exists, on any thread
    /// of the process.
    pub unsafe fn chunk_callbacks(mut self, callbacks: ChunkCallbacks) -> ArenaBuilder {
        self.settings.source = Source::Callbacks(callbacks);
        self
    }

    /// Creates the arena. `None` if there is no memory, or if a required callback is missing.
    pub fn create(self) -> Option<Arena> {
        let mut settings = self.settings;
        if let Source::Callbacks(ChunkCallbacks { map: None, .. } | ChunkCallbacks { unmap: None, .. }) =
            settings.source
        {
            return None;
        }
        settings.thread = thread_pointer();
        settings.dirty_max = self.dirty_bytes_max.div_ceil(PAGE);
        let arena = registry::create(&settings)?;
        Some(Arena { id: ArenaId::from_raw(arena.id()) })
    }
}

#[cfg(feature = "allocator-api2")]
mod collections {
    use core::alloc::Layout;
    use core::ptr::NonNull;

    use allocator_api2::alloc::{AllocError, Allocator};

    use super::{ALIGNMENT, Arena};

    fn slice(block: Option<NonNull<u8>>, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        block.map(|block| NonNull::slice_from_raw_parts(block, layout.size())).ok_or(AllocError)
    }

    // SAFETY: `Allocator` demands blocks that stay valid until they are deallocated, or until the
    // allocator and all of its clones were dropped. Blocks are as the layout says, and stay where
    // they are when the `Arena` moves, which has an id only. It has no clones; when it is dropped,
    // no block is in use, or the program ends.
    unsafe impl Allocator for Arena {
        fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
            slice(Arena::allocate(self, layout), layout)
        }

        fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
            slice(Arena::allocate_zeroed(self, layout), layout)
        }

        unsafe fn deallocate(&self, block: NonNull<u8>, _: Layout) {
            // SAFETY: `free` demands a block of this allocator that nobody uses any more, as
            // `deallocate` does.
            unsafe { self.free(block) };
        }

        unsafe fn grow(&self, block: NonNull<u8>, old: Layout, new: Layout) -> Result<NonNull<[u8]>, AllocError> {
            // SAFETY: `resize` demands what `grow` does.
            slice(unsafe { resize(self, block, old, new) }, new)
        }

        unsafe fn grow_zeroed(
            &self,
            block: NonNull<u8>,
            old: Layout,
            new: Layout,
        ) -> Result<NonNull<[u8]>, AllocError> {
            // SAFETY: `resize` demands what `grow_zeroed` does. `write_bytes` demands that many
            // writable bytes: the block has the new size, of which this is the rest.
            unsafe {
                let block = resize(self, block, old, new).ok_or(AllocError)?;
                block.add(old.size()).write_bytes(0, new.size() - old.size());
                slice(Some(block), new)
            }
        }

        unsafe fn shrink(&self, block: NonNull<u8>, old: Layout, new: Layout) -> Result<NonNull<[u8]>, AllocError> {
            // SAFETY: `resize` demands what `shrink` does.
            slice(unsafe { resize(self, block, old, new) }, new)
        }
    }

    /// # Safety
    ///
    /// The block is one of the arena with the layout `old`, and nobody else uses it. If another one
    /// is returned, nobody uses it any more.
    unsafe fn resize(arena: &Arena, block: NonNull<u8>, old: Layout, new: Layout) -> Option<NonNull<u8>> {
        if new.align() <= ALIGNMENT {
            // SAFETY: `reallocate` demands what this function's `# Safety` does.
            return unsafe { arena.reallocate(block, new.size()) };
        }
        let moved = arena.allocate(new)?;
        // SAFETY: both blocks have that many bytes, and do not overlap: the old one is still
        // allocated. `free` demands what this function's `# Safety` does.
        unsafe {
            moved.copy_from_nonoverlapping(block, old.size().min(new.size()));
            arena.free(block);
        }
        Some(moved)
    }
}
