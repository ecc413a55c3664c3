//! Lays a tree of calls out in columns.

use std::cmp::Reverse;

use super::call_columns::{CallColumns, ColumnName, ColumnRequest, Cut};
use crate::events::EventMap;

/// The stacks that go on outwards with one call.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub(super) call: u32,
    /// The number of their sites.
    pub(super) sites: u32,
    /// The index of their figures.
    pub(super) at: usize,
}

/// A tree whose calls come after their callers, in no other order.
#[derive(Default)]
pub(super) struct RawTree {
    /// The number of metrics.
    pub(super) width: usize,
    pub(super) parents: Vec<u32>,
    /// The figures of the stacks that end at each call, `width` for each.
    pub(super) own: Vec<u64>,
    /// The number of sites that end at each call.
    pub(super) sites: Vec<u32>,
    /// True for calls that are cut in any case, which have no calls inside; empty if there are
    /// none.
    pub(super) cut: Vec<bool>,
}

impl RawTree {
    pub(super) fn push(&mut self, parent: u32, is_cut: bool) -> usize {
        self.parents.push(parent);
        self.own.resize(self.own.len() + self.width, 0);
        self.sites.push(0);
        self.cut.push(is_cut);
        self.parents.len() - 1
    }

    pub(super) fn add(&mut self, call: usize, entry: &Entry, figures: &[u64]) {
        self.sites[call] += entry.sites;
        add(&mut self.own, call, figures, entry.at, self.width);
    }

    /// Cuts the tree, orders it and writes its columns. `names` has the number of each call's name,
    /// and `named` returns the name with a number.
    pub(super) fn lay_out(
        mut self,
        request: &ColumnRequest,
        names: &[u32],
        named: impl Fn(u32) -> ColumnName,
    ) -> CallColumns {
        let (width, calls) = (self.width, self.parents.len());
        let mut sums = self.own.clone();
        for call in (1..calls).rev() {
            let parent = self.parents[call] as usize;
            self.sites[parent] += self.sites[call];
            add_within(&mut sums, parent, call, width);
        }
        let least = request.least * sums[0] as f64;
        let is_kept = |call: usize| {
            let is_cut = self.cut.get(call).is_some_and(|cut| *cut);
            self.sites[call] > 0 && !is_cut && sums[call * width] as f64 >= least
        };
        let mut writer = Writer::new(request, width);
        // The sum of the calls that are cut right inside of each call.
        let mut smaller = vec![0_u64; calls * width];
        let mut has_smaller = vec![false; calls];
        let mut starts = vec![0_u32; calls + 2];
        for call in 1..calls {
            let parent = self.parents[call] as usize;
            if is_kept(call) {
                starts[parent + 2] += 1;
            } else if self.sites[call] > 0 {
                writer.columns.cut.nodes += 1;
                if parent == 0 || is_kept(parent) {
                    has_smaller[parent] = true;
                    add(&mut smaller, parent, &sums, call, width);
                    add(&mut writer.columns.cut.figures, 0, &sums, call, width);
                }
            }
        }
        for call in 1..starts.len() {
            starts[call] += starts[call - 1];
        }
        let mut children = vec![0_u32; starts[calls + 1] as usize];
        for call in (1..calls).filter(|&call| is_kept(call)) {
            let end = &mut starts[self.parents[call] as usize + 1];
            children[*end as usize] = call as u32;
            *end += 1;
        }
        let mut open: Vec<(Item, u32)> = vec![(Item::Call(0), 0)];
        while let Some((item, depth)) = open.pop() {
            let call = match item {
                Item::Call(call) => call as usize,
                Item::Smaller(call) => {
                    writer.push(depth, SMALLER, &smaller[call as usize * width..], |_| ColumnName::Smaller);
                    continue;
                }
            };
            writer.push(depth, names[call], &self.own[call * width..], &named);
            // The last one that is pushed is the next.
            open.extend(has_smaller[call].then_some((Item::Smaller(call as u32), depth + 1)));
            let inside = &mut children[starts[call] as usize..starts[call + 1] as usize];
            inside.sort_unstable_by_key(|&call| (Reverse(sums[call as usize * width]), call));
            open.extend(inside.iter().rev().map(|&call| (Item::Call(call), depth + 1)));
        }
        writer.columns.total = sums[..width].to_vec();
        writer.columns
    }
}

/// A row that is still to be written.
#[derive(Clone, Copy)]
enum Item {
    Call(u32),
    /// The sum of the calls that were cut in this one.
    Smaller(u32),
}

/// The number of the name of calls that were cut, which no other name has.
const SMALLER: u32 = u32::MAX;

struct Writer {
    columns: CallColumns,
    names: EventMap<u32, u32>,
}

impl Writer {
    fn new(request: &ColumnRequest, width: usize) -> Writer {
        let metrics = request.metrics.clone();
        let cut = Cut { nodes: 0, figures: vec![0; width] };
        let columns = CallColumns { metrics, own: vec![Vec::new(); width], cut, ..CallColumns::default() };
        Writer { columns, names: EventMap::default() }
    }

    fn push(&mut self, depth: u32, name: u32, own: &[u64], named: impl Fn(u32) -> ColumnName) {
        let columns = &mut self.columns;
        let name_of = *self.names.entry(name).or_insert_with(|| {
            columns.names.push(named(name));
            columns.names.len() as u32 - 1
        });
        columns.depths.push(depth);
        columns.names_of.push(name_of);
        columns.own.iter_mut().zip(own).for_each(|(column, &figure)| column.push(figure));
    }
}

/// Adds the figures at one index to those at another.
fn add(sums: &mut [u64], to: usize, figures: &[u64], from: usize, width: usize) {
    let figures = &figures[from * width..(from + 1) * width];
    sums[to * width..].iter_mut().zip(figures).for_each(|(sum, figure)| *sum = sum.saturating_add(*figure));
}

/// Does what [`add`] does within one list.
#[inline]
pub(super) fn add_within(sums: &mut [u64], to: usize, from: usize, width: usize) {
    for metric in 0..width {
        sums[to * width + metric] = sums[to * width + metric].saturating_add(sums[from * width + metric]);
    }
}
