//! The callers and the callees of a function.

use std::collections::HashSet;

use super::SiteTable;
use super::calls::ROOT;
use super::filter::SiteSet;
use crate::amount::Metric;
use crate::functions::FunctionId;
use crate::moment::Moment;
use crate::names::Names;
use crate::pattern::Pattern;
use crate::relations::{Neighbours, Relation, Relations, sort_by_name};

/// A call through which the function is called.
#[derive(Clone, Copy)]
struct Hit {
    /// The function that matches.
    function: FunctionId,
    /// Its caller or callee.
    neighbour: Option<FunctionId>,
    /// True if there are only allocators further inside.
    is_inner_end: bool,
}

impl SiteTable {
    /// Returns the [`relations`](crate::relations) of the profile of these sites, in a pass over
    /// the calls and one over the sites. The moment must be one that the table
    /// [knows](SiteTable::knows).
    pub fn relations(
        &self,
        names: &Names<'_, '_>,
        set: &SiteSet,
        moment: Moment,
        (function, relation): (&Pattern, Relation),
        metric: Metric,
    ) -> Relations {
        let hits = self.hits(names, function, relation);
        let mut found = Relations::default();
        let mut functions: HashSet<FunctionId> = HashSet::new();
        let mut neighbours = Neighbours::default();
        for site in set.iter() {
            let amount = self.amounts.at(site, moment);
            let Some(hit) = hits[self.shared.calls.innermost[site] as usize] else { continue };
            if amount.is_nothing() {
                continue;
            }
            functions.insert(hit.function);
            // Allocators at the inner end are how the function itself allocates.
            let is_itself = relation == Relation::Callees && hit.is_inner_end;
            neighbours.add(hit.neighbour.filter(|_| !is_itself), amount);
            found.whole += amount;
        }
        found.neighbours = neighbours.sorted(metric);
        found.functions = functions.into_iter().collect();
        sort_by_name(&mut found.functions, names);
        found
    }

    /// Returns for each call, as the innermost of a stack, the match that counts for the stack: the
    /// outermost one for callers, and the innermost one for callees.
    fn hits(&self, names: &Names<'_, '_>, pattern: &Pattern, relation: Relation) -> Vec<Option<Hit>> {
        let matches = self.matching(names, pattern);
        let mut hits: Vec<Option<Hit>> = vec![None; self.shared.calls.len()];
        // True for the calls that match themselves.
        let mut is_match = vec![false; self.shared.calls.len()];
        for (call, parent, function) in self.shared.calls.each() {
            let is = matches[function.0 as usize];
            let outer = hits[parent as usize];
            is_match[call as usize] = is;
            hits[call as usize] = match (relation, outer) {
                (Relation::Callers, Some(outer)) => Some(outer),
                (Relation::Callers, None) => {
                    let caller = if parent == ROOT { None } else { self.shared.calls.function(parent) };
                    is.then_some(Hit { function, neighbour: caller, is_inner_end: true })
                }
                (Relation::Callees, _) if is => Some(Hit { function, neighbour: None, is_inner_end: true }),
                (Relation::Callees, None) => None,
                (Relation::Callees, Some(outer)) => {
                    let neighbour = if is_match[parent as usize] { Some(function) } else { outer.neighbour };
                    let is_inner_end = outer.is_inner_end && names.function(function).allocator;
                    Some(Hit { neighbour, is_inner_end, ..outer })
                }
            };
        }
        hits
    }
}
