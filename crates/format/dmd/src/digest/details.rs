//! The properties of the records that are shown, besides their sums.

use std::collections::BTreeMap;

use super::chosen::ChosenRecord;
use super::keys::Keys;
use super::moments::WeightedBlocks;
use crate::hash::Map;
use crate::log::{Group, NameId};

/// The properties of the records that are shown, besides their sums.
pub(super) struct Details {
    /// The index in the list for each record.
    numbers: Map<(u64, u64), u32>,
    pub(super) list: Vec<RecordDetails>,
    /// For each first number of a key: true if a record with it is shown.
    is_first: Vec<bool>,
}

impl Details {
    pub(super) fn new<'r>(records: impl Iterator<Item = &'r ChosenRecord>) -> Details {
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
    pub(super) fn of_group(&mut self, keys: &Keys<'_>, group: &Group) -> Option<&mut RecordDetails> {
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
pub(super) struct RecordDetails {
    /// Usable sizes, and the number of blocks of each.
    pub(super) sizes: BTreeMap<u64, f64>,
    pub(super) types: BTreeMap<Option<NameId>, [f64; 2]>,
    pub(super) contexts: BTreeMap<Option<NameId>, [f64; 2]>,
    pub(super) reporters: [Vec<NameId>; 2],
    pub(super) addresses: Vec<u64>,
}

impl RecordDetails {
    pub(super) fn add(&mut self, group: &Group, probability: Option<f64>) {
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
