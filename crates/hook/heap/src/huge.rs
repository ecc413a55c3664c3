//! Huge blocks: each is a mapping of its own, aligned to a chunk. So the address alone tells them
//! from blocks in chunks, whose first slice is the header.
//!
//! A huge block is returned to the system when it is freed. It grows and shrinks by mremap(2); if
//! the kernel refuses that, it is copied to a larger one, or stays as large as it is.
//!
//! A program that allocates and frees a huge block of the same size again and again would spend its
//! time in page faults. So from the second repetition on, the freed mapping is kept, one in the
//! process, until the next one is freed or until it was not used between two of a heap's
//! [ticks](tick).

use core::cell::Cell;
use core::mem;
use core::ops::Deref;
use core::ptr::{self, NonNull};
use core::sync::atomic::Ordering;

use crate::arena::{MAIN, SharedArena};
use crate::base;
use crate::block;
use crate::geometry::CHUNK;
use crate::locked::Locked;
use crate::map::{self, Range};
use crate::options;
use crate::os::{self, Resized};
use crate::page;
use crate::relaxed::{RelaxedPtr, RelaxedUsize};

/// The description of a huge block, changed under the lock of [`HUGE`] or by the block's owner.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Huge {
    length: RelaxedUsize,
    next: Cell<Option<HugePtr>>,
    /// Null for the main one.
    arena: RelaxedPtr<SharedArena>,
}

impl Huge {
    /// The offset of the length in bytes.
    pub(crate) const LENGTH_OFFSET: u32 = core::mem::offset_of!(Huge, length) as u32;
}

/// The address of a description, which is never freed but used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HugePtr(NonNull<Huge>);

impl Deref for HugePtr {
    type Target = Huge;

    fn deref(&self) -> &Huge {
        // SAFETY: `as_ref` demands a valid `Huge` without unique references: it is memory of the
        // base allocator that was zeroed, which is valid, and never freed; its fields are cells and
        // atomics.
        unsafe { self.0.as_ref() }
    }
}

impl HugePtr {
    fn address(self) -> usize {
        self.0.as_ptr().expose_provenance()
    }

    /// # Safety
    ///
    /// [`HugePtr::address`] returned it.
    pub(crate) unsafe fn from_address(address: usize) -> HugePtr {
        // SAFETY: `new_unchecked` demands an address other than 0, as that of a `HugePtr` is.
        HugePtr(unsafe { NonNull::new_unchecked(ptr::with_exposed_provenance_mut(address)) })
    }

    /// Returns the size of the block in bytes.
    pub(crate) fn length(self) -> usize {
        self.length.get()
    }

    /// Returns the arena of the block.
    pub(crate) fn arena(self) -> &'static SharedArena {
        // SAFETY: `as_ref` demands null or a valid arena: `enter` stores the addresses of
        // descriptions, which are never freed.
        unsafe { self.arena.get().as_ref() }.unwrap_or(&MAIN)
    }
}

/// Returns the length of the mapping for a block. `None` if it is too long for an object.
fn length_for(size: usize) -> Option<usize> {
    page::checked_up(size.max(1)).filter(|&length| length <= isize::MAX as usize)
}

/// The huge blocks of the process.
#[derive(Debug)]
pub(crate) struct HugeBlocks {
    /// Descriptions that no block has.
    free: Option<HugePtr>,
    kept: Kept,
    /// The address of the block that was unmapped last, 0 if another one may be there: a mapping
    /// that is asked for here needs no alignment, which takes three system calls.
    hint: usize,
    /// The number of blocks.
    pub(crate) count: usize,
    /// The bytes of all blocks.
    pub(crate) bytes: usize,
}

/// The huge blocks. Locked before the arena.
pub(crate) static HUGE: Locked<HugeBlocks> =
    Locked::new(HugeBlocks { free: None, kept: Kept::new(), hint: 0, count: 0, bytes: 0 });

/// The longest mapping that is kept, in bytes.
const KEPT_MAX: usize = 32 << 20;

/// The mapping that is kept, and why.
#[derive(Debug)]
struct Kept {
    /// The mapping, without a block.
    mapping: Option<(*mut u8, usize)>,
    /// The length of the block that was freed last.
    freed: usize,
    /// True if a block of the same length was allocated since.
    is_repeated: bool,
    /// True if the mapping was not used since the last tick.
    is_old: bool,
}

impl Kept {
    const fn new() -> Kept {
        Kept { mapping: None, freed: 0, is_repeated: false, is_old: false }
    }

    /// Takes the mapping if it has this length.
    fn take(&mut self, length: usize) -> Option<*mut u8> {
        self.is_repeated = self.freed == length;
        self.mapping.take_if(|(_, kept)| *kept == length).map(|(start, _)| start)
    }

    /// Keeps a mapping if that seems to be worth it. Returns the one to be unmapped: the same, or
    /// the one that was kept so far.
    fn exchange(&mut self, start: *mut u8, length: usize) -> Option<(*mut u8, usize)> {
        // A kept mapping would keep the block's content, which `poison` is meant to destroy.
        let is_kept = self.is_repeated && self.freed == length && length <= KEPT_MAX && !options::is_slow();
        self.freed = length;
        if !is_kept {
            return Some((start, length));
        }
        self.is_old = false;
        self.mapping.replace((start, length))
    }
}

