//! The images and processes of a session: how they begin, end and are added up.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use heapledger_core::{Blocks, Bytes, StackId};
use heapledger_ledger::Ledger;
use heapledger_recording::{
    Counts, ExitStatus, ImageEndReason, ImageId, ImageOrigin, ImageStart, Live, ProcessCounts, Record, Time,
};

use super::open_sites::OpenSites;
use super::slot::{Slot, Stage};
use crate::image::Image;
use crate::inbox::{NewImage, NewRing};
use crate::memory::Prober;
use crate::options::ResidentSnapshots;
use crate::outcome::{self, ProcessOutcome};
use crate::session_state::Shared;
use crate::shared::Pool;
use crate::source::Source;
use crate::tree::Tree;

/// The maximum number of forked children of an image that are listed as unrecorded.
const UNREACHED_MAX: u32 = 1000;

/// The images and processes of a session.
#[derive(Debug)]
pub(super) struct Images {
    /// The images, indexed by their ids.
    pub(super) slots: Vec<Slot>,
    processes: Vec<Process>,
    /// The indices of processes that have not ended, by pid.
    by_pid: HashMap<u32, usize>,
    /// The pid of the command.
    command: u32,
    pub(super) command_has_come: bool,
    /// Gets the rings of images that have ended.
    pool: Arc<Pool>,
    pub(super) open_sites: OpenSites,
    /// The moments at which resident snapshots are made.
    pub(super) resident: ResidentSnapshots,
    /// The most memory that the recorder had in all processes at once, in bytes.
    pub(super) private_bytes_max: u64,
}

#[derive(Debug)]
struct Process {
    pid: u32,
    parent_pid: u32,
    /// The indices of its images.
    images: Vec<usize>,
}

impl Images {
    pub(super) fn new(command: u32, pool: Arc<Pool>) -> Images {
        Images {
            slots: Vec::new(),
            processes: Vec::new(),
            by_pid: HashMap::new(),
            command,
            command_has_come: false,
            pool,
            open_sites: OpenSites::default(),
            resident: ResidentSnapshots::default(),
            private_bytes_max: 0,
        }
    }

    /// Returns the pids of processes that have not ended.
    pub(super) fn pids(&self) -> impl Iterator<Item = u32> {
        self.by_pid.keys().copied()
    }

    /// Returns the number of images that have not ended.
    pub(super) fn running(&self) -> u32 {
        self.slots.iter().filter(|slot| slot.ended.is_none()).count() as u32
    }

    /// Returns the number of processes so far.
    pub(super) fn processes(&self) -> u32 {
        self.processes.len() as u32
    }

    pub(super) fn add(&mut self, new: NewImage, time: Time, shared: &mut Shared) {
        let index = self.slots.len();
        let start = ImageStart {
            image: new.image,
            pid: new.pid,
            parent_pid: new.parent_pid,
            parent_image: new.parent_image,
            how: new.how,
            age_ns: new.age.as_nanos() as u64,
            fork_node_base: StackId(new.fork.map_or(0, |fork| fork.node_base)),
            inherited_blocks: Blocks(0),
            inherited_bytes: Bytes(0),
            inherited_exact: true,
            time,
            executable: new.executable,
            argv: new.argv,
            carried: None,
            allocator: new.allocator,
            allocator_version: new.allocator_version,
        };
        if new.fork.is_none() {
            shared.departures.introduce(new.pid, new.stamp);
        }
        let slot = Slot::new(start, new.fork);
        self.slots.push(Slot { identity: new.identity, regions: new.regions, ..slot });
        let processes = &mut self.processes;
        let process = *self.by_pid.entry(new.pid).or_insert_with(|| {
            processes.push(Process { pid: new.pid, parent_pid: new.parent_pid, images: Vec::new() });
            processes.len() - 1
        });
        if let Some(process) = processes.get_mut(process) {
            process.images.push(index);
        }
        if let Some(parent) = new.fork.and_then(|fork| self.slots.get_mut(fork.parent.0 as usize)) {
            parent.has_forked = true;
        }
    }

