//! Counts the cells of a cube in one replay.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use heapledger_core::{Bytes, Serial, StackId, ThreadId};
use heapledger_ledger::Variance;
use heapledger_recording::{ImageEndReason, ImageId, Recording, Time};

use super::cells::{Cell, CellKey, Cells, EndKind};
use super::parts::{PartRow, Parts};
use super::{CUBE_INTERVALS, Cube, CubeSite, boundaries};
use crate::amount::MomentAmounts;
use crate::error::Error;
use crate::events::EventMap;
use crate::group_totals::{GROUPS_MAX, PeakOf, moment_amounts};
use crate::images::last_images;
use crate::names::Names;
use crate::parts::size_class;
use crate::progress::Progress;
use crate::replay::Replay;
use crate::replay::results::ReplayedImage;
use crate::replay::span::Span;
use crate::replay::visitor::{BlockEnd, BlockVisitor, EndReason, Origin};
use crate::selection::Selection;
use crate::site_table::amounts::Amounts;
use crate::site_table::{Shared, SiteTable};
use crate::stacks::{MergedStacks, NodeId, Stacks};

/// The limits of a cube that is being built.
#[derive(Clone, Copy, Debug)]
pub struct CubeOptions<'s> {
    /// The maximum number of cells. When there are more, the sites with the fewest blocks are
    /// merged into the functions that they were called from, and in the end all sites of a process
    /// into one. By default 7/8 of 2^23, which take 200 MiB while they are counted.
    pub cells_max: usize,
    /// The maximum number of combinations of site, thread and size class, besides one for each
    /// process. Blocks of further combinations are counted for the process alone. By default 2^22.
    pub groups_max: usize,
    /// Set by another thread to stop the replay, which then fails with [`Error::Stopped`]. Looked
    /// at after each chunk of events.
    pub stop: Option<&'s AtomicBool>,
}

impl Default for CubeOptions<'_> {
    fn default() -> Self {
        CubeOptions { cells_max: (1 << 23) / 8 * 7, groups_max: GROUPS_MAX, stop: None }
    }
}

impl Cube {
    /// Counts the blocks of the selected processes in one replay. Other conditions of the selection
    /// are ignored, except for [`Selection::memory_max`]. The table must be that of the same
    /// processes with all their blocks.
    ///
    /// Takes 0.4 to 0.6 µs for each event (`benches/answers`). Memory: as a replay, and that of the
    /// cube.
    ///
    /// # Errors
    ///
    /// Fails if the recording has no events, if the replay needs too much memory, if there are more
    /// cells than allowed although the sites of each process are merged into one, and if it is
    /// stopped.
    pub fn build(
        names: &mut Names<'_, '_>,
        table: &SiteTable,
        selection: &Selection,
        options: &CubeOptions<'_>,
        progress: Progress<'_>,
    ) -> Result<Cube, Error> {
        let recording = names.recording();
        let images = selection.filter.images(recording)?;
        let mut counter = Counter::new(recording, table.stacks().copy(), options);
        let (span, memory_max) = (Span::default(), selection.memory_max);
        let replayed = Replay { recording, images: &images, span, memory_max }.run(&mut counter, progress);
        if counter.is_full {
            return Err(Error::CellsLimit(options.cells_max));
        }
        let replayed = replayed?;
        let parts = counter.parts(recording, &replayed.images);
        let mut damage = replayed.damage;
        damage.append(&mut counter.merged.damage);
        Ok(Cube { images, damage, ..counter.finish(names, table, parts) })
    }
}

/// A site, a thread and a size class: blocks for which the ledger counts together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Group {
    site: u32,
    thread: Option<(ImageId, ThreadId)>,
    class: Bytes,
}

