//! Amounts over time: for each site, by the intervals in which its blocks were allocated and freed.
//!
//! Questions about a time or a range of times are answered by a replay of the events, which takes
//! seconds for ten million of them. A [`Cube`] replays them once, in the background. Each of these
//! questions is then a pass over its cells, as long as its times are ends of intervals.
//!
//! For each combination of a site, the interval of allocation and the interval of free, there is a
//! cell with blocks and bytes. Their number follows the number of sites and not of events: 9.6
//! million events of a program with 255,927 sites make 654,697 cells (`benches/answers`).
//!
//! Cubes are for programs that use this library: no command of Heapledger builds one yet.

mod build;
mod cells;
mod file;
mod parts;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use heapledger_core::{Blocks, Bytes};
use heapledger_ledger::Variance;
use heapledger_recording::{Damage, ImageId, Recording, Time};

pub use self::build::CubeOptions;
pub use self::cells::CUBE_INTERVALS;
pub use self::file::RecordingIdentity;
pub(crate) use self::file::exercise;

use self::cells::{Cell, CellKey, EndKind};
use self::parts::Parts;
use crate::amount::{Amount, Metric};
use crate::moment::Moment;
use crate::names::Names;
use crate::rank::{Rank, RankBy};
use crate::site_table::amounts::Amounts;
use crate::site_table::{Shared, SiteSet, SiteTable};

/// The blocks that were allocated and freed over time, by site, in [`CUBE_INTERVALS`] equal
/// intervals.
///
/// A boundary is the end of an interval: boundary 0 is the beginning of the recording, and the last
/// one is its end. An event at the very time of a boundary belongs to the interval that ends there.
///
/// # Agreement with a replay
///
/// Bytes, blocks and their variances are those that a replay counts for the same question:
/// [`Profile::load`](crate::Profile::load) for a [`Moment::At`] and for blocks
/// [allocated](crate::Filter::allocated) in a range. A cube does not count temporary allocations in
/// a range of times, and no slop.
///
/// If sites were [merged](Cube::merged), only the sums of a process are still those of a replay.
///
/// # Memory
///
/// 24 bytes for each cell, and 80 for each combination of site, thread and size class. See
/// [`CubeOptions::cells_max`] for the bound. All questions take a pass over the cells: some 5 ns
/// for each.
#[derive(Debug)]
pub struct Cube {
    shared: Arc<Shared>,
    /// The images that were counted.
    images: Vec<ImageId>,
    /// The ends of the intervals, and before them the beginning of the first one.
    boundaries: Vec<Time>,
    sites: Vec<CubeSite>,
    cells: Vec<(CellKey, Cell)>,
    /// The variances of cells, in the order of `cells`; empty if all blocks were recorded.
    variances: Vec<Variance>,
    parts: Parts,
    /// Bytes and blocks by site and by the binary logarithm of their lifetime in nanoseconds.
    lifetimes: Vec<((u32, u8), Cell)>,
    /// The number of sites with blocks that are counted for callers.
    merged: u64,
    damage: Vec<Damage>,
}

/// A site of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct CubeSite {
    /// The first image of the process.
    process: ImageId,
    /// The number of the site in the table.
    site: u32,
}

/// A question about time. Boundaries are numbers from 0 to [`CUBE_INTERVALS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CubeQuestion {
    /// The blocks that were live at a boundary, 1 or later.
    LiveAt(usize),
    /// The blocks that were allocated after the first boundary and not after the second one.
    Allocated(usize, usize),
    /// The blocks that the program freed after the first boundary and not after the second one.
    /// Blocks that ended with their process were not freed.
    Freed(usize, usize),
    /// The blocks that were live at the second boundary and allocated after the first one.
    LiveSince(usize, usize),
}

/// The bytes that groups of sites held over time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CubeShares {
    /// The largest groups at their common peak among the boundaries, with their figures at each
    /// boundary from 1 on.
    pub groups: Vec<(Rank, Vec<u64>)>,
    /// The figures of all others.
    pub others: Vec<u64>,
}

impl Cube {
    /// Returns the boundaries of the intervals: one more than there are intervals.
    pub fn boundaries(&self) -> &[Time] {
        &self.boundaries
    }

