//! The radix tree over addresses: which chunks the allocator has, and which mappings are huge
//! blocks.
//!
//! A key is the number of a range of 4 MiB, of which a process has 2²⁵. The root is static; a leaf
//! covers 32 GiB, and is made at the first chunk in it. Nothing of the tree is ever freed, so that
//! it is read without a lock. Frees of a thread's own blocks never come here.

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::geometry::CHUNK_SHIFT;
use crate::{os, page};

/// The number of bits of a user's address.
const ADDRESS_BITS: usize = 47;
const LEAF_BITS: usize = 13;
const ROOT_BITS: usize = ADDRESS_BITS - CHUNK_SHIFT - LEAF_BITS;

/// The number of words of a leaf.
pub(crate) const LEAF_COUNT: usize = 1 << LEAF_BITS;
/// The number of leaves.
pub(crate) const ROOT_COUNT: usize = 1 << ROOT_BITS;

type Leaf = [AtomicUsize; LEAF_COUNT];
/// The root of the tree: the addresses of leaves.
pub(crate) type Root = [AtomicPtr<Leaf>; ROOT_COUNT];

static ROOT: Root = [const { AtomicPtr::new(ptr::null_mut()) }; ROOT_COUNT];
/// The root, for readers outside of the process.
pub(crate) const ROOT_REFERENCE: &Root = &ROOT;

/// The word of a range in which there is nothing of ours.
const NOTHING: usize = 0;
/// The word of a chunk. Any other is that of a huge block.
const CHUNK: usize = 1;

/// The kinds of ranges that are ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Range {
    /// A chunk.
    Chunk,
    /// The first range of a huge block.
    /// The word is not 0 or 1.
    Huge(usize),
}

fn leaf(address: usize) -> Option<&'static AtomicPtr<Leaf>> {
    ROOT.get(address >> (CHUNK_SHIFT + LEAF_BITS))
}

fn entry(address: usize) -> Option<&'static AtomicUsize> {
    let leaf = leaf(address)?.load(Ordering::Acquire);
    // SAFETY: `as_ref` demands null or a valid leaf: `prepare` stores zeroed mappings of a leaf's
    // size, which are never unmapped.
    let leaf = unsafe { leaf.as_ref() }?;
    leaf.get((address >> CHUNK_SHIFT) & ((1 << LEAF_BITS) - 1))
}

/// Returns the range that an address is in, if it is a chunk or begins a huge block.
pub(crate) fn find(address: usize) -> Option<Range> {
    match entry(address)?.load(Ordering::Acquire) {
        NOTHING => None,
        CHUNK => Some(Range::Chunk),
        huge => Some(Range::Huge(huge)),
    }
}

/// Calls a function with the address of each chunk. Chunks that come or go meanwhile may be among
/// them or not.
pub(crate) fn each_chunk(mut visit: impl FnMut(*mut u8)) {
    for (number, leaf) in ROOT.iter().enumerate() {
        // SAFETY: as in `entry`: null, or a valid leaf.
        let Some(leaf) = (unsafe { leaf.load(Ordering::Acquire).as_ref() }) else { continue };
        for (place, word) in leaf.iter().enumerate() {
            if word.load(Ordering::Acquire) == CHUNK {
                visit(ptr::with_exposed_provenance_mut(((number << LEAF_BITS) + place) << CHUNK_SHIFT));
            }
        }
    }
}

/// Returns the first range of ours at an address or above, with its address.
pub(crate) fn next(from: usize) -> Option<(usize, Range)> {
    let mut number = from.div_ceil(1 << CHUNK_SHIFT);
    while number >> LEAF_BITS < ROOT.len() {
        let address = number << CHUNK_SHIFT;
        if let Some(range) = find(address) {
            return Some((address, range));
        }
        number = if has_leaf(address) { number + 1 } else { ((number >> LEAF_BITS) + 1) << LEAF_BITS };
    }
    None
}

/// Returns the last range of ours that begins at an address or below, with its address.
pub(crate) fn previous(from: usize) -> Option<(usize, Range)> {
    let mut number = (from >> CHUNK_SHIFT).min((ROOT.len() << LEAF_BITS) - 1);
    loop {
        let address = number << CHUNK_SHIFT;
        if let Some(range) = find(address) {
            return Some((address, range));
        }
        // Without a leaf, on to the range below its first one.
        let last = if has_leaf(address) { number } else { number >> LEAF_BITS << LEAF_BITS };
        number = last.checked_sub(1)?;
    }
}

fn has_leaf(address: usize) -> bool {
    leaf(address).is_some_and(|leaf| !leaf.load(Ordering::Acquire).is_null())
}

/// Returns the bytes of the leaves that were made.
pub(crate) fn bytes() -> usize {
    ROOT.iter().filter(|leaf| !leaf.load(Ordering::Relaxed).is_null()).count() * page::up(size_of::<Leaf>())
}

/// Makes the leaf for an address, so that [`set`] cannot fail for it. False if there is no memory.
pub(crate) fn prepare(address: usize) -> bool {
    let Some(slot) = leaf(address) else { return false };
    if slot.load(Ordering::Relaxed).is_null() {
        let new = os::map(page::up(size_of::<Leaf>()));
        if new.is_null() {
            return false;
        }
        let made = slot.compare_exchange(ptr::null_mut(), new.cast(), Ordering::Release, Ordering::Relaxed);
        if made.is_err() {
            // SAFETY: mapped just now, and nobody knows it: another thread made the leaf.
            unsafe { os::unmap(new, page::up(size_of::<Leaf>())) };
        }
    }
    true
}

/// Enters the range that an address is in, or removes it. False if there is no memory for that.
pub(crate) fn set(address: usize, range: Option<Range>) -> bool {
    let word = match range {
        None => NOTHING,
        Some(Range::Chunk) => CHUNK,
        Some(Range::Huge(huge)) => huge,
    };
    let entry = if prepare(address) { entry(address) } else { None };
    entry.inspect(|entry| entry.store(word, Ordering::Release)).is_some()
}