impl HugeBlocks {
    /// Returns the bytes of the mapping that is kept.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.kept.mapping.map_or(0, |(_, length)| length)
    }
}

/// Unmaps the kept mapping if it was not used since the last call, or if `at_once`. Returns its
/// bytes.
pub(crate) fn tick(at_once: bool) -> usize {
    let mapping = HUGE.with(|blocks| {
        let kept = &mut blocks.kept;
        let is_old = mem::replace(&mut kept.is_old, true);
        if is_old || at_once { kept.mapping.take() } else { None }
    });
    let Some((start, length)) = mapping else { return 0 };
    // SAFETY: `unmap_guarded` demands memory that nobody uses: it has no block, and was taken out.
    unsafe { os::unmap_guarded(start, length) };
    length
}

/// A new block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct New {
    /// Its address, or null.
    pub(crate) block: *mut u8,
    /// True if it is zero.
    pub(crate) is_zero: bool,
}

const NONE: New = New { block: ptr::null_mut(), is_zero: true };

/// Allocates a block of an arena, aligned to a chunk and to `alignment`, a power of two.
#[cold]
#[inline(never)]
pub(crate) fn allocate(arena: &'static SharedArena, size: usize, alignment: usize) -> New {
    let Some(length) = length_for(size).filter(|&length| arena.reserve(length)) else { return NONE };
    let source = &arena.settings().source;
    let is_usual = alignment <= CHUNK && source.is_system();
    let (kept, hint) = if is_usual {
        HUGE.with(|blocks| match blocks.kept.take(length) {
            None => (None, mem::take(&mut blocks.hint)),
            kept => (kept, 0),
        })
    } else {
        (None, 0)
    };
    let new = match kept {
        Some(block) => New { block, is_zero: false },
        None => New { block: source.map(length, alignment.max(CHUNK), hint), is_zero: source.is_system() },
    };
    if !new.block.is_null() {
        if enter(arena, new.block, length) {
            return new;
        }
        // SAFETY: mapped just now, or kept, and nobody knows it.
        unsafe { source.unmap(new.block, length) };
    }
    arena.release(length);
    NONE
}

/// Describes a block. False if there is no memory for that.
fn enter(arena: &'static SharedArena, start: *mut u8, length: usize) -> bool {
    HUGE.with(|blocks| {
        let huge = match blocks.free {
            Some(huge) => {
                blocks.free = huge.next.get();
                huge
            }
            None => match NonNull::new(base::allocate(size_of::<Huge>())) {
                Some(new) => HugePtr(new.cast()),
                None => return false,
            },
        };
        huge.length.set(length);
        huge.arena.set(ptr::from_ref(arena).cast_mut());
        let is_entered = map::set(start.addr(), Some(Range::Huge(huge.address())));
        if is_entered {
            blocks.count += 1;
            blocks.bytes += length;
            arena.huge_blocks.fetch_add(1, Ordering::Relaxed);
            arena.huge_bytes.fetch_add(length, Ordering::Relaxed);
            arena.huge_operations.fetch_add(1, Ordering::Relaxed);
        } else {
            huge.next.set(blocks.free.replace(huge));
        }
        is_entered
    })
}

/// Returns the description of a block. `None` if the address is not that of a huge block.
pub(crate) fn find(block: *const u8) -> Option<HugePtr> {
    match map::find(block.addr()) {
        // SAFETY: `from_address` demands the word of a description: `enter` and
        // `move_to_grow` store those.
        Some(Range::Huge(huge)) if block.addr().is_multiple_of(CHUNK) => Some(unsafe { HugePtr::from_address(huge) }),
        _ => None,
    }
}

/// Frees a block. False if the address is not that of a huge block.
///
/// # Safety
///
/// If it is a huge block, nobody uses it any more.
pub(crate) unsafe fn free(block: *mut u8) -> bool {
    // SAFETY: `remove` demands what this function's `# Safety` does.
    unsafe { remove(block, true) }
}

/// Frees a block, whose mapping is kept only if `may_keep`. False if the address is not that of a
/// huge block.
///
/// # Safety
///
/// If it is a huge block, nobody uses it any more.
unsafe fn remove(block: *mut u8, may_keep: bool) -> bool {
    let unused = HUGE.with(|blocks| {
        let huge = find(block)?;
        let (length, arena) = (huge.length(), huge.arena());
        arena.check_thread();
        map::set(block.addr(), None);
        blocks.count -= 1;
        blocks.bytes -= length;
        arena.huge_blocks.fetch_sub(1, Ordering::Relaxed);
        arena.huge_bytes.fetch_sub(length, Ordering::Relaxed);
        arena.huge_operations.fetch_add(1, Ordering::Relaxed);
        arena.release(length);
        huge.next.set(blocks.free.replace(huge));
        let source = arena.settings().source;
        let may_keep = may_keep && source.is_system();
        let unused = if may_keep { blocks.kept.exchange(block, length) } else { Some((block, length)) };
        if let Some((start, _)) = unused.filter(|_| source.is_system()) {
            blocks.hint = start.addr();
        }
        Some(unused.map(|(start, length)| (source, start, length)))
    });
    if let Some(Some((source, start, length))) = unused {
        // SAFETY: `unmap` demands memory of the source that nobody uses: it is that of the block,
        // by this function's `# Safety`, which only one thread found; or was kept, has no block,
        // and is the system's as that of the block is.
        unsafe { source.unmap(start, length) };
    }
    unused.is_some()
}

