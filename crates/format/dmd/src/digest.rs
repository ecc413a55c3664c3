//! Adding up a log's blocks in records.

mod difference;
#[cfg(test)]
mod tests;
mod texts;

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::sync::Arc;

use heapledger_report_format::escape;

use self::difference::difference;
use self::texts::{Texts, passes};
use crate::analysis::{
    Analysis, DefectRecord, DmdOptions, DmdStack, Estimate, GroupBy, Kind, KindName, Record, Reported, Share, Sort,
    Total,
};
use crate::block_source::BlockSource;
use crate::hash::{Map, Seeded};
use crate::log::{Group, Log, Mode, NameId, Report, Size, TraceId};

/// A log, added up; or the difference of two.
pub(crate) struct Digest {
    pub(crate) mode: Mode,
    variables: Vec<Option<String>>,
    heap: Total,
    is_estimated: bool,
    kinds: Vec<Part>,
    defects: Vec<DefectRecord>,
    defects_count: u64,
}

/// The records of a kind.
struct Part {
    name: KindName,
    total: Total,
    /// The number of records, including those that are not in the list.
    records_count: usize,
    records: Keyed,
}

/// Records, each with the key that its blocks share.
type Keyed = Vec<(Key, Record)>;

/// The properties that the blocks of one record share; it identifies the record in any log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    name: Option<Arc<str>>,
    stacks: Vec<DmdStack>,
}

/// The most records that are added up at once. With more, the blocks are read several times: a
/// record takes about 130 bytes.
const RECORDS_AT_ONCE: usize = 1_800_000;

impl Digest {
    /// Adds up a log. With `records_max`: at most so many records of each kind, sorted and filtered
    /// (used to show one log). Without it: all records, in the order of their first blocks (used to
    /// compare two logs).
    pub(crate) fn of<H: BlockSource>(
        heap: &mut H,
        options: &DmdOptions,
        records_max: Option<usize>,
    ) -> Result<Digest, H::Error> {
        Digest::in_parts(heap, options, records_max, RECORDS_AT_ONCE)
    }

    /// As [`Digest::of`], with at most `at_once` records at once, if no more are shown.
    fn in_parts<H: BlockSource>(
        heap: &mut H,
        options: &DmdOptions,
        records_max: Option<usize>,
        at_once: usize,
    ) -> Result<Digest, H::Error> {
        let mode = if heap.log().mode == Mode::Scan { Mode::Live } else { heap.log().mode };
        let at_once = records_max.filter(|&records_max| records_max < at_once).map(|_| at_once);
        let keeps_stacks = at_once.is_none() || !options.filters.is_empty();
        let mut texts = Texts::of(heap, options, keeps_stacks)?;
        let sampling = heap.log().about.sampling;
        let probability = sampling.map(|sampling| sampling.probability).or(options.estimate);
        let keys = Keys { mode, options, probability, texts: &texts, seed: Seeded::default() };
        let is_filtered = records_max.is_some() && !options.filters.is_empty();
        let mut totals = [const { Moments::ZERO }; KindName::COUNT];
        let mut is_sample = false;
        let mut kinds: Vec<Chosen> = kinds_of(mode).iter().map(|&kind| Chosen::new(kind)).collect();
        let mut part = Some(HashRange::ALL);
        while let Some(range) = part {
            let mut sums = Sums::new(&keys, range, at_once);
            heap.each_group(|group| {
                if range.is_first() {
                    let total = &mut totals[kind_of(mode, group) as usize];
                    for size in &group.sizes {
                        let counted = WeightedBlocks::counted(size);
                        is_sample |= counted.weight != size.count as f64 || counted.variance != 0.0;
                        total.add(&counted);
                    }
                }
                sums.add(group);
            })?;
            sums.add_queued();
            let is_estimated = probability.is_some() || is_sample;
            kinds.iter_mut().for_each(|kind| kind.take(&sums, records_max, is_filtered, is_estimated));
            part = sums.next_range();
        }
        let is_estimated = probability.is_some() || is_sample;
        let mut details = Details::new(kinds.iter().flat_map(|kind| &kind.records));
        heap.each_group(|group| {
            if let Some(more) = details.of_group(&keys, group) {
                more.add(group, probability);
            }
        })?;
        heap.each_address(|group, address| {
            if let Some(more) = details.of_group(&keys, group) {
                more.addresses.push(address);
            }
        })?;
        let shown = kinds.iter().flat_map(|kind| &kind.records);
        let stacks = shown.filter(|_| options.by == GroupBy::Stack).flat_map(|record| record.sum.key.numbers);
        let stacks: Vec<u32> = stacks.filter_map(|number| number.checked_sub(1)).collect();
        texts.show(heap, options, stacks.into_iter())?;
        let mut details = details.list.into_iter();
        let kinds = kinds.into_iter().map(|kind| {
            let total =
                if is_filtered { kind.total.total(is_estimated) } else { totals[kind.name as usize].total(is_sample) };
            let record = |ChosenRecord { sum, moments, .. }| {
                let more = details.next().unwrap_or_default();
                sum.record(&moments, more, &texts, options, is_estimated)
            };
            let records = kind.records.into_iter().map(record).collect();
            Part { name: kind.name, total, records_count: kind.records_count, records }
        });
        let kinds = kinds.collect();
        let mut heap_total = Moments::ZERO;
        totals.iter().for_each(|total| heap_total.add_sums(total));
        let log = heap.log();
        Ok(Digest {
            mode,
            variables: vec![log.variable.as_deref().map(|variable| escape(variable).into_owned())],
            heap: heap_total.total(is_sample),
            is_estimated,
            kinds,
            defects: defect_records(log, &texts),
            defects_count: log.about.defects_count,
        })
    }

