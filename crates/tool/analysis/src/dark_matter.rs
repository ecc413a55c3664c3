//! Dark matter: makes the log of the dark matter detector from a recording.

use std::collections::{BTreeSet, HashMap};

use heapledger_core::{Blocks, Bytes, StackId};
use heapledger_dmd::{Block, Builder, Defect, FrameId, Log, Mode, Module, NameId, Report, TraceId};
use heapledger_recording::{Damage, ImageId, ModuleId, NodeKind};

use crate::block_filter::{BlockFilter, SharedProgress, Verdict, each_once};
use crate::error::Error;
use crate::events::expect_events;
use crate::images::last_images;
use crate::moment::Moment;
use crate::names::Names;
use crate::progress::Progress;
use crate::replay::Replay;
use crate::replay::results::ReplayedImage;
use crate::replay::span::{Marks, Span};
use crate::replay::visitor::Origin;
use crate::reports::{ReportDefect, times_complete};
use crate::selection::Selection;
use crate::slop::{SlopRules, SlopSource};
use crate::stacks::{ContextId, MergedStacks, NodeId, StackFrame};

/// A log, and the parts of the recording that are missing in it.
#[derive(Debug)]
pub struct DarkMatter {
    /// The log. Its frames are offsets in modules, not looked up.
    pub log: Log,
    /// The process images that the log covers.
    pub images: Vec<ImageId>,
    /// True if all reporters of these images had been asked by the log's moment.
    pub is_complete: bool,
    /// The source of the slop; `None` if that is not known, and counted as none.
    pub slop_source: Option<SlopSource>,
    /// Parts of the recording that could not be read, and are missing here.
    pub damage: Vec<Damage>,
}

/// The group of blocks outside the selection. In the replay, groups take the place of stacks.
const OUTSIDE: StackId = StackId(0);
const STACKS_FIRST: u32 = 1;

/// The most defects in a log, the same as in a log that a program writes itself.
const DEFECTS_MAX: usize = 64;

/// Makes a log of the blocks of a selection, with the reports made about them.
///
/// The log's moment is that of the selection. With [`Moment::Total`] each process has its own: the
/// last time that all of its reporters had been asked
/// ([`marks_complete`](heapledger_core::bridge::Bridge::marks_complete)). Processes that never
/// asked theirs are then left out. If no process did, and in [`Mode::Cumulative`], it is the end of
/// each process.
///
/// Types are those of the stamps that the program put on blocks. Replays all events up to the
/// moment, and for the peak once more to find it. Memory: some 200 bytes for each block that is
/// live at once.
pub fn dark_matter(
    names: &mut Names<'_, '_>,
    mode: Mode,
    selection: &Selection,
    progress: Progress<'_>,
) -> Result<DarkMatter, Error> {
    let recording = names.recording();
    let (filter, memory_max) = (&selection.filter, selection.memory_max);
    expect_events(recording)?;
    selection.expect_time(recording)?;
    let mut images = filter.images(recording)?;
    let until = selection.moment.time();
    let is_at_peak = selection.moment == Moment::Peak;
    let mut is_complete = false;
    if selection.moment == Moment::Total && mode != Mode::Cumulative {
        let asked: Vec<ImageId> =
            images.iter().copied().filter(|&image| times_complete(recording, image) > 0).collect();
        is_complete = !asked.is_empty();
        if is_complete {
            images = asked;
        }
    }
    let mut span = Span {
        until,
        wants_blocks: true,
        marks: if is_complete { Marks::UpToTheLast } else { Marks::Followed },
        wants_freed: mode == Mode::Cumulative,
        ..Span::default()
    };
    let mut shared_progress = SharedProgress::new(progress, filter, is_at_peak);
    let mut block_filter = BlockFilter::new(names, selection, &images, true, &mut shared_progress)?;
    if is_at_peak {
        let all = |_: Origin| OUTSIDE;
        let replay = Replay { recording, images: &images, span: Span::default(), memory_max };
        let replayed = shared_progress.pass(|progress| replay.run(all, progress))?;
        span.stop_at = Some(replayed.live.bytes_live_max);
    }
    let mut merged = MergedStacks::new(recording);
    let mut numbers: HashMap<NodeId, StackId> = HashMap::new();
    let mut nodes: Vec<NodeId> = Vec::new();
    let group = |origin: Origin| match block_filter.verdict(names, &mut merged, &origin) {
        Verdict::Outside | Verdict::LeftOut => OUTSIDE,
        Verdict::Selected(node) => *numbers.entry(node).or_insert_with(|| {
            nodes.push(node);
            StackId(STACKS_FIRST + nodes.len() as u32 - 1)
        }),
    };
    let replay = Replay { recording, images: &images, span, memory_max };
    let mut replayed = shared_progress.pass(|progress| replay.run(group, progress))?;
    let mut damage = std::mem::take(&mut replayed.damage);
    damage.extend(block_filter.damage());

    let last = last_images(recording);
    let is_at_end = until.is_none() && !is_at_peak && !is_complete;
    let has_ended = |image: &ReplayedImage| if is_at_end { !last.contains(&image.image) } else { image.ended };
    let mut writer = Writer::new(names, merged, mode, nodes);
    let mut found = Vec::new();
    for image in replayed.images {
        // An image that has ended holds no blocks, but its freed blocks and its defects still
        // count.
        if !has_ended(&image) {
            writer.live(&image);
        }
        writer.freed(&image);
        writer.defects(&image);
        found.push(image.image);
    }
    damage.append(&mut writer.merged.damage);
    let log = writer.finish(&found);
    let slop_source = SlopSource::of(recording, &found).ok();
    Ok(DarkMatter { log, images: found, is_complete, slop_source, damage: each_once(damage) })
}

