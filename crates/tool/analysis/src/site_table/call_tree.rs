//! The largest calls of the sites of a table, as the tree that reports print.

use heapledger_core::{Blocks, Bytes};

use super::SiteTable;
use super::calls::{Calls, Place, ROOT};
use super::filter::SiteSet;
use crate::amount::{Amount, Metric};
use crate::calls::{CallNode, CallTree};
use crate::events::EventMap;
use crate::moment::Moment;

/// Bytes, blocks and temporary blocks.
type Figures = [u64; 3];

/// A number that no site has.
const NO_SITE: u32 = u32::MAX;

impl SiteTable {
    /// Returns the [`CallTree`] of the profile of these sites (of its layer
    /// [`Stack`](crate::Layer::Stack), top-down), with only those calls that have at least this
    /// share of the whole, from 0 to 1: the same calls in the same order. The moment must be one
    /// that the table [knows](SiteTable::knows).
    ///
    /// Takes a pass over the sites, one over all calls and, if stacks differ in the place of a call
    /// that is shown, one over the nodes of the stacks. `None` if the amounts are estimates or have
    /// slop.
    pub fn call_tree(&self, set: &SiteSet, moment: Moment, metric: Metric, least: f64) -> Option<CallTree> {
        if !self.amounts.is_exact() {
            return None;
        }
        let calls = &self.shared.calls;
        let mut own: Vec<Figures> = vec![[0; 3]; calls.len()];
        // The first site of each call, by which calls with equal amounts are ordered.
        let mut first = vec![NO_SITE; calls.len()];
        for site in set.iter() {
            let amount = self.amounts.at(site, moment);
            if !amount.is_nothing() {
                let call = calls.useful[site] as usize;
                add(&mut own[call], [amount.bytes.0, amount.blocks.0, amount.temporaries.0]);
                first[call] = first[call].min(site as u32);
            }
        }
        let mut sums = own.clone();
        for call in (1..calls.len()).rev() {
            let parent = calls.parents[call] as usize;
            let sum = sums[call];
            add(&mut sums[parent], sum);
            first[parent] = first[parent].min(first[call]);
        }
        let whole = amount(sums[ROOT as usize]);
        let is_shown = |call: usize| first[call] != NO_SITE && amount(sums[call]).share(&whole, metric) >= least;
        let mut shown: Vec<u32> = (1..calls.len() as u32).filter(|&call| is_shown(call as usize)).collect();
        shown.sort_unstable_by_key(|&call| (first[call as usize], call));

        let places = self.places(set, moment, &shown);
        let mut root = CallNode::new(None, None, false);
        (root.amount, root.own) = (whole, amount(own[ROOT as usize]));
        let mut nodes = vec![(0, root)];
        let mut indices: EventMap<u32, usize> = EventMap::default();
        indices.insert(ROOT, 0);
        for call in shown {
            // A call has no less than those inside of it.
            let Some(&parent) = indices.get(&calls.parents[call as usize]) else { continue };
            let place = places.get(&call).copied().unwrap_or(calls.places[call as usize].0);
            let mut node = CallNode::new(calls.function(call), calls.location(place).cloned(), place.inlined);
            (node.amount, node.own) = (amount(sums[call as usize]), amount(own[call as usize]));
            indices.insert(call, nodes.len());
            nodes.push((parent, node));
        }
        Some(CallTree::of_nodes(nodes, metric))
    }

    /// Returns the common place of each of these calls on the stacks of some sites, of those calls
    /// that do not have the same one on all stacks.
    fn places(&self, set: &SiteSet, moment: Moment, shown: &[u32]) -> EventMap<u32, Place> {
        let (calls, stacks) = (&self.shared.calls, &self.shared.stacks);
        let mut places = Places { calls, is_asked: vec![false; calls.len()], found: EventMap::default() };
        let mixed = shown.iter().filter(|&&call| calls.places[call as usize].1);
        let asked = mixed.map(|&call| places.is_asked[call as usize] = true).count();
        if asked == 0 {
            return places.found;
        }
        let mut is_used = vec![false; stacks.length() + 1];
        for site in set.iter() {
            let mut node = stacks.native(self.shared.sites[site]);
            if calls.of_nodes[node.number()] == ROOT || self.amounts.at(site, moment).is_nothing() {
                continue;
            }
            // Calls further inside have higher numbers. Those inside of the useful one are
            // allocators, which are not shown for this stack.
            let useful = calls.useful[site];
            while let Some((parent, frame)) = stacks.numbered_node(node) {
                if calls.of_nodes[parent.number()] >= useful {
                    node = parent;
                } else if calls.of_nodes[node.number()] == useful {
                    is_used[node.number()] = true;
                    break;
                } else {
                    // The allocators are inlined into the useful function.
                    places.add(calls.of_nodes[node.number()], frame.0, useful);
                    is_used[parent.number()] = true;
                    break;
                }
            }
        }
        for (node, parent, frame) in stacks.numbered_nodes().rev() {
            if is_used[node.number()] {
                is_used[parent.number()] = true;
                places.add(calls.of_nodes[node.number()], frame.0, u32::MAX);
            }
        }
        places.found
    }
}

struct Places<'c> {
    calls: &'c Calls,
    is_asked: Vec<bool>,
    found: EventMap<u32, Place>,
}

impl Places<'_> {
    /// Adds the places at a frame with this innermost call, for calls up to a number.
    fn add(&mut self, innermost: u32, frame: u32, last: u32) {
        let mut call = innermost;
        for &place in &self.calls.frames[frame as usize] {
            if call <= last && self.is_asked[call as usize] {
                self.found.entry(call).and_modify(|common| common.agree(place)).or_insert(place);
            }
            call = self.calls.parents[call as usize];
        }
    }
}

fn add(sum: &mut Figures, figures: Figures) {
    sum.iter_mut().zip(figures).for_each(|(sum, figure)| *sum = sum.saturating_add(figure));
}

fn amount([bytes, blocks, temporaries]: Figures) -> Amount {
    Amount { bytes: Bytes(bytes), blocks: Blocks(blocks), temporaries: Blocks(temporaries), ..Amount::default() }
}