    /// Returns the difference of this and `before`.
    pub(crate) fn minus(self, before: Digest) -> Digest {
        let kinds = before.kinds.into_iter().zip(self.kinds).map(|(before, after)| {
            let records = difference(before.records, after.records);
            let total = after.total.minus(&before.total);
            Part { name: after.name, total, records_count: records.len(), records }
        });
        Digest {
            mode: self.mode,
            variables: before.variables.into_iter().chain(self.variables).collect(),
            heap: self.heap.minus(&before.heap),
            is_estimated: self.is_estimated || before.is_estimated,
            kinds: kinds.collect(),
            defects: self.defects,
            defects_count: self.defects_count,
        }
    }

    pub(crate) fn analysis(self, options: &DmdOptions) -> Analysis {
        let is_difference = self.variables.len() > 1;
        let is_estimated = self.is_estimated;
        let kinds = self.kinds.into_iter().map(|Part { name, total, records_count, records }| {
            let mut records: Vec<Record> = records.into_iter().map(|(_, record)| record).collect();
            if !is_difference {
                return Kind { name, records, records_count, total };
            }
            let is_filtered = !options.filters.is_empty();
            if is_filtered && options.by == GroupBy::Stack {
                records.retain(|record| passes(|| record.alloc.clone(), &options.filters));
            }
            records.sort_by_key(|record| std::cmp::Reverse(order(record, options.sort)));
            let total = if is_filtered || !is_estimated { sum(&records) } else { total };
            Kind { name, records, records_count, total }
        });
        Analysis {
            mode: self.mode,
            variables: self.variables,
            by: options.by,
            heap: self.heap,
            is_estimated,
            kinds: kinds.collect(),
            defects: self.defects,
            defects_count: self.defects_count,
        }
    }
}

/// Returns the kinds that a log of this mode has, in the order in which they are shown.
fn kinds_of(mode: Mode) -> &'static [KindName] {
    match mode {
        Mode::Live | Mode::Scan => &[KindName::Live],
        Mode::Cumulative => &[KindName::Cumulative],
        Mode::DarkMatter => &[KindName::TwiceReported, KindName::Unreported, KindName::OnceReported],
    }
}

fn kind_of(mode: Mode, group: &Group) -> KindName {
    match (mode, group.reports.iter().flatten().count()) {
        (Mode::Live | Mode::Scan, _) => KindName::Live,
        (Mode::Cumulative, _) => KindName::Cumulative,
        (Mode::DarkMatter, 0) => KindName::Unreported,
        (Mode::DarkMatter, 1) => KindName::OnceReported,
        (Mode::DarkMatter, _) => KindName::TwiceReported,
    }
}

fn order(record: &Record, sort: Sort) -> (u64, u64, u64) {
    order_of([record.usable, record.requested, record.slop, record.blocks], sort)
}

