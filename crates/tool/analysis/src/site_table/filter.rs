//! The sites whose stacks pass a filter.

use std::collections::HashMap;

use super::{Shared, SiteTable};
use crate::block_types::{TypeBy, Typed};
use crate::filter::{Filter, fits, in_module, passes_context};
use crate::functions::FunctionId;
use crate::names::Names;
use crate::pattern::Pattern;
use crate::stacks::NodeId;

/// A set of the sites of a [`SiteTable`], one bit each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteSet {
    bits: Vec<u64>,
    sites: usize,
    all: usize,
}

impl SiteSet {
    fn new(all: usize, mut has: impl FnMut(usize) -> bool) -> SiteSet {
        let mut set = SiteSet { bits: vec![0; all.div_ceil(64)], sites: 0, all };
        for site in 0..all {
            if has(site) {
                set.bits[site / 64] |= 1 << (site % 64);
                set.sites += 1;
            }
        }
        set
    }

    /// Returns the number of sites in the set.
    pub fn len(&self) -> usize {
        self.sites
    }

    /// True if no site is in the set.
    pub fn is_empty(&self) -> bool {
        self.sites == 0
    }

    /// True if the set has all sites of its table.
    pub fn is_of_all(&self) -> bool {
        self.sites == self.all
    }

    pub(crate) fn has(&self, site: usize) -> bool {
        self.bits.get(site / 64).is_some_and(|bits| bits & 1 << (site % 64) != 0)
    }

    /// Returns the numbers of the sites in ascending order.
    pub(super) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.bits.iter().enumerate().flat_map(|(at, &bits)| {
            let mut left = bits;
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros() as usize)?;
                left &= left - 1;
                Some(at * 64 + bit)
            })
        })
    }
}

/// The types of sites.
#[derive(Debug)]
pub(super) struct TypeColumn {
    of_sites: Vec<u32>,
    /// Types of which no two have the same names.
    types: Vec<Typed>,
}

impl SiteTable {
    /// Returns all sites.
    pub fn all(&self) -> SiteSet {
        SiteSet::new(self.len(), |_| true)
    }

    /// Returns the sites that meet the filter's conditions on stacks; its other conditions are
    /// ignored.
    ///
    /// Each name is compared with each pattern once. A pattern for functions takes a pass over all
    /// calls. The first filter by [`Filter::allocated_by`] or [`Filter::types`] takes longer,
    /// because it finds the owners or the types of all sites.
    pub fn select(&self, names: &mut Names<'_, '_>, filter: &Filter) -> SiteSet {
        if filter.is_of_all_stacks() {
            return self.all();
        }
        let mut passes = vec![true; self.len()];
        if !filter.is_of_all_contexts() {
            self.by_context(names, filter, &mut passes);
        }
        if !filter.is_of_all_frames() {
            self.by_allocating_function(names, filter, &mut passes);
            let lists = [(&filter.functions, true), (&filter.not_functions, false)];
            for (pattern, is_wanted) in lists.iter().flat_map(|(list, is)| list.iter().map(move |it| (it, *is))) {
                let has = self.calls_within(names, pattern);
                let innermost = self.shared.calls.innermost.iter();
                passes.iter_mut().zip(innermost).for_each(|(passes, &call)| *passes &= has[call as usize] == is_wanted);
            }
        }
        if !filter.types.is_empty() {
            let column = self.type_column(names);
            let is_of = |typed: &Typed| filter.types.iter().any(|pattern| typed.matches(pattern));
            let is_of: Vec<bool> = column.types.iter().map(is_of).collect();
            passes.iter_mut().zip(&column.of_sites).for_each(|(passes, &at)| *passes &= is_of[at as usize]);
        }
        SiteSet::new(self.len(), |site| passes[site])
    }

    fn by_context(&self, names: &Names<'_, '_>, filter: &Filter, passes: &mut [bool]) {
        let mut verdicts = HashMap::new();
        for (passes, &stack) in passes.iter_mut().zip(&self.shared.sites) {
            let key = (self.shared.stacks.context(stack), self.shared.stacks.heap(stack));
            *passes &=
                *verdicts.entry(key).or_insert_with(|| passes_context(filter, names, &self.shared.stacks, stack));
        }
    }

