//! A log's blocks, added up in records.

mod difference;
mod texts;

use std::collections::BTreeMap;
use std::sync::Arc;

use heapledger_reports::escape;

use self::difference::difference;
use self::texts::{Texts, passes};
use crate::analysis::{
    Analysis, By, Estimate, Flaw, Kind, KindName, Options, Record, Reported, Share, Sort, Stack, Total,
};
use crate::hash::Map;
use crate::log::{Group, Log, Mode, NameId, Size, TraceId};

/// A log, added up; or what two differ in.
pub(crate) struct Digest {
    pub(crate) mode: Mode,
    variables: Vec<Option<String>>,
    heap: Total,
    is_estimated: bool,
    kinds: Vec<Part>,
    defects: Vec<Flaw>,
    defects_count: u64,
}

/// The records of a kind.
struct Part {
    name: KindName,
    total: Total,
    /// How many there are, with those that are not in the list.
    records_count: usize,
    records: Keyed,
}

/// Records, each with what makes its blocks one record.
type Keyed = Vec<(Key, Record)>;

/// What makes blocks one record, in whichever log they are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    name: Option<Arc<str>>,
    stacks: Vec<Stack>,
}

impl Digest {
    /// With `records_max`, of each kind at most so many records, sorted and filtered: what is shown of one log. Without, all,
    /// in the order of their first blocks: for a difference.
    pub(crate) fn of(log: &Log, options: &Options, records_max: Option<usize>) -> Digest {
        let mode = if log.mode == Mode::Scan { Mode::Live } else { log.mode };
        let texts = Texts::of(log, options);
        let probability = log.about.sampling.map(|sampling| sampling.probability).or(options.estimate);
        let mut sums = Sums::default();
        // The record of each group.
        let mut places = Vec::with_capacity(log.groups.len());
        let mut totals = [const { Moments::ZERO }; KindName::COUNT];
        let mut heap = Moments::ZERO;
        let mut is_sample = false;
        // Sizes are all over the memory: looked at together, they are waited for together.
        for groups in log.groups.chunks(64) {
            std::hint::black_box(
                groups.iter().fold(0, |sum, group| sum ^ group.sizes.first().map_or(0, |it| it.count)),
            );
            for group in groups {
                let kind = kind_of(mode, group);
                let total = &mut totals[kind as usize];
                for size in &group.sizes {
                    let counted = Weighed::counted(size);
                    is_sample |= counted.weight != size.count as f64 || counted.variance != 0.0;
                    total.add(&counted);
                    heap.add(&counted);
                }
                // What has no stack is represented by what has.
                let is_left_out = probability.is_some() && group.alloc.is_none();
                let passes = options.by == By::Stack || passes(&texts.alloc(group.alloc), &options.filters);
                let place = if is_left_out || !passes { NOWHERE } else { sums.place(group, kind, &texts, options.by) };
                if let Some(sum) = sums.list.get_mut(place as usize) {
                    sum.add(group, probability);
                }
                places.push(place);
            }
        }
        let is_estimated = probability.is_some() || is_sample;
        let members = Members::of(&places, sums.list.len());
        let mut addresses: Map<u32, Vec<u64>> = Map::default();
        for block in &log.scanned.blocks {
            let place = places[block.group as usize];
            if place != NOWHERE {
                addresses.entry(place).or_default().push(block.address);
            }
        }
        let kinds = kinds_of(mode).iter().map(|&kind| {
            let mut wanted: Vec<u32> =
                (0..sums.list.len() as u32).filter(|&at| sums.list[at as usize].kind == kind).collect();
            let records_count = wanted.len();
            let mut total = totals[kind as usize].total(is_sample);
            if let Some(records_max) = records_max {
                if !options.filters.is_empty() {
                    if options.by == By::Stack {
                        wanted.retain(|&at| texts.sum_passes(&sums.list[at as usize], options));
                    }
                    let mut moments = Moments::ZERO;
                    wanted.iter().for_each(|&at| moments.add_sums(&sums.list[at as usize].moments));
                    total = moments.total(is_estimated);
                }
                wanted = largest(&wanted, records_max, |at| {
                    sums.list[at as usize].moments.order(options.sort, is_estimated)
                });
            }
            let record = |at: u32| {
                let groups = members.of_record(at).iter().map(|&group| &log.groups[group as usize]);
                let more = More::of(groups, probability);
                let addresses = addresses.get(&at).cloned().unwrap_or_default();
                sums.list[at as usize].record(more, addresses, &texts, options, is_estimated)
            };
            Part { name: kind, total, records_count, records: wanted.into_iter().map(record).collect() }
        });
        let kinds = kinds.collect();
        Digest {
            mode,
            variables: vec![log.variable.as_deref().map(|variable| escape(variable).into_owned())],
            heap: heap.total(is_sample),
            is_estimated,
            kinds,
            defects: flaws(log, &texts),
            defects_count: log.about.defects_count,
        }
    }

    /// What this has and `before` has not.
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

