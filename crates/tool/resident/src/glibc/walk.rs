//! A walk over the chunks of a heap.
//!
//! A chunk begins with a word that belongs to the chunk before it, and a word with its size and
//! three flags, of which the lowest says that the chunk before it is in use.

use std::ops::Range;

use super::Piece;
use super::caches;
use crate::fill::{Filler, Fills};
use crate::pages::{PAGE, PresentPages};
use crate::reader::WordReader;

const PREVIOUS_IN_USE: u64 = 1;
const FLAGS: u64 = 7;
const IS_MAPPED: u64 = 2;
const SIZE_MIN: u64 = 0x20;
/// The bytes in which the beginning of a chunk is searched for, and the number of chunks that have
/// to follow it.
const SEARCHED: u64 = 64 << 10;
const GUESSED_BY: usize = 32;

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

/// The sums of a heap, or of a part of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Walked {
    pub(super) range: Range<u64>,
    /// The address up to which it was walked: that of a chunk, or the end of the heap.
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
    /// The resident pages, by the chunks in use on them.
    pub(super) fills: Fills,
}

impl Walked {
    /// Adds the sums of the part of the heap that follows.
    pub(super) fn append(&mut self, part: Walked) {
        self.end = part.end;
        self.used.add_all(part.used);
        self.free.add_all(part.free);
        self.top.add_all(part.top);
        self.bookkeeping.add_all(part.bookkeeping);
        self.unread.add_all(part.unread);
        self.trimmable += part.trimmable;
        self.caches.extend(part.caches);
        self.fills.add_all(&part.fills);
    }
}

/// Walks a part of a heap, from a chunk on to the first one that begins at `limit` or behind. If a
/// chunk makes no sense, the rest of the heap is unread.
pub(super) fn walk(
    reader: &mut WordReader<'_>,
    pages: &PresentPages,
    extent: &Extent,
    (start, limit): (u64, u64),
) -> Walked {
    let end = extent.range.end;
    let mut walked = Walked { range: extent.range.clone(), end, ..Walked::default() };
    let mut resident = pages.cursor(start);
    let mut filler = Filler::new(pages, start);
    let mut at = start;
    let limit = limit.min(end);
    let first = extent.first.min(end);
    if at < first {
        walked.bookkeeping.add(first - at, resident.below(first));
        filler.add(at..first, true);
        at = first;
    }
    // Freed chunks, and those in use: about as many of each are in no order that a processor could
    // predict, so that the sums are made without a branch.
    let mut sums = [Piece::default(); 2];
    let mut size_word = reader.word(at.wrapping_add(8));
    while at < limit {
        let Some(size) = size_word.map(|word| word & !FLAGS) else { break };
        let is_sound = size >= SIZE_MIN && size % 16 == 0 && size < end - at;
        // Two chunks that are too small for blocks are the end of a heap that is full.
        if size < SIZE_MIN && extent.top.is_none() {
            walked.bookkeeping.add(end - at, resident.below(end));
            filler.add(at..end, true);
            at = end;
            break;
        }
        let next_word = if is_sound { reader.word(at + size + 8) } else { None };
        let Some(next_word) = next_word else { break };
        let is_used = next_word & PREVIOUS_IN_USE != 0;
        let sum = &mut sums[usize::from(is_used)];
        sum.chunks += 1;
        sum.bytes += size;
        sum.resident += resident.below(at + size);
        filler.add(at..at + size, is_used);
        if is_used && caches::is_size_of_cache(size) {
            walked.caches.push((at, size));
        }
        if size >= PAGE && !is_used {
            walked.trimmable += pages.bytes_within(trimmed_within(at, size));
        }
        (at, size_word) = (at + size, Some(next_word));
    }
    [walked.free, walked.used] = sums;
    if at < limit {
        let rest = resident.below(end);
        let reaches_end = size_word.is_some_and(|word| word & !FLAGS == end - at);
        // A heap goes on from the end that was known, if the program allocates meanwhile.
        if extent.top.is_some_and(|top| reaches_end || at >= top) {
            walked.top.add(end - at, rest);
            if extent.is_brk {
                walked.trimmable += pages.bytes_within(trimmed_from_end(at, end));
            }
            at = end;
        } else {
            walked.unread.add(end - at, rest);
        }
    }
    walked.end = at;
    walked.fills = filler.finish();
    walked
}

/// Returns the first address from another on that seems to be a chunk: the words behind it are
/// sizes that lead from one to the next. It is a guess, since the contents of a block may look the
/// same.
pub(super) fn guess_chunk(reader: &mut WordReader<'_>, extent: &Extent, from: u64) -> Option<u64> {
    let from = from.max(extent.first).next_multiple_of(16);
    (from..extent.range.end).step_by(16).take((SEARCHED / 16) as usize).find(|&at| is_chunk(reader, extent, at))
}

fn is_chunk(reader: &mut WordReader<'_>, extent: &Extent, mut at: u64) -> bool {
    let end = extent.range.end;
    for _ in 0..GUESSED_BY {
        let Some(word) = reader.word(at + 8) else { return false };
        let size = word & !FLAGS;
        if extent.top.is_some() && size == end - at {
            return true;
        }
        if word & IS_MAPPED != 0 || size < SIZE_MIN || !size.is_multiple_of(16) || size >= end - at {
            return false;
        }
        // A freed chunk has its size at its end, too.
        let (Some(before), Some(next)) = (reader.word(at + size), reader.word(at + size + 8)) else { return false };
        if next & PREVIOUS_IN_USE == 0 && before != size {
            return false;
        }
        at += size;
    }
    true
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