/// A log that is being made.
struct Writer<'n, 'r, 'a> {
    names: &'n mut Names<'r, 'a>,
    merged: MergedStacks<'r, 'a>,
    builder: Builder,
    mode: Mode,
    /// The stacks of the groups: group `STACKS_FIRST + n` is `nodes[n]`.
    nodes: Vec<NodeId>,
    rules: SlopRules,
    sites: HashMap<NodeId, Site>,
    modules: BTreeSet<ModuleId>,
    defects: Vec<Defect>,
}

/// The attributes of the blocks of a site.
#[derive(Clone, Copy)]
struct Site {
    /// `None` if the stack could not be taken.
    trace: Option<TraceId>,
    type_name: Option<NameId>,
    context: Option<NameId>,
}

impl<'n, 'r, 'a> Writer<'n, 'r, 'a> {
    fn new(
        names: &'n mut Names<'r, 'a>,
        merged: MergedStacks<'r, 'a>,
        mode: Mode,
        nodes: Vec<NodeId>,
    ) -> Writer<'n, 'r, 'a> {
        let builder = Builder::new(mode);
        let (sites, modules, defects) = Default::default();
        let rules = SlopRules::of(names.recording());
        Writer { names, merged, builder, mode, nodes, rules, sites, modules, defects }
    }

    /// Adds the blocks that are live in an image.
    fn live(&mut self, image: &ReplayedImage) {
        let mut blocks: Vec<_> = image.blocks.iter().collect();
        blocks.sort_unstable_by_key(|block| block.serial);
        for block in blocks {
            let reports = match self.mode {
                Mode::DarkMatter => image.reports.of(block.serial),
                _ => [None; 2],
            };
            let reports = reports.map(|mark| mark.map(|mark| self.report(image.image, mark.by)));
            let usable = self.rules.usable(image.image, block.size, block.usable).unwrap_or(block.size);
            self.add(block.group, (block.size, usable), (1, block.weight), reports);
        }
    }

    /// Adds the blocks that were freed in an image.
    fn freed(&mut self, image: &ReplayedImage) {
        let mut freed: Vec<_> = image.freed.iter().collect();
        freed.sort_unstable();
        for (&(group, size, usable), &count) in freed {
            let usable = self.rules.usable(image.image, size, usable).unwrap_or(size);
            self.add(group, (size, usable), (count, Blocks(1)), [None; 2]);
        }
    }

    /// Adds `count` blocks, each with the weight `block_weight`.
    fn add(
        &mut self,
        group: StackId,
        (size, usable): (Bytes, Bytes),
        (count, block_weight): (u64, Blocks),
        reports: [Option<Report>; 2],
    ) {
        let weight = block_weight.0 as f64;
        let Some(Site { trace, type_name, context }) = self.site(group) else { return };
        self.builder.add(&Block {
            requested: size.0,
            slop: usable.0.saturating_sub(size.0),
            count,
            weight,
            variance: weight * (weight - 1.0),
            alloc: trace,
            reports,
            type_name,
            context,
        });
    }

    /// Returns the attributes of the blocks of a group; `None` if the selection leaves them out.
    fn site(&mut self, group: StackId) -> Option<Site> {
        let node = *self.nodes.get(group.0.checked_sub(STACKS_FIRST)? as usize)?;
        if let Some(site) = self.sites.get(&node) {
            return Some(*site);
        }
        let stacks = &self.merged.stacks;
        let context = stacks.context(node);
        let context = (context != ContextId::NONE).then(|| {
            let scopes: Vec<String> =
                stacks.scopes(context).into_iter().map(|scope| self.names.text(scope.name)).collect();
            self.builder.name(&scopes.join("/"))
        });
        let type_name = self.names.stamp(stacks, node).map(|stamp| self.builder.name(stamp.name.full()));
        let site = Site { trace: self.trace(node), type_name, context };
        self.sites.insert(node, site);
        Some(site)
    }

    /// Returns the stack that made a report, and its reporter.
    fn report(&mut self, image: ImageId, by: StackId) -> Report {
        let node = self.merged.node(image, by);
        let reporter = self.merged.stacks.stamp(node).map(|name| {
            let name = self.names.text(name);
            self.builder.name(&name)
        });
        let trace = self.trace(node).unwrap_or_else(|| self.builder.trace(&[]));
        Report { trace, reporter }
    }

    fn trace(&mut self, node: NodeId) -> Option<TraceId> {
        let places: Vec<StackFrame> = self.merged.stacks.frames(node).collect();
        let frames: Vec<FrameId> = places.into_iter().map(|place| self.frame(place)).collect();
        (!frames.is_empty()).then(|| self.builder.trace(&frames))
    }

    fn frame(&mut self, place: StackFrame) -> FrameId {
        let text = match place.kind {
            NodeKind::Frame => {
                // A recorded offset lies inside the call; a log has the address that the call
                // returns to.
                let offset = place.offset.wrapping_add(1);
                match self.names.recording().module(place.module) {
                    Some(module) => {
                        self.modules.insert(place.module);
                        format!("???[{} +{offset:#x}]", String::from_utf8_lossy(&module.path))
                    }
                    None => format!("???[??? +{offset:#x}]"),
                }
            }
            NodeKind::Truncated => "[outer frames cut off]".to_owned(),
            NodeKind::Foreign => "[signal or fiber stack]".to_owned(),
            _ => "[unknown kind of frame]".to_owned(),
        };
        self.builder.frame(&text)
    }

    fn defects(&mut self, image: &ReplayedImage) {
        if self.mode != Mode::DarkMatter {
            return;
        }
        for &ReportDefect { kind, by, address, group, measured, usable, count } in &image.reports.defects {
            let Report { trace, reporter } = self.report(image.image, by);
            let alloc = group.and_then(|group| self.site(group)).and_then(|site| site.trace);
            // Equal stacks may have several ids in the program, but they have one trace.
            let is_same =
                |defect: &&mut Defect| (defect.kind, defect.trace, defect.reporter) == (kind, Some(trace), reporter);
            match self.defects.iter_mut().find(is_same) {
                Some(same) => same.count += count,
                None => self.defects.push(Defect {
                    kind,
                    reporter,
                    address,
                    trace: Some(trace),
                    alloc,
                    measured: measured.0,
                    usable: usable.0,
                    count,
                }),
            }
        }
        self.builder.about().defects_count += image.reports.defects_count;
    }

    fn finish(mut self, images: &[ImageId]) -> Log {
        let recording = self.names.recording();
        let first = images.first().and_then(|&image| recording.image(image));
        let modules = self.modules.iter().filter_map(|&module| recording.module(module)).map(|module| Module {
            path: String::from_utf8_lossy(&module.path).into_owned(),
            build_id: module.build_id.clone(),
        });
        let about = self.builder.about();
        about.modules = modules.collect();
        self.defects.truncate(DEFECTS_MAX);
        about.defects = self.defects;
        if let Some(start) = first {
            let path = String::from_utf8_lossy(&start.executable);
            about.program = path.rsplit('/').next().unwrap_or_default().to_owned();
            about.pid = start.pid;
        }
        self.builder.finish()
    }
}

#[cfg(test)]
mod tests;