    pub(crate) fn analysis(self, options: &Options) -> Analysis {
        let is_difference = self.variables.len() > 1;
        let is_estimated = self.is_estimated;
        let kinds = self.kinds.into_iter().map(|Part { name, total, records_count, records }| {
            let mut records: Vec<Record> = records.into_iter().map(|(_, record)| record).collect();
            if !is_difference {
                return Kind { name, records, records_count, total };
            }
            let is_filtered = !options.filters.is_empty();
            if is_filtered && options.by == By::Stack {
                records.retain(|record| passes(&record.alloc, &options.filters));
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

/// The kinds that a log of this mode has, in the order in which they are shown.
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

/// Blocks of a size, and for how many they stand.
struct Weighed {
    requested: f64,
    slop: f64,
    weight: f64,
    variance: f64,
    size: Size,
}

impl Weighed {
    fn counted(size: &Size) -> Weighed {
        let Size { requested, slop, weight, variance, .. } = *size;
        let rest = if size.count == 0 { 0.0 } else { size.rest as f64 / size.count as f64 };
        Weighed { requested: requested as f64 + rest, slop: slop as f64 - rest, weight, variance, size: *size }
    }

    /// Of blocks whose stacks are known, which they are of each byte's block with this probability.
    fn estimated(size: &Size, probability: Option<f64>) -> Weighed {
        let counted = Weighed::counted(size);
        let usable = counted.requested + counted.slop;
        let Some(probability) = probability.filter(|_| usable > 0.0) else { return counted };
        let chance = -(usable * (-probability).ln_1p()).exp_m1();
        let variance = (counted.variance + counted.weight * (1.0 - chance)) / (chance * chance);
        Weighed { weight: counted.weight / chance, variance, ..counted }
    }
}

/// Sums of blocks and of bytes, with their variances.
#[derive(Clone, Copy)]
struct Moments {
    /// Of the blocks that are in the log: requested, slop, blocks.
    counted: [i128; 3],
    /// Of those for which they stand.
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

    fn add(&mut self, blocks: &Weighed) {
        let Size { requested, slop, count, rest, .. } = blocks.size;
        for (sum, each) in self.counted.iter_mut().zip([requested, slop, 1]) {
            *sum = sum.saturating_add(i128::from(each) * i128::from(count));
        }
        self.counted[0] = self.counted[0].saturating_add(rest.into());
        self.counted[1] = self.counted[1].saturating_sub(rest.into());
        self.requested += blocks.weight * blocks.requested;
        self.slop += blocks.weight * blocks.slop;
        self.blocks += blocks.weight;
        self.bytes_variance += blocks.variance * (blocks.requested + blocks.slop).powi(2);
        self.blocks_variance += blocks.variance;
    }

    /// Requested, slop, usable, and blocks. What is no estimate is exact, however large.
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

/// To the nearest whole number.
fn whole(number: f64) -> i64 {
    number.round() as i64
}

/// The `count` records with the largest keys, the largest first; those with equal ones in the order in which they came first.
fn largest(records: &[u32], count: usize, key: impl Fn(u32) -> (u64, u64, u64)) -> Vec<u32> {
    let mut keyed: Vec<_> = records.iter().map(|&record| (std::cmp::Reverse(key(record)), record)).collect();
    if count < keyed.len() {
        keyed.select_nth_unstable(count);
        keyed.truncate(count);
    }
    keyed.sort_unstable();
    keyed.into_iter().map(|(_, record)| record).collect()
}

/// The record of a group that is in none.
const NOWHERE: u32 = u32::MAX;

/// Records as they are added up, in the order of their first blocks.
#[derive(Default)]
struct Sums {
    list: Vec<Sum>,
    numbers: Map<SumKey, u32>,
}

/// What makes blocks of one log one record: the kind; and numbers of stacks, one more than they are, or one of a name.
type SumKey = (KindName, [u32; 3]);

/// A record as it is added up.
struct Sum {
    kind: KindName,
    /// Numbers of stacks, of the allocation and of reports; without the latter, of records by something else than stacks.
    stacks: [Option<u32>; 3],
    name: Option<NameId>,
    module: Option<NameId>,
    moments: Moments,
    sampled: u64,
}

impl Sums {
    fn place(&mut self, group: &Group, kind: KindName, texts: &Texts, by: By) -> u32 {
        let module = texts.module(group.alloc);
        let (mut stacks, mut name) = ([None; 3], None);
        match by {
            By::Stack => {
                let stack = |trace: TraceId| texts.stack_of[trace.0 as usize];
                let [once, again] = group.reports.map(|report| report.map(|report| stack(report.trace)));
                stacks = [Some(group.alloc.map_or(texts.none, stack)), once, again];
            }
            By::Type => name = group.type_name,
            By::Context => name = group.context,
            By::Module => name = module,
        }
        let key = match by {
            By::Stack => stacks.map(|stack| stack.map_or(0, |stack| stack + 1)),
            _ => [name.map_or(0, |name| name.0 + 1), 0, 0],
        };
        let list = &mut self.list;
        *self.numbers.entry((kind, key)).or_insert_with(|| {
            list.push(Sum { kind, stacks, name, module, moments: Moments::ZERO, sampled: 0 });
            list.len() as u32 - 1
        })
    }
}

/// The groups of each record.
struct Members {
    first: Vec<u32>,
    groups: Vec<u32>,
}

impl Members {
    fn of(places: &[u32], records: usize) -> Members {
        let mut first = vec![0_u32; records + 1];
        for &place in places.iter().filter(|place| **place != NOWHERE) {
            first[place as usize + 1] += 1;
        }
        for at in 1..first.len() {
            first[at] += first[at - 1];
        }
        let mut next = first.clone();
        let mut groups = vec![0; first.last().copied().unwrap_or(0) as usize];
        for (group, &place) in places.iter().enumerate().filter(|(_, place)| **place != NOWHERE) {
            let next = &mut next[place as usize];
            groups[*next as usize] = group as u32;
            *next += 1;
        }
        Members { first, groups }
    }

    fn of_record(&self, record: u32) -> &[u32] {
        let at = record as usize;
        &self.groups[self.first[at] as usize..self.first[at + 1] as usize]
    }
}

/// What is known of a record besides its sums.
#[derive(Default)]
struct More {
    /// Usable sizes, and how many blocks there are of each.
    sizes: BTreeMap<u64, f64>,
    types: Map<Option<NameId>, [f64; 2]>,
    contexts: Map<Option<NameId>, [f64; 2]>,
    reporters: [Vec<NameId>; 2],
}

impl More {
    fn of<'log>(groups: impl Iterator<Item = &'log Group>, probability: Option<f64>) -> More {
        let mut more = More::default();
        for group in groups {
            let mut added = [0.0; 2];
            for size in &group.sizes {
                let weighed = Weighed::estimated(size, probability);
                *more.sizes.entry(size.requested.saturating_add(size.slop)).or_default() += weighed.weight;
                added[0] += weighed.weight * (weighed.requested + weighed.slop);
                added[1] += weighed.weight;
            }
            for (shares, name) in [(&mut more.types, group.type_name), (&mut more.contexts, group.context)] {
                let share = shares.entry(name).or_default();
                *share = [share[0] + added[0], share[1] + added[1]];
            }
            for (names, report) in more.reporters.iter_mut().zip(group.reports) {
                let reporter = report.and_then(|report| report.reporter);
                names.extend(reporter.filter(|reporter| !names.contains(reporter)));
            }
        }
        more
    }
}

impl Sum {
    fn add(&mut self, group: &Group, probability: Option<f64>) {
        for size in &group.sizes {
            self.moments.add(&Weighed::estimated(size, probability));
            self.sampled = self.sampled.saturating_add(size.count);
        }
    }

    fn record(
        &self,
        more: More,
        addresses: Vec<u64>,
        texts: &Texts,
        options: &Options,
        is_estimated: bool,
    ) -> (Key, Record) {
        let moments = &self.moments;
        let total = moments.total(is_estimated);
        let [requested, slop, usable, blocks] = moments.whole(is_estimated);
        let text = |name: NameId| texts.names[name.0 as usize].clone();
        let shares = |shares: Map<Option<NameId>, [f64; 2]>| -> Vec<Share> {
            let share = |(name, [bytes, blocks]): (Option<NameId>, [f64; 2])| Share {
                name: name.map(text),
                bytes: whole(bytes),
                blocks: whole(blocks),
            };
            sorted(shares.into_iter().map(share).collect())
        };
        let shown = |stack: u32| texts.shown(stack, options.filter_stacks_for_testing);
        let stacks = self.stacks.into_iter().flatten().map(|stack| texts.stack(stack)).collect();
        let reports = self.stacks[1..].iter().zip(&more.reporters).filter_map(|(stack, reporters)| {
            let reporters = reporters.iter().copied().map(text).collect();
            Some(Reported { stack: shown((*stack)?), reporters })
        });
        let estimate = is_estimated.then_some(Estimate {
            bytes_error: total.bytes_error,
            blocks_error: total.blocks_error,
            sampled_blocks: self.sampled,
        });
        let name = self.name.map(text);
        let record = Record {
            name: name.clone(),
            alloc: self.stacks[0].map(shown).unwrap_or_default(),
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
            // They vary: tests of the detector do not look at them.
            addresses: if options.filter_stacks_for_testing { vec![0xdada_dada; addresses.len()] } else { addresses },
        };
        (Key { name, stacks }, record)
    }
}

/// By bytes, then by name.
fn sorted(mut shares: Vec<Share>) -> Vec<Share> {
    shares.sort_by(|a, b| b.bytes.unsigned_abs().cmp(&a.bytes.unsigned_abs()).then_with(|| a.name.cmp(&b.name)));
    shares
}

fn flaws(log: &Log, texts: &Texts) -> Vec<Flaw> {
    let stack = |trace: Option<TraceId>| trace.map(|trace| texts.alloc(Some(trace)));
    let flaw = |defect: &crate::log::Defect| Flaw {
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