struct Counter<'r, 'a, 'o> {
    recording: &'r Recording<'a>,
    options: &'o CubeOptions<'o>,
    merged: MergedStacks<'r, 'a>,
    intervals: Intervals,
    /// The first image of the process of each image.
    processes: HashMap<ImageId, ImageId>,
    known: EventMap<(ImageId, StackId), u32>,
    /// The process and the stack of each site.
    sites: Vec<(ImageId, NodeId)>,
    numbers: EventMap<(ImageId, NodeId), u32>,
    /// The site that each site was merged into, or itself.
    into: Vec<u32>,
    groups: Vec<Group>,
    group_numbers: EventMap<Group, StackId>,
    cells: Cells,
    variances: EventMap<CellKey, Variance>,
    lifetimes: EventMap<(u32, u8), Cell>,
    /// The interval of the latest reattribution of each live block that was reattributed.
    reattributed: EventMap<(ImageId, Serial), usize>,
    /// The interval in which the block was reattributed that is about to be entered again.
    reattributed_now: Option<usize>,
    /// True if there are still many cells when the sites of each process are merged into one. Later
    /// sites are then merged at once.
    is_merged_out: bool,
    /// True if there are too many cells although everything is merged.
    is_full: bool,
    /// The sites of blocks that are counted for their process alone, because there are too many
    /// groups.
    ungrouped: HashSet<u32>,
}

impl BlockVisitor for &mut Counter<'_, '_, '_> {
    fn wants_frees(&self) -> bool {
        true
    }

    fn wants_calls(&self) -> bool {
        true
    }

    fn on_alloc(&mut self, origin: Origin) -> StackId {
        let Origin { image, serial, stack, .. } = origin;
        if let Some(interval) = self.reattributed_now.take() {
            self.reattributed.insert((image, serial), interval);
        }
        let site = match self.known.get(&(image, stack)) {
            Some(&site) => site,
            None => {
                let node = self.merged.node(image, stack);
                let site = self.site(image, node);
                self.known.insert((image, stack), site);
                site
            }
        };
        let thread = origin.call.map(|(thread, _)| (image, thread));
        self.group(image, Group { site, thread, class: size_class(origin.size) })
    }

    fn on_free(&mut self, end: BlockEnd) {
        let Some(group) = self.groups.get(end.group.0 as usize) else { return };
        let site = self.representative(group.site);
        let allocated = end.call.map(|(_, time)| self.intervals.of(time));
        let reattributed = self.reattributed.remove(&(end.image, end.serial));
        let (until, kind) = match end.reason {
            EndReason::Freed(_) => (self.intervals.of(end.at), EndKind::Freed),
            EndReason::Reattributed => {
                let interval = self.intervals.of(end.at);
                self.reattributed_now = Some(interval);
                (interval, EndKind::Reattributed)
            }
            EndReason::ImageEnded if !self.is_detached(end.image) => (self.intervals.of(end.at), EndKind::Ended),
            // An image from which the recorder was detached still runs when it ends.
            EndReason::ImageEnded => (self.intervals.after(end.at), EndKind::Ended),
            EndReason::ReplayEnded => (CUBE_INTERVALS, EndKind::Ended),
        };
        // A damaged file may have times that go backwards.
        let from = reattributed.or(allocated).unwrap_or(0).min(until);
        let key = CellKey::new(site, allocated, (from.min(CUBE_INTERVALS - 1), until), kind);
        let cell = Cell { bytes: end.amount.bytes.0, blocks: end.amount.blocks.0 };
        self.cells.entry(key).or_default().add(cell);
        if end.amount.variance != Variance::NONE {
            let variance = self.variances.entry(key).or_insert(Variance::NONE);
            *variance = variance.plus(end.amount.variance);
        }
        if end.reason != EndReason::Reattributed {
            let born = end.call.map_or(self.intervals.begins(), |(_, time)| time);
            let class = (u64::BITS - end.at.0.saturating_sub(born.0).leading_zeros()) as u8;
            self.lifetimes.entry((site, class)).or_default().add(cell);
        }
        if self.cells.len() > self.options.cells_max {
            if !self.is_merged_out {
                self.merge_rare_sites();
            }
            self.is_full = self.cells.len() > self.options.cells_max;
        }
    }

    fn wants_more(&self) -> bool {
        !self.is_full && !self.options.stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
    }
}

