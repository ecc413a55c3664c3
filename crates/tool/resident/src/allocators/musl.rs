//! The heap of musl's malloc since 1.2.1 (`mallocng`).
//!
//! Blocks are the slots of groups. A group is a mapping, or lies in a slot of a larger group. The
//! descriptions of groups are in pages (`meta_area`) that begin with a secret number, which the
//! allocator's data have, too: it is how these data are found. Sources: `meta.h` and `glue.h` of
//! musl 1.2.3.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Range;

use super::by_page::PageFiller;
use super::{Allocator, AllocatorHeap, CachedReader, Search, words};
use crate::glibc::Piece;
use crate::pages::PAGE;

/// The unit of sizes, which is also the size of the beginning of a group.
const UNIT: u64 = 16;
/// The sizes of slots by class, in units.
const SIZES: [u64; 48] = [
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 18, 20, 25, 31, 36, 42, 50, 63, 72, 84, 102, 127, 146, 170, 204, 255, 292,
    340, 409, 511, 584, 682, 818, 1023, 1169, 1364, 1637, 2047, 2340, 2730, 3276, 4095, 4680, 5460, 6552, 8191,
];
/// The offset in the allocator's data (`malloc_context`), which begin with the secret, of the first
/// page of descriptions.
const AREA_HEAD: u64 = 56;
/// The most pages of descriptions.
const AREAS_MAX: usize = 1 << 14;
/// The most groups that are looked at in search of those in which others lie.
const STEPS_MAX: usize = 1 << 26;
/// The descriptions in a page, and the size of one and of what is in front of them.
const SLOTS_MAX: u64 = 101;
const META_SIZE: u64 = 40;
const AREA_HEADER: u64 = 24;

/// Returns the heap of musl in a process.
pub(super) fn find(search: &Search<'_>, reader: &mut CachedReader<'_>) -> Vec<AllocatorHeap> {
    let mut context = None;
    search.for_each_data(|start, bytes| {
        for (at, secret) in words(start, bytes).filter(|(_, word)| *word != 0) {
            let offset = (at - start) as usize;
            let word = |offset: usize| crate::memory::word(bytes, offset);
            let is_ready = word(offset + 8).is_some_and(|word| word & 0xffff_ffff == 1);
            let Some(area) = word(offset + AREA_HEAD as usize).filter(|_| is_ready && context.is_none()) else {
                continue;
            };
            let is_area = area != 0 && area.is_multiple_of(PAGE) && reader.word(area) == Some(secret);
            context = Some((secret, area)).filter(|_| is_area);
        }
    });
    context.and_then(|(secret, area)| read(search, reader, secret, area)).into_iter().collect()
}

/// A group of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Group {
    slots: u64,
    /// The size of a slot in bytes.
    stride: u64,
    /// A bit for each slot that is free.
    free: u32,
    /// The size of its mapping; 0 if it lies in another group, or in data of a program.
    mapped: u64,
}

impl Group {
    /// Reads the description at an address, with the address of the group. `None` if there is none,
    /// or if it makes no sense.
    fn read(reader: &mut CachedReader<'_>, at: u64) -> Option<(u64, Group)> {
        let [memory, masks, bits] = reader.words::<3>(at + 16)?;
        let slots = (bits & 31) + 1;
        let (class, mapped) = ((bits >> 6 & 63) as usize, (bits >> 12).checked_mul(PAGE)?);
        let stride = match SIZES.get(class) {
            _ if slots == 1 && mapped > 0 => mapped.checked_sub(UNIT)?,
            Some(size) => size * UNIT,
            None => return None,
        };
        let free = masks as u32 | (masks >> 32) as u32;
        let is_own = memory != 0 && memory.is_multiple_of(UNIT) && reader.word(memory) == Some(at);
        let fits = mapped == 0 || UNIT + slots * stride <= mapped;
        (is_own && fits).then_some((memory, Group { slots, stride, free, mapped }))
    }

    fn slot(&self, start: u64, number: u64) -> Range<u64> {
        let at = start.saturating_add(UNIT + number * self.stride);
        at..at.saturating_add(self.stride)
    }

    fn slots_in_use(&self) -> impl Iterator<Item = u64> {
        (0..self.slots).filter(|slot| self.free >> slot & 1 == 0)
    }

    /// Returns the end of its slots, or of its mapping.
    fn end(&self, start: u64) -> u64 {
        start.saturating_add(self.mapped.max(UNIT + self.slots * self.stride))
    }
}

