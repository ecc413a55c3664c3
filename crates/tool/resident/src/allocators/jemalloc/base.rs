//! The allocator's own memory: blocks of a multiple of 2 MiB, and the caches of threads, to which
//! the arenas in these blocks lead.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::super::{CachedReader, Search, words};
use super::resident_parts;
use super::sizes;
use crate::pages::PAGE;

/// The alignment of a block, in whose beginning are its size and the address of the next.
pub(super) const ALIGNMENT: u64 = 2 << 20;
/// The most blocks of a process, and the bytes between a block's beginning and a place in it.
const BLOCKS_MAX: usize = 1 << 16;
const STEPS_MAX: u64 = 64;
/// The bins of a cache, and the bytes of a bin.
const BINS_MAX: u32 = 73;
const BIN_SIZE: u64 = 24;
/// The most blocks in a bin of a cache.
const CACHED_MAX: u64 = 8191;
/// The most blocks in caches that are looked at.
const CACHED_ALL_MAX: usize = 1 << 24;

/// Returns the blocks that have the given places (numbers of 2 MiB), and those that they lead to,
/// ascending. `extents` are the addresses of the heap itself, ascending: no block is there.
pub(super) fn blocks(
    search: &Search<'_>,
    reader: &mut CachedReader<'_>,
    places: &BTreeSet<u64>,
    extents: &[Range<u64>],
) -> Vec<Range<u64>> {
    let is_extent = |address: u64| {
        let next = extents.get(extents.partition_point(|range| range.end <= address));
        next.is_some_and(|range| range.start < address.saturating_add(ALIGNMENT))
    };
    let mut found: BTreeMap<u64, u64> = BTreeMap::new();
    let is_known =
        |found: &BTreeMap<u64, u64>, place: u64| found.range(..=place).next_back().is_some_and(|(_, end)| place < *end);
    let mut places: Vec<u64> = places.iter().map(|place| place * ALIGNMENT).collect();
    while let Some(place) = places.pop() {
        if is_known(&found, place) || is_extent(place) || found.len() >= BLOCKS_MAX {
            continue;
        }
        // A large block begins before the place.
        let starts = (0..STEPS_MAX).map_while(|step| place.checked_sub(step * ALIGNMENT));
        let mut sizes = starts.filter_map(|start| Some((start, block_size(search, reader, start)?)));
        let Some((start, size)) = sizes.find(|(start, size)| place - start < *size) else { continue };
        found.insert(start, start + size);
        places.extend(reader.word(start + 8).filter(|next| *next != 0));
        // The description of an arena's blocks, which is in the first, has the address of the
        // newest.
        for (at, bytes) in resident_parts(search, start..start + ALIGNMENT) {
            let may_be_block = |word: u64| word != 0 && word.is_multiple_of(ALIGNMENT) && !is_known(&found, word);
            let blocks = words(at, &bytes).map(|(_, word)| word).filter(|word| may_be_block(*word));
            places.extend(blocks.filter(|block| block_size(search, reader, *block).is_some()));
        }
    }
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for (start, end) in found {
        if ranges.last().is_none_or(|last| last.end <= start) {
            ranges.push(start..end);
        }
    }
    ranges
}

/// Returns the size of the block at an address. `None` if there is none.
fn block_size(search: &Search<'_>, reader: &mut CachedReader<'_>, start: u64) -> Option<u64> {
    if start == 0 || !start.is_multiple_of(ALIGNMENT) {
        return None;
    }
    let range = search.private_at(start)?;
    // The size, the next block, and the description of the block's free end: flags, address, size.
    let [size, next, _, free, free_size] = reader.words::<5>(start)?;
    let is_size = size >= ALIGNMENT && size.is_multiple_of(ALIGNMENT) && size <= range.end - start;
    let is_free_inside = is_size && (start..=start + size).contains(&free) && free_size <= start + size - free;
    let is_next = next == 0 || search.private_at(next).is_some() && next.is_multiple_of(ALIGNMENT);
    (is_free_inside && is_next).then_some(size)
}

/// The caches of threads (`tcache`).
#[derive(Debug, Default)]
pub(super) struct Caches {
    pub(super) count: u64,
    /// The addresses and sizes of the blocks in them.
    pub(super) blocks: BTreeMap<u64, u64>,
    /// The number of entries that were looked at.
    entries: usize,
}

/// Returns the caches whose descriptions the blocks lead to. An arena has the address of the first,
/// and they are in a ring.
pub(super) fn caches(search: &Search<'_>, reader: &mut CachedReader<'_>, blocks: &[Range<u64>]) -> Caches {
    let (mut caches, mut seen) = (Caches::default(), BTreeSet::new());
    // Arenas are at the beginnings of blocks. The leaves behind them are not searched.
    for block in blocks {
        for (at, bytes) in resident_parts(search, block.start..block.end.min(block.start + ALIGNMENT)) {
            // The caches are at the ends of stacks, among other places. A page begins with none:
            // these are addresses of extents.
            let may_be = |word: u64| word.is_multiple_of(8) && !word.is_multiple_of(PAGE);
            let is_there = |word: u64| may_be(word) && search.resident(word..word.saturating_add(8)) == 8;
            for (_, first) in words(at, &bytes).filter(|(_, word)| is_there(*word)) {
                let mut link = first;
                while let Some((next, bins)) = descriptor(reader, link) {
                    if !seen.insert(link) {
                        break;
                    }
                    caches.add(reader, bins);
                    link = next;
                }
            }
        }
    }
    caches
}

/// Returns the next descriptor and the address of the bins, if there is the descriptor of a cache
/// at an address: the cache (`tcache_t`) begins with the address of its slow half
/// (`tcache_slow_t`), in which the descriptor is behind two words.
fn descriptor(reader: &mut CachedReader<'_>, at: u64) -> Option<(u64, u64)> {
    let [next, _, bins] = reader.words::<3>(at)?;
    let slow = reader.word(bins.checked_sub(8)?)?;
    (slow.checked_add(16) == Some(at)).then_some((next, bins))
}

impl Caches {
    /// Adds the blocks of a cache.
    fn add(&mut self, reader: &mut CachedReader<'_>, bins: u64) {
        self.count += 1;
        for class in 0..BINS_MAX {
            let Some(size) = sizes::size_of(class) else { break };
            let at = bins.wrapping_add(u64::from(class) * BIN_SIZE);
            let Some([head, _, low_bits]) = reader.words::<3>(at) else { break };
            // `low_bits_low_water`, `low_bits_full` and `low_bits_empty`: the ends of the stack.
            let (full, empty) = ((low_bits >> 16) as u16, (low_bits >> 32) as u16);
            let count = u64::from(empty.wrapping_sub(head as u16)) / 8;
            let count_max = u64::from(empty.wrapping_sub(full)) / 8;
            let is_sound = head != 0 && head.is_multiple_of(8) && count <= count_max && count_max <= CACHED_MAX;
            if !is_sound {
                break;
            }
            for entry in 0..count {
                self.entries += 1;
                if self.entries > CACHED_ALL_MAX {
                    return;
                }
                let Some(block) = reader.word(head.wrapping_add(8 * entry)) else { continue };
                if block.checked_add(size).is_some_and(|end| end < 1 << 47) {
                    self.blocks.insert(block, size);
                }
            }
        }
    }
}
