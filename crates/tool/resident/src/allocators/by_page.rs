//! The pages of a heap, filled with its blocks while the heap is read.

use std::collections::BTreeMap;
use std::ops::Range;

use super::CachedReader;
use crate::fill::{Filler, Fills};
use crate::pages::PresentPages;

/// The group of the allocator's own descriptions.
pub(crate) const OWN: u64 = u64::MAX;
/// The most blocks of one run that are looked at one by one. All allocators have fewer.
const SLOTS_MAX: u64 = 1 << 17;
/// The most blocks of lists that are followed for one heap.
const LISTED_MAX: u64 = 1 << 28;

/// The resident pages of a heap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AllocatorPages {
    /// The resident pages of the process up to the last that has a block in use.
    pub(crate) fills: Fills,
    /// The groups that addresses belong to, ascending: arenas, threads, or [`OWN`].
    pub(crate) groups: Vec<(Range<u64>, u64)>,
}

/// Fills pages with blocks, in any order, although ascending addresses are the fastest.
pub(super) struct PageFiller<'p> {
    pages: &'p PresentPages,
    filler: Filler<'p>,
    groups: Vec<(Range<u64>, u64)>,
    /// Blocks that were added and are not in use.
    freed: Vec<Range<u64>>,
    /// The number of blocks of lists that were followed.
    listed: u64,
}

impl<'p> PageFiller<'p> {
    pub(super) fn new(pages: &'p PresentPages) -> PageFiller<'p> {
        PageFiller { pages, filler: Filler::new(pages, 0), groups: Vec::new(), freed: Vec::new(), listed: 0 }
    }

    /// Puts addresses into a group.
    pub(super) fn group(&mut self, range: Range<u64>, group: u64) {
        match self.groups.last_mut() {
            Some((last, of)) if last.end == range.start && *of == group => last.end = range.end,
            _ => self.groups.push((range, group)),
        }
    }

    /// Adds a block in use.
    pub(super) fn add(&mut self, block: Range<u64>) {
        if block.start < block.end {
            self.filler.add(block, true);
        }
    }

    /// Adds the blocks in use of a run of them: all but those in lists, each of which is given by
    /// its first block.
    pub(super) fn add_slots(&mut self, mut slots: Slots, lists: &[u64], reader: &mut CachedReader<'_>) {
        for &first in lists {
            reader.follow_list(first, |block| {
                let is_new = self.listed < LISTED_MAX && slots.set_free(block);
                self.listed += u64::from(is_new);
                is_new
            });
        }
        let Some(free) = &slots.free else { return };
        for number in (0..slots.count).filter(|number| free[(number / 64) as usize] >> (number % 64) & 1 == 0) {
            let start = slots.start + number * slots.size;
            self.filler.add(start..start + slots.size, true);
        }
    }

    /// Adds the allocator's own memory.
    pub(super) fn add_own(&mut self, range: Range<u64>) {
        self.filler.add(range.clone(), true);
        self.groups.push((range, OWN));
    }

    /// Takes a block away that was added, or will be.
    pub(super) fn remove(&mut self, block: Range<u64>) {
        self.freed.push(block);
    }

    pub(super) fn finish(self) -> AllocatorPages {
        let mut fills = self.filler.finish();
        for block in self.freed {
            fills.remove(self.pages, block);
        }
        let mut groups = self.groups;
        groups.sort_by_key(|(range, _)| range.start);
        AllocatorPages { fills, groups }
    }
}

/// Blocks of one size next to each other, some of which are free.
pub(super) struct Slots {
    start: u64,
    size: u64,
    count: u64,
    /// A bit for each that is free. `None` if there are too many.
    free: Option<Vec<u64>>,
}

impl Slots {
    /// Returns `count` blocks in use, or as many as there is room for in a range of addresses from
    /// `start` on.
    pub(super) fn new(start: u64, size: u64, count: u64, end: u64) -> Slots {
        let count = count.min(end.saturating_sub(start).checked_div(size).unwrap_or(0));
        let free = (count <= SLOTS_MAX).then(|| vec![0; count.div_ceil(64) as usize]);
        Slots { start, size, count, free }
    }

    /// Notes that the block with an address is free. False if there is none, or if it is known to
    /// be free, so that a list of blocks comes to an end.
    fn set_free(&mut self, address: u64) -> bool {
        let number = address.checked_sub(self.start).and_then(|offset| offset.checked_div(self.size));
        let (Some(number), Some(free)) = (number.filter(|number| *number < self.count), &mut self.free) else {
            return false;
        };
        let (word, bit) = (&mut free[(number / 64) as usize], 1 << (number % 64));
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }
}

/// Numbers for the groups of pages, by their keys.
#[derive(Debug, Default)]
pub(crate) struct GroupNumbers<K> {
    numbers: BTreeMap<K, u32>,
    pub(crate) names: Vec<String>,
}

impl<K: Ord> GroupNumbers<K> {
    pub(crate) fn number(&mut self, key: K, name: impl FnOnce() -> String) -> u32 {
        *self.numbers.entry(key).or_insert_with(|| {
            self.names.push(name());
            self.names.len() as u32 - 1
        })
    }

    /// Returns the numbers of the groups whose keys satisfy a condition.
    pub(crate) fn numbers_of(&self, is_it: impl Fn(&K) -> bool) -> Vec<u32> {
        self.numbers.iter().filter(|(key, _)| is_it(key)).map(|(_, number)| *number).collect()
    }
}