/// Changes the size of a block, which may move. A block that cannot shrink stays as it is. Null if
/// there is no memory to grow: then the block is as it was.
///
/// # Safety
///
/// `huge` describes `block`, which the caller owns and gives up if another one is returned.
pub(crate) unsafe fn resize(block: *mut u8, huge: HugePtr, size: usize) -> *mut u8 {
    let (old, Some(new)) = (huge.length(), length_for(size)) else { return ptr::null_mut() };
    let arena = huge.arena();
    let can_resize = arena.settings().source.is_system() && os::guard() == 0;
    if new == old || (new < old && !can_resize) {
        return block;
    }
    if !can_resize {
        // SAFETY: `copy_to_grow` demands what this function's `# Safety` does, and more bytes than
        // the block has.
        return unsafe { copy_to_grow(block, huge, size) };
    }
    if new > old && !arena.reserve(new - old) {
        return ptr::null_mut();
    }
    // SAFETY: `os::resize` demands a range of the caller's whose end nobody uses: it is the block.
    let resized = unsafe { os::resize(block, old, new) };
    if resized == Resized::Done {
        HUGE.with(|blocks| {
            huge.length.set(new);
            blocks.bytes = blocks.bytes + new - old;
            arena.huge_bytes.fetch_add(new.wrapping_sub(old), Ordering::Relaxed);
            arena.huge_operations.fetch_add(1, Ordering::Relaxed);
        });
        arena.release(old.saturating_sub(new));
        return block;
    }
    if new < old {
        return block;
    }
    // SAFETY: `move_to_grow` demands what this function's `# Safety` does, and more bytes than the
    // block has, as was just compared.
    let moved = if resized == Resized::Blocked { unsafe { move_to_grow(block, huge, new) } } else { ptr::null_mut() };
    if !moved.is_null() {
        return moved;
    }
    arena.release(new - old);
    // SAFETY: `copy_to_grow` demands the same as `move_to_grow`.
    unsafe { copy_to_grow(block, huge, size) }
}

/// Moves the pages of a block to a larger mapping. Null if that is not possible: then the block is
/// as it was.
///
/// # Safety
///
/// As for [`resize`], and `new` is at least the block's length.
unsafe fn move_to_grow(block: *mut u8, huge: HugePtr, new: usize) -> *mut u8 {
    let (old, to) = (huge.length(), os::reserve(new, CHUNK));
    if to.is_null() {
        return to;
    }
    // Before the pages move, because their new address has to be entered afterwards:
    if !map::prepare(to.addr()) {
        // SAFETY: `unmap` demands memory that nobody uses: it was reserved above, and nobody knows
        // it.
        unsafe { os::unmap(to, new) };
        return ptr::null_mut();
    }
    // The old address is taken out first: as soon as it is unmapped, another thread may get it.
    HUGE.with(|_| map::set(block.addr(), None));
    // SAFETY: `move_to` demands a range whose owner knows that it moves, as the caller does, and a
    // reservation of `new` bytes that nobody uses: it was made above.
    let is_moved = unsafe { os::move_to(block, old, to, new) };
    let at = if is_moved { to } else { block };
    HUGE.with(|blocks| {
        if is_moved {
            huge.length.set(new);
            blocks.bytes += new - old;
            huge.arena().huge_bytes.fetch_add(new - old, Ordering::Relaxed);
            // As if it had been allocated and freed: its address is another one.
            huge.arena().huge_operations.fetch_add(2, Ordering::Relaxed);
        }
        map::set(at.addr(), Some(Range::Huge(huge.address())));
    });
    if is_moved { to } else { ptr::null_mut() }
}

/// Copies a block to a larger one and frees it. Null if there is no memory: then the block is as it
/// was.
///
/// # Safety
///
/// As for [`resize`]: the block has at most `size` bytes.
unsafe fn copy_to_grow(block: *mut u8, huge: HugePtr, size: usize) -> *mut u8 {
    let (old, new) = (huge.length(), allocate(huge.arena(), size, CHUNK).block);
    if !new.is_null() {
        // SAFETY: `copy` demands `old` bytes in both, which are the caller's. `remove` demands that
        // nobody uses the old block any more: the caller gives it up, by this function's
        // `# Safety`. It is not kept: the program may have changed the protection of its pages.
        unsafe {
            block::copy(block, new, old);
            remove(block, false);
        }
    }
    new
}
