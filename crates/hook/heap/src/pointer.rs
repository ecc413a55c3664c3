//! The block that an address is in.

use core::sync::atomic::{Ordering, fence};

use crate::arena::SharedArena;
use crate::chunk::{ChunkPtr, bits};
use crate::classes::SMALL_CLASSES;
use crate::geometry::{CHUNK, SLICE};
use crate::huge::HugePtr;
use crate::map::{self, Range};
use crate::page::{self, page_size};
use crate::readers;
use crate::run::Observed;

/// The kinds of addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum PointerKind {
    /// Not in a block: memory of others, or metadata, or the unused end of a run.
    #[default]
    Unknown = 0,
    /// In a block that is in use.
    Live = 1,
    /// In a block of up to 64 KiB that is free, and was in use or may be next.
    Freed = 2,
    /// In a page without blocks, or in a larger block that is free.
    FreedPage = 3,
}

/// The block, or the free page, that an address is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[non_exhaustive]
pub struct PointerInfo {
    /// The kind of the address.
    pub kind: PointerKind,
    /// The address at which the block or the free page begins; 0 if unknown.
    pub start: usize,
    /// The usable size of the block, or the size of the page, in bytes; 0 if unknown.
    pub size: usize,
    /// The id of the arena that has the memory; 0 if unknown, or if the arena is private.
    pub arena: u64,
}

/// Returns what the allocator knows about any address, also one inside of a block.
///
/// Takes no lock and makes no system call, so that a signal handler may call it. If a signal
/// handler leaves it by siglongjmp(3), or the thread is cancelled in it, it counts as a reader of
/// metadata for ever: the next thread that unmaps a chunk waits for it, half a second at most, and
/// from then on chunks that become free return their memory, but keep their addresses. An address
/// without memory does no harm. If other threads allocate or free blocks of the same run meanwhile,
/// the answer is that of a moment just before or after. A block that another thread has freed
/// counts as free at once. Costs some loads for each free block of the run, at most 4,096.
pub fn pointer_info(address: *const u8) -> PointerInfo {
    let address = address.addr();
    match readers::read(address, |chunk| in_chunk(chunk, address)) {
        Some(info) => info,
        None => in_huge(address).unwrap_or_default(),
    }
}

fn in_huge(address: usize) -> Option<PointerInfo> {
    let (start, range) = map::previous(address)?;
    let Range::Huge(word) = range else { return None };
    // SAFETY: `from_address` demands the word of a description: those of huge blocks are that, and
    // descriptions are never freed.
    let huge = unsafe { HugePtr::from_address(word) };
    let (size, arena) = (huge.length(), huge.arena().public_id());
    // A description may have become that of another block meanwhile. The fence: its fields are read
    // before.
    fence(Ordering::Acquire);
    let is_same = map::find(start) == Some(range);
    let kind = PointerKind::Live;
    (is_same && address - start < size).then_some(PointerInfo { kind, start, size, arena })
}

fn in_chunk(chunk: ChunkPtr, address: usize) -> PointerInfo {
    let arena = SharedArena::of(chunk).public_id();
    let slice = address % CHUNK / SLICE;
    if slice == 0 {
        return PointerInfo::default();
    }
    let kind = PointerKind::FreedPage;
    let page = PointerInfo { kind, start: page::down(address), size: page_size(), arena };
    if chunk.free.get() & bits(slice, 1) != 0 {
        return page;
    }
    let Some(run) = run_at(chunk, slice) else { return page };
    let Some(number) = run.number_of(address) else { return PointerInfo::default() };
    let is_live = run.is_live(number);
    if !is_live && run.class >= SMALL_CLASSES {
        return page;
    }
    let kind = if is_live { PointerKind::Live } else { PointerKind::Freed };
    PointerInfo { kind, start: run.start + number * run.size, size: run.size, arena }
}

/// Returns the run that a slice belongs to.
pub(crate) fn run_at(chunk: ChunkPtr, slice: usize) -> Option<Observed> {
    // Only the metadata of the first slice of a run has an owner.
    let first = (1..=slice).rev().find(|&slice| !chunk.run(slice).owner().is_null())?;
    Observed::new(chunk.run(first)).filter(|run| first + run.slices > slice)
}