impl<'r, 'a, 'o> Counter<'r, 'a, 'o> {
    fn new(recording: &'r Recording<'a>, stacks: Stacks, options: &'o CubeOptions<'o>) -> Counter<'r, 'a, 'o> {
        let processes = recording.processes();
        let of_process = processes.iter().flat_map(|process| {
            let first = process.images.first().copied().unwrap_or_default();
            process.images.iter().map(move |image| (*image, first))
        });
        Counter {
            recording,
            options,
            merged: MergedStacks::with_stacks(stacks, recording),
            intervals: Intervals { boundaries: boundaries(recording), latest: 0 },
            processes: of_process.collect(),
            known: EventMap::default(),
            sites: Vec::new(),
            numbers: EventMap::default(),
            into: Vec::new(),
            groups: Vec::new(),
            group_numbers: EventMap::default(),
            cells: Cells::default(),
            variances: EventMap::default(),
            lifetimes: EventMap::default(),
            reattributed: EventMap::default(),
            reattributed_now: None,
            is_merged_out: false,
            is_full: false,
            ungrouped: HashSet::new(),
        }
    }

    fn site(&mut self, image: ImageId, node: NodeId) -> u32 {
        let process = self.processes.get(&image).copied().unwrap_or(image);
        self.site_of_process(process, node)
    }

    fn site_of_process(&mut self, process: ImageId, node: NodeId) -> u32 {
        let next = self.sites.len() as u32;
        let site = *self.numbers.entry((process, node)).or_insert(next);
        if site == next {
            self.sites.push((process, node));
            self.into.push(site);
            if self.is_merged_out && node != NodeId::ROOT {
                self.into[site as usize] = self.site_of_process(process, NodeId::ROOT);
            }
        }
        site
    }

    fn group(&mut self, image: ImageId, mut group: Group) -> StackId {
        if self.groups.len() >= self.options.groups_max && !self.group_numbers.contains_key(&group) {
            // Further groups of a process are counted as one.
            self.ungrouped.insert(group.site);
            group = Group { site: self.site(image, NodeId::ROOT), thread: None, class: Bytes(u64::MAX) };
        }
        let next = StackId(self.groups.len() as u32);
        let number = *self.group_numbers.entry(group).or_insert(next);
        if number == next {
            self.groups.push(group);
        }
        number
    }

    fn is_detached(&self, image: ImageId) -> bool {
        self.recording.image_end(image).is_some_and(|end| end.reason == ImageEndReason::Detached)
    }

    /// Returns the number of sites with blocks that are not counted for them.
    fn merged_sites(&self) -> u64 {
        let is_merged = |site: &u32| self.into[*site as usize] != *site || self.ungrouped.contains(site);
        (0..self.into.len() as u32).filter(is_merged).count() as u64
    }

    /// Returns the site that a site is counted as.
    fn representative(&self, mut site: u32) -> u32 {
        while self.into[site as usize] != site {
            site = self.into[site as usize];
        }
        site
    }

    /// Merges the sites with the fewest blocks into those of their callers until half of the cells
    /// are free. Each round goes twice as far outwards as the one before.
    fn merge_rare_sites(&mut self) {
        let mut frames = 1;
        while self.cells.len() > self.options.cells_max / 2 {
            let mut blocks: HashMap<u32, u64> = HashMap::new();
            for (key, cell) in &self.cells {
                let sum = blocks.entry(key.site()).or_default();
                *sum = sum.saturating_add(cell.blocks);
            }
            let is_root = |site: &u32| self.sites[*site as usize].1 == NodeId::ROOT;
            let mut rare: Vec<(u64, u32)> =
                blocks.into_iter().filter(|(site, _)| !is_root(site)).map(|(site, blocks)| (blocks, site)).collect();
            if rare.is_empty() {
                self.merge_out();
                return;
            }
            rare.sort_unstable();
            rare.truncate(rare.len().div_ceil(2));
            for (_, site) in rare {
                let (process, node) = self.sites[site as usize];
                let outer = self.merged.stacks.steps(node).nth(frames).map_or(NodeId::ROOT, |(node, _)| node);
                let outer = self.site_of_process(process, outer);
                // A caller that was merged itself is not its own representative.
                let outer = self.representative(outer);
                if outer != site {
                    self.into[site as usize] = outer;
                }
            }
            self.count_as_merged();
            frames = frames.saturating_mul(2);
        }
    }

    /// Merges all sites, with those to come, into one for each process: all that have cells are
    /// merged already, and merging again what few blocks add would take a pass over all cells each
    /// time.
    fn merge_out(&mut self) {
        self.is_merged_out = true;
        for site in 0..self.sites.len() as u32 {
            self.into[site as usize] = self.site_of_process(self.sites[site as usize].0, NodeId::ROOT);
        }
    }

    fn count_as_merged(&mut self) {
        for (key, cell) in std::mem::take(&mut self.cells) {
            let key = key.with_site(self.representative(key.site()));
            self.cells.entry(key).or_default().add(cell);
        }
        for (key, variance) in std::mem::take(&mut self.variances) {
            let key = key.with_site(self.representative(key.site()));
            let sum = self.variances.entry(key).or_insert(Variance::NONE);
            *sum = sum.plus(variance);
        }
        for ((site, class), cell) in std::mem::take(&mut self.lifetimes) {
            let site = self.representative(site);
            self.lifetimes.entry((site, class)).or_default().add(cell);
        }
    }

    /// Returns the amounts of the groups.
    fn parts(&self, recording: &Recording<'_>, images: &[ReplayedImage]) -> Parts {
        let last = last_images(recording);
        let mut sums = vec![MomentAmounts::default(); self.groups.len()];
        for image in images {
            for site in &image.sites {
                if let Some(sum) = sums.get_mut(site.stack.0 as usize) {
                    *sum += moment_amounts(site, PeakOf::Session, last.contains(&image.image));
                }
            }
        }
        let mut rows: HashMap<Group, MomentAmounts> = HashMap::new();
        for (group, amounts) in self.groups.iter().zip(sums).filter(|(_, amounts)| !amounts.is_nothing()) {
            let group = Group { site: self.representative(group.site), ..*group };
            *rows.entry(group).or_default() += amounts;
        }
        let row = |(Group { site, thread, class }, amounts)| (PartRow { site, thread, class }, amounts);
        let mut rows: Vec<(PartRow, MomentAmounts)> = rows.into_iter().map(row).collect();
        rows.sort_unstable_by_key(|(row, _)| (row.site, row.thread, row.class));
        let (rows, amounts) = rows.into_iter().unzip();
        Parts { rows, amounts: Amounts::new(amounts) }
    }

    fn finish(self, names: &mut Names<'_, '_>, table: &SiteTable, parts: Parts) -> Cube {
        let sites_merged = self.merged_sites();
        let Counter { merged, intervals, sites, cells, variances, lifetimes, .. } = self;
        let shared = table.shared();
        let mut numbers: HashMap<NodeId, u32> = shared.sites.iter().copied().zip(0..).collect();
        let mut all = Vec::new();
        let cube_site = |&(process, node): &(ImageId, NodeId)| {
            let next = (shared.sites.len() + all.len()) as u32;
            let site = *numbers.entry(node).or_insert(next);
            if site == next {
                all.push(node);
            }
            CubeSite { process, site }
        };
        let sites: Vec<CubeSite> = sites.iter().map(cube_site).collect();
        let shared = if all.is_empty() {
            Arc::clone(shared)
        } else {
            let stacks = Arc::new(merged.stacks.without_index());
            Arc::new(Shared::new(names, stacks, shared.sites.iter().copied().chain(all).collect()))
        };
        let mut cells: Vec<(CellKey, Cell)> = cells.into_iter().collect();
        cells.sort_unstable_by_key(|(key, _)| *key);
        let variance = |(key, _): &(CellKey, Cell)| variances.get(key).copied().unwrap_or(Variance::NONE);
        let variances = if variances.is_empty() { Vec::new() } else { cells.iter().map(variance).collect() };
        let mut lifetimes: Vec<((u32, u8), Cell)> = lifetimes.into_iter().collect();
        lifetimes.sort_unstable_by_key(|(key, _)| *key);
        let (boundaries, merged, images, damage) = (intervals.boundaries, sites_merged, Vec::new(), Vec::new());
        Cube { shared, images, boundaries, sites, cells, variances, parts, lifetimes, merged, damage }
    }
}

/// Finds the interval of a time.
struct Intervals {
    boundaries: Vec<Time>,
    /// The interval that was found last: the next time is often in the same one.
    latest: usize,
}

impl Intervals {
    fn begins(&self) -> Time {
        self.boundaries[0]
    }

    #[inline]
    fn of(&mut self, time: Time) -> usize {
        let latest = self.latest;
        if time > self.boundaries[latest + 1] || (latest > 0 && time <= self.boundaries[latest]) {
            self.latest = self.boundaries[1..].partition_point(|end| *end < time).min(CUBE_INTERVALS - 1);
        }
        self.latest
    }

    /// Returns the interval of the time right after this one, which is not in any if the recording
    /// ends then.
    fn after(&self, time: Time) -> usize {
        self.boundaries[1..].partition_point(|end| *end <= time)
    }
}
