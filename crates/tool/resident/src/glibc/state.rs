//! Descriptions of arenas (`struct malloc_state`) and of their heaps (`struct heap_info`).

use std::collections::HashSet;
use std::ops::Range;

use super::Places;
use super::walk::Extent;
use crate::memory::{Memory, word};
use crate::pages::{PAGE, PresentPages};
use crate::reader::WordReader;

/// Offsets from the field `top`, which are the same in all versions. Before it are the fastbins,
/// behind it `last_remainder`, the bins, a bitmap, `next`, `next_free`, `attached_threads`,
/// `system_mem` and `max_system_mem`.
const BINS: u64 = 16;
const NEXT: u64 = 16 + 8 * 254 + 16;
const BEHIND: u64 = NEXT + 5 * 8;
/// The bins, each two pointers.
const BINS_COUNT: u64 = 127;
/// The least number of bins that are empty, by which a description is known. Programs use few.
const EMPTY_MIN: u64 = 24;
/// Offsets of `top` in `struct malloc_state`: since 2.27, and before.
const TOP_OFFSETS: [u64; 2] = [96, 88];
/// The size of the address space of a heap, to a multiple of which it is aligned.
const HEAP_MAX: u64 = 64 << 20;
/// Sizes of `struct heap_info`: since 2.35, and before.
const HEAP_INFO_SIZES: [u64; 2] = [0x30, 0x20];
/// The most arenas and heaps of an arena that are read.
const ARENAS_MAX: usize = 1 << 16;
const HEAPS_MAX: usize = 1 << 16;
/// The least size of a chunk, and the number of chunks in a row by which the first one is known.
const SIZE_MIN: u64 = 0x20;
const ROW: u32 = 2;
/// The size words of the chunk with a thread's cache at the beginning of a heap: since 2.30, and
/// before.
const CACHE_WORDS: [u64; 2] = [0x291, 0x251];
/// The most bytes that are in front of the first chunk of a brk heap.
const FRONT_MAX: u64 = 4 * PAGE;
/// The most addresses that a brk heap is taken to have.
const BRK_MAX: u64 = 1 << 40;
/// The most bytes that are searched for descriptions.
const DATA_MAX: u64 = 256 << 20;

/// The description of an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ArenaState {
    pub(super) address: u64,
    pub(super) is_main: bool,
    /// The address of the field `top`, and its value.
    pub(super) top_field: u64,
    top: u64,
}

/// Returns the arenas of a process, each main one before those that it leads to.
pub(super) fn find(
    memory: &dyn Memory,
    pages: &PresentPages,
    reader: &mut WordReader<'_>,
    places: &Places,
) -> Vec<ArenaState> {
    let (mut states, mut searched): (Vec<ArenaState>, u64) = (Vec::new(), 0);
    for part in places.data.iter().flat_map(|data| pages.within(data.clone())) {
        let length = part.end - part.start;
        searched = searched.saturating_add(length);
        if searched > DATA_MAX {
            break;
        }
        let mut bytes = vec![0; length as usize];
        if memory.read(part.start, &mut bytes).is_err() {
            continue;
        }
        for offset in (0..bytes.len()).step_by(8) {
            let address = part.start + offset as u64;
            let Some(top) = word(&bytes, offset) else { continue };
            // The heap may have grown since the mappings were listed.
            let is_in_heap = (places.brk.start..places.brk.start.saturating_add(BRK_MAX)).contains(&top);
            let is_top = top == address || (top % 16 == 0 && is_in_heap && !places.brk.is_empty());
            if is_top && has_bins(address, |at| word(&bytes, usize::try_from(at - part.start).ok()?)) {
                add_arenas(reader, address, top, &mut states);
            }
        }
    }
    states
}

/// True if chunks lie in a row from an address on: some, or all up to the end.
fn is_row(reader: &mut WordReader<'_>, start: u64, end: u64) -> bool {
    let mut at = start;
    for _ in 0..ROW {
        let Some(size) = reader.word(at + 8).map(|word| word & !7).filter(|&size| size >= SIZE_MIN) else {
            return false;
        };
        at = at.saturating_add(size);
        if size % 16 != 0 || at > end {
            return false;
        }
        if at == end {
            break;
        }
    }
    true
}

/// True if the words behind the address of `top` are bins, of which most are empty.
fn has_bins(top_field: u64, mut word: impl FnMut(u64) -> Option<u64>) -> bool {
    let mut empty = 0;
    for bin in 0..BINS_COUNT {
        // An empty bin points to itself, as to a chunk whose pointers are the bin.
        let itself = top_field.wrapping_add(16 * bin);
        let at = top_field.wrapping_add(BINS + 16 * bin);
        let (Some(first), Some(last)) = (word(at), word(at.wrapping_add(8))) else { return false };
        match first == itself && last == itself {
            true => empty += 1,
            // A list has both ends, which are chunks.
            false if first == itself || last == itself || first % 16 != 0 || last % 16 != 0 || first == 0 => {
                return false;
            }
            false => {}
        }
    }
    empty >= EMPTY_MIN
}

