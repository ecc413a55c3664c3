//! A walk over the chunks of a heap.
//!
//! A chunk begins with a word that belongs to the chunk before it, and a word with its size and
//! three flags, of which the lowest says that the chunk before it is in use.

use std::ops::Range;

use super::Piece;
use super::caches;
use crate::pages::{PAGE, PresentPages};
use crate::reader::WordReader;

const PREVIOUS_IN_USE: u64 = 1;
const FLAGS: u64 = 7;
const SIZE_MIN: u64 = 0x20;

/// A heap that is to be walked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    /// All of its memory.
    pub(super) range: Range<u64>,
    /// The address of its first chunk.
    pub(super) first: u64,
    /// The chunk at its end from which new ones are cut. Heaps that are not the newest of an arena
    /// have none.
    pub(super) top: Option<u64>,
    /// True for the brk heap, whose end alone can be given back.
    pub(super) is_brk: bool,
}

/// The sums of a heap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Walked {
    pub(super) range: Range<u64>,
    /// The address up to which it was walked.
    pub(super) end: u64,
    /// The chunks in use, by the marks in the heap: those in caches and fastbins, too.
    pub(super) used: Piece,
    pub(super) free: Piece,
    pub(super) top: Piece,
    pub(super) bookkeeping: Piece,
    pub(super) unread: Piece,
    /// The resident bytes that `malloc_trim(0)` would give back.
    pub(super) trimmable: u64,
    /// The chunks in use, with their size, that are as large as the cache of a thread.
    pub(super) caches: Vec<(u64, u64)>,
}

/// Walks a heap from its first chunk to its end. If a chunk makes no sense, the rest is unread.
pub(super) fn walk(reader: &mut WordReader<'_>, pages: &PresentPages, extent: &Extent) -> Walked {
    let end = extent.range.end;
    let mut walked = Walked { range: extent.range.clone(), end, ..Walked::default() };
    let mut resident = pages.cursor(extent.range.start);
    let header = extent.first.min(end) - extent.range.start;
    if header > 0 {
        walked.bookkeeping.add(header, resident.below(extent.first.min(end)));
    }
    let mut at = extent.first.min(end);
    let mut size_word = reader.word(at.wrapping_add(8));
    while at < end {
        if extent.top == Some(at) {
            walked.top.add(end - at, resident.below(end));
            if extent.is_brk {
                walked.trimmable += pages.bytes_within(trimmed_from_end(at, end));
            }
            return walked;
        }
        let Some(size) = size_word.map(|word| word & !FLAGS) else { break };
        // Two chunks that are too small for blocks are the end of a heap that is full.
        if extent.top.is_none() && size < SIZE_MIN {
            walked.bookkeeping.add(end - at, resident.below(end));
            return walked;
        }
        let is_sound = size >= SIZE_MIN && size % 16 == 0 && size < end - at;
        let next_word = if is_sound { reader.word(at + size + 8) } else { None };
        let Some(next_word) = next_word else { break };
        let is_used = next_word & PREVIOUS_IN_USE != 0;
        let piece = if is_used { &mut walked.used } else { &mut walked.free };
        piece.add(size, resident.below(at + size));
        if !is_used {
            walked.trimmable += pages.bytes_within(trimmed_within(at, size));
        }
        if is_used && caches::is_size_of_cache(size) {
            walked.caches.push((at, size));
        }
        (at, size_word) = (at + size, Some(next_word));
    }
    if at < end {
        walked.end = at;
        walked.unread.add(end - at, resident.below(end));
    }
    walked
}

/// Returns the addresses that `malloc_trim(0)` gives back of a freed chunk: the whole pages behind
/// the words that belong to the allocator (`mtrim` in glibc).
fn trimmed_within(chunk: u64, size: u64) -> Range<u64> {
    const WORDS: u64 = 6 * 8;
    let start = (chunk + WORDS).next_multiple_of(PAGE);
    start..((chunk + size) / PAGE * PAGE).max(start)
}

/// Returns the addresses that it gives back of the chunk at the end of the brk heap: whole pages,
/// before which a chunk of the least size remains (`systrim` in glibc).
fn trimmed_from_end(chunk: u64, end: u64) -> Range<u64> {
    let pages = (end - chunk).saturating_sub(SIZE_MIN + 1) / PAGE * PAGE;
    end - pages..end
}
