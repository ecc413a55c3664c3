//! Records as they are added up: all at once, or in several passes over the blocks if there are too
//! many.

use super::keys::{Keys, SumKey};
use super::moments::{Moments, WeightedBlocks};
use crate::hash::Map;
use crate::log::{Group, NameId, TraceId};

/// Records as they are added up, in the order of their first blocks.
pub(super) struct Sums<'a> {
    pub(super) keys: &'a Keys<'a>,
    /// The records that are added up. It becomes smaller if they are too many.
    range: HashRange,
    at_once: Option<usize>,
    /// The number of groups so far.
    groups: u64,
    pub(super) list: Vec<Sum>,
    /// The sums of each record.
    pub(super) moments: Vec<Moments>,
    pub(super) numbers: Map<(u64, u64), u32>,
    queued: Vec<QueuedBlocks>,
}

impl<'a> Sums<'a> {
    pub(super) fn new(keys: &'a Keys<'a>, range: HashRange, at_once: Option<usize>) -> Sums<'a> {
        let (list, moments, numbers) = (Vec::new(), Vec::new(), Map::default());
        Sums { keys, range, at_once, groups: 0, list, moments, numbers, queued: Vec::with_capacity(BATCH) }
    }

    #[inline]
    pub(super) fn add(&mut self, group: &Group) {
        self.groups += 1;
        let Some(first) = self.keys.first_number(group) else { return };
        let key = self.keys.key(group, first);
        if self.at_once.is_some() && !self.range.contains(self.keys.hash(key)) {
            return;
        }
        let mut moments = Moments::ZERO;
        group.sizes.iter().for_each(|size| moments.add(&WeightedBlocks::estimated(size, self.keys.probability)));
        self.queued.push(QueuedBlocks { key, alloc: group.alloc, first: self.groups, index: None, moments });
        if self.queued.len() == BATCH {
            self.add_queued();
        }
    }

    pub(super) fn add_queued(&mut self) {
        for queued in &mut self.queued {
            queued.index = self.numbers.get(&queued.key.packed()).copied();
        }
        let indices = self.queued.iter().filter_map(|queued| queued.index);
        std::hint::black_box(indices.fold(0, |seen, index| seen ^ self.moments[index as usize].counted[0]));
        for queued in self.queued.drain(..) {
            let index = queued.index.unwrap_or_else(|| {
                *self.numbers.entry(queued.key.packed()).or_insert_with(|| {
                    let module = self.keys.texts.module(queued.alloc);
                    self.list.push(Sum { key: queued.key, module, first: queued.first });
                    self.moments.push(Moments::ZERO);
                    self.list.len() as u32 - 1
                })
            });
            self.moments[index as usize].add_sums(&queued.moments);
        }
        while self.at_once.is_some_and(|at_once| self.list.len() > at_once) && self.halve() {}
    }

    /// Leaves the upper half of the range to a later pass. False if the range has one hash only.
    #[cold]
    fn halve(&mut self) -> bool {
        let HashRange { from, until } = self.range;
        self.range.until = from + (until - from).div_ceil(2);
        let mut kept = 0;
        for at in 0..self.list.len() {
            if self.range.contains(self.keys.hash(self.list[at].key)) {
                (self.list[kept], self.moments[kept]) = (self.list[at], self.moments[at]);
                kept += 1;
            }
        }
        self.list.truncate(kept);
        self.moments.truncate(kept);
        self.numbers.clear();
        self.numbers.extend(self.list.iter().zip(0..).map(|(sum, at)| (sum.key.packed(), at)));
        self.range.until < until
    }

    /// Returns the range of the next pass: as many records as fit, by their density in this one.
    pub(super) fn next_range(&self) -> Option<HashRange> {
        let HashRange { from, until } = self.range;
        let left = HashRange::ALL.until - until;
        let records = self.list.len().max(1) as f64;
        let fits = self.at_once.map_or(f64::MAX, |at_once| 0.9 * at_once as f64 / records * (until - from) as f64);
        (left > 0).then(|| HashRange { from: until, until: until + left.min(fits as u64).max(1) })
    }
}

/// A record that is added up.
#[derive(Clone, Copy)]
pub(super) struct Sum {
    pub(super) key: SumKey,
    pub(super) module: Option<NameId>,
    /// The ordinal of the first group of its blocks.
    pub(super) first: u64,
}

/// A part of all records, by the upper half of the hashes of their keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HashRange {
    from: u64,
    until: u64,
}

impl HashRange {
    pub(super) const ALL: HashRange = HashRange { from: 0, until: 1 << 32 };

    pub(super) fn is_first(self) -> bool {
        self.from == 0
    }

    fn contains(self, hash: u64) -> bool {
        (self.from..self.until).contains(&(hash >> 32))
    }
}

/// Blocks that are to be added to a record.
struct QueuedBlocks {
    key: SumKey,
    alloc: Option<TraceId>,
    first: u64,
    index: Option<u32>,
    moments: Moments,
}

/// The number of blocks that are added together. Records are scattered over memory, so cache misses
/// are waited for together.
const BATCH: usize = 64;