    /// Returns the times that [`CubeQuestion::Allocated`] is about, for
    /// [`Filter::allocated`](crate::Filter::allocated).
    pub fn times(&self, from: usize, until: usize) -> RangeInclusive<u64> {
        let time = |boundary: usize| self.boundaries[boundary.min(CUBE_INTERVALS)].0;
        let start = if from == 0 { time(0) } else { time(from).saturating_add(1) };
        start..=time(until)
    }

    /// Returns the number of cells.
    pub fn cells(&self) -> usize {
        self.cells.len()
    }

    /// Returns the number of sites that have blocks which are not counted for them: because there
    /// were too many [cells](CubeOptions::cells_max), for a function that they were called from;
    /// because there were too many [groups](CubeOptions::groups_max), for the process alone,
    /// without a thread and a size class.
    pub fn merged(&self) -> u64 {
        self.merged
    }

    /// Returns the parts of the recording that could not be read, and are missing here.
    pub fn damage(&self) -> &[Damage] {
        &self.damage
    }

    /// Returns the sites that answer a question, with its amounts, of one process (by its first
    /// image) or all. The amounts are those at [`Moment::At`] the boundary for blocks that were
    /// live at one, and otherwise those at [`Moment::Total`].
    ///
    /// The table has the same sites as the table that the cube was made with, unless sites were
    /// merged; and it then shares their groups. Takes one pass over the cells.
    pub fn table(&self, question: CubeQuestion, process: Option<ImageId>) -> SiteTable {
        let mut amounts = Amounts::nothing(self.shared.sites.len(), self.variances.is_empty());
        self.for_each(process, |site, key, amount| amounts.add(site, question.counts(key), &amount));
        let time = question.moment(&self.boundaries).time();
        let is_by_time = matches!(question, CubeQuestion::Allocated(..) | CubeQuestion::LiveSince(..));
        SiteTable::of_times(Arc::clone(&self.shared), amounts, (time, is_by_time), self.damage.clone())
    }

    /// Returns the moment at which the [table](Cube::table) for a question has its amounts.
    pub fn moment(&self, question: CubeQuestion) -> Moment {
        question.moment(&self.boundaries)
    }

    /// Returns what the `most` largest groups of these sites held at each boundary from 1 on, and
    /// what all others held: bytes, or blocks for [`Metric::Blocks`]. Takes one pass over the cells
    /// and `CUBE_INTERVALS` figures for each group.
    pub fn shares(
        &self,
        names: &mut Names<'_, '_>,
        set: &SiteSet,
        (by, metric): (RankBy, Metric),
        process: Option<ImageId>,
        most: usize,
    ) -> CubeShares {
        let figure = |amount: &Amount| if metric == Metric::Blocks { amount.blocks.0 } else { amount.bytes.0 };
        let mut all = Changes::default();
        self.for_each(process, |site, key, amount| {
            if set.has(site) {
                all.add(key, figure(&amount));
            }
        });
        let all = all.sums();
        let largest = (0..all.len()).rev().max_by_key(|&at| all[at]).unwrap_or_default() + 1;
        let at = CubeQuestion::LiveAt(largest);
        let table = self.table(at, process);
        let ranks = table.rank(names, set, self.moment(at), (by, metric), most).ranks;
        let groups = table.groups_of(names, by, &ranks);
        let mut changes = vec![Changes::default(); ranks.len()];
        self.for_each(process, |site, key, amount| {
            if set.has(site)
                && let Some(group) = groups[site]
            {
                changes[group as usize].add(key, figure(&amount));
            }
        });
        let groups: Vec<(Rank, Vec<u64>)> = ranks.into_iter().zip(changes.iter().map(Changes::sums)).collect();
        let mut others = all;
        for (_, held) in &groups {
            others.iter_mut().zip(held).for_each(|(others, held)| *others = others.saturating_sub(*held));
        }
        CubeShares { groups, others }
    }

