//! What blocks of which sizes groups of sites hold.

use std::collections::{BTreeMap, HashMap};

use heapledger_core::Bytes;

use crate::amount::{Amount, Holding, Metric};
use crate::breakdown::size_class;
use crate::error::Error;
use crate::moment::Selection;
use crate::names::Names;
use crate::profile::{Profile, Site};
use crate::rank::{Key, Rank, RankBy, group, rank};
use crate::replay::{Origin, Progress};
use crate::stacks::{MergedStacks, NodeId};
use crate::tally::{Needs, tally};

/// Groups of sites, each with what it holds of each size class.
#[derive(Debug, Default)]
pub struct SizeClasses {
    /// The groups, the largest first, and their size classes, the smallest first: a class has at most so many bytes, a
    /// power of two, and more than half of that.
    pub groups: Vec<(Rank, Vec<(Bytes, Amount)>)>,
    /// The profile that they are the groups of.
    pub profile: Profile,
}

/// Breaks the groups of a selection down by the sizes of their blocks: a replay of its events.
pub fn size_classes(
    names: &mut Names<'_, '_>,
    by: RankBy,
    metric: Metric,
    selection: &Selection,
    progress: Progress<'_>,
) -> Result<SizeClasses, Error> {
    let mut merged = MergedStacks::new(names.recording());
    let needs = Needs { stack: true, ..Needs::default() };
    let key = |origin: &Origin, stack, _| Some((stack, size_class(origin.size)));
    let tally = tally(names, &mut merged, selection, needs, key, None, progress)?;
    let moment = selection.moment;
    let mut profile = Profile { left_out: tally.left_out.at(moment), damage: tally.damage, ..Profile::default() };
    profile.damage.append(&mut merged.damage);
    profile.stacks = merged.stacks;
    let mut all = Holding::default();
    let mut sites: HashMap<NodeId, Amount> = HashMap::new();
    for (key, holding) in &tally.groups {
        all += *holding;
        *sites.entry(key.map_or(NodeId::ROOT, |(stack, _)| stack)).or_default() += holding.at(moment);
    }
    profile.whole = all.at(moment);
    profile.allocated = selection.filter.allocated.as_ref().map(|_| all.total);
    let is_there = |(_, amount): &(NodeId, Amount)| !amount.is_nothing();
    profile.sites =
        sites.into_iter().filter(is_there).map(|(stack, amount)| Site { stack, amount, part: None }).collect();
    profile.sites.sort_unstable_by_key(|site| site.stack);

    let mut classes: HashMap<Key, BTreeMap<Bytes, Amount>> = HashMap::new();
    for (key, holding) in tally.groups {
        // Blocks beyond what can be told apart have no size.
        let (stack, class) = key.unwrap_or((NodeId::ROOT, Bytes(u64::MAX)));
        let amount = holding.at(moment);
        if !amount.is_nothing() {
            let (key, _) = group(names, &profile.stacks, stack, by);
            *classes.entry(key).or_default().entry(class).or_default() += amount;
        }
    }
    let ranks = rank(&profile, names, by, metric);
    let with_classes = |rank: Rank| {
        let classes = classes.remove(&rank.key).unwrap_or_default();
        (rank, classes.into_iter().collect())
    };
    Ok(SizeClasses { groups: ranks.into_iter().map(with_classes).collect(), profile })
}
