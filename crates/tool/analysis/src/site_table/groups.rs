//! The sites of a table grouped by a property.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError};

use super::SiteTable;
use super::filter::SiteSet;
use crate::amount::{Amount, Metric, order};
use crate::moment::Moment;
use crate::names::Names;
use crate::rank::{Key, Rank, RankBy, group};

/// The largest groups of some sites.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiteRanks {
    /// The largest groups, the largest first.
    pub ranks: Vec<Rank>,
    /// The number of all groups.
    pub groups: usize,
    /// The amount of all groups.
    pub whole: Amount,
    /// The amount that is not in the sites asked for.
    pub left_out: Amount,
}

/// The group of each site.
#[derive(Debug)]
pub(super) struct GroupColumn {
    of_sites: Vec<u32>,
    keys: Vec<Key>,
}

impl GroupColumn {
    /// Returns the memory of the column, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.of_sites.len() * size_of::<u32>() + self.keys.len() * size_of::<Key>()
    }
}

/// The sum of a group.
#[derive(Clone, Copy, Default)]
struct Sum {
    amount: Amount,
    sites: u32,
    /// The first site.
    first: u32,
    /// The site with the most, and its figure.
    largest: (u64, u32),
}

impl SiteTable {
    /// Returns the `most` largest of the groups that [`rank`](crate::rank()) returns for the
    /// [profile](SiteTable::profile) of these sites, at a moment that the table
    /// [knows](SiteTable::knows).
    ///
    /// One pass over the sites. The first question for a property takes longer, because it finds
    /// the group of each site.
    pub fn rank(
        &self,
        names: &mut Names<'_, '_>,
        set: &SiteSet,
        moment: Moment,
        (by, metric): (RankBy, Metric),
        most: usize,
    ) -> SiteRanks {
        let column = self.group_column(names, by);
        let mut sums = vec![Sum::default(); column.keys.len()];
        let mut found = SiteRanks { left_out: self.left_out(set, moment), ..SiteRanks::default() };
        for site in set.iter() {
            let amount = self.amounts.at(site, moment);
            if amount.is_nothing() {
                continue;
            }
            found.whole += amount;
            let own = amount.by(metric);
            if own == 0 && metric != Metric::Bytes {
                continue;
            }
            let sum = &mut sums[column.of_sites[site] as usize];
            if sum.sites == 0 {
                sum.first = site as u32;
            }
            if sum.sites == 0 || own > sum.largest.0 {
                sum.largest = (own, site as u32);
            }
            sum.amount += amount;
            sum.sites += 1;
        }
        let mut order_of: Vec<u32> = (0..sums.len() as u32).filter(|&at| sums[at as usize].sites > 0).collect();
        found.groups = order_of.len();
        let compare = |a: &u32, b: &u32| -> Ordering {
            let (sum_a, sum_b) = (&sums[*a as usize], &sums[*b as usize]);
            order(&sum_b.amount, &sum_a.amount, metric).then_with(|| sum_a.first.cmp(&sum_b.first))
        };
        if most < order_of.len() {
            order_of.select_nth_unstable_by(most, compare);
            order_of.truncate(most);
        }
        order_of.sort_unstable_by(compare);
        for at in order_of {
            let Sum { amount, sites, largest, .. } = sums[at as usize];
            let stack = self.shared.sites[largest.1 as usize];
            let (key, frame) = group(names, &self.shared.stacks, (stack, None), by);
            found.ranks.push(Rank { key, amount, sites: sites as usize, largest: stack, frame });
        }
        found
    }

    /// Returns for each site the index in `ranks` of its group, if that is there.
    pub(crate) fn groups_of(&self, names: &mut Names<'_, '_>, by: RankBy, ranks: &[Rank]) -> Vec<Option<u32>> {
        let column = self.group_column(names, by);
        let wanted: HashMap<Key, u32> = ranks.iter().map(|rank| rank.key).zip(0..).collect();
        let wanted: Vec<Option<u32>> = column.keys.iter().map(|key| wanted.get(key).copied()).collect();
        column.of_sites.iter().map(|&group| wanted[group as usize]).collect()
    }

    /// Returns the groups by a property, which are found when they are first asked for.
    pub(super) fn group_column(&self, names: &mut Names<'_, '_>, by: RankBy) -> Arc<GroupColumn> {
        let find = |names: &mut Names<'_, '_>| {
            let known = self.shared.groups.lock().unwrap_or_else(PoisonError::into_inner);
            let column = known.iter().find(|(known, _)| *known == by).map(|(_, column)| Arc::clone(column));
            drop(known);
            column.unwrap_or_else(|| Arc::new(self.find_groups(names, by)))
        };
        let column = find(names);
        let mut known = self.shared.groups.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.iter().any(|(known, _)| *known == by) {
            known.push((by, Arc::clone(&column)));
        }
        column
    }

    fn find_groups(&self, names: &mut Names<'_, '_>, by: RankBy) -> GroupColumn {
        let mut column = GroupColumn { of_sites: Vec::with_capacity(self.len()), keys: Vec::new() };
        let mut known: HashMap<Key, u32> = HashMap::new();
        let owners = (by == RankBy::Owner).then(|| self.owners(names));
        for (site, &stack) in self.shared.sites.iter().enumerate() {
            let useful = || self.shared.calls.function(self.shared.calls.useful[site]);
            let key = match (by, owners.map_or_else(useful, |owners| Some(owners[site]))) {
                (RankBy::Site, _) => Key::Site(stack),
                (RankBy::Owner, Some(owner)) => Key::Owner(owner),
                (RankBy::Function, Some(function)) => Key::Function(function),
                (RankBy::Module, Some(function)) => Key::Module(names.function(function).module),
                _ => group(names, &self.shared.stacks, (stack, None), by).0,
            };
            let at = *known.entry(key).or_insert(column.keys.len() as u32);
            if at as usize == column.keys.len() {
                column.keys.push(key);
            }
            column.of_sites.push(at);
        }
        column
    }
}