    /// Adds a ring to its image. Returns it as a source of events.
    pub(super) fn add_ring(&mut self, new: NewRing) -> Option<Source> {
        let index = new.image.0 as usize;
        let slot = self.slots.get_mut(index)?;
        let ring = Arc::new(new.ring);
        slot.sources += 1;
        if new.is_common {
            slot.common = Some(Arc::clone(&ring));
        }
        let mut source = Source::new(ring, index, new.thread);
        source.has_ended = slot.ended.is_some();
        Some(source)
    }

    /// Notes that an image has ended. Returns false if that was known.
    pub(super) fn end(&mut self, index: usize, reason: ImageEndReason, time: Time) -> bool {
        let Some(slot) = self.slots.get_mut(index) else { return false };
        let is_news = slot.ended.is_none();
        slot.ended.get_or_insert((reason, time));
        if reason != ImageEndReason::Exec
            && let Some(process) = self.by_pid.get(&slot.start.pid)
            && self.processes.get(*process).is_some_and(|process| process.images.last() == Some(&index))
        {
            self.by_pid.remove(&slot.start.pid);
        }
        if reason == ImageEndReason::Exec {
            // The process goes on; its exit status is reported for a later image.
            slot.exit = Some(None);
        }
        is_news
    }

    pub(super) fn set_exit(&mut self, index: usize, exit: Option<ExitStatus>, shared: &mut Shared) {
        if let Some(slot) = self.slots.get_mut(index) {
            slot.exit.get_or_insert(exit);
            if slot.end_is_written || !matches!(slot.stage, Stage::Over) {
                return;
            }
            slot.write_end(shared);
        }
    }

    /// Starts an image whose first event is about to be merged, with what it inherits.
    #[cold]
    pub(super) fn start(&mut self, index: usize, shared: &mut Shared) {
        let Some(slot) = self.slots.get(index) else { return };
        let mut parent_image = slot.start.parent_image;
        while let Some(parent) = parent_image.and_then(|parent| self.slots.get(parent.0 as usize))
            && matches!(parent.stage, Stage::Absent)
        {
            parent_image = parent.start.parent_image;
        }
        let (mut ledger, mut tree, mut is_exact) = (Ledger::new(), Tree::default(), true);
        let mut mappings = None;
        if let Some(fork) = slot.fork {
            if let Some(point) = shared.forks.claim(fork.parent, fork.sequence) {
                (ledger, tree, mappings) = (point.ledger, point.tree, point.mappings);
            } else {
                is_exact = false;
                let parent = self.slots.get(fork.parent.0 as usize);
                if let Some(Stage::Running(parent)) = parent.map(|slot| &slot.stage) {
                    // Without memory for its blocks, frees of them by the child count as unknown.
                    ledger = parent.fork_ledger().unwrap_or_default();
                    tree = parent.tree.snapshot();
                    mappings = parent.fork_mappings();
                }
            }
            tree = tree.fork(StackId(fork.node_base));
            shared.records.extend(tree.separate_generated_code(slot.start.image, &mut shared.modules));
        }
        // If the parent ended before this segment, its nodes are in an earlier file.
        let is_past =
            |parent: ImageId| matches!(self.slots.get(parent.0 as usize), Some(Slot { stage: Stage::Past, .. }));
        let is_parent_past = slot.fork.is_some_and(|fork| is_past(fork.parent));
        let Some(slot) = self.slots.get_mut(index) else { return };
        let counts = ledger.counts();
        slot.start.inherited_blocks = counts.blocks_inherited;
        slot.start.inherited_bytes = counts.bytes_inherited;
        slot.start.inherited_exact = is_exact;
        slot.start.parent_image = parent_image;
        if is_parent_past {
            slot.start.fork_node_base = StackId::ROOT;
        }
        // The command's process is the first with its pid, and its first image was not preceded by
        // another.
        if slot.start.pid == self.command
            && !std::mem::replace(&mut self.command_has_come, true)
            && slot.start.how != ImageOrigin::Attached
        {
            slot.start.how = ImageOrigin::Launched;
        }
        shared.records.push(Record::ImageStart(slot.start.clone()));
        let mut image = Box::new(Image::new(&slot.start, ledger, tree, shared.keeps_mappings));
        image.begin_mappings(mappings, slot.regions.take(), slot.start.time, shared);
        if is_parent_past {
            image.write_kept_nodes(shared);
            image.begin_with_names();
        }
        slot.stage = Stage::Running(image);
    }

