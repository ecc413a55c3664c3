//! Chunks that were freed but are marked as used: those in the caches of threads
//! (`struct tcache_perthread_struct`), and those in fastbins.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::reader::WordReader;

/// The bins of a cache and of the fastbins: each has chunks of one size, from 32 bytes on in steps
/// of 16.
const CACHE_BINS: u64 = 64;
const FAST_BINS: u64 = 10;
const STEP: u64 = 16;
const SIZE_MIN: u64 = 32;
/// The most chunks of a list. Caches have 7, unless a tunable says otherwise.
const CHUNKS_MAX: usize = 1 << 20;

/// The layouts of caches: the size of their chunk, and of a counter. Since 2.30, and before.
const LAYOUTS: [(u64, u64); 2] = [(0x290, 2), (0x250, 1)];

/// Blocks that may be the caches of threads.
#[derive(Debug, Default)]
pub(super) struct Caches {
    candidates: Vec<(u64, u64)>,
}

/// The chunks in the caches of threads.
#[derive(Debug, Default)]
pub(super) struct Cached {
    /// The chunks in caches, by address, with their sizes.
    chunks: BTreeMap<u64, u64>,
    /// The chunks that are the caches.
    pub(super) owners: Vec<(u64, u64)>,
}

/// True if chunks of this size may be caches.
pub(super) fn is_size_of_cache(size: u64) -> bool {
    LAYOUTS.iter().any(|(chunk, _)| *chunk == size)
}

impl Caches {
    /// Adds a chunk in use that has the size of a cache.
    pub(super) fn add_candidate(&mut self, chunk: (u64, u64)) {
        self.candidates.push(chunk);
    }

    /// Reads the caches. `heaps` are the heaps of all arenas: a thread keeps what it has freed,
    /// whatever arena it belongs to.
    pub(super) fn read(&self, reader: &mut WordReader<'_>, heaps: &[Range<u64>]) -> Cached {
        let mut cached = Cached::default();
        for &(chunk, size) in &self.candidates {
            let Some(&(_, counter)) = LAYOUTS.iter().find(|(layout, _)| *layout == size) else { continue };
            let Some(chunks) = chunks_of(reader, chunk + 16, counter, heaps) else { continue };
            // Blocks of zeroes look like a cache that is empty: those of others do no harm.
            if !chunks.is_empty() {
                cached.owners.push((chunk, size));
                cached.chunks.extend(chunks);
            }
        }
        cached
    }
}

impl Cached {
    /// Returns the chunks of a heap.
    pub(super) fn within(&self, range: &Range<u64>) -> impl Iterator<Item = (&u64, &u64)> {
        self.chunks.range(range.clone())
    }
}

/// Returns the chunks of the cache at an address. `None` if it is none, or changes.
fn chunks_of(reader: &mut WordReader<'_>, address: u64, counter: u64, heaps: &[Range<u64>]) -> Option<Vec<(u64, u64)>> {
    let mut chunks = Vec::new();
    for bin in 0..CACHE_BINS {
        let at = address + bin * counter;
        let count = reader.word(at & !7)? >> (8 * (at % 8)) & ((1 << (8 * counter)) - 1);
        let first = reader.word(address + CACHE_BINS * counter + 8 * bin)?;
        if (count == 0) != (first == 0) {
            return None;
        }
        let list = List { heaps, size: SIZE_MIN + STEP * bin, to_link: 0, count: Some(count as usize) };
        // A list of the cache leads to the blocks, not to the chunks around them.
        chunks.extend(list.follow(reader, first)?.into_iter().map(|block| (block - 16, list.size)));
    }
    Some(chunks)
}

/// Returns the chunks in the fastbins of an arena, by the address of its field `top`, with their
/// sizes. Lists that make no sense are left out.
pub(super) fn fast_chunks(reader: &mut WordReader<'_>, top_field: u64, heaps: &[Range<u64>]) -> Vec<(u64, u64)> {
    let mut chunks = Vec::new();
    for bin in 0..FAST_BINS {
        let first = reader.word(top_field.wrapping_sub(8 * FAST_BINS).wrapping_add(8 * bin)).unwrap_or(0);
        let list = List { heaps, size: SIZE_MIN + STEP * bin, to_link: 16, count: None };
        let found = list.follow(reader, first).unwrap_or_default();
        chunks.extend(found.into_iter().map(|chunk| (chunk, list.size)));
    }
    chunks
}

/// A list of freed chunks of one size.
struct List<'h> {
    /// The heaps that they may be in, by address.
    heaps: &'h [Range<u64>],
    size: u64,
    /// The bytes from an address of the list to the link to the next one, which is at the beginning
    /// of the block.
    to_link: u64,
    /// The number of chunks, if it is known.
    count: Option<usize>,
}

impl List<'_> {
    /// Returns the addresses of the list. `None` if it makes no sense.
    fn follow(&self, reader: &mut WordReader<'_>, first: u64) -> Option<Vec<u64>> {
        // Since 2.32 a link is mixed with its own address.
        self.follow_as(reader, first, true).or_else(|| self.follow_as(reader, first, false))
    }

    fn follow_as(&self, reader: &mut WordReader<'_>, first: u64, is_mixed: bool) -> Option<Vec<u64>> {
        let (mut addresses, mut at) = (Vec::new(), first);
        while at != 0 {
            let chunk = at.checked_add(self.to_link)?.checked_sub(16)?;
            let heap = self.heaps.get(self.heaps.partition_point(|heap| heap.end <= chunk));
            let is_known = heap.is_some_and(|heap| heap.contains(&chunk));
            let is_full = addresses.len() >= self.count.unwrap_or(CHUNKS_MAX);
            if is_full || at % 16 != 0 || !is_known || reader.word(chunk + 8)? & !7 != self.size {
                return None;
            }
            addresses.push(at);
            let link = at + self.to_link;
            let mask = if is_mixed { link >> 12 } else { 0 };
            at = reader.word(link)? ^ mask;
        }
        self.count.is_none_or(|count| count == addresses.len()).then_some(addresses)
    }
}
