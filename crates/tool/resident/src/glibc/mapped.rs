//! Blocks that have a mapping of their own, because they are large.
//!
//! The mapping begins with a chunk: a word that is 0 unless the block was to be aligned, and the
//! size, which is a multiple of a page, with a flag.

use std::ops::Range;

use super::Piece;
use crate::pages::{PAGE, PresentPages};
use crate::reader::WordReader;

const IS_MAPPED: u64 = 2;
const FLAGS: u64 = 7;
/// The bytes of a mapping at each page of which a block is looked for. Behind them, one is looked
/// for where memory begins.
const DENSE: u64 = 64 << 20;

/// Finds the blocks in private memory, but for the heaps. The kernel makes one mapping of several
/// neighbours, so that a block may begin at any page.
pub(super) fn find(
    reader: &mut WordReader<'_>,
    pages: &PresentPages,
    anonymous: &[Range<u64>],
    heaps: &[Range<u64>],
) -> (Piece, Vec<Range<u64>>) {
    let (mut piece, mut ranges) = (Piece::default(), Vec::new());
    for mapping in anonymous {
        let mut at = mapping.start;
        while at < mapping.end {
            let next = heaps.get(heaps.partition_point(|heap| heap.end <= at));
            if let Some(heap) = next.filter(|heap| heap.contains(&at)) {
                at = heap.end;
                continue;
            }
            let bound = next.map_or(mapping.end, |heap| heap.start.min(mapping.end));
            if let Some(size) = block_at(reader, at, bound) {
                piece.add(size, pages.bytes_within(at..at + size));
                ranges.push(at..at + size);
                at += size;
                continue;
            }
            let next = pages.within(at + PAGE..mapping.end).next().map_or(mapping.end, |part| part.start);
            let is_dense = at - mapping.start < DENSE;
            at = if is_dense { next } else { next_beginning(pages, at..mapping.end) };
        }
    }
    (piece, ranges)
}

/// Returns the size of the block that begins at an address.
fn block_at(reader: &mut WordReader<'_>, at: u64, end: u64) -> Option<u64> {
    let (before, size) = (reader.word(at)?, reader.word(at + 8)?);
    let is_block = before == 0 && size & FLAGS == IS_MAPPED;
    let size = size & !FLAGS;
    (is_block && size >= PAGE && size.is_multiple_of(PAGE) && size <= end - at).then_some(size)
}

/// Returns the first address in a range, behind its beginning, at which memory begins.
fn next_beginning(pages: &PresentPages, range: Range<u64>) -> u64 {
    let mut parts = pages.within(range.clone());
    parts.find(|part| part.start > range.start).map_or(range.end, |part| part.start)
}