    /// Finishes an image that has ended and whose events are all merged. `begins` is the beginning
    /// of the current file.
    pub(super) fn finish(&mut self, index: usize, begins: Time, shared: &mut Shared) {
        let slot = &mut self.slots[index];
        if matches!(slot.stage, Stage::New) {
            slot.stage = Stage::Absent;
            slot.common = None;
            slot.retired = Vec::new();
        }
        if !matches!(slot.stage, Stage::Running(_)) {
            return;
        }
        self.note_private_bytes();
        let slot = &mut self.slots[index];
        let Stage::Running(image) = std::mem::replace(&mut slot.stage, Stage::Over) else { return };
        if let Some(counters) = slot.counters() {
            let pids = counters.unreached.iter().map(|pid| pid.load(Ordering::Relaxed)).chain(std::iter::repeat(0));
            let count = counters.children_unreached.load(Ordering::Relaxed).min(UNREACHED_MAX);
            for child in pids.take(count as usize) {
                let departure = shared.departures.unreached(&slot.start, child);
                shared.records.extend(departure.map(Record::Departure));
            }
        }
        // The image may have ended a little before this segment began, or before events of others
        // that came until its end was noticed.
        let time = slot.ended.map_or(slot.start.time, |(_, time)| time);
        let time = time.max(begins).max(shared.timeline.last_time());
        let is_gone = slot.ended.is_some_and(|(reason, _)| reason != ImageEndReason::Detached);
        slot.frees_rings = is_gone && !slot.has_forked && !image.has_forked();
        let (counts, sites) = image.finish(shared, time, &slot.external_counters());
        slot.common = None;
        slot.counts = counts;
        // The exit status of a process that was still running will not be reported.
        if slot.ended.is_some_and(|(reason, _)| reason == ImageEndReason::Detached) {
            slot.exit = Some(None);
        }
        if slot.exit.is_some() {
            slot.write_end(shared);
        }
        self.open_sites.add(slot.start.image, sites, shared);
        self.release_rings(index);
        self.open_sites.write_settled(false, shared);
    }

    /// Releases a ring that has been read to its end.
    pub(super) fn retire(&mut self, source: Source) {
        let index = source.image;
        let slot = &mut self.slots[index];
        slot.sources -= 1;
        if slot.ended.is_some() {
            slot.retired.extend(source.into_sound_ring());
            self.release_rings(index);
        }
    }

    /// Gives the rings of an image back to the pool when all of them have been read.
    fn release_rings(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        if slot.frees_rings && slot.sources == 0 {
            let rings = std::mem::take(&mut slot.retired).into_iter().filter_map(Arc::into_inner);
            rings.for_each(|ring| self.pool.give(ring));
        }
    }

    /// Writes the ends of images that are over and whose exit status was awaited. The command
    /// exited with `exit`.
    pub(super) fn write_ends(&mut self, exit: Option<ExitStatus>, shared: &mut Shared) {
        for slot in &mut self.slots {
            if slot.start.pid == self.command && matches!(slot.ended, Some((ImageEndReason::Exit, _))) {
                // The process of the command is the first with its pid, and existed until we reaped
                // it.
                slot.exit = slot.exit.flatten().map(Some).or(Some(exit));
            }
            if !slot.end_is_written && matches!(slot.stage, Stage::Over) {
                slot.write_end(shared);
            }
        }
    }

    /// Brings the file up to date with the events of all images before `before`.
    pub(super) fn flush(&mut self, before: Time, shared: &mut Shared) {
        for slot in &mut self.slots {
            let external = slot.external_counters();
            if let Stage::Running(image) = &mut slot.stage {
                image.flush(shared, before, &external);
            }
        }
    }

    /// Ends the current file for all images.
    pub(super) fn end_segment(&mut self, now: Time, shared: &mut Shared) {
        self.open_sites.write_settled(true, shared);
        for slot in &mut self.slots {
            let external = slot.external_counters();
            match &mut slot.stage {
                Stage::Running(image) => slot.counts = image.end_segment(shared, now, &external),
                Stage::Over if !slot.end_is_written => slot.write_end(shared),
                _ => {}
            }
        }
    }

