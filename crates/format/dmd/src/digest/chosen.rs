//! The choice of the records that are shown.

use std::cmp::Reverse;

use super::keys::Keys;
use super::moments::Moments;
use super::sums::{Sum, Sums};
use super::texts::{Texts, passes};
use crate::analysis::{DmdOptions, GroupBy, KindName};

/// The records of a kind that are shown, so far.
pub(super) struct Chosen {
    pub(super) name: KindName,
    /// The sums of the records that pass the filters.
    pub(super) total: Moments,
    /// The number of all records.
    pub(super) records_count: usize,
    pub(super) records: Vec<ChosenRecord>,
}

pub(super) struct ChosenRecord {
    order: Reverse<(u64, u64, u64)>,
    pub(super) sum: Sum,
    pub(super) moments: Moments,
}

impl Chosen {
    pub(super) fn new(name: KindName) -> Chosen {
        Chosen { name, total: Moments::ZERO, records_count: 0, records: Vec::new() }
    }

    /// Takes the records of a part of the keys. With `records_max`: those that pass the filters and
    /// have the largest figures, the largest first; among equals, in the order of their first
    /// blocks.
    pub(super) fn take(&mut self, sums: &Sums<'_>, records_max: Option<usize>, is_filtered: bool, is_estimated: bool) {
        let Keys { options, texts, .. } = *sums.keys;
        let mut found = Vec::new();
        for (at, sum) in sums.list.iter().enumerate().filter(|(_, sum)| sum.key.kind == self.name) {
            self.records_count += 1;
            if is_filtered {
                if options.by == GroupBy::Stack && !sum_passes(sum, texts, options) {
                    continue;
                }
                self.total.add_sums(&sums.moments[at]);
            }
            let order = Reverse(sums.moments[at].order(options.sort, is_estimated));
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

/// True if a record of stacks passes the filters.
fn sum_passes(sum: &Sum, texts: &Texts, options: &DmdOptions) -> bool {
    let stack = sum.key.numbers[0].checked_sub(1);
    let shown = stack.map(|stack| texts.shown(stack, options.filter_stacks_for_testing));
    passes(|| shown.unwrap_or_default(), &options.filters)
}
