//! Building a log.

use std::hash::Hash;

use crate::frames::UnresolvedFrame;
use crate::hash::Map;
use crate::log::{About, Block, FrameId, Group, Log, Mode, NameId, Report, Size, TraceId};

/// Adds blocks up. There are few groups to a stack, and few sizes to a group, so lists are faster
/// and smaller here than tables.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    groups: Vec<Group>,
    /// The first group of each stack; at index 0, the first one without a stack.
    first: Vec<u32>,
    /// The next group of the same stack.
    next: Vec<u32>,
    /// The groups of stacks that have many.
    others: Map<Key, u32>,
    /// True if blocks of the same usable size count as blocks of one size.
    is_merging: bool,
}

type Key = (Option<TraceId>, [Option<Report>; 2], Option<NameId>, Option<NameId>);

/// No group.
const NONE: u32 = u32::MAX;
/// The most groups in a list.
const GROUPS_FEW: usize = 16;
/// The number of sizes from which on a list may contain the same size more than once, until its
/// length is a power of two.
const SIZES_FEW: usize = 16;

impl Groups {
    pub(crate) fn new(is_merging: bool) -> Groups {
        Groups { is_merging, ..Groups::default() }
    }

    /// Adds blocks, and returns the index of their group.
    pub(crate) fn add(&mut self, block: &Block) -> u32 {
        let number = self.group(block);
        let Block { requested, slop, count, .. } = *block;
        let (weight, variance) = (count as f64 * block.weight, count as f64 * block.variance);
        let added = Size { requested, slop, count, rest: 0, weight, variance };
        let sizes = &mut self.groups[number as usize].sizes;
        if self.is_merging {
            put(sizes, added, usable)
        } else {
            put(sizes, added, both)
        }
        number
    }

    fn group(&mut self, block: &Block) -> u32 {
        let Block { alloc, reports, type_name, context, .. } = *block;
        let stack = alloc.map_or(0, |trace| trace.0 as usize + 1);
        if self.first.len() <= stack {
            self.first.resize(stack + 1, NONE);
        }
        let (mut at, mut last) = (self.first[stack], NONE);
        for _ in 0..GROUPS_FEW {
            let Some(group) = self.groups.get(at as usize) else {
                let new = self.push(block);
                let link = if last == NONE { &mut self.first[stack] } else { &mut self.next[last as usize] };
                *link = new;
                return new;
            };
            if (group.reports, group.type_name, group.context) == (reports, type_name, context) {
                return at;
            }
            (last, at) = (at, self.next[at as usize]);
        }
        let new = self.groups.len() as u32;
        let number = *self.others.entry((alloc, reports, type_name, context)).or_insert(new);
        if number == new { self.push(block) } else { number }
    }

    fn push(&mut self, block: &Block) -> u32 {
        let Block { alloc, reports, type_name, context, .. } = *block;
        self.groups.push(Group { alloc, reports, type_name, context, sizes: Vec::new() });
        self.next.push(NONE);
        self.groups.len() as u32 - 1
    }

    /// Returns the groups, with each size once.
    pub(crate) fn finish(mut self) -> Vec<Group> {
        for group in self.groups.iter_mut().filter(|group| group.sizes.len() > SIZES_FEW) {
            if self.is_merging { merge(&mut group.sizes, usable) } else { merge(&mut group.sizes, both) }
        }
        self.groups
    }
}

impl Size {
    fn add(&mut self, other: &Size) {
        let more = (i128::from(other.requested) - i128::from(self.requested)) * i128::from(other.count);
        let more = more.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
        self.rest = self.rest.saturating_add(more).saturating_add(other.rest);
        self.count = self.count.saturating_add(other.count);
        self.weight += other.weight;
        self.variance += other.variance;
    }
}

// The sort keys by which sizes count as equal.

#[inline]
fn usable(size: &Size) -> u64 {
    size.requested.saturating_add(size.slop)
}

#[inline]
fn both(size: &Size) -> (u64, u64) {
    (size.requested, size.slop)
}

/// Adds to the entry with the same size.
#[inline]
fn put<K: Ord>(sizes: &mut Vec<Size>, added: Size, key: impl Fn(&Size) -> K + Copy) {
    if sizes.len() <= SIZES_FEW
        && let Some(size) = sizes.iter_mut().find(|size| key(size) == key(&added))
    {
        return size.add(&added);
    }
    if sizes.len() > SIZES_FEW && sizes.len().is_power_of_two() {
        merge(sizes, key);
    }
    // Most lists have one size, and there are millions of lists.
    if sizes.is_empty() {
        sizes.reserve_exact(1);
    }
    sizes.push(added);
}

/// Merges equal sizes.
fn merge<K: Ord>(sizes: &mut Vec<Size>, key: impl Fn(&Size) -> K + Copy) {
    sizes.sort_by_key(key);
    sizes.dedup_by(|size, kept| {
        let is_same = key(size) == key(kept);
        if is_same {
            kept.add(size);
        }
        is_same
    });
}

/// Builds a [`Log`]: numbers each distinct frame, stack and name, and adds blocks up.
#[derive(Debug)]
pub struct Builder {
    log: Log,
    groups: Groups,
    traces: Map<Vec<FrameId>, u32>,
    frames: Map<String, u32>,
    names: Map<String, u32>,
}

impl Builder {
    /// Creates a builder with an empty log.
    pub fn new(mode: Mode) -> Builder {
        let (groups, traces, frames, names) = <(Groups, Map<_, _>, Map<_, _>, Map<_, _>)>::default();
        Builder { log: Log::empty(mode), groups, traces, frames, names }
    }

    /// Returns the frame with this text: see [`Log::frames`].
    pub fn frame(&mut self, text: &str) -> FrameId {
        let id = FrameId(number(&mut self.frames, &mut self.log.frames, text));
        if self.log.libraries.len() < self.log.frames.len() {
            let library = UnresolvedFrame::parse(text).map(|frame| self.name(frame.path));
            self.log.libraries.push(library);
        }
        id
    }

    /// Returns the stack with these frames, innermost first.
    pub fn trace(&mut self, frames: &[FrameId]) -> TraceId {
        TraceId(number(&mut self.traces, &mut self.log.traces, frames))
    }

    /// Returns the id for a name of a type, a context or a reporter.
    pub fn name(&mut self, text: &str) -> NameId {
        NameId(number(&mut self.names, &mut self.log.names, text))
    }

    /// Adds blocks.
    pub fn add(&mut self, block: &Block) {
        self.groups.add(block);
    }

    /// Adds a block with its contents: all requested bytes, without an incomplete last word.
    pub fn add_scanned(&mut self, block: &Block, address: u64, contents: &[u64]) {
        let group = self.groups.add(block);
        self.log.scanned.push(block, group, address, contents);
    }

    /// Returns what else is known about the log.
    pub fn about(&mut self) -> &mut About {
        &mut self.log.about
    }

    /// Returns the log.
    pub fn finish(self) -> Log {
        Log { groups: self.groups.finish(), ..self.log }
    }
}

/// Returns the index of an item in a list, to which it is added if it is new.
fn number<T, Q>(numbers: &mut Map<T, u32>, list: &mut Vec<T>, wanted: &Q) -> u32
where
    T: Eq + Hash + Clone + std::borrow::Borrow<Q>,
    Q: Eq + Hash + ToOwned<Owned = T> + ?Sized,
{
    if let Some(&number) = numbers.get(wanted) {
        return number;
    }
    let number = list.len() as u32;
    list.push(wanted.to_owned());
    numbers.insert(wanted.to_owned(), number);
    number
}