    /// Returns the lifetimes of these sites' blocks: the blocks that lived for less than 2^n
    /// nanoseconds and at least half as long, by n. Blocks that were never freed lived until the
    /// end of their process.
    pub fn lifetimes(&self, set: &SiteSet, process: Option<ImageId>) -> Vec<(u8, Amount)> {
        let mut classes: HashMap<u8, Amount> = HashMap::new();
        for ((site, class), cell) in &self.lifetimes {
            let CubeSite { process: of, site } = self.sites[*site as usize];
            if set.has(site as usize) && process.is_none_or(|process| process == of) {
                *classes.entry(*class).or_default() += cell.amount();
            }
        }
        let mut classes: Vec<(u8, Amount)> = classes.into_iter().collect();
        classes.sort_unstable_by_key(|(class, _)| *class);
        classes
    }

    /// Calls `each` with all cells of a process, or of all.
    fn for_each(&self, process: Option<ImageId>, mut each: impl FnMut(usize, CellKey, Amount)) {
        for (at, (key, cell)) in self.cells.iter().enumerate() {
            let site = self.sites[key.site() as usize];
            if process.is_none_or(|process| process == site.process) {
                let variance = self.variances.get(at).copied().unwrap_or(Variance::NONE);
                each(site.site as usize, *key, Amount { variance, ..cell.amount() });
            }
        }
    }
}

impl CubeQuestion {
    fn moment(self, boundaries: &[Time]) -> Moment {
        match self {
            CubeQuestion::LiveAt(at) | CubeQuestion::LiveSince(_, at) => Moment::At(boundaries[at.min(CUBE_INTERVALS)]),
            CubeQuestion::Allocated(..) | CubeQuestion::Freed(..) => Moment::Total,
        }
    }

    /// Returns whether a cell counts as live, and whether it counts for a total.
    #[inline]
    fn counts(self, key: CellKey) -> (bool, bool) {
        let is_allocated = |from: usize, until: usize| {
            key.end() != EndKind::Reattributed && key.allocated().is_some_and(|at| from <= at && at < until)
        };
        match self {
            CubeQuestion::LiveAt(at) => (key.is_live_at(at), false),
            CubeQuestion::Allocated(from, until) => (false, is_allocated(from, until)),
            CubeQuestion::Freed(from, until) => {
                (false, key.end() == EndKind::Freed && (from..until).contains(&key.until()))
            }
            CubeQuestion::LiveSince(from, at) => {
                let is_since = key.allocated().is_some_and(|allocated| from <= allocated);
                (is_since && key.is_live_at(at), is_allocated(from, at))
            }
        }
    }
}

/// The changes of an amount at each boundary.
#[derive(Clone, Debug)]
struct Changes([i128; CUBE_INTERVALS + 1]);

impl Default for Changes {
    fn default() -> Changes {
        Changes([0; CUBE_INTERVALS + 1])
    }
}

impl Changes {
    #[inline]
    fn add(&mut self, key: CellKey, figure: u64) {
        // Blocks are live from the end of the interval on in which they were allocated.
        self.0[key.from()] += i128::from(figure);
        self.0[key.until()] -= i128::from(figure);
    }

    /// Returns the amounts at the boundaries from 1 on.
    fn sums(&self) -> Vec<u64> {
        let mut sum = 0_i128;
        let sums = self.0[..CUBE_INTERVALS].iter().map(|change| {
            sum += change;
            u64::try_from(sum.max(0)).unwrap_or(u64::MAX)
        });
        sums.collect()
    }
}

/// Returns the boundaries of a recording's intervals.
fn boundaries(recording: &Recording<'_>) -> Vec<Time> {
    let begins = recording.session().map_or(Time(0), |session| session.begins).0;
    // The times of events are rounded down to ticks.
    let latest = || {
        let heads = recording.chunks().iter().map(|chunk| chunk.head);
        let events = heads.map(|head| head.time_last.0.saturating_add(head.tick_ns.into()));
        let images = recording.images().iter().filter_map(|image| recording.image_end(image.image));
        events.chain(images.map(|end| end.time.0)).max().unwrap_or_default()
    };
    let ends = recording.footer().map_or_else(latest, |footer| footer.time.0).max(begins);
    let whole = u128::from(ends - begins);
    let boundary = |at: usize| begins + (whole * at as u128 / CUBE_INTERVALS as u128) as u64;
    (0..=CUBE_INTERVALS).map(|at| Time(boundary(at))).collect()
}

impl Cell {
    fn amount(&self) -> Amount {
        Amount { bytes: Bytes(self.bytes), blocks: Blocks(self.blocks), ..Amount::default() }
    }
}
