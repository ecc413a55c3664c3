//! The difference of two logs, record by record.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::records::{Key, Keyed, sorted};
use crate::analysis::{Estimate, Record, Share};
use crate::hash::Map;

/// Returns the difference of the records: those of the first log come first, in its order; then
/// those that only the second has.
pub(super) fn difference(before: Keyed, after: Keyed) -> Keyed {
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
