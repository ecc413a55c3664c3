//! Trees of calls of the sites of a table, in columns.

use std::collections::{HashMap, VecDeque};

use super::SiteTable;
use super::call_columns::{CallColumns, ColumnName, ColumnRequest};
use super::calls::{Calls, ROOT};
use super::filter::SiteSet;
use super::layout::{Entry, RawTree, add_within};
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
    ///
    /// The entries of a node are in the order of their calls' numbers. Callers are numbered in the
    /// order of their calls, so their entries need not be sorted.
    fn bottom_up(&self, own: &[u64], sites: &[u32], width: usize, least: f64) -> (RawTree, Vec<u32>, Vec<FunctionId>) {
        let calls = &self.shared.calls;
        let mut tree = RawTree { width, ..RawTree::default() };
        let (mut names, mut unplaced) = (vec![0], Vec::new());
        let mut unplaced_ids: HashMap<FunctionId, u32> = HashMap::new();
        tree.push(ROOT, false);
        let first: Vec<Entry> = (0..sites.len())
            .filter(|&call| sites[call] > 0)
            .map(|call| Entry { call: call as u32, sites: sites[call], at: call })
            .collect();
        // The figures of entries, `width` for each.
        let mut figures = own.to_vec();
        let mut groups = Grouping::new(calls.functions);
        let mut open = VecDeque::from([(0_usize, first)]);
        while let Some((node, mut entries)) = open.pop_front() {
            groups.group(calls, &mut entries);
            let mut start = 0;
            for &Group { function, end } in &groups.groups {
                let group = &entries[start as usize..end as usize];
                start = end;
                let Some(function) = function else {
                    // These stacks end here.
                    group.iter().for_each(|entry| tree.add(node, entry, &figures));
                    continue;
                };
                let sum: f64 = group.iter().map(|entry| figures[entry.at * width] as f64).sum();
                let is_cut = sum < least || names.len() >= BOTTOM_UP_MAX;
                let child = tree.push(node as u32, is_cut);
                if is_cut {
                    // Its name is not shown.
                    names.push(0);
                    group.iter().for_each(|entry| tree.add(child, entry, &figures));
                    continue;
                }
                let name = calls.name(group[0].call);
                names.push(if group[1..].iter().all(|entry| calls.name(entry.call) == name) {
                    name
                } else {
                    *unplaced_ids.entry(function).or_insert_with(|| {
                        unplaced.push(function);
                        (FIRST_UNPLACED + unplaced.len() - 1) as u32
                    })
                });
                open.push_back((child, self.callers(group, width, &mut figures)));
            }
        }
        (tree, names, unplaced)
    }

    /// Returns the callers of some calls. Calls with one caller are added up.
    fn callers(&self, group: &[Entry], width: usize, figures: &mut [u64]) -> Vec<Entry> {
        let mut callers: Vec<Entry> = Vec::new();
        for entry in group {
            let call = self.shared.calls.parents[entry.call as usize];
            match callers.last_mut().filter(|last| last.call == call) {
                Some(last) => {
                    last.sites += entry.sites;
                    add_within(figures, last.at, entry.at, width);
                }
                None => callers.push(Entry { call, ..*entry }),
            }
        }
        callers
    }
}

/// The entries of one node with the same function.
struct Group {
    /// `None` for stacks that end at the node.
    function: Option<FunctionId>,
    /// The index after the last entry.
    end: u32,
}

/// Groups the entries of nodes by function, in time that follows their number: a counting sort over
/// the functions that a node has.
struct Grouping {
    /// The groups of the latest node, in the order of the functions.
    groups: Vec<Group>,
    /// For each function, and before them for none, the number of entries and then the index of the
    /// next one; zeroes between nodes.
    counts: Vec<u32>,
    /// The entries of the node, in the order in which they came.
    ungrouped: Vec<Entry>,
}

impl Grouping {
    fn new(functions: usize) -> Grouping {
        Grouping { groups: Vec::new(), counts: vec![0; functions + 1], ungrouped: Vec::new() }
    }

    /// Brings entries with the same function together. They keep their order.
    fn group(&mut self, calls: &Calls, entries: &mut [Entry]) {
        let Grouping { groups, counts, ungrouped } = self;
        let slot = |function: Option<FunctionId>| function.map_or(0, |function| function.0 as usize + 1);
        let slot_of = |entry: &Entry| slot(calls.function(entry.call));
        groups.clear();
        let is_one = entries.windows(2).all(|pair| slot_of(&pair[0]) == slot_of(&pair[1]));
        if is_one {
            let end = entries.len() as u32;
            groups.extend(entries.first().map(|entry| Group { function: calls.function(entry.call), end }));
            return;
        }
        for entry in &*entries {
            let function = calls.function(entry.call);
            let count = &mut counts[slot(function)];
            if *count == 0 {
                groups.push(Group { function, end: 0 });
            }
            *count += 1;
        }
        groups.sort_unstable_by_key(|group| group.function);
        let mut start = 0;
        for group in &mut *groups {
            let count = &mut counts[slot(group.function)];
            group.end = start + *count;
            *count = start;
            start = group.end;
        }
        ungrouped.clear();
        ungrouped.extend_from_slice(entries);
        for entry in &*ungrouped {
            let next = &mut counts[slot_of(entry)];
            entries[*next as usize] = *entry;
            *next += 1;
        }
        groups.iter().for_each(|group| counts[slot(group.function)] = 0);
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
