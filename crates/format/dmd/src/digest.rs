//! A log's blocks, added up in records.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::analysis::{
    Analysis, By, Estimate, Flaw, Kind, KindName, Options, Record, Reported, Share, Sort, Stack, Total, is_alloc_fn,
};
use crate::hash::Map;
use crate::log::{FrameId, Group, Log, Mode, NameId, Size, TraceId};

/// What stands for the stack of blocks that have none.
const NO_STACK: &str = "(no stack trace recorded due to --stacks=partial)";
/// What stands for a stack through the detector itself.
const DETECTOR: &str = "... DMD.cpp ...";

/// A log, added up; or what two differ in.
pub(crate) struct Digest {
    pub(crate) mode: Mode,
    variables: Vec<Option<String>>,
    heap: Total,
    is_estimated: bool,
    kinds: Vec<(KindName, Total, Keyed)>,
    defects: Vec<Flaw>,
    defects_count: u64,
}

/// Records in the order of their first blocks, each with what makes its blocks one record.
type Keyed = Vec<(Key, Record)>;

/// What makes blocks one record, in whichever log they are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    name: Option<Arc<str>>,
    stacks: Vec<Stack>,
}

impl Digest {
    pub(crate) fn of(log: &Log, options: &Options) -> Digest {
        let mode = if log.mode == Mode::Scan { Mode::Live } else { log.mode };
        let texts = Texts::of(log, options);
        let probability = log.about.sampling.map(|sampling| sampling.probability).or(options.estimate);
        let mut sums = Sums::default();
        // The record of each group.
        let mut places = Vec::with_capacity(log.groups.len());
        let mut totals: Map<KindName, Moments> = Map::default();
        let mut heap = Moments::default();
        let mut is_sample = false;
        for group in &log.groups {
            let kind = kind_of(mode, group);
            let total = totals.entry(kind).or_default();
            for size in &group.sizes {
                let counted = Weighed::counted(size);
                is_sample |= counted.weight != size.count as f64 || counted.variance != 0.0;
                total.add(&counted);
                heap.add(&counted);
            }
            // What has no stack is represented by what has.
            let is_left_out = probability.is_some() && group.alloc.is_none();
            let passes = options.by == By::Stack || passes(texts.alloc(group.alloc), &options.filters);
            let place = (!is_left_out && passes).then(|| sums.place(group, kind, &texts, options.by));
            if let Some(place) = place {
                sums.list[place].add(group, probability);
            }
            places.push(place);
        }
        for block in &log.scanned.blocks {
            if let Some(place) = places[block.group as usize] {
                sums.list[place].addresses.push(block.address);
            }
        }
        let kinds: &[KindName] = match mode {
            Mode::Live | Mode::Scan => &[KindName::Live],
            Mode::Cumulative => &[KindName::Cumulative],
            Mode::DarkMatter => &[KindName::TwiceReported, KindName::Unreported, KindName::OnceReported],
        };
        let is_estimated = probability.is_some() || is_sample;
        let mut kinds: Vec<_> = kinds
            .iter()
            .map(|kind| (*kind, totals.get(kind).map(|total| total.total(is_sample)).unwrap_or_default(), Vec::new()))
            .collect();
        for sum in sums.list {
            let (kind, key, record) = sum.record(&texts, options, is_estimated);
            if let Some((_, _, records)) = kinds.iter_mut().find(|(name, ..)| *name == kind) {
                records.push((key, record));
            }
        }
        Digest {
            mode,
            variables: vec![log.variable.as_deref().map(|variable| printable(variable).to_string())],
            heap: heap.total(is_sample),
            is_estimated,
            kinds,
            defects: flaws(log, &texts),
            defects_count: log.about.defects_count,
        }
    }

