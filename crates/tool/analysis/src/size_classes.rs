//! The sizes of the blocks that groups of sites hold.

use std::collections::{BTreeMap, HashMap};

use heapledger_core::Bytes;

use crate::amount::{Amount, Metric, MomentAmounts};
use crate::error::Error;
use crate::functions::FunctionId;
use crate::group_totals::group_totals;
use crate::names::Names;
use crate::parts::{Part, size_class};
use crate::profile::{PartLabels, PartSplit, Profile, Site};
use crate::progress::Progress;
use crate::rank::{Key, Rank, RankBy, group, rank};
use crate::replay::visitor::Origin;
use crate::selection::Selection;
use crate::stacks::NodeId;

/// Groups of sites, each with the amount that it holds in each size class.
#[derive(Debug, Default)]
pub struct SizeClasses {
    /// The groups, the largest first, each with its size classes, the smallest first. A class is
    /// named by its largest size, a power of two; its blocks have more than half of that.
    pub groups: Vec<(Rank, Vec<(Bytes, Amount)>)>,
    /// The profile whose sites are grouped.
    pub profile: Profile,
}

/// Breaks the groups of a selection down by the sizes of their blocks, by a replay of the events.
/// `split` keeps sites apart for [`RankBy::Part`].
pub fn size_classes(
    names: &mut Names<'_, '_>,
    by: RankBy,
    split: Option<&PartSplit<'_>>,
    metric: Metric,
    selection: &Selection,
    progress: Progress<'_>,
) -> Result<SizeClasses, Error> {
    let recording = names.recording();
    let needs = PartSplit::needs(split);
    let key =
        |origin: &Origin, stack, _| Some((PartSplit::part(split, recording, origin), stack, size_class(origin.size)));
    let group_totals = group_totals(names, selection, needs, key, progress)?;
    let moment = selection.moment;
    let mut profile = Profile {
        stacks: group_totals.stacks.into(),
        left_out: group_totals.left_out.at(moment),
        damage: group_totals.damage,
        ..Profile::default()
    };
    let mut all = MomentAmounts::default();
    let mut labels = PartLabels::new(split);
    // Blocks beyond the limit of groups have no known size.
    let whole = |key: Option<(Part, NodeId, Bytes)>| key.unwrap_or((Part::Rest, NodeId::ROOT, Bytes(u64::MAX)));
    let mut sites: HashMap<(NodeId, Option<FunctionId>), Amount> = HashMap::new();
    for (key, moment_amounts) in &group_totals.groups {
        all += *moment_amounts;
        let (part, stack, _) = whole(*key);
        *sites.entry((stack, labels.of(names, part))).or_default() += moment_amounts.at(moment);
    }
    profile.whole = all.at(moment);
    profile.allocated = selection.filter.allocated.as_ref().map(|_| all.total);
    let sites = sites.into_iter().filter(|(_, amount)| !amount.is_nothing());
    profile.sites = sites.map(|((stack, part), amount)| Site { stack, amount, part }).collect();
    profile.sites.sort_unstable_by_key(|site| (site.stack, site.part));

    let mut classes: HashMap<Key, BTreeMap<Bytes, Amount>> = HashMap::new();
    for (key, moment_amounts) in group_totals.groups {
        let (part, stack, class) = whole(key);
        let amount = moment_amounts.at(moment);
        if !amount.is_nothing() {
            let site = (stack, labels.of(names, part));
            let (key, _) = group(names, &profile.stacks, site, by);
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