fn order_of(numbers: [i64; 4], sort: Sort) -> (u64, u64, u64) {
    let [usable, requested, slop, blocks] = numbers.map(i64::unsigned_abs);
    match sort {
        Sort::Usable => (usable, requested, 0),
        Sort::Requested => (requested, 0, 0),
        Sort::Slop => (slop, 0, 0),
        Sort::Blocks => (blocks, usable, requested),
    }
}

fn sum(records: &[Record]) -> Total {
    let mut total = Total::default();
    let mut variances = [0.0; 2];
    for record in records {
        total.bytes = total.bytes.saturating_add(record.usable);
        total.blocks = total.blocks.saturating_add(record.blocks);
        let estimate = record.estimate.unwrap_or_default();
        variances[0] += estimate.bytes_error.powi(2);
        variances[1] += estimate.blocks_error.powi(2);
    }
    (total.bytes_error, total.blocks_error) = (variances[0].sqrt(), variances[1].sqrt());
    total
}

impl Total {
    fn minus(&self, other: &Total) -> Total {
        Total {
            bytes: self.bytes.saturating_sub(other.bytes),
            blocks: self.blocks.saturating_sub(other.blocks),
            bytes_error: self.bytes_error.hypot(other.bytes_error),
            blocks_error: self.blocks_error.hypot(other.blocks_error),
        }
    }
}

/// The sizes of blocks, and their weight.
struct WeightedBlocks {
    requested: f64,
    slop: f64,
    weight: f64,
    variance: f64,
    size: Size,
}

impl WeightedBlocks {
    #[inline]
    fn counted(size: &Size) -> WeightedBlocks {
        let Size { requested, slop, weight, variance, .. } = *size;
        let rest = if size.rest == 0 || size.count == 0 { 0.0 } else { size.rest as f64 / size.count as f64 };
        WeightedBlocks { requested: requested as f64 + rest, slop: slop as f64 - rest, weight, variance, size: *size }
    }

    /// Returns the estimate from blocks with known stacks, each of whose usable bytes had its block
    /// chosen with this probability.
    fn estimated(size: &Size, probability: Option<f64>) -> WeightedBlocks {
        let counted = WeightedBlocks::counted(size);
        let usable = counted.requested + counted.slop;
        let Some(probability) = probability.filter(|_| usable > 0.0) else { return counted };
        let chance = -(usable * (-probability).ln_1p()).exp_m1();
        let variance = (counted.variance + counted.weight * (1.0 - chance)) / (chance * chance);
        WeightedBlocks { weight: counted.weight / chance, variance, ..counted }
    }
}

/// Sums of blocks and of bytes, with their variances. They fit into one cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Moments {
    /// The blocks that are in the log: requested, slop, blocks. More than 63 bits are shown as the
    /// largest number.
    counted: [u64; 3],
    /// The weights of these blocks.
    requested: f64,
    slop: f64,
    blocks: f64,
    bytes_variance: f64,
    blocks_variance: f64,
}

impl Moments {
    const ZERO: Moments =
        Moments { counted: [0; 3], requested: 0.0, slop: 0.0, blocks: 0.0, bytes_variance: 0.0, blocks_variance: 0.0 };

    fn order(&self, sort: Sort, is_estimated: bool) -> (u64, u64, u64) {
        let [requested, slop, usable, blocks] = self.whole(is_estimated);
        order_of([usable, requested, slop, blocks], sort)
    }

    fn add_sums(&mut self, other: &Moments) {
        for (sum, more) in self.counted.iter_mut().zip(other.counted) {
            *sum = sum.saturating_add(more);
        }
        self.requested += other.requested;
        self.slop += other.slop;
        self.blocks += other.blocks;
        self.bytes_variance += other.bytes_variance;
        self.blocks_variance += other.blocks_variance;
    }

    fn add(&mut self, blocks: &WeightedBlocks) {
        let Size { requested, slop, count, rest, .. } = blocks.size;
        for (sum, each) in self.counted.iter_mut().zip([requested, slop, 1]) {
            *sum = sum.saturating_add(each.saturating_mul(count));
        }
        self.counted[0] = self.counted[0].saturating_add_signed(rest);
        self.counted[1] = self.counted[1].saturating_add_signed(rest.saturating_neg());
        self.requested += blocks.weight * blocks.requested;
        self.slop += blocks.weight * blocks.slop;
        self.blocks += blocks.weight;
        self.bytes_variance += blocks.variance * (blocks.requested + blocks.slop).powi(2);
        self.blocks_variance += blocks.variance;
    }

