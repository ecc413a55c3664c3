//! Adding up a log's blocks in records, and the difference of two logs.

mod chosen;
mod details;
mod difference;
mod keys;
mod moments;
mod records;
mod sums;
#[cfg(test)]
mod tests;
mod texts;

use std::cmp::Reverse;
use std::fmt;
use std::io;

use heapledger_report_format::escape;

use self::chosen::{Chosen, ChosenRecord};
use self::details::Details;
use self::difference::difference;
use self::keys::{Keys, kind_of, kinds_of};
use self::moments::{Moments, WeightedBlocks, order_of};
use self::records::Keyed;
use self::sums::{HashRange, Sums};
use self::texts::{Texts, passes};
use crate::analysis::{Analysis, DefectRecord, DmdOptions, GroupBy, Kind, KindName, Record, Sort, Total};
use crate::block_source::BlockSource;
use crate::hash::Seeded;
use crate::log::{Defect, Log, Mode, TraceId};
use crate::spooled::SpooledLog;

/// Two logs that cannot be compared: they are of different modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DifferentModes(pub Mode, pub Mode);

impl fmt::Display for DifferentModes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "one is of mode `{}`, the other of mode `{}`", self.0.name(), self.1.name())
    }
}

impl std::error::Error for DifferentModes {}

impl Analysis {
    /// Analyses a log.
    pub fn of(mut log: &Log, options: &DmdOptions) -> Analysis {
        let Ok(digest) = Digest::of(&mut log, options, Some(options.records_max));
        digest.analysis(options)
    }

    /// Analyses a stored log.
    ///
    /// # Errors
    ///
    /// Fails if the stored log cannot be read.
    pub fn of_spooled(log: &mut SpooledLog<'_>, options: &DmdOptions) -> io::Result<Analysis> {
        Ok(Digest::of(log, options, Some(options.records_max))?.analysis(options))
    }

    /// Returns what is in the second log and not in the first one, and the other way around with
    /// negative numbers.
    ///
    /// # Errors
    ///
    /// Fails if the logs are of different modes.
    pub fn difference(mut before: &Log, mut after: &Log, options: &DmdOptions) -> Result<Analysis, DifferentModes> {
        let Ok(analysis) = difference_of(&mut before, &mut after, options);
        analysis
    }

    /// Returns the difference of two stored logs.
    ///
    /// # Errors
    ///
    /// The outer error: a stored log cannot be read. The inner one: the logs are of different
    /// modes.
    pub fn difference_spooled(
        before: &mut SpooledLog<'_>,
        after: &mut SpooledLog<'_>,
        options: &DmdOptions,
    ) -> io::Result<Result<Analysis, DifferentModes>> {
        difference_of(before, after, options)
    }
}

fn difference_of<H: BlockSource>(
    before: &mut impl BlockSource<Error = H::Error>,
    after: &mut H,
    options: &DmdOptions,
) -> Result<Result<Analysis, DifferentModes>, H::Error> {
    let (before, after) = (Digest::of(before, options, None)?, Digest::of(after, options, None)?);
    if before.mode != after.mode {
        return Ok(Err(DifferentModes(before.mode, after.mode)));
    }
    Ok(Ok(after.minus(before).analysis(options)))
}

/// A log, added up; or the difference of two.
struct Digest {
    mode: Mode,
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

/// The most records that are added up at once. With more, the blocks are read several times: a
/// record takes about 130 bytes.
const RECORDS_AT_ONCE: usize = 1_800_000;

impl Digest {
    /// Adds up a log. With `records_max`: at most so many records of each kind, sorted and filtered
    /// (used to show one log). Without it: all records, in the order of their first blocks (used to
    /// compare two logs).
    fn of<H: BlockSource>(heap: &mut H, options: &DmdOptions, records_max: Option<usize>) -> Result<Digest, H::Error> {
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
    fn minus(self, before: Digest) -> Digest {
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

    fn analysis(self, options: &DmdOptions) -> Analysis {
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
            records.sort_by_key(|record| Reverse(order(record, options.sort)));
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

fn order(record: &Record, sort: Sort) -> (u64, u64, u64) {
    order_of([record.usable, record.requested, record.slop, record.blocks], sort)
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

fn defect_records(log: &Log, texts: &Texts) -> Vec<DefectRecord> {
    let stack = |trace: Option<TraceId>| trace.map(|trace| texts.alloc(Some(trace)));
    let flaw = |defect: &Defect| DefectRecord {
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
