//! Trees of calls of the sites of a table, in columns.

use std::collections::{HashMap, VecDeque};

use super::SiteTable;
use super::call_columns::{CallColumns, ColumnName, ColumnRequest};
use super::calls::ROOT;
use super::filter::SiteSet;
use super::layout::{Entry, RawTree};
use crate::functions::{FunctionId, Location};
use crate::layers::Direction;

/// The most calls in a bottom-up tree: those beyond it are cut, the outermost callers first. Such a
/// tree can have a row for each call on each stack.
const BOTTOM_UP_MAX: usize = 1 << 21;

impl SiteTable {
    /// Returns the tree of calls of these sites, which is that of [`CallTree`](crate::CallTree) for
    /// the layer [`Stack`](crate::Layer::Stack).
    ///
    /// Takes a pass over the sites, a few over all calls, and sorts the calls that remain.
    /// Bottom-up, it takes a step for each call on a stack that is not cut.
    pub fn columns(&self, set: &SiteSet, request: &ColumnRequest) -> CallColumns {
        let width = request.metrics.len();
        if width == 0 {
            return CallColumns::default();
        }
        let mut tree = RawTree { width, own: vec![0; width * self.shared.calls.len()], ..RawTree::default() };
        let mut sites = vec![0_u32; self.shared.calls.len()];
        for site in set.iter() {
            let amount = self.amounts.at(site, request.moment);
            if amount.is_nothing() {
                continue;
            }
            let call = self.shared.calls.useful[site] as usize;
            sites[call] += 1;
            for (sum, &metric) in tree.own[call * width..].iter_mut().zip(&request.metrics) {
                *sum = sum.saturating_add(amount.by(metric));
            }
        }
        match request.direction {
            Direction::TopDown => {
                (tree.parents, tree.sites) = (self.shared.calls.parents.clone(), sites);
                tree.lay_out(request, self.shared.calls.names(), |name| named(&self.shared.calls.named, name))
            }
            Direction::BottomUp => {
                let least = request.least * (0..sites.len()).map(|call| tree.own[call * width] as f64).sum::<f64>();
                let (tree, names, unplaced) = self.bottom_up(&tree.own, &sites, width, least);
                let unplaced = |name: u32| unplaced.get((name as usize).wrapping_sub(FIRST_UNPLACED));
                tree.lay_out(request, &names, |name| match unplaced(name) {
                    Some(function) => ColumnName::Function(*function, None),
                    None => named(&self.shared.calls.named, name),
                })
            }
        }
    }

    /// Grows the tree from the innermost calls outwards, level by level. Returns the names of its
    /// calls, and the functions of those that have no single place.
    fn bottom_up(&self, own: &[u64], sites: &[u32], width: usize, least: f64) -> (RawTree, Vec<u32>, Vec<FunctionId>) {
        let mut tree = RawTree { width, ..RawTree::default() };
        let (mut names, mut unplaced) = (Vec::new(), Vec::new());
        let mut unplaced_ids: HashMap<FunctionId, u32> = HashMap::new();
        tree.push(ROOT, false);
        names.push(0);
        let first: Vec<Entry> = (0..sites.len())
            .filter(|&call| sites[call] > 0)
            .map(|call| Entry { call: call as u32, sites: sites[call], at: call })
            .collect();
        // The figures of entries, `width` for each.
        let mut figures = own.to_vec();
        let mut open = VecDeque::from([(0_usize, first)]);
        while let Some((node, mut entries)) = open.pop_front() {
            entries.sort_unstable_by_key(|entry| {
                (self.shared.calls.function(entry.call), self.shared.calls.name(entry.call))
            });
            for group in
                entries.chunk_by(|a, b| self.shared.calls.function(a.call) == self.shared.calls.function(b.call))
            {
                let Some(function) = self.shared.calls.function(group[0].call) else {
                    // These stacks end here.
                    group.iter().for_each(|entry| tree.add(node, entry, &figures));
                    continue;
                };
                let sum: f64 = group.iter().map(|entry| figures[entry.at * width] as f64).sum();
                let is_cut = sum < least || names.len() >= BOTTOM_UP_MAX;
                let child = tree.push(node as u32, is_cut);
                let [name, last] = [group[0], group[group.len() - 1]].map(|entry| self.shared.calls.name(entry.call));
                names.push(if name == last {
                    name
                } else {
                    *unplaced_ids.entry(function).or_insert_with(|| {
                        unplaced.push(function);
                        (FIRST_UNPLACED + unplaced.len() - 1) as u32
                    })
                });
                if is_cut {
                    group.iter().for_each(|entry| tree.add(child, entry, &figures));
                } else {
                    open.push_back((child, self.callers(group, width, &mut figures)));
                }
            }
        }
        (tree, names, unplaced)
    }

    /// Returns the callers of some calls. Calls with one caller are added up.
    fn callers(&self, group: &[Entry], width: usize, figures: &mut [u64]) -> Vec<Entry> {
        let mut callers: Vec<Entry> = group
            .iter()
            .map(|entry| Entry { call: self.shared.calls.parents[entry.call as usize], ..*entry })
            .collect();
        callers.sort_unstable_by_key(|entry| entry.call);
        callers.dedup_by(|entry, kept| {
            if entry.call != kept.call {
                return false;
            }
            kept.sites += entry.sites;
            for metric in 0..width {
                let figure = figures[entry.at * width + metric];
                let sum = &mut figures[kept.at * width + metric];
                *sum = sum.saturating_add(figure);
            }
            true
        });
        callers
    }
}

fn named(named: &[(Option<FunctionId>, Option<Location>)], name: u32) -> ColumnName {
    match &named[name as usize] {
        (Some(function), location) => ColumnName::Function(*function, location.clone()),
        (None, _) => ColumnName::Root,
    }
}

/// The names from this number on are functions without a place. Those of a table are fewer: a
/// table has one for each call at most, and fewer than 2^31 calls.
const FIRST_UNPLACED: usize = 1 << 31;