    /// Returns requested bytes, slop, usable bytes, and blocks. Figures that are not estimated are
    /// exact, however large.
    fn whole(&self, is_estimated: bool) -> [i64; 4] {
        let [requested, slop, blocks] = self.counted;
        if is_estimated {
            [self.requested, self.slop, self.requested + self.slop, self.blocks].map(whole)
        } else {
            [requested, slop, requested.saturating_add(slop), blocks].map(|it| i64::try_from(it).unwrap_or(i64::MAX))
        }
    }

    fn total(&self, is_estimated: bool) -> Total {
        let [_, _, bytes, blocks] = self.whole(is_estimated);
        Total { bytes, blocks, bytes_error: self.bytes_variance.sqrt(), blocks_error: self.blocks_variance.sqrt() }
    }
}

/// Rounds to the nearest whole number.
fn whole(number: f64) -> i64 {
    number.round() as i64
}

/// The records of a kind that are shown, so far.
struct Chosen {
    name: KindName,
    /// The sums of the records that pass the filters.
    total: Moments,
    /// The number of all records.
    records_count: usize,
    records: Vec<ChosenRecord>,
}

struct ChosenRecord {
    order: std::cmp::Reverse<(u64, u64, u64)>,
    sum: Sum,
    moments: Moments,
}

impl Chosen {
    fn new(name: KindName) -> Chosen {
        Chosen { name, total: Moments::ZERO, records_count: 0, records: Vec::new() }
    }

    /// Takes the records of a part of the keys. With `records_max`: those that pass the filters and
    /// have the largest figures, the largest first; among equals, in the order of their first
    /// blocks.
    fn take(&mut self, sums: &Sums<'_>, records_max: Option<usize>, is_filtered: bool, is_estimated: bool) {
        let Keys { options, texts, .. } = *sums.keys;
        let mut found = Vec::new();
        for (at, sum) in sums.list.iter().enumerate().filter(|(_, sum)| sum.key.kind == self.name) {
            self.records_count += 1;
            if is_filtered {
                if options.by == GroupBy::Stack && !texts.sum_passes(sum, options) {
                    continue;
                }
                self.total.add_sums(&sums.moments[at]);
            }
            let order = std::cmp::Reverse(sums.moments[at].order(options.sort, is_estimated));
            found.push((order, sum.first, at));
        }
        if let Some(records_max) = records_max {
            if records_max < found.len() {
                found.select_nth_unstable(records_max);
                found.truncate(records_max);
            }
            found.sort_unstable();
        }
        let chosen =
            |(order, _, at): (_, u64, usize)| ChosenRecord { order, sum: sums.list[at], moments: sums.moments[at] };
        self.records.extend(found.into_iter().map(chosen));
        if let Some(records_max) = records_max {
            self.records.sort_by_key(|record| (record.order, record.sum.first));
            self.records.truncate(records_max);
        }
    }
}

/// A part of all records, by the upper half of the hashes of their keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HashRange {
    from: u64,
    until: u64,
}

impl HashRange {
    const ALL: HashRange = HashRange { from: 0, until: 1 << 32 };

    fn is_first(self) -> bool {
        self.from == 0
    }

    fn contains(self, hash: u64) -> bool {
        (self.from..self.until).contains(&(hash >> 32))
    }
}

/// The rules by which blocks are in records.
struct Keys<'a> {
    mode: Mode,
    options: &'a DmdOptions,
    probability: Option<f64>,
    texts: &'a Texts,
    /// Decides in which pass a record is added up.
    seed: Seeded,
}

/// Records as they are added up, in the order of their first blocks.
struct Sums<'a> {
    keys: &'a Keys<'a>,
    /// The records that are added up. It becomes smaller if they are too many.
    range: HashRange,
    at_once: Option<usize>,
    /// The number of groups so far.
    groups: u64,
    list: Vec<Sum>,
    /// The sums of each record.
    moments: Vec<Moments>,
    numbers: Map<(u64, u64), u32>,
    queued: Vec<QueuedBlocks>,
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

/// The key of a record within one log: the kind, and the numbers of its stacks plus 1, or the
/// number of a name.
#[derive(Clone, Copy)]
struct SumKey {
    kind: KindName,
    numbers: [u32; 3],
}