    /// Begins another file for the images that are not over.
    pub(super) fn begin_segment(&mut self, now: Time, shared: &mut Shared) {
        for slot in &mut self.slots {
            let external = slot.external_counters();
            match &mut slot.stage {
                Stage::Running(image) => image.begin_segment(shared, now, &slot.start, &external),
                Stage::Over => slot.stage = Stage::Past,
                _ => {}
            }
        }
    }

    /// Samples the memory of running processes.
    pub(super) fn sample_memory(&mut self, prober: &mut Prober, now: Time, shared: &mut Shared) {
        for process in self.by_pid.values().filter_map(|&process| self.processes.get(process)) {
            let Some(slot) = process.images.last().and_then(|&image| self.slots.get_mut(image)) else { continue };
            if let Stage::Running(image) = &mut slot.stage {
                image.sample_memory(shared, prober, process.pid, now, (self.resident, slot.start.time));
            }
        }
    }

    /// Reads what is mapped in running processes, if that is due. All events before `merged` have
    /// been merged.
    pub(super) fn check_mappings(&mut self, now: Time, merged: Time, shared: &mut Shared) {
        for process in self.by_pid.values().filter_map(|&process| self.processes.get(process)) {
            let Some(slot) = process.images.last().and_then(|&image| self.slots.get_mut(image)) else { continue };
            if let Stage::Running(image) = &mut slot.stage {
                image.check_mappings(now, merged, slot.identity, shared);
            }
        }
    }

    /// Returns the index of the image that a process runs at present.
    pub(super) fn latest_of(&self, pid: u32) -> Option<usize> {
        let process = self.processes.get(*self.by_pid.get(&pid)?)?;
        let image = *process.images.last()?;
        matches!(self.slots.get(image)?.stage, Stage::Running(_)).then_some(image)
    }

    pub(super) fn note_private_bytes(&mut self) {
        let counters = self.slots.iter().filter_map(Slot::counters);
        let bytes = counters.fold(0_u64, |sum, image| sum.saturating_add(image.private_bytes.load(Ordering::Relaxed)));
        self.private_bytes_max = self.private_bytes_max.max(bytes);
    }

    /// Returns the totals of the session and, as records, of each process.
    pub(super) fn process_totals(&self, shared: &Shared) -> (Counts, Vec<Record>) {
        let mut total = Counts::default();
        let mut records = Vec::new();
        for process in &self.processes {
            let mut counts = Counts::default();
            for image in self.images_of(process) {
                outcome::add_image(&mut counts, &image.counts_so_far());
            }
            outcome::add_process(&mut total, &counts);
            if let Some(first) = self.images_of(process).next() {
                let (first_image, pid) = (first.start.image, process.pid);
                records.push(Record::ProcessCounts(ProcessCounts { first_image, pid, counts }));
            }
        }
        let session = shared.session.live();
        total.bytes_live_max = session.bytes_live_max;
        total.bytes_live_max_time = Time(session.bytes_live_max_time.0);
        total.blocks_at_bytes_max = session.blocks_at_bytes_max;
        total.blocks_live_max = session.blocks_live_max;
        if let Some(sum) = &mut total.errors {
            sum.live_at_peak = Live::errors_of(shared.session.variances().at_peak);
        }
        (total, records)
    }

    /// Returns the processes that are in the recording.
    pub(super) fn outcomes(&self) -> Vec<ProcessOutcome> {
        let mut outcomes = Vec::new();
        for process in &self.processes {
            let images: Vec<&Slot> = self.images_of(process).collect();
            let Some(last) = images.last() else { continue };
            outcomes.push(ProcessOutcome {
                pid: process.pid,
                parent_pid: process.parent_pid,
                exit: last.exit.flatten(),
                running: !matches!(last.ended, Some((ImageEndReason::Exit, _))),
                images: images.iter().map(|image| image.outcome()).collect(),
            });
        }
        outcomes
    }

    /// Returns the images of a process that are in the recording.
    fn images_of(&self, process: &Process) -> impl DoubleEndedIterator<Item = &Slot> {
        let images = process.images.iter().filter_map(|&image| self.slots.get(image));
        images.filter(|image| !matches!(image.stage, Stage::Absent | Stage::Past))
    }
}
