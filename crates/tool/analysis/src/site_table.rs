//! The sites of a recording in memory, in columns, for questions that must be answered while
//! somebody waits.
//!
//! [`Profile::load`](crate::Profile::load) reads all sites and stacks of the recording for each
//! question. A [`SiteTable`] reads them once. Each answer is then one pass over a few columns, and
//! equal to the answer of [`rank`](crate::rank()), [`CallTree`](crate::CallTree) or
//! [`relations`](crate::relations) for the profile of the same selection.
//!
//! Nothing here recurses: stacks can have tens of thousands of frames.

pub(crate) mod amounts;
mod call_columns;
mod call_tree;
mod calls;
mod columns;
mod filter;
mod groups;
mod layout;
mod relations;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use heapledger_recording::{Damage, Time};

pub use self::call_columns::{CallColumns, ColumnName, ColumnRequest, Cut};
pub use self::filter::SiteSet;
pub use self::groups::SiteRanks;

use self::amounts::Amounts;
use self::calls::Calls;
use self::groups::GroupColumn;
use crate::amount::{Amount, MomentAmounts};
use crate::error::Error;
use crate::filter::Filter;
use crate::functions::FunctionId;
use crate::moment::Moment;
use crate::names::Names;
use crate::profile::{Profile, Site, SiteTotals};
use crate::progress::Progress;
use crate::rank::RankBy;
use crate::selection::Selection;
use crate::stacks::{NodeId, Stacks};

/// The sites of a selection, with their amounts at all moments that the selection knows, in
/// columns.
///
/// A table is loaded with [`Names`] and refers to functions by their ids there: all methods must be
/// given the same ones. It can be shared between threads.
///
/// # Memory
///
/// 64 bytes for each site, 12 for each node of the stacks and 28 for each call (a function called
/// along one path). An owner that was looked up takes 4 bytes for each site.
/// Each property that is [ranked by](SiteTable::rank) adds 4 bytes for each site and 40 for each
/// group. The sites of a sample, or with slop, take 288 bytes each.
#[derive(Debug)]
pub struct SiteTable {
    shared: Arc<Shared>,
    amounts: Amounts,
    /// The totals of the blocks that the selection leaves out for other reasons than their stacks.
    left_out: MomentAmounts,
    known: Known,
    /// True if only blocks are counted that were allocated in some time.
    is_by_time: bool,
    damage: Vec<Damage>,
}

/// The moments whose amounts a table has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// The peak, the end and the total.
    All,
    /// The end and the total.
    NotPeak,
    /// This time.
    At(Time),
    /// The total.
    Total,
}

/// The sites, which tables with other amounts can share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) stacks: Arc<Stacks>,
    /// The stack of each site.
    pub(crate) sites: Vec<NodeId>,
    calls: Calls,
    /// The properties that were asked for so far.
    groups: Mutex<Vec<(RankBy, Arc<GroupColumn>)>>,
    /// The owner of each site, once it was asked for.
    owners: OnceLock<Vec<FunctionId>>,
    types: OnceLock<filter::TypeColumn>,
}

impl Shared {
    pub(crate) fn new(names: &mut Names<'_, '_>, stacks: Arc<Stacks>, sites: Vec<NodeId>) -> Shared {
        let calls = Calls::new(names, &stacks, &sites);
        let (groups, owners, types) = Default::default();
        Shared { stacks, sites, calls, groups, owners, types }
    }

    /// Returns sites without stacks.
    pub(crate) fn of_nothing(sites: usize) -> Shared {
        let calls = Calls::of_nothing(sites);
        let (stacks, groups, owners, types) = Default::default();
        Shared { stacks, sites: vec![NodeId::ROOT; sites], calls, groups, owners, types }
    }