/// Reads the heap whose first page of descriptions is at an address.
fn read(search: &Search<'_>, reader: &mut CachedReader<'_>, secret: u64, first: u64) -> Option<AllocatorHeap> {
    let (mut groups, mut areas, mut area) = (BTreeMap::new(), Vec::new(), first);
    let mut seen = HashSet::new();
    while area != 0 && areas.len() < AREAS_MAX && area.is_multiple_of(PAGE) && seen.insert(area) {
        let Some([check, next, count]) = reader.words::<3>(area) else { break };
        if check != secret {
            break;
        }
        areas.push(area);
        for slot in 0..(count & 0xffff_ffff).min(SLOTS_MAX) {
            groups.extend(Group::read(reader, area + AREA_HEADER + slot * META_SIZE));
        }
        area = next;
    }
    let (mut heap, mut by_page) = (AllocatorHeap::new(Allocator::Musl), search.page_filler());
    let mut inner: Vec<(u64, Group)> = Vec::new();
    let mut all: Vec<(u64, Group)> = Vec::new();
    // The slots that have a group of smaller ones.
    let mut holders = BTreeSet::new();
    for (&start, group) in &groups {
        let range = start..group.end(start);
        let is_after = heap.ranges.last().is_none_or(|last| last.end <= start);
        if group.mapped > 0 && is_after && search.is_in_space(&range) {
            add(&mut heap, search, start, group, range.end);
            all.push((start, *group));
            by_page.iter_mut().for_each(|filler| filler.group(range.clone(), 0));
            heap.ranges.push(range);
        } else if group.mapped == 0 {
            inner.push((start, *group));
        }
    }
    // Groups in slots of others, the larger ones first: what is left of the slot is free.
    inner.sort_by_key(|(_, group)| std::cmp::Reverse(group.stride * group.slots));
    let mut steps_left = STEPS_MAX;
    for (start, group) in inner {
        let Some(slot) = slot_of(&groups, &heap.ranges, start, &mut steps_left) else { continue };
        let bytes = slot.end - slot.start;
        heap.used.subtract(Piece { chunks: 1, bytes, resident: search.resident(slot.clone()) });
        holders.insert(slot.start);
        let before = start.saturating_sub(slot.start);
        heap.bookkeeping.add_all(Piece { chunks: 0, bytes: before, resident: search.resident(slot.start..start) });
        add(&mut heap, search, start, &group, slot.end);
        all.push((start, group));
    }
    if let Some(filler) = &mut by_page {
        for (start, group) in &all {
            let slots = group.slots_in_use().map(|number| group.slot(*start, number));
            slots.filter(|slot| !holders.contains(&slot.start)).for_each(|slot| filler.add(slot));
        }
    }
    areas.sort_unstable();
    areas.retain(|area| super::range_at(&heap.ranges, *area).is_none());
    for area in areas {
        if search.private_at(area).is_some() {
            heap.bookkeeping.add(PAGE, search.resident(area..area + PAGE));
            by_page.iter_mut().for_each(|filler| filler.add_own(area..area + PAGE));
            heap.ranges.push(area..area + PAGE);
        }
    }
    heap.ranges.sort_by_key(|range| range.start);
    (heap.arenas, heap.caches) = (1, 1);
    heap.pages = by_page.map(PageFiller::finish);
    Some(heap).filter(|heap| !heap.ranges.is_empty())
}

/// Returns the slot of the smallest group around a group, if that is in the heap's mappings.
/// `steps_left` are the groups that are looked at.
fn slot_of(
    groups: &BTreeMap<u64, Group>,
    ranges: &[Range<u64>],
    start: u64,
    steps_left: &mut usize,
) -> Option<Range<u64>> {
    /// The most groups between the beginnings of a group and of one that lies in it.
    const BETWEEN_MAX: usize = 4096;
    super::range_at(ranges, start)?;
    let mut outer = groups.range(..start).rev().take(BETWEEN_MAX.min(*steps_left)).inspect(|_| *steps_left -= 1);
    let (outer, group) =
        outer.find(|(outer, group)| start < outer.saturating_add(UNIT + group.slots * group.stride))?;
    let number = start.checked_sub(outer + UNIT)? / group.stride;
    (number < group.slots).then(|| group.slot(*outer, number))
}

/// Adds the slots of a group that has the memory up to an end.
fn add(heap: &mut AllocatorHeap, search: &Search<'_>, start: u64, group: &Group, end: u64) {
    let mut used = Piece::default();
    for number in group.slots_in_use() {
        used.add(group.stride, search.resident(group.slot(start, number)));
    }
    let header = Piece { chunks: 1, bytes: UNIT, resident: search.resident(start..start + UNIT) };
    let (bytes, resident) = (end.saturating_sub(start), search.resident(start..end));
    let mut rest = Piece { chunks: used.chunks + 1, bytes, resident };
    rest.subtract(used);
    rest.subtract(header);
    rest.chunks = 1;
    heap.used.add_all(used);
    heap.bookkeeping.add_all(header);
    if rest.bytes > 0 {
        heap.free.add_all(rest);
    }
}