impl SumKey {
    /// Returns the key as two numbers, which are hashed quickly.
    fn packed(self) -> (u64, u64) {
        let [first, second, third] = self.numbers.map(u64::from);
        ((self.kind as u64) << 32 | first, third << 32 | second)
    }
}

/// A record that is added up.
#[derive(Clone, Copy)]
struct Sum {
    key: SumKey,
    module: Option<NameId>,
    /// The ordinal of the first group of its blocks.
    first: u64,
}

impl Keys<'_> {
    /// Returns the first number of a group's key; `None`: its blocks are in no record.
    #[inline]
    fn first_number(&self, group: &Group) -> Option<u32> {
        // Blocks with a stack stand in for those without.
        let is_left_out = self.probability.is_some() && group.alloc.is_none();
        let DmdOptions { by, filters, .. } = self.options;
        if is_left_out || *by != GroupBy::Stack && !passes(|| self.texts.alloc(group.alloc), filters) {
            return None;
        }
        let named = |name: Option<NameId>| name.map_or(0, |name| name.0 + 1);
        Some(match by {
            GroupBy::Stack => group.alloc.map_or(self.texts.none, |trace| self.texts.stack_of[trace.0 as usize]) + 1,
            GroupBy::Type => named(group.type_name),
            GroupBy::Context => named(group.context),
            GroupBy::Module => named(self.texts.module(group.alloc)),
            GroupBy::Owner | GroupBy::Line | GroupBy::File | GroupBy::Function => named(self.texts.code(group.alloc)),
        })
    }

    #[inline]
    fn key(&self, group: &Group, first: u32) -> SumKey {
        let reported = |report: Option<Report>| match (self.options.by, report) {
            (GroupBy::Stack, Some(report)) => self.texts.stack_of[report.trace.0 as usize] + 1,
            _ => 0,
        };
        let [once, again] = group.reports.map(reported);
        SumKey { kind: kind_of(self.mode, group), numbers: [first, once, again] }
    }

    #[inline]
    fn hash(&self, key: SumKey) -> u64 {
        self.seed.hash_one(key.packed())
    }
}

impl<'a> Sums<'a> {
    fn new(keys: &'a Keys<'a>, range: HashRange, at_once: Option<usize>) -> Sums<'a> {
        let (list, moments, numbers) = (Vec::new(), Vec::new(), Map::default());
        Sums { keys, range, at_once, groups: 0, list, moments, numbers, queued: Vec::with_capacity(BATCH) }
    }

    #[inline]
    fn add(&mut self, group: &Group) {
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

    fn add_queued(&mut self) {
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
    fn next_range(&self) -> Option<HashRange> {
        let HashRange { from, until } = self.range;
        let left = HashRange::ALL.until - until;
        let records = self.list.len().max(1) as f64;
        let fits = self.at_once.map_or(f64::MAX, |at_once| 0.9 * at_once as f64 / records * (until - from) as f64);
        (left > 0).then(|| HashRange { from: until, until: until + left.min(fits as u64).max(1) })
    }
}

/// The properties of the records that are shown, besides their sums.
struct Details {
    /// The index in the list for each record.
    numbers: Map<(u64, u64), u32>,
    list: Vec<RecordDetails>,
    /// For each first number of a key: true if a record with it is shown.
    is_first: Vec<bool>,
}

impl Details {
    fn new<'r>(records: impl Iterator<Item = &'r ChosenRecord>) -> Details {
        let mut details = Details { numbers: Map::default(), list: Vec::new(), is_first: Vec::new() };
        for record in records {
            let key = record.sum.key;
            details.numbers.insert(key.packed(), details.list.len() as u32);
            details.list.push(RecordDetails::default());
            let first = key.numbers[0] as usize;
            if details.is_first.len() <= first {
                details.is_first.resize(first + 1, false);
            }
            details.is_first[first] = true;
        }
        details
    }

    /// Returns the details of the record that a group is in, if it is shown.
    fn of_group(&mut self, keys: &Keys<'_>, group: &Group) -> Option<&mut RecordDetails> {
        let first = keys.first_number(group)?;
        if !*self.is_first.get(first as usize)? {
            return None;
        }
        let at = *self.numbers.get(&keys.key(group, first).packed())?;
        self.list.get_mut(at as usize)
    }
}