    /// Returns a checksum of the sites and their stacks.
    pub(crate) fn checksum(&self) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        self.stacks.hash_into(&mut hasher);
        let sites: Vec<u8> = self.sites.iter().flat_map(|site| (site.number() as u32).to_le_bytes()).collect();
        hasher.update(&sites);
        hasher.finalize()
    }
}

impl SiteTable {
    /// Reads the sites of a selection. Conditions on stacks are ignored: they are for
    /// [`SiteTable::select`].
    ///
    /// Takes no longer than reading the sites, unless events must be replayed (as
    /// [`Profile::load`] does). Looks up the names of all addresses.
    pub fn load(names: &mut Names<'_, '_>, selection: &Selection, progress: Progress<'_>) -> Result<SiteTable, Error> {
        let filter = selection.filter.without_stacks();
        let time = selection.moment.time();
        let moment = if time.is_some() { selection.moment } else { Moment::Peak };
        let selection = Selection { filter, moment, ..selection.clone() };
        let (totals, known) = match SiteTotals::load(names, &selection, progress) {
            // The recorder did not note the peak of these processes together, and kept no events.
            Err(Error::NoEvents) if time.is_none() => {
                (SiteTotals::load(names, &selection.with_moment(Moment::End), progress)?, Known::NotPeak)
            }
            totals => (totals?, time.map_or(Known::All, Known::At)),
        };
        let is_by_time = selection.filter.allocated.is_some();
        Ok(SiteTable { known, is_by_time, ..SiteTable::of_totals(names, totals) })
    }

    /// Reads the sites of the processes of a filter, with the totals that the recorder wrote.
    /// Returns `None` if events would have to be replayed. The filter's other conditions are
    /// ignored.
    ///
    /// The sites are in the order in which [`Profile::load`] has them, so answers are equal to the
    /// last byte, also where amounts are equal.
    ///
    /// # Errors
    ///
    /// Fails if there is no such process.
    pub fn load_recorded(names: &mut Names<'_, '_>, filter: &Filter) -> Result<Option<SiteTable>, Error> {
        let filter = Filter { processes: filter.processes.clone(), ..Filter::default() };
        let selection = Selection { filter, ..Selection::at(Moment::Peak) };
        let totals = SiteTotals::load_recorded(names, &selection)?;
        Ok(totals.map(|totals| SiteTable::of_totals(names, totals)))
    }

    fn of_totals(names: &mut Names<'_, '_>, totals: SiteTotals) -> SiteTable {
        let SiteTotals { stacks, sites, left_out, damage, .. } = totals;
        let (sites, amounts): (Vec<NodeId>, Vec<MomentAmounts>) = sites.into_iter().unzip();
        let shared = Shared::new(names, Arc::new(stacks.without_index()), sites);
        SiteTable { left_out, damage, ..SiteTable::of_amounts(Arc::new(shared), Amounts::new(amounts)) }
    }

    /// Returns a table of the same sites with other amounts.
    fn of_amounts(shared: Arc<Shared>, amounts: Amounts) -> SiteTable {
        SiteTable {
            shared,
            amounts,
            left_out: MomentAmounts::default(),
            damage: Vec::new(),
            known: Known::All,
            is_by_time: false,
        }
    }

    /// Returns a table of the same sites with amounts at a time, or at no moment but
    /// [`Moment::Total`].
    pub(crate) fn of_times(
        shared: Arc<Shared>,
        amounts: Amounts,
        (time, is_by_time): (Option<Time>, bool),
        damage: Vec<Damage>,
    ) -> SiteTable {
        let known = time.map_or(Known::Total, Known::At);
        SiteTable { known, is_by_time, damage, ..SiteTable::of_amounts(shared, amounts) }
    }

