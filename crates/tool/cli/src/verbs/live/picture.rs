//! The figures that are shown of a running program at a moment.

use std::collections::HashMap;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use heapledger_analysis::{
    Amount, CallId, CallTree, Direction, FunctionId, Layer, Metric, Moment, MomentAmounts, NodeId, ProcessPattern,
    Profile, Rank, Selection, Site, SiteTotals, rank,
};
use heapledger_collect::LiveFigures;
use heapledger_recording::{Recording, Time};
use heapledger_symbols::Symbolizer;

use crate::args::{By, Rows, Symbols};
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::label::Labels;
use crate::views::rows;

/// The name of the row of stacks that have no further caller.
const NO_CALLER: &str = "[no caller]";

/// The rows that are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LiveQuestion {
    /// The property by which blocks are summed up.
    pub(crate) by: By,
    /// The row whose callers are shown, and the callers that were gone into; empty for the table.
    pub(crate) path: Vec<RowName>,
}

/// The name of a row, by which it is known from one moment to the next.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct RowName {
    /// The function, type or other group.
    pub(crate) name: String,
    /// The source location or module; empty if there is none.
    pub(crate) place: String,
}

/// A row: a group of blocks, or a caller.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LiveRow {
    pub(crate) name: RowName,
    /// The live bytes of the group itself; of a caller, of all that went through it.
    pub(crate) bytes: u64,
    pub(crate) blocks: u64,
    /// The live bytes of all stacks that the function is on. Only for functions.
    pub(crate) bytes_through: Option<u64>,
    /// All allocations so far.
    pub(crate) allocations: u64,
    /// The allocations that were freed by the next call of their thread.
    pub(crate) temporary: u64,
    /// The rate since the picture before; `None` in the first one.
    pub(crate) allocations_per_second: Option<f64>,
}

/// The figures at a moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Picture {
    /// The name of the program.
    pub(crate) program: String,
    /// Its pid.
    pub(crate) pid: u32,
    /// The recorded processes that run.
    pub(crate) processes: Vec<u32>,
    /// The time since the recording began.
    pub(crate) time: Time,
    /// True if all but a sample of the blocks is left out: figures are estimates then.
    pub(crate) is_sample: bool,
    /// True while allocations are recorded.
    pub(crate) is_on: bool,
    pub(crate) bytes: u64,
    pub(crate) blocks: u64,
    pub(crate) bytes_max: u64,
    /// All allocations of the session, reallocations included.
    pub(crate) allocations: u64,
    pub(crate) temporary: u64,
    pub(crate) allocations_per_second: Option<f64>,
    /// The resident memory of the processes, if it can be read.
    pub(crate) bytes_resident: Option<u64>,
    /// The number of sites with figures of their own, and of those that are summed up.
    pub(crate) sites: u64,
    pub(crate) sites_left_out: u64,
    /// The time in which the recorder took no events for this picture.
    pub(crate) copy_time: Duration,
    /// The moments of the timeline with what was live.
    pub(crate) timeline: Vec<(Time, u64)>,
    pub(crate) by: Option<By>,
    pub(crate) path: Vec<RowName>,
    /// The rows, those with the most live bytes first.
    pub(crate) rows: Vec<LiveRow>,
}

/// The facts that are not in the recording itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Surroundings {
    pub(crate) pid: u32,
    pub(crate) processes: Vec<u32>,
    pub(crate) is_on: bool,
    pub(crate) sites: u64,
    pub(crate) sites_left_out: u64,
    pub(crate) copy_time: Duration,
}

impl Surroundings {
    pub(crate) fn of(figures: &LiveFigures) -> Surroundings {
        Surroundings {
            pid: figures.status.command,
            processes: figures.status.processes.clone(),
            is_on: figures.status.is_on,
            sites: figures.sites,
            sites_left_out: figures.sites_left_out,
            copy_time: figures.copy_time,
        }
    }
}

/// Makes pictures of recordings of the same program, one after the other.
#[derive(Debug)]
pub(crate) struct Painter<'s> {
    symbols: &'s Symbols,
    symbolizer: Arc<Symbolizer>,
    /// The time and the allocations of the last picture of another moment, by row.
    before: Option<Before>,
    latest: Option<Before>,
}