/// The properties of a record besides its sums.
#[derive(Default)]
struct RecordDetails {
    /// Usable sizes, and the number of blocks of each.
    sizes: BTreeMap<u64, f64>,
    types: BTreeMap<Option<NameId>, [f64; 2]>,
    contexts: BTreeMap<Option<NameId>, [f64; 2]>,
    reporters: [Vec<NameId>; 2],
    addresses: Vec<u64>,
}

impl RecordDetails {
    fn add(&mut self, group: &Group, probability: Option<f64>) {
        let mut added = [0.0; 2];
        for size in &group.sizes {
            let weighted = WeightedBlocks::estimated(size, probability);
            *self.sizes.entry(size.requested.saturating_add(size.slop)).or_default() += weighted.weight;
            added[0] += weighted.weight * (weighted.requested + weighted.slop);
            added[1] += weighted.weight;
        }
        for (shares, name) in [(&mut self.types, group.type_name), (&mut self.contexts, group.context)] {
            let share = shares.entry(name).or_default();
            *share = [share[0] + added[0], share[1] + added[1]];
        }
        for (names, report) in self.reporters.iter_mut().zip(group.reports) {
            let reporter = report.and_then(|report| report.reporter);
            names.extend(reporter.filter(|reporter| !names.contains(reporter)));
        }
    }
}

impl Sum {
    fn record(
        &self,
        moments: &Moments,
        more: RecordDetails,
        texts: &Texts,
        options: &DmdOptions,
        is_estimated: bool,
    ) -> (Key, Record) {
        let total = moments.total(is_estimated);
        let [requested, slop, usable, blocks] = moments.whole(is_estimated);
        let text = |name: NameId| texts.names[name.0 as usize].clone();
        let shares = |shares: BTreeMap<Option<NameId>, [f64; 2]>| -> Vec<Share> {
            let share = |(name, [bytes, blocks]): (Option<NameId>, [f64; 2])| Share {
                name: name.map(text),
                bytes: whole(bytes),
                blocks: whole(blocks),
            };
            sorted(shares.into_iter().map(share).collect())
        };
        let shown = |stack: u32| texts.shown(stack, options.filter_stacks_for_testing);
        let number = self.key.numbers.map(|number| number.checked_sub(1));
        let (stacks, name) = if options.by == GroupBy::Stack {
            (number, None)
        } else {
            ([None; 3], number[0].map(|name| text(NameId(name))))
        };
        let reports = stacks[1..].iter().zip(&more.reporters).filter_map(|(stack, reporters)| {
            let reporters = reporters.iter().copied().map(text).collect();
            Some(Reported { stack: shown((*stack)?), reporters })
        });
        let estimate = is_estimated.then_some(Estimate {
            bytes_error: total.bytes_error,
            blocks_error: total.blocks_error,
            sampled_blocks: moments.counted[2],
        });
        let addresses = more.addresses;
        let record = Record {
            name: name.clone(),
            alloc: stacks[0].map(shown).unwrap_or_default(),
            module: self.module.map(text),
            reports: reports.collect(),
            blocks,
            requested,
            slop,
            usable,
            sizes: more.sizes.into_iter().rev().map(|(size, count)| (size as i64, whole(count))).collect(),
            estimate,
            types: shares(more.types),
            contexts: shares(more.contexts),
            // Addresses vary, so tests of the detector do not look at them.
            addresses: if options.filter_stacks_for_testing { vec![0xdada_dada; addresses.len()] } else { addresses },
        };
        let stacks = stacks.into_iter().flatten().map(|stack| texts.stack(stack)).collect();
        (Key { name, stacks }, record)
    }
}

/// Sorts by bytes, then by name.
fn sorted(mut shares: Vec<Share>) -> Vec<Share> {
    shares.sort_by(|a, b| b.bytes.unsigned_abs().cmp(&a.bytes.unsigned_abs()).then_with(|| a.name.cmp(&b.name)));
    shares
}

fn defect_records(log: &Log, texts: &Texts) -> Vec<DefectRecord> {
    let stack = |trace: Option<TraceId>| trace.map(|trace| texts.alloc(Some(trace)));
    let flaw = |defect: &crate::log::Defect| DefectRecord {
        kind: defect.kind,
        reporter: defect.reporter.map(|name| texts.names[name.0 as usize].clone()),
        address: defect.address,
        stack: stack(defect.trace),
        alloc: stack(defect.alloc),
        measured: defect.measured,
        usable: defect.usable,
        count: defect.count,
    };
    log.about.defects.iter().map(flaw).collect()
}
