//! The memory that goes through one function, by its callers or by its callees.

use std::collections::HashMap;

use crate::amount::{Amount, Metric, order};
use crate::functions::FunctionId;
use crate::names::Names;
use crate::pattern::Pattern;
use crate::profile::Profile;

/// The neighbours of a function that are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// The functions that call it.
    Callers,
    /// The functions that it calls.
    Callees,
}

/// The memory that goes through a function, by its neighbours.
///
/// Each stack counts once, however often the function is on it: the outermost call counts for its
/// callers, the innermost for its callees. So the neighbours add up to the whole.
#[derive(Debug, Default)]
pub struct Relations {
    /// The functions that match, in the order of their names.
    pub functions: Vec<FunctionId>,
    /// The neighbours, the largest first. `None` if nobody calls the function, or if it calls
    /// nobody but allocators.
    pub neighbours: Vec<(Option<FunctionId>, Amount)>,
    /// The amount that goes through the function.
    pub whole: Amount,
}

/// Returns the neighbours of all functions that match, as if they were one.
pub fn relations(
    profile: &Profile,
    names: &mut Names<'_, '_>,
    function: &Pattern,
    relation: Relation,
    metric: Metric,
) -> Relations {
    let mut found = Relations::default();
    let mut neighbours = Neighbours::default();
    let mut verdicts: HashMap<FunctionId, bool> = HashMap::new();
    for site in &profile.sites {
        let frames = names.frames(&profile.stacks, site.stack);
        let mut is = |function_id: FunctionId| {
            *verdicts.entry(function_id).or_insert_with(|| {
                let is = names.function(function_id).matches(function);
                found.functions.extend(is.then_some(function_id));
                is
            })
        };
        // Frames go from the innermost to the outermost.
        let neighbour = match relation {
            Relation::Callers => {
                let Some(at) = frames.iter().rposition(|frame| is(frame.function)) else { continue };
                frames.get(at + 1)
            }
            Relation::Callees => {
                let Some(at) = frames.iter().position(|frame| is(frame.function)) else { continue };
                let inner = frames[..at].last();
                // Allocators at the inner end are how the function itself allocates.
                let is_inner_end = frames[..at].iter().all(|frame| names.function(frame.function).allocator);
                inner.filter(|_| !is_inner_end)
            }
        };
        neighbours.add(neighbour.map(|frame| frame.function), site.amount);
        found.whole += site.amount;
    }
    found.neighbours = neighbours.sorted(metric);
    sort_by_name(&mut found.functions, names);
    found
}

/// Sorts functions by their names. Ids say nothing: they depend on what was looked up before.
pub(crate) fn sort_by_name(functions: &mut [FunctionId], names: &Names<'_, '_>) {
    let key = |&id: &FunctionId| {
        let name = names.function(id);
        (name.short.clone(), name.module, name.full.clone(), id)
    };
    functions.sort_by_cached_key(key);
}

/// The neighbours of a function, in the order in which they were met.
#[derive(Default)]
pub(crate) struct Neighbours {
    amounts: Vec<(Option<FunctionId>, Amount)>,
    places: HashMap<Option<FunctionId>, usize>,
}

impl Neighbours {
    pub(crate) fn add(&mut self, neighbour: Option<FunctionId>, amount: Amount) {
        let at = *self.places.entry(neighbour).or_insert(self.amounts.len());
        if at == self.amounts.len() {
            self.amounts.push((neighbour, Amount::default()));
        }
        self.amounts[at].1 += amount;
    }

    /// Returns the neighbours, the largest first; of equals, the one that was met first.
    pub(crate) fn sorted(self, metric: Metric) -> Vec<(Option<FunctionId>, Amount)> {
        let mut amounts = self.amounts;
        amounts.sort_by(|(_, a), (_, b)| order(b, a, metric));
        amounts
    }
}
