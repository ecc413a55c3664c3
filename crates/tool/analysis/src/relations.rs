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
    let mut amounts: HashMap<Option<FunctionId>, Amount> = HashMap::new();
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
        *amounts.entry(neighbour.map(|frame| frame.function)).or_default() += site.amount;
        found.whole += site.amount;
    }
    found.neighbours = amounts.into_iter().collect();
    found.neighbours.sort_by(|(a_id, a), (b_id, b)| order(b, a, metric).then(a_id.cmp(b_id)));
    found.functions.sort_by_key(|&id| names.function(id).short.clone());
    found
}