/// Adds the main arena whose field `top` is at an address, and all others, of which each has the
/// next one's address.
fn add_arenas(reader: &mut WordReader<'_>, top_field: u64, top: u64, states: &mut Vec<ArenaState>) {
    let Some(next) = reader.word(top_field.wrapping_add(NEXT)) else { return };
    let is_of = |reader: &mut WordReader<'_>, offset: u64| {
        next == top_field - offset || has_bins(next.wrapping_add(offset), |at| reader.word(at))
    };
    // An arena that is newer than the list of pages cannot be read.
    let known = TOP_OFFSETS.into_iter().find(|&offset| is_of(reader, offset));
    let offset = known.unwrap_or(TOP_OFFSETS[0]);
    let main = top_field - offset;
    states.push(ArenaState { address: main, is_main: true, top_field, top });
    let (mut seen, mut address) = (HashSet::from([main]), next);
    while seen.insert(address) && states.len() < ARENAS_MAX {
        let field = address.wrapping_add(offset);
        let (Some(top), Some(next)) = (reader.word(field), reader.word(field.wrapping_add(NEXT))) else { break };
        if !has_bins(field, |at| reader.word(at)) {
            break;
        }
        states.push(ArenaState { address, is_main: false, top_field: field, top });
        address = next;
    }
}

impl ArenaState {
    /// Returns the description as it is now.
    pub(super) fn read_again(&self, reader: &mut WordReader<'_>) -> ArenaState {
        ArenaState { top: reader.word(self.top_field).unwrap_or(self.top), ..*self }
    }

    /// Returns the heaps of the arena, by address.
    pub(super) fn extents(&self, reader: &mut WordReader<'_>, brk: &Range<u64>) -> Vec<Extent> {
        // Before the first allocation, `top` is the list of the chunks that were freed last.
        if self.top == self.top_field {
            return Vec::new();
        }
        if self.is_main { self.main_extent(reader, brk).into_iter().collect() } else { self.heaps(reader) }
    }

    /// Returns the brk heap, up to the end of the chunk at its end.
    fn main_extent(&self, reader: &mut WordReader<'_>, brk: &Range<u64>) -> Option<Extent> {
        if brk.is_empty() {
            return None;
        }
        let size = reader.word(self.top.wrapping_add(8)).unwrap_or(0) & !7;
        let end = self.top.checked_add(size).filter(|end| size > 0 && *end <= brk.end && brk.contains(&self.top));
        // Behind the program's last page, which the break may share, the heap begins with a chunk:
        // in front of it are zeroes or, in a statically linked program, the thread-local storage of
        // the first thread.
        let starts = (brk.start..brk.start + FRONT_MAX).step_by(16).filter(|start| start % 16 == 0);
        // The first chunk is the cache of the first thread, if it has one.
        let last = end.map_or(brk.end, |_| self.top);
        let is_cache = |word: Option<u64>| word.is_some_and(|word| CACHE_WORDS.contains(&word));
        let first = starts.clone().find(|&at| is_cache(reader.word(at + 8)) || is_row(reader, at, last));
        let has_size = |start: &u64| reader.word(start + 8).is_some_and(|size| size & !7 >= SIZE_MIN);
        let start = first.or_else(|| starts.take(PAGE as usize / 16).find(has_size))?;
        // A heap that has grown since is walked as far as its pages are known.
        let (end, top) = end.map_or((brk.end, None), |end| (end, Some(self.top)));
        Some(Extent { range: start..end, first: start, top, is_brk: true })
    }

    /// Returns the heaps of an arena that is none of the main ones: the one with `top` has the
    /// address of the one before, and so on.
    fn heaps(&self, reader: &mut WordReader<'_>) -> Vec<Extent> {
        let start_of = |address: u64| address & !(HEAP_MAX - 1);
        let info = self.address - start_of(self.address);
        let mut extents: Vec<Extent> = Vec::new();
        if !HEAP_INFO_SIZES.contains(&info) {
            return extents;
        }
        let mut heap = start_of(self.top);
        while heap != 0 && extents.len() < HEAPS_MAX {
            let [Some(arena), Some(previous), Some(size)] = [0, 8, 16].map(|offset| reader.word(heap + offset)) else {
                break;
            };
            let is_known = extents.iter().any(|extent| extent.range.start == heap);
            if arena != self.address || size % PAGE != 0 || !(PAGE..=HEAP_MAX).contains(&size) || is_known {
                break;
            }
            let behind = if heap == start_of(self.address) { self.top_field + BEHIND } else { heap + info };
            let top = Some(self.top).filter(|&top| start_of(top) == heap);
            let first = behind.next_multiple_of(16);
            extents.push(Extent { range: heap..heap + size, first, top, is_brk: false });
            heap = start_of(previous);
        }
        extents.sort_by_key(|extent| extent.range.start);
        extents
    }
}