    /// What this has and `before` has not.
    pub(crate) fn minus(self, before: Digest) -> Digest {
        let kinds =
            before.kinds.into_iter().zip(self.kinds).map(|((name, total_before, before), (_, total, after))| {
                (name, total.minus(&total_before), difference(before, after))
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
        let is_estimated = self.is_estimated;
        let kinds = self.kinds.into_iter().map(|(name, total, records)| {
            let records_count = records.len();
            let mut records: Vec<Record> = records.into_iter().map(|(_, record)| record).collect();
            let is_filtered = !options.filters.is_empty();
            if is_filtered && options.by == By::Stack {
                records.retain(|record| passes(&record.alloc, &options.filters));
            }
            // Stable: what is equal stays in the order in which it came first.
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
    let [usable, requested] = [record.usable, record.requested].map(i64::unsigned_abs);
    match sort {
        Sort::Usable => (usable, requested, 0),
        Sort::Requested => (requested, 0, 0),
        Sort::Slop => (record.slop.unsigned_abs(), 0, 0),
        Sort::Blocks => (record.blocks.unsigned_abs(), usable, requested),
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
#[derive(Default)]
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

/// Records as they are added up, in the order of their first blocks.
#[derive(Default)]
struct Sums {
    list: Vec<Sum>,
    numbers: Map<SumKey, usize>,
}

/// What makes blocks of one log one record.
#[derive(Clone, PartialEq, Eq, Hash)]
enum SumKey {
    Stacks(KindName, u32, [Option<u32>; 2]),
    Name(KindName, Option<Arc<str>>),
}

impl Sums {
    fn place(&mut self, group: &Group, kind: KindName, texts: &Texts, by: By) -> usize {
        let name = |name: Option<NameId>| name.map(|name| texts.names[name.0 as usize].clone());
        let key = match by {
            By::Stack => {
                let stack = |trace: TraceId| texts.stack_of[trace.0 as usize];
                let alloc = group.alloc.map_or(texts.none, stack);
                SumKey::Stacks(kind, alloc, group.reports.map(|report| report.map(|report| stack(report.trace))))
            }
            By::Type => SumKey::Name(kind, name(group.type_name)),
            By::Context => SumKey::Name(kind, name(group.context)),
            By::Module => SumKey::Name(kind, texts.module(group.alloc)),
        };
        let list = &mut self.list;
        *self.numbers.entry(key).or_insert_with_key(|key| {
            list.push(Sum::new(key.clone(), texts.module(group.alloc)));
            list.len() - 1
        })
    }
}

/// A record as it is added up.
struct Sum {
    key: SumKey,
    moments: Moments,
    sampled: u64,
    /// Usable sizes, and how many blocks there are of each.
    sizes: BTreeMap<u64, f64>,
    types: Map<Option<NameId>, [f64; 2]>,
    contexts: Map<Option<NameId>, [f64; 2]>,
    reporters: [Vec<NameId>; 2],
    module: Option<Arc<str>>,
    addresses: Vec<u64>,
}

impl Sum {
    fn new(key: SumKey, module: Option<Arc<str>>) -> Sum {
        let (types, contexts) = <(Map<_, _>, Map<_, _>)>::default();
        let (moments, sizes, reporters) = <(Moments, BTreeMap<_, _>, [Vec<_>; 2])>::default();
        Sum { key, moments, sampled: 0, sizes, types, contexts, reporters, module, addresses: Vec::new() }
    }

    fn add(&mut self, group: &Group, probability: Option<f64>) {
        let mut added = [0.0; 2];
        for size in &group.sizes {
            let weighed = Weighed::estimated(size, probability);
            self.moments.add(&weighed);
            self.sampled = self.sampled.saturating_add(size.count);
            *self.sizes.entry(size.requested.saturating_add(size.slop)).or_default() += weighed.weight;
            added[0] += weighed.weight * (weighed.requested + weighed.slop);
            added[1] += weighed.weight;
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

    fn record(self, texts: &Texts, options: &Options, is_estimated: bool) -> (KindName, Key, Record) {
        let moments = &self.moments;
        let total = moments.total(is_estimated);
        let [requested, slop, usable, blocks] = moments.whole(is_estimated);
        let shares = |shares: Map<Option<NameId>, [f64; 2]>| -> Vec<Share> {
            let share = |(name, [bytes, blocks]): (Option<NameId>, [f64; 2])| {
                let name = name.map(|name| texts.names[name.0 as usize].clone());
                Share { name, bytes: whole(bytes), blocks: whole(blocks) }
            };
            sorted(shares.into_iter().map(share).collect())
        };
        let shown = |stack: u32| texts.shown(stack, options.filter_stacks_for_testing);
        let (kind, key, alloc, reports) = match self.key {
            SumKey::Stacks(kind, alloc, reports) => {
                let stacks = std::iter::once(alloc).chain(reports.into_iter().flatten());
                let key =
                    Key { name: None, stacks: stacks.map(|stack| texts.stacks[stack as usize].clone()).collect() };
                let reports = reports.into_iter().zip(&self.reporters).filter_map(|(stack, reporters)| {
                    let reporters = reporters.iter().map(|name| texts.names[name.0 as usize].clone()).collect();
                    Some(Reported { stack: shown(stack?), reporters })
                });
                (kind, key, shown(alloc), reports.collect())
            }
            SumKey::Name(kind, name) => (kind, Key { name, stacks: Vec::new() }, Stack::new(), Vec::new()),
        };
        let estimate = is_estimated.then_some(Estimate {
            bytes_error: total.bytes_error,
            blocks_error: total.blocks_error,
            sampled_blocks: self.sampled,
        });
        let record = Record {
            name: key.name.clone(),
            alloc,
            module: self.module,
            reports,
            blocks,
            requested,
            slop,
            usable,
            sizes: self.sizes.into_iter().rev().map(|(size, count)| (size as i64, whole(count))).collect(),
            estimate,
            types: shares(self.types),
            contexts: shares(self.contexts),
            // They vary: tests of the detector do not look at them.
            addresses: if options.filter_stacks_for_testing {
                vec![0xdada_dada; self.addresses.len()]
            } else {
                self.addresses
            },
        };
        (kind, key, record)
    }
}

/// By bytes, then by name.
fn sorted(mut shares: Vec<Share>) -> Vec<Share> {
    shares.sort_by(|a, b| b.bytes.unsigned_abs().cmp(&a.bytes.unsigned_abs()).then_with(|| a.name.cmp(&b.name)));
    shares
}

/// Records of the first log come first, in its order; then those that only the second has.
fn difference(before: Keyed, after: Keyed) -> Keyed {
    let mut after: Vec<Option<(Key, Record)>> = after.into_iter().map(Some).collect();
    let numbers: Map<Key, usize> = after.iter().flatten().enumerate().map(|(at, (key, _))| (key.clone(), at)).collect();
    let mut differences = Vec::new();
    for (key, record) in before {
        match numbers.get(&key).and_then(|at| after[*at].take()) {
            Some((_, now)) => {
                differences.extend(Some(now.minus(&record)).filter(|it| !it.is_nothing()).map(|it| (key, it)))
            }
            None => differences.push((key, record.negated())),
        }
    }
    differences.extend(after.into_iter().flatten());
    differences
}

impl Record {
    fn is_nothing(&self) -> bool {
        [self.blocks, self.requested, self.slop, self.usable] == [0; 4] && self.sizes.is_empty()
    }

    fn negated(mut self) -> Record {
        for number in [&mut self.blocks, &mut self.requested, &mut self.slop, &mut self.usable] {
            *number = number.saturating_neg();
        }
        for (size, _) in &mut self.sizes {
            *size = -*size;
        }
        for share in self.types.iter_mut().chain(&mut self.contexts) {
            (share.bytes, share.blocks) = (share.bytes.saturating_neg(), share.blocks.saturating_neg());
        }
        self
    }

    fn minus(mut self, before: &Record) -> Record {
        let numbers = [&mut self.blocks, &mut self.requested, &mut self.slop, &mut self.usable];
        let were = [before.blocks, before.requested, before.slop, before.usable];
        for (number, was) in numbers.into_iter().zip(were) {
            *number = number.saturating_sub(was);
        }
        let mut counts: BTreeMap<i64, (Option<i64>, Option<i64>)> = BTreeMap::new();
        for (size, count) in &self.sizes {
            counts.entry(*size).or_default().0 = Some(*count);
        }
        for (size, count) in &before.sizes {
            counts.entry(*size).or_default().1 = Some(*count);
        }
        let changes = counts.into_iter().rev().filter_map(|(size, counts)| match counts {
            (Some(now), Some(was)) if now == was => None,
            (Some(now), Some(was)) if now < was => Some((-size, was - now)),
            (Some(now), was) => Some((size, now - was.unwrap_or(0))),
            (None, was) => Some((-size, was.unwrap_or(0))),
        });
        self.sizes = changes.collect();
        self.estimate = match (self.estimate, before.estimate) {
            (None, None) => None,
            (now, was) => {
                let (now, was) = (now.unwrap_or_default(), was.unwrap_or_default());
                Some(Estimate {
                    bytes_error: now.bytes_error.hypot(was.bytes_error),
                    blocks_error: now.blocks_error.hypot(was.blocks_error),
                    sampled_blocks: now.sampled_blocks.saturating_add(was.sampled_blocks),
                })
            }
        };
        self.types = shares_minus(std::mem::take(&mut self.types), &before.types);
        self.contexts = shares_minus(std::mem::take(&mut self.contexts), &before.contexts);
        for (report, was) in self.reports.iter_mut().zip(&before.reports) {
            let others = was.reporters.iter().filter(|name| !report.reporters.contains(name)).cloned();
            let others: Vec<_> = others.collect();
            report.reporters.extend(others);
        }
        self
    }
}

fn shares_minus(now: Vec<Share>, before: &[Share]) -> Vec<Share> {
    let mut shares: BTreeMap<Option<Arc<str>>, [i64; 2]> =
        now.into_iter().map(|share| (share.name, [share.bytes, share.blocks])).collect();
    for was in before {
        let share = shares.entry(was.name.clone()).or_default();
        *share = [share[0].saturating_sub(was.bytes), share[1].saturating_sub(was.blocks)];
    }
    let changed = shares.into_iter().filter(|(_, numbers)| *numbers != [0, 0]);
    sorted(changed.map(|(name, [bytes, blocks])| Share { name, bytes, blocks }).collect())
}

/// The texts of a log, each once; stacks as they count: without what is left out.
struct Texts {
    names: Vec<Arc<str>>,
    /// The stack of each trace, in `stacks`.
    stack_of: Vec<u32>,
    stacks: Vec<Stack>,
    /// That of blocks without one.
    none: u32,
    /// The library of the innermost frame that does not allocate, of each trace.
    modules: Vec<Option<NameId>>,
}

impl Texts {
    fn of(log: &Log, options: &Options) -> Texts {
        let frames: Vec<Arc<str>> = log.frames.iter().map(|frame| printable(frame)).collect();
        let allocates: Vec<bool> = log.frames.iter().map(|frame| is_alloc_fn(frame)).collect();
        // The same text may be there under two numbers.
        let mut firsts: Map<&str, FrameId> = Map::default();
        let first_of: Vec<FrameId> = log
            .frames
            .iter()
            .enumerate()
            .map(|(at, frame)| *firsts.entry(frame).or_insert(FrameId(at as u32)))
            .collect();
        let mut numbers: Map<Vec<FrameId>, u32> = Map::default();
        let mut stacks: Vec<Stack> = Vec::new();
        let (mut stack_of, mut modules) = (Vec::new(), Vec::new());
        for trace in &log.traces {
            let at = |frame: &FrameId| frame.0 as usize;
            let innermost = trace.iter().find(|frame| !allocates[at(frame)]);
            modules.push(innermost.and_then(|frame| log.libraries.get(at(frame)).copied().flatten()));
            let is_ignored = |frame: &FrameId| {
                options.ignore_alloc_fns && (allocates[at(frame)] || frames[at(frame)].contains("???"))
            };
            let counted = trace.iter().skip_while(|frame| is_ignored(frame)).take(options.max_frames);
            let key: Vec<FrameId> = counted.map(|frame| first_of[at(frame)]).collect();
            stack_of.push(*numbers.entry(key).or_insert_with_key(|key| {
                stacks.push(key.iter().map(|frame| frames[at(frame)].clone()).collect());
                stacks.len() as u32 - 1
            }));
        }
        let none = stacks.len() as u32;
        stacks.push(vec![Arc::from(NO_STACK)]);
        let names = log.names.iter().map(|name| printable(name)).collect();
        Texts { names, stack_of, stacks, none, modules }
    }

    fn module(&self, trace: Option<TraceId>) -> Option<Arc<str>> {
        Some(self.names[self.modules[trace?.0 as usize]?.0 as usize].clone())
    }

    fn alloc(&self, trace: Option<TraceId>) -> &Stack {
        &self.stacks[trace.map_or(self.none, |trace| self.stack_of[trace.0 as usize]) as usize]
    }

    fn shown(&self, stack: u32, is_for_testing: bool) -> Stack {
        let stack = &self.stacks[stack as usize];
        if is_for_testing && stack.iter().filter(|frame| frame.contains("DMD")).count() >= 3 {
            return vec![Arc::from(DETECTOR)];
        }
        stack.clone()
    }
}

/// A text that cannot control the terminal.
fn printable(text: &str) -> Arc<str> {
    if !text.chars().any(char::is_control) {
        return Arc::from(text);
    }
    let escaped = text.chars().map(|it| if it.is_control() { it.escape_default().to_string() } else { it.to_string() });
    Arc::from(escaped.collect::<String>())
}

/// Whether a stack passes all filters, which look at frames as they are printed.
fn passes(stack: &Stack, filters: &[String]) -> bool {
    if filters.is_empty() {
        return true;
    }
    let shown: Vec<String> =
        stack.iter().enumerate().map(|(at, frame)| format!("    #{:02}: {frame}", at + 1)).collect();
    let has = |part: &str| shown.iter().any(|frame| frame.contains(part));
    filters.iter().all(|filter| match (filter.strip_prefix('\\'), filter.strip_prefix('!')) {
        (Some(part), _) => has(part),
        (None, Some(part)) => !has(part),
        (None, None) => has(filter),
    })
}

fn flaws(log: &Log, texts: &Texts) -> Vec<Flaw> {
    let stack = |trace: Option<TraceId>| trace.map(|trace| texts.alloc(Some(trace)).clone());
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
