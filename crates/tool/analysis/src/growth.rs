//! Steady growth: its rate, without anybody choosing two moments.

use std::cmp::Reverse;

use heapledger_core::Bytes;
use heapledger_recording::{Damage, Time};

use crate::block_filter::each_once;
use crate::error::Error;
use crate::history::History;
use crate::moment::Moment;
use crate::names::Names;
use crate::progress::Progress;
use crate::selection::Selection;
use crate::shares::{ShareGroup, Shares, SharesBy};
use crate::stacks::Stacks;
use crate::trend::{Trend, TrendKind, WINDOWS, trend};

/// The number of moments that are examined: several in each window of a trend.
const TIMES: usize = 8 * WINDOWS;
/// The most groups that are examined: those that allocated the most.
const GROUPS_MAX: usize = 8192;
/// The least gain of a group that is listed, in bytes: the peak, of slop if that is examined,
/// divided by `PART_OF_PEAK`, and at least `GAIN_MIN`.
const PART_OF_PEAK: u64 = 1000;
const GAIN_MIN: u64 = 1024;

/// The groups of blocks that grow.
#[derive(Debug, Default)]
pub struct Growth {
    /// The beginning of the time that was examined.
    pub from: Time,
    /// The end of that time. If most of what was live is freed at the end, the moment before.
    pub to: Time,
    /// The number of groups that were examined.
    pub groups: usize,
    /// The groups that grow: first those that grow steadily, then those that grow in steps, then
    /// those that slow down; within each kind, the fastest first.
    pub grown: Vec<GrowingGroup>,
    /// The stacks of the groups.
    pub stacks: Stacks,
    /// Parts of the recording that could not be read, and are missing here.
    pub damage: Vec<Damage>,
}

/// A group of blocks that becomes larger.
#[derive(Clone, Debug)]
pub struct GrowingGroup {
    /// The group.
    pub group: ShareGroup,
    /// Its trend, in windows of [`seconds_of_window`](Growth::seconds_of_window) seconds.
    pub trend: Trend,
    /// The time when it begins to grow.
    pub since: Time,
    /// Bytes live at the end of the time examined; their slop, if that is examined.
    pub live: Bytes,
}

impl Growth {
    /// Looks for growth of the selected blocks in a part of the time: of their requested bytes, or
    /// of their slop if the selection [asks for it](Selection::counts_slop). Makes two passes over
    /// all events, for slop three. Needs as much memory as [`Shares`].
    pub fn load(
        names: &mut Names<'_, '_>,
        selection: &Selection,
        by: SharesBy,
        (from, to): (Option<Time>, Option<Time>),
        progress: Progress<'_>,
    ) -> Result<Growth, Error> {
        let history = History::load(names, selection, progress)?;
        let from = from.unwrap_or(history.begins).max(history.begins);
        let to = to.unwrap_or_else(|| end(&history)).min(history.ends);
        let mut growth = Growth { from, to, damage: history.damage, ..Growth::default() };
        if from >= to {
            return Ok(growth);
        }
        let moment = |at: u128| Time(from.0 + (u128::from(to.0 - from.0) * (at + 1) / TIMES as u128) as u64);
        let times: Vec<Time> = (0..TIMES as u128).map(moment).collect();
        let shares = Shares::load(names, &selection.with_moment(Moment::Total), by, GROUPS_MAX, &times, progress)?;
        growth.groups = shares.groups.len();
        growth.stacks = shares.stacks;
        growth.damage.extend(shares.damage);
        growth.damage = each_once(std::mem::take(&mut growth.damage));
        let slop_max = history.slop.iter().map(|sample| sample.live.bytes.0).max();
        let peak = if selection.counts_slop { slop_max.unwrap_or(0) } else { history.peak.live.bytes.0 };
        let gain_min = (peak / PART_OF_PEAK).max(GAIN_MIN);
        let grown = shares.groups.into_iter().filter_map(|(group, live)| {
            let trend = trend(&live).filter(|trend| trend.gained >= gain_min)?;
            let since = if trend.since == 0 { from } else { moment((trend.since * TIMES / WINDOWS) as u128) };
            Some(GrowingGroup { group, trend, since, live: Bytes(live.last().copied().unwrap_or(0)) })
        });
        growth.grown = grown.collect();
        growth
            .grown
            .sort_by_key(|grown| (grown.trend.kind, Reverse(grown.trend.slope as u64), Reverse(grown.trend.gained)));
        Ok(growth)
    }

    /// Returns the length of a window of the trends, in seconds.
    pub fn seconds_of_window(&self) -> f64 {
        (self.to.0 - self.from.0) as f64 / 1e9 / WINDOWS as f64
    }

    /// Returns the number of groups that grow in this way.
    pub fn count(&self, kind: TrendKind) -> usize {
        self.grown.iter().filter(|grown| grown.trend.kind == kind).count()
    }
}

/// Returns the end of the time to examine. For a program that frees most of its memory at its end,
/// this is the moment late in the run when it had the most.
fn end(history: &History) -> Time {
    let length = history.ends.0 - history.begins.0;
    let late = Time(history.ends.0 - length / 5);
    let most = history.live.iter().filter(|sample| sample.time >= late).max_by_key(|sample| sample.live.bytes);
    let at_end = history.live.last().map_or(Bytes(0), |sample| sample.live.bytes);
    match most {
        Some(most) if at_end.0 < most.live.bytes.0 / 2 => most.time,
        _ => history.ends,
    }
}