/// The allocations at a moment.
#[derive(Clone, Debug)]
struct Before {
    time: Time,
    question: LiveQuestion,
    allocations: u64,
    of_rows: HashMap<RowName, u64>,
}

impl<'s> Painter<'s> {
    pub(crate) fn new(symbols: &'s Symbols, symbolizer: Arc<Symbolizer>) -> Painter<'s> {
        Painter { symbols, symbolizer, before: None, latest: None }
    }

    /// Makes the picture of the end of a recording.
    pub(crate) fn picture(
        &mut self,
        recording: &Recording<'_>,
        at: &Surroundings,
        question: &LiveQuestion,
    ) -> Result<Picture> {
        let mut labels = Labels::with_symbolizer(recording, self.symbols, Arc::clone(&self.symbolizer));
        let totals = site_totals(&mut labels, recording, &at.processes)
            .ok_or_else(|| Failure::new(Exit::Unreadable, "the recording has no totals of its stacks"))?;
        let footer = recording.footer().copied().unwrap_or_default();
        let mut live = Amount::default();
        totals.sites.iter().for_each(|(_, amounts)| live += amounts.live);
        let images = recording.images();
        let program = images.iter().rev().find(|image| image.pid == at.pid).or(images.first());
        let program = program.map(|image| String::from_utf8_lossy(&image.executable).into_owned());
        let program = program.as_deref().and_then(|path| path.rsplit('/').next()).unwrap_or_default();
        let timeline = recording.timeline().rows;
        let mut picture = Picture {
            program: program.to_owned(),
            pid: at.pid,
            processes: at.processes.clone(),
            time: footer.time,
            is_sample: recording.is_sample(),
            is_on: at.is_on,
            bytes: live.bytes.0,
            blocks: live.blocks.0,
            bytes_max: footer.counts.bytes_live_max.0,
            allocations: footer.counts.allocations.0.saturating_add(footer.counts.reallocations.0),
            temporary: footer.counts.temporary_allocations.0,
            allocations_per_second: None,
            bytes_resident: resident(&at.processes),
            sites: at.sites,
            sites_left_out: at.sites_left_out,
            copy_time: at.copy_time,
            timeline: timeline.iter().map(|sample| (sample.time, sample.live.bytes.0)).collect(),
            by: Some(question.by),
            path: question.path.clone(),
            rows: rows_of(&mut labels, totals, question),
        };
        picture.rows.sort_by(|one, other| other.bytes.cmp(&one.bytes).then_with(|| one.name.cmp(&other.name)));
        self.add_rates(&mut picture, question);
        Ok(picture)
    }

    /// Adds the rates since the picture of the moment before.
    fn add_rates(&mut self, picture: &mut Picture, question: &LiveQuestion) {
        if self.latest.as_ref().is_some_and(|latest| latest.time < picture.time) {
            self.before = self.latest.take();
        }
        if let Some(before) = self.before.as_ref().filter(|before| before.time < picture.time) {
            let seconds = (picture.time.0 - before.time.0) as f64 / 1e9;
            let rate = |now: u64, then: u64| Some(now.saturating_sub(then) as f64 / seconds);
            picture.allocations_per_second = rate(picture.allocations, before.allocations);
            if before.question == *question {
                for row in &mut picture.rows {
                    let then = before.of_rows.get(&row.name).copied().unwrap_or_default();
                    row.allocations_per_second = rate(row.allocations, then);
                }
            }
        }
        self.latest = Some(Before {
            time: picture.time,
            question: question.clone(),
            allocations: picture.allocations,
            of_rows: picture.rows.iter().map(|row| (row.name.clone(), row.allocations)).collect(),
        });
    }
}

/// Returns the totals of the sites of these processes; of all if none is given, or none of them is
/// in the recording yet.
fn site_totals(labels: &mut Labels<'_, '_>, recording: &Recording<'_>, processes: &[u32]) -> Option<SiteTotals> {
    let mut selection = Selection::at(Moment::End);
    let is_known = |pid: &u32| recording.images().iter().any(|image| image.pid == *pid);
    let known = processes.iter().copied().filter(is_known).map(ProcessPattern::Pid);
    selection.filter.processes = known.collect();
    SiteTotals::load(&mut labels.names, &selection, &mut |_, _| {}).ok()
}

/// Returns the rows that the question asks for, in no particular order.
fn rows_of(labels: &mut Labels<'_, '_>, totals: SiteTotals, question: &LiveQuestion) -> Vec<LiveRow> {
    let (by, depth) = match question.by.rows() {
        Rows::Sites(by, depth) => (by, depth),
        Rows::Events(_) => return Vec::new(),
    };
    let SiteTotals { stacks, sites, .. } = totals;
    let mut profile = Profile { stacks: stacks.into(), ..Profile::default() };
    set_amounts(&mut profile, &sites, |amounts| amounts.total);
    let groups = rank(&profile, &mut labels.names, by, Metric::Bytes);
    let named = |labels: &mut Labels<'_, '_>, profile: &Profile, group: &Rank| {
        let row = rows::row(labels, &profile.stacks, group, depth);
        let [name, place] =
            row.lines().first().map_or_else(Default::default, |line| [line.text.clone(), line.note.clone()]);
        let callers = row.lines().get(1).map(|line| line.note.clone()).filter(|_| question.by == By::Site);
        RowName { name, place: callers.unwrap_or(place) }
    };
    let Some((group, callers)) = question.path.split_first() else {
        let mut rows = Vec::new();
        let mut places = HashMap::new();
        for group in &groups {
            let name = named(labels, &profile, group);
            places.insert(group.key, rows.len());
            let (allocations, temporary) = (group.amount.blocks.0, group.amount.temporaries.0);
            rows.push(LiveRow { name, allocations, temporary, ..LiveRow::default() });
        }
        set_amounts(&mut profile, &sites, |amounts| amounts.live);
        for group in rank(&profile, &mut labels.names, by, Metric::Bytes) {
            if let Some(row) = places.get(&group.key).and_then(|&at| rows.get_mut(at)) {
                (row.bytes, row.blocks) = (group.amount.bytes.0, group.amount.blocks.0);
            }
        }
        if question.by == By::Function {
            add_through(labels, &profile, &mut rows);
        }
        return joined(rows);
    };
    let Some(key) = groups.iter().find(|other| named(labels, &profile, other) == *group).map(|group| group.key) else {
        return Vec::new();
    };
    profile.keep_group(&mut labels.names, by, key);
    let kept: Vec<(NodeId, MomentAmounts)> = {
        let of_group: std::collections::HashSet<NodeId> = profile.sites.iter().map(|site| site.stack).collect();
        sites.into_iter().filter(|(stack, _)| of_group.contains(stack)).collect()
    };
    callers_of(labels, profile, &kept, (question.by, callers))
}

/// Gives the sites of a profile these amounts.
fn set_amounts(profile: &mut Profile, sites: &[(NodeId, MomentAmounts)], of: impl Fn(&MomentAmounts) -> Amount) {
    let site = |(stack, amounts): &(NodeId, MomentAmounts)| Site { stack: *stack, amount: of(amounts), part: None };
    profile.sites = sites.iter().map(site).collect();
}

/// Adds what goes through each function, and the functions that allocate nothing themselves.
fn add_through(labels: &mut Labels<'_, '_>, live: &Profile, rows: &mut Vec<LiveRow>) {
    let mut through: HashMap<FunctionId, u64> = HashMap::new();
    for site in live.sites.iter().filter(|site| site.amount.bytes.0 > 0) {
        let mut functions: Vec<FunctionId> =
            labels.names.useful_frames(&live.stacks, site.stack).iter().map(|frame| frame.function).collect();
        functions.sort_unstable();
        functions.dedup();
        for function in functions {
            *through.entry(function).or_default() += site.amount.bytes.0;
        }
    }
    let mut by_name: HashMap<String, u64> = HashMap::new();
    for (function, bytes) in through {
        *by_name.entry(labels.function(function)).or_default() += bytes;
    }
    for row in rows.iter_mut() {
        row.bytes_through = Some(by_name.remove(&row.name.name).unwrap_or(row.bytes));
    }
    let others = by_name.into_iter().map(|(name, bytes)| {
        let name = RowName { name, place: String::new() };
        LiveRow { name, bytes_through: Some(bytes), ..LiveRow::default() }
    });
    rows.extend(others);
}

/// Adds up rows with the same name: no reader could tell them apart, nor follow them in time.
fn joined(rows: Vec<LiveRow>) -> Vec<LiveRow> {
    let (mut all, mut places) = (Vec::<LiveRow>::new(), HashMap::new());
    for row in rows {
        let at = *places.entry(row.name.clone()).or_insert(all.len());
        let Some(sum) = all.get_mut(at) else {
            all.push(row);
            continue;
        };
        sum.bytes += row.bytes;
        sum.blocks += row.blocks;
        sum.allocations += row.allocations;
        sum.temporary += row.temporary;
        sum.bytes_through = sum.bytes_through.max(row.bytes_through);
    }
    all
}

/// Returns the callers behind these, from the functions that allocate outwards, with what went
/// through each.
fn callers_of(
    labels: &mut Labels<'_, '_>,
    mut profile: Profile,
    sites: &[(NodeId, MomentAmounts)],
    (by, path): (By, &[RowName]),
) -> Vec<LiveRow> {
    set_amounts(&mut profile, sites, |amounts| amounts.total);
    let layers = [Layer::Stack];
    let all = CallTree::new(&profile, &mut labels.names, &layers, Direction::BottomUp, Metric::Bytes);
    set_amounts(&mut profile, sites, |amounts| amounts.live);
    let live = CallTree::new(&profile, &mut labels.names, &layers, Direction::BottomUp, Metric::Bytes);
    let name = |node: CallId| {
        let node = all.node(node);
        let function = node.function?;
        Some(RowName { name: labels.function(function), place: labels.place(function, node.location.as_ref()) })
    };
    // Both trees have the same functions, in different orders.
    let in_live = |parent: Option<CallId>, function: Option<FunctionId>| {
        live.children(parent?).iter().copied().find(|&child| live.node(child).function == function)
    };
    let (mut at, mut at_live) = (CallId::ROOT, Some(CallId::ROOT));
    // All stacks begin with the function itself.
    if let (By::Function, &[itself]) = (by, all.children(at)) {
        at_live = in_live(at_live, all.node(itself).function);
        at = itself;
    }
    for caller in path {
        let Some(&next) = all.children(at).iter().find(|&&child| name(child).as_ref() == Some(caller)) else {
            return Vec::new();
        };
        at_live = in_live(at_live, all.node(next).function);
        at = next;
    }
    let row = |&child: &CallId| {
        let node = all.node(child);
        let held = in_live(at_live, node.function).map_or_else(Amount::default, |child| live.node(child).amount);
        Some(LiveRow {
            name: name(child)?,
            bytes: held.bytes.0,
            blocks: held.blocks.0,
            allocations: node.amount.blocks.0,
            temporary: node.amount.temporaries.0,
            ..LiveRow::default()
        })
    };
    let mut rows = joined(all.children(at).iter().filter_map(row).collect());
    rows.extend(rest(&rows, all.node(at).amount, at_live.map(|at| live.node(at).amount)));
    rows
}

/// Returns the row of the stacks that end here, if there are callers in others. `all` and `live`
/// are what all stacks have allocated, and hold.
fn rest(callers: &[LiveRow], all: Amount, live: Option<Amount>) -> Option<LiveRow> {
    let live = live.unwrap_or_default();
    let sum = |of: fn(&LiveRow) -> u64| callers.iter().map(of).sum::<u64>();
    let rest = LiveRow {
        name: RowName { name: NO_CALLER.to_owned(), place: String::new() },
        bytes: live.bytes.0.saturating_sub(sum(|row| row.bytes)),
        blocks: live.blocks.0.saturating_sub(sum(|row| row.blocks)),
        allocations: all.blocks.0.saturating_sub(sum(|row| row.allocations)),
        temporary: all.temporaries.0.saturating_sub(sum(|row| row.temporary)),
        ..LiveRow::default()
    };
    (!callers.is_empty() && (rest.allocations > 0 || rest.blocks > 0)).then_some(rest)
}

/// Returns the resident memory of these processes together; `None` if none can be read.
fn resident(processes: &[u32]) -> Option<u64> {
    let page = rustix::param::page_size() as u64;
    let of = |pid: &u32| {
        let text = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
        text.split(' ').nth(1)?.parse::<u64>().ok()
    };
    let pages: Vec<u64> = processes.iter().filter_map(of).collect();
    (!pages.is_empty()).then(|| pages.iter().sum::<u64>() * page)
}

#[cfg(test)]
mod tests;