    /// Applies the conditions on the innermost useful function and on the owner.
    fn by_allocating_function(&self, names: &mut Names<'_, '_>, filter: &Filter, passes: &mut [bool]) {
        let is_asked = !filter.allocated_by.is_empty() || !filter.not_allocated_by.is_empty();
        let is_of_module = filter.modules.is_empty() && filter.not_modules.is_empty();
        if is_of_module && !is_asked {
            return;
        }
        let owners = is_asked.then(|| self.owners(names));
        let mut modules: HashMap<FunctionId, bool> = HashMap::new();
        let mut allocating: HashMap<(FunctionId, Option<FunctionId>), bool> = HashMap::new();
        for (site, passes) in passes.iter_mut().enumerate() {
            let Some(function) = self.shared.calls.function(self.shared.calls.useful[site]) else { continue };
            *passes &= *modules.entry(function).or_insert_with(|| {
                let module = names.module_path(names.function(function).module);
                fits(&filter.modules, &filter.not_modules, &|pattern| in_module(&module, pattern))
            });
            let owner = owners.map(|owners| owners[site]);
            *passes &= *allocating.entry((function, owner)).or_insert_with(|| {
                let matches = |pattern: &Pattern| {
                    [Some(function), owner].iter().flatten().any(|it| names.function(*it).matches(pattern))
                };
                fits(&filter.allocated_by, &filter.not_allocated_by, &matches)
            });
        }
    }

    /// Returns for each call whether it, or one that it is inside of, is of a function that
    /// matches.
    fn calls_within(&self, names: &Names<'_, '_>, pattern: &Pattern) -> Vec<bool> {
        let matches = self.matching(names, pattern);
        let mut within = vec![false; self.shared.calls.len()];
        for (call, parent, function) in self.shared.calls.each() {
            within[call as usize] = within[parent as usize] || matches[function.0 as usize];
        }
        within
    }

    /// Returns for each function whether its name matches.
    pub(super) fn matching(&self, names: &Names<'_, '_>, pattern: &Pattern) -> Vec<bool> {
        (0..self.shared.calls.functions).map(|at| names.function(FunctionId(at as u32)).matches(pattern)).collect()
    }

    /// Returns the function of the owner of each site. They are found in the tree of calls, without
    /// the frames of each stack.
    pub(super) fn owners(&self, names: &mut Names<'_, '_>) -> &[FunctionId] {
        let Shared { stacks, sites, calls, owners, .. } = &*self.shared;
        owners.get_or_init(|| {
            names.find_wrappers(stacks);
            let settles: Vec<bool> = (0..calls.functions).map(|at| names.is_settled(FunctionId(at as u32))).collect();
            let mut path: Vec<FunctionId> = Vec::new();
            let mut owner = |(&innermost, &stack): (&u32, &NodeId)| {
                path.clear();
                let mut call = innermost;
                while let Some(function) = calls.function(call) {
                    path.push(function);
                    if settles[function.0 as usize] {
                        break;
                    }
                    call = calls.parents[call as usize];
                }
                if path.is_empty() { names.owner(stacks, stack).frame.function } else { names.owner_among(&path) }
            };
            calls.innermost.iter().zip(sites).map(&mut owner).collect()
        })
    }

    fn type_column(&self, names: &mut Names<'_, '_>) -> &TypeColumn {
        self.shared.types.get_or_init(|| {
            let mut column = TypeColumn { of_sites: Vec::with_capacity(self.len()), types: Vec::new() };
            let mut known = HashMap::new();
            for &stack in &self.shared.sites {
                let typed = names.typed(&self.shared.stacks, stack);
                let called = [TypeBy::Block, TypeBy::Element, TypeBy::Container].map(|by| typed.name(by));
                let key = called.map(|name| (name.short().to_owned(), name.full().to_owned()));
                let at = *known.entry(key).or_insert(column.types.len() as u32);
                if at as usize == column.types.len() {
                    column.types.push(typed);
                }
                column.of_sites.push(at);
            }
            column
        })
    }
}