    /// Returns a table of the same sites with some of their blocks.
    pub(crate) fn of_parts(
        shared: Arc<Shared>,
        amounts: Vec<MomentAmounts>,
        left_out: MomentAmounts,
        damage: Vec<Damage>,
    ) -> SiteTable {
        SiteTable { left_out, damage, ..SiteTable::of_amounts(shared, Amounts::new(amounts)) }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// True if the table has the amounts at this moment.
    pub fn knows(&self, moment: Moment) -> bool {
        match moment {
            Moment::At(time) => self.known == Known::At(time),
            Moment::Peak => self.known == Known::All,
            Moment::End => matches!(self.known, Known::All | Known::NotPeak),
            Moment::Total => !matches!(self.known, Known::At(_)),
        }
    }

    /// Finds the groups by a property now, so that the first question for it does not take longer
    /// than the next ones. Owners take some 2 µs for each site, and types more.
    pub fn prepare(&self, names: &mut Names<'_, '_>, by: RankBy) {
        self.group_column(names, by);
    }

    /// Returns the number of sites.
    pub fn len(&self) -> usize {
        self.shared.sites.len()
    }

    /// True if there are no sites.
    pub fn is_empty(&self) -> bool {
        self.shared.sites.is_empty()
    }

    /// Returns the stacks.
    pub fn stacks(&self) -> &Stacks {
        &self.shared.stacks
    }

    /// Returns the parts of the recording that could not be read, and are missing here.
    pub fn damage(&self) -> &[Damage] {
        &self.damage
    }

    /// Returns the amount of these sites together at a moment, in one pass.
    pub fn whole(&self, set: &SiteSet, moment: Moment) -> Amount {
        let mut whole = Amount::default();
        set.iter().for_each(|site| whole += self.amounts.at(site, moment));
        whole
    }

    /// Returns the profile of these sites at a moment that the table [knows](SiteTable::knows), for
    /// the questions that take one. It shares the stacks of the table. Takes a pass and 112 bytes
    /// for each site.
    pub fn profile(&self, set: &SiteSet, moment: Moment) -> Profile {
        let mut profile = Profile {
            stacks: Arc::clone(&self.shared.stacks),
            left_out: self.left_out(set, moment),
            damage: self.damage.clone(),
            ..Profile::default()
        };
        let mut allocated = Amount::default();
        for site in set.iter() {
            allocated += self.amounts.at(site, Moment::Total);
            let amount = self.amounts.at(site, moment);
            if !amount.is_nothing() {
                profile.whole += amount;
                profile.sites.push(Site { stack: self.shared.sites[site], amount, part: None });
            }
        }
        profile.allocated = self.is_by_time.then_some(allocated);
        profile
    }

    /// Returns the [profile](SiteTable::profile) of these sites without the sites themselves: the
    /// sums, for questions that the table answers in other ways. Takes a pass over the sites.
    pub fn sums(&self, set: &SiteSet, moment: Moment) -> Profile {
        Profile {
            stacks: Arc::clone(&self.shared.stacks),
            whole: self.whole(set, moment),
            left_out: self.left_out(set, moment),
            allocated: self.is_by_time.then(|| self.whole(set, Moment::Total)),
            damage: self.damage.clone(),
            ..Profile::default()
        }
    }

    /// Estimates the memory that the table takes now, in bytes, from the numbers of entries.
    pub fn memory_bytes(&self) -> u64 {
        let of_sites = self.len() * (size_of::<NodeId>() + self.amounts.bytes_each());
        let groups = self.shared.groups.lock().unwrap_or_else(PoisonError::into_inner);
        let groups: usize = groups.iter().map(|(_, column)| column.memory_bytes()).sum();
        (of_sites + groups + self.stacks().length() * 8 + self.shared.calls.memory_bytes()) as u64
    }

    /// Returns the amount of all blocks that are not of these sites.
    fn left_out(&self, set: &SiteSet, moment: Moment) -> Amount {
        let mut left_out = self.left_out.at(moment);
        if !set.is_of_all() {
            let others = (0..self.len()).filter(|&site| !set.has(site));
            others.for_each(|site| left_out += self.amounts.at(site, moment));
        }
        left_out
    }
}
