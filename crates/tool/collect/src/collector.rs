//! The collector: drains the rings, puts events in order, and updates the ledgers and the file.
//!
//! One iteration reads the counter, takes the messages of the broker, polls every ring
//! ([`Source::poll`]), and then merges the copied events by stamp. The merge ends at the *horizon*:
//! the smallest stamp of an event that may still come. Only rings without copied events limit it,
//! so it moves closer while the merge goes on.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::HashMap;
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use heapledger_core::sample::Rate;
use heapledger_core::{Blocks, Bytes, StackId, arch, sys};
use heapledger_ledger::{Ledger, Session as LedgerSession};
use heapledger_recording::{
    Compressor, Counts, Departure, ExitStatus, Footer, ImageEnd, ImageEndReason, ImageId, ImageOrigin, ImageStart,
    Live, Pause, ProcessCounts, Record, RunCosts, Sampling, Session as SessionRecord, Site, StackCounts, Time,
    Timeline,
};
use heapledger_wire::event::units;
use heapledger_wire::ring::MEASURED_ONE_IN;
use heapledger_wire::session::ImageCounters;

use crate::clock::{Clock, Reading};
use crate::departures::Departures;
use crate::early::{EARLY_MAX, Early, Found, Search};
use crate::error::RecordError;
use crate::forks::Forks;
use crate::image::{ExternalCounters, Image, Shared, errors};
use crate::inbox::{Inbox, Message, NewFork, NewImage, NewRing};
use crate::lost::Lost;
use crate::memory::{Budget, Prober, thread_time};
use crate::outcome::{self, ImageOutcome, ProcessOutcome, Totals};
use crate::process;
use crate::shared::{Page, Pool, SharedRing};
use crate::source::{Key, Now, Order, Source};
use crate::texts::Texts;
use crate::tree::{Modules, Tree};
use crate::writer::{self, Job, Writer};

/// The time after which stores of other processors are visible. A ring seen idle gets no event
/// whose stamp is earlier by more than this.
const SETTLING: Duration = Duration::from_micros(50);
/// The time for which a busy ring holds up the others.
const BUSY_TIMEOUT: Duration = Duration::from_secs(1);
/// The same when the session ends.
const BUSY_TIMEOUT_AT_END: Duration = Duration::from_millis(50);
/// The maximum number of words that wait to be merged (256 MiB), besides one copy of each ring.
/// Beyond it, rings are left full.
const BACKLOG_MAX: usize = 32 << 20;
/// The maximum number of events that are merged per iteration, so that the rings are looked at
/// again.
const ITERATION_EVENTS_MAX: u64 = 1 << 19;
/// The same while files are rotated, which happens between iterations. Also the minimum number of
/// events in such a file: a new file already has all live blocks and stacks, so its length alone is
/// no reason to end it.
const SEGMENT_EVENTS_MIN: u64 = 1 << 16;
/// The shortest sleep, after activity, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(50);
/// The time after which chunks are written at the latest.
const FLUSH_INTERVAL: Duration = Duration::from_secs(1);

/// The maximum number of forked children of an image that are listed as unrecorded.
const UNREACHED_MAX: u32 = 1000;

/// The shortest interval at which a recording without events is replaced. It is doubled each time,
/// up to the longest.
const SNAPSHOT_INTERVAL_MIN: Duration = Duration::from_secs(1);
const SNAPSHOT_INTERVAL_MAX: Duration = Duration::from_secs(10);

/// The state of an image that the collector keeps to the end.
#[derive(Debug)]
struct Slot {
    start: ImageStart,
    fork: Option<NewFork>,
    stage: Stage,
    /// The number of rings that may still hold events.
    sources: u32,
    common: Option<Arc<SharedRing>>,
    /// The rings that have been read to their end.
    retired: Vec<Arc<SharedRing>>,
    /// True if children may still have its rings mapped.
    has_forked: bool,
    /// The end of the image, if no more rings and events will come.
    ended: Option<(ImageEndReason, Time)>,
    /// True if its rings may be given to other processes when they have been read.
    frees_rings: bool,
    /// The exit status of its process, if it has been reported; `Some(None)` if it will not be.
    exit: Option<Option<ExitStatus>>,
    end_is_written: bool,
    /// The events that were lost, except those that the image itself has counted.
    lost: Lost,
    counts: Counts,
}

#[derive(Debug)]
enum Stage {
    /// None of its events has been merged yet.
    New,
    Running(Box<Image>),
    Over,
    /// The image ended before this segment of the recording.
    Past,
    /// The image wrote nothing: it was killed before its first event, or declined what the broker
    /// gave it. It may have come back as another image. It is not in the recording.
    Absent,
}

#[derive(Debug)]
struct Process {
    pid: u32,
    parent_pid: u32,
    /// The indices of its images.
    images: Vec<usize>,
}

/// The sites of an image that ended with a share in the session's peak. Until the session ends,
/// that peak may be surpassed.
#[derive(Debug)]
struct OpenSites {
    image: ImageId,
    sites: Vec<Site>,
    /// The session's peak when the image ended.
    peak: Bytes,
}

#[derive(Debug, Default)]
struct Costs {
    ring_bytes: u64,
    ring_bytes_max: u64,
    private_bytes_max: u64,
    hook_ticks: u64,
}

/// The state of a session that is being recorded.
#[derive(Debug)]
pub(crate) struct Collector {
    page: Arc<Page>,
    inbox: Arc<Inbox>,
    pool: Arc<Pool>,
    command: u32,
    command_has_come: bool,
    order: Order,
    shared: Shared,
    slots: Vec<Slot>,
    processes: Vec<Process>,
    /// The indices of processes that have not ended, by pid.
    by_pid: HashMap<u32, usize>,
    sources: Vec<Source>,
    merge: BinaryHeap<Reverse<(Key, usize)>>,
    /// The images that have ended and are not finished, each with the position of its end in the
    /// order.
    ending: Vec<(Key, usize)>,
    open_sites: Vec<OpenSites>,
    /// The times in which allocations were not recorded.
    pauses: Vec<Pause>,
    /// The rates at which blocks were sampled.
    sampling: Vec<Sampling>,
    costs: Costs,
    prober: Prober,
    probing: Budget,
    timeout: Duration,
    backlog_max: usize,
    /// The session record of the current segment.
    session: SessionRecord,
    segment_began: Instant,
    events_before: u64,
    /// The totals of the earlier segments.
    counts_before: Counts,
    next_flush: Time,
    /// The time when the file is to be replaced next, and the interval after that.
    next_snapshot: Time,
    snapshot_interval: Duration,
    /// The time to sleep when there is nothing to do.
    pause: Duration,
    /// The stamp up to which everything has been merged.
    horizon: u64,
    /// True if a process or thread was refused.
    was_refused: bool,
    /// The requests to be notified when the file has everything up to a stamp.
    saves: Vec<(u64, SyncSender<()>)>,
    messages: Vec<Message>,
}

/// The end of a session, apart from its images.
#[derive(Debug)]
pub(crate) struct SessionEnd {
    pub(crate) exit: Option<ExitStatus>,
    pub(crate) program_cpu_ns: Option<u64>,
    pub(crate) program_wall_ns: u64,
    pub(crate) collector_cpu_ns: u64,
}

impl Collector {
    pub(crate) fn new(
        page: Arc<Page>,
        inbox: Arc<Inbox>,
        pool: Arc<Pool>,
        writer: Writer,
        clock: Clock,
        session: SessionRecord,
        command: u32,
    ) -> Collector {
        let shared = Shared {
            session: LedgerSession::new(),
            modules: Modules::default(),
            texts: Texts::default(),
            forks: Forks::default(),
            timeline: Timeline::new(),
            departures: Departures::default(),
            compressor: Compressor::new(),
            writer,
            keeps_nodes: session.segment > 0,
            keeps_events: !session.totals_only,
            is_sample: session.samples,
            records: vec![Record::Session(session.clone())],
            events: 0,
            paused_from: None,
            failure: None,
        };
        Collector {
            page,
            inbox,
            pool,
            command,
            command_has_come: false,
            order: Order { early_max: clock.units(EARLY_MAX.as_nanos() as u64), clock, reached: 0, stamp_max: 0 },
            shared,
            slots: Vec::new(),
            processes: Vec::new(),
            by_pid: HashMap::new(),
            sources: Vec::new(),
            merge: BinaryHeap::new(),
            ending: Vec::new(),
            open_sites: Vec::new(),
            pauses: Vec::new(),
            sampling: Vec::new(),
            costs: Costs::default(),
            prober: Prober::default(),
            probing: Budget::default(),
            timeout: BUSY_TIMEOUT,
            backlog_max: BACKLOG_MAX,
            session,
            segment_began: Instant::now(),
            events_before: 0,
            counts_before: Counts::default(),
            next_flush: Time(0),
            next_snapshot: Time(SNAPSHOT_INTERVAL_MIN.as_nanos() as u64),
            snapshot_interval: SNAPSHOT_INTERVAL_MIN,
            pause: PAUSE_MIN,
            horizon: 0,
            was_refused: false,
            saves: Vec::new(),
            messages: Vec::new(),
        }
    }

    /// Returns the current time by the clock of the recording.
    pub(crate) fn now(&self) -> Time {
        Time(self.order.clock.time(units(arch::ticks())))
    }

    /// Ends the recording with an error.
    pub(crate) fn fail(&mut self, error: RecordError) {
        self.shared.fail(error);
    }

    /// True if an error has ended the recording.
    pub(crate) fn has_failed(&self) -> bool {
        self.shared.failure.is_some() || self.shared.writer.has_failed()
    }

    /// Returns the pids of processes that have not ended.
    pub(crate) fn pids(&self) -> impl Iterator<Item = u32> {
        self.by_pid.keys().copied()
    }

    /// Returns the number of images that have not ended.
    pub(crate) fn running(&self) -> u32 {
        self.slots.iter().filter(|slot| slot.ended.is_none()).count() as u32
    }

    /// True if there was a fork within the last `moment` whose child has not introduced itself yet.
    pub(crate) fn awaits_children(&self, moment: Duration) -> bool {
        let moment = moment.as_nanos() as u64;
        self.shared.forks.newest().is_some_and(|time| time.0.saturating_add(moment) > self.now().0)
    }

    /// Performs one iteration: takes what has come, and merges what is complete.
    pub(crate) fn iterate(&mut self) {
        self.page.beat();
        let stamp = units(arch::ticks());
        self.take_messages();
        let clock = &self.order.clock;
        let settling = clock.units(SETTLING.as_nanos() as u64);
        let now = Now {
            floor: stamp.saturating_sub(settling),
            nanoseconds: clock.time(stamp),
            timeout: self.timeout.as_nanos() as u64,
        };
        let mut backlog: usize = self.sources.iter().map(Source::backlog).sum();
        let mut words = 0;
        for source in &mut self.sources {
            let polled = source.poll(now, backlog >= self.backlog_max);
            backlog += polled.words as usize;
            words += polled.words;
            if let Some(slot) = self.slots.get_mut(source.image) {
                slot.lost.add_full(polled.events_dropped);
                slot.lost.add_unreadable(polled.events_lost);
            }
        }
        // Read after the last poll: this process may have been stopped for any time since the
        // first.
        let clock = &self.order.clock;
        self.order.stamp_max = units(arch::ticks()).saturating_add(clock.units(1_000_000_000));
        // There is room in the rings again, so programs that stopped waiting for the recorder wait
        // again.
        if let Some(ticks) = self.page.end_stall() {
            self.note_stall(Time(self.order.clock.time(units(ticks))));
        }
        let is_cut = self.merge(now.floor);
        self.retire();
        // Activity counts only if more would pile up than the longest sleep can afford.
        let is_active = is_cut || words > 1024;
        self.pause = if is_active { PAUSE_MIN } else { (self.pause * 2).min(PAUSE_MAX) };
    }

    /// Sleeps until something urgent happens or it is time for the next iteration, at most until
    /// `until`.
    pub(crate) fn sleep(&self, until: Option<Instant>, is_awaited: impl Fn() -> bool) {
        self.page.sleeping.store(1, Ordering::Relaxed);
        // A process that rings the doorbell first publishes its work, and then reads `sleeping`.
        fence(Ordering::SeqCst);
        let is_pressing = || self.sources.iter().any(Source::is_pressing);
        if self.inbox.is_empty() && !is_pressing() && !is_awaited() {
            let left = until.map_or(self.pause, |until| until.saturating_duration_since(Instant::now()));
            sys::futex_wait(&self.page.sleeping, 1, Some(self.pause.min(left).as_millis() as u32 + 1));
        }
        self.page.sleeping.store(0, Ordering::Relaxed);
    }

    fn take_messages(&mut self) {
        let mut messages = std::mem::take(&mut self.messages);
        self.inbox.take(&mut messages);
        for message in messages.drain(..) {
            match message {
                Message::Image(new) => self.add_image(new),
                Message::Ring(new) => self.add_ring(new),
                Message::Ended { image, reason, stamp } => self.end_image(image.0 as usize, reason, stamp),
                Message::Exit { image, exit } => self.set_exit(image.0 as usize, exit),
                Message::Paused { stamp } => {
                    let time = Time(self.order.clock.time(stamp));
                    self.pause(time);
                }
                Message::Resumed { stamp } => {
                    let until = Time(self.order.clock.time(stamp));
                    if let Some(pause) = self.pauses.iter_mut().rfind(|pause| !pause.is_stall) {
                        pause.until = Some(until);
                        self.shared.records.push(Record::Pause(*pause));
                    }
                }
                Message::Rated { stamp, rate } => {
                    let from = Time(self.order.clock.time(stamp));
                    self.rate(from, rate);
                }
                Message::Save { stamp, done } => self.saves.push((stamp, done)),
                Message::Declined { image, stamp } => self.decline(image, stamp),
                Message::Refused => self.was_refused = true,
            }
        }
        self.messages = messages;
    }

    /// Notes that an image could not take what the broker gave it.
    fn decline(&mut self, image: ImageId, stamp: u64) {
        let Some(slot) = self.slots.get(image.0 as usize) else { return };
        let departure = self.shared.departures.decline(&slot.start, Time(self.order.clock.time(stamp)));
        self.shared.records.extend(departure.map(Record::Departure));
    }

    /// Writes the programs that are known to run unrecorded by now; without `now`, all.
    fn write_departures(&mut self, now: Option<Time>) {
        let slots = &self.slots;
        let pid_of = |image: ImageId| slots.get(image.0 as usize).map_or(0, |slot| slot.start.pid);
        let settled = self.shared.departures.settle(now, pid_of);
        self.shared.records.extend(settled.into_iter().map(Record::Departure));
    }

    /// Notes that allocations are not recorded from this time on.
    pub(crate) fn pause(&mut self, from: Time) {
        let pause = Pause { from, until: None, is_stall: false };
        self.pauses.push(pause);
        self.shared.paused_from.get_or_insert(from);
        self.shared.records.push(Record::Pause(pause));
    }

    /// Notes that programs did not wait for the recorder from this time until now.
    fn note_stall(&mut self, from: Time) {
        let until = self.now();
        let stall = Pause { from: from.min(until), until: Some(until), is_stall: true };
        self.pauses.push(stall);
        self.shared.records.push(Record::Pause(stall));
    }

    /// Notes that blocks are sampled at this rate from this time on.
    pub(crate) fn rate(&mut self, from: Time, rate: Rate) {
        let sampling = Sampling { from, rate };
        self.sampling.push(sampling);
        self.shared.records.push(Record::Sampling(sampling));
    }

    fn add_image(&mut self, new: NewImage) {
        let index = self.slots.len();
        let start = ImageStart {
            image: new.image,
            pid: new.pid,
            parent_pid: new.parent_pid,
            parent_image: new.parent_image,
            how: new.how,
            fork_node_base: StackId(new.fork.map_or(0, |fork| fork.node_base)),
            inherited_blocks: Blocks(0),
            inherited_bytes: Bytes(0),
            inherited_exact: true,
            time: Time(self.order.clock.time(new.stamp)),
            executable: new.executable,
            argv: new.argv,
            carried: None,
        };
        if new.fork.is_none() {
            self.shared.departures.introduce(new.pid, new.stamp);
        }
        self.slots.push(Slot {
            start,
            fork: new.fork,
            stage: Stage::New,
            sources: 0,
            common: None,
            retired: Vec::new(),
            has_forked: false,
            ended: None,
            frees_rings: false,
            exit: None,
            end_is_written: false,
            lost: Lost::default(),
            counts: Counts::default(),
        });
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

    fn add_ring(&mut self, new: NewRing) {
        let index = new.image.0 as usize;
        let Some(slot) = self.slots.get_mut(index) else { return };
        let ring = Arc::new(new.ring);
        slot.sources += 1;
        if new.is_common {
            slot.common = Some(Arc::clone(&ring));
        }
        self.costs.ring_bytes += ring.length() as u64;
        self.costs.ring_bytes_max = self.costs.ring_bytes_max.max(self.costs.ring_bytes);
        let mut source = Source::new(ring, index, new.thread);
        source.has_ended = slot.ended.is_some();
        self.sources.push(source);
    }

    fn end_image(&mut self, index: usize, reason: ImageEndReason, stamp: u64) {
        let Some(slot) = self.slots.get_mut(index) else { return };
        if slot.ended.is_none() {
            slot.ended = Some((reason, Time(self.order.clock.time(stamp))));
            self.ending.push((Key::of_end(stamp), index));
        }
        for source in self.sources.iter_mut().filter(|source| source.image == index) {
            source.has_ended = true;
        }
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
    }

    fn set_exit(&mut self, index: usize, exit: Option<ExitStatus>) {
        if let Some(slot) = self.slots.get_mut(index) {
            slot.exit.get_or_insert(exit);
            if slot.end_is_written || !matches!(slot.stage, Stage::Over) {
                return;
            }
            write_end(slot, &mut self.shared);
        }
    }

    /// Starts an image whose first event is about to be merged, with what it inherits.
    #[cold]
    fn start_image(&mut self, index: usize) {
        let Some(slot) = self.slots.get(index) else { return };
        let mut parent_image = slot.start.parent_image;
        while let Some(parent) = parent_image.and_then(|parent| self.slots.get(parent.0 as usize))
            && matches!(parent.stage, Stage::Absent)
        {
            parent_image = parent.start.parent_image;
        }
        let (mut ledger, mut tree, mut is_exact) = (Ledger::new(), Tree::default(), true);
        if let Some(fork) = slot.fork {
            if let Some(point) = self.shared.forks.claim(fork.parent, fork.sequence) {
                (ledger, tree) = (point.ledger, point.tree);
            } else {
                is_exact = false;
                let parent = self.slots.get(fork.parent.0 as usize);
                if let Some(Stage::Running(parent)) = parent.map(|slot| &slot.stage) {
                    // Without memory for its blocks, frees of them by the child count as unknown.
                    ledger = parent.fork_ledger().unwrap_or_default();
                    tree = parent.tree.snapshot();
                }
            }
            tree = tree.fork(StackId(fork.node_base));
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
        if slot.start.pid == self.command && !std::mem::replace(&mut self.command_has_come, true) {
            slot.start.how = ImageOrigin::Launched;
        }
        self.shared.records.push(Record::ImageStart(slot.start.clone()));
        let mut image = Box::new(Image::new(&slot.start, ledger, tree));
        if is_parent_past {
            image.write_kept_nodes(&mut self.shared);
        }
        slot.stage = Stage::Running(image);
    }

    /// Merges what is complete. Returns true if there was too much for one iteration.
    fn merge(&mut self, floor: u64) -> bool {
        let iteration_max = if self.session.segment > 0 { SEGMENT_EVENTS_MIN } else { ITERATION_EVENTS_MAX };
        let events_max = self.shared.events + iteration_max;
        let mut heap = std::mem::take(&mut self.merge);
        heap.clear();
        let mut horizon = u64::MAX;
        for index in 0..self.sources.len() {
            if self.sources[index].next.is_none() {
                self.find_next(index);
            }
            match self.sources[index].next {
                Some(key) => heap.push(Reverse((key, index))),
                None => horizon = horizon.min(self.sources[index].limit()),
            }
        }
        let mut is_cut = false;
        while let Some(Reverse((key, index))) = heap.pop() {
            let mut limit = Key::before(horizon);
            if key > limit {
                break;
            }
            if let Some(Reverse((other, _))) = heap.peek() {
                limit = limit.min(*other);
            }
            // An image that comes after an end must not meet what was live before.
            self.finish_ended(key);
            self.run(index, limit);
            if let Some(early) = self.sources[index].early
                && !self.settle(index, early)
            {
                // Nothing after it can be merged before more events have come.
                horizon = horizon.min(early.stamp);
            }
            match self.sources[index].next {
                Some(key) => heap.push(Reverse((key, index))),
                None => horizon = horizon.min(self.sources[index].limit()),
            }
            if self.shared.events >= events_max {
                is_cut = true;
                break;
            }
        }
        if !is_cut {
            // Without rings there is no limit, but time does not go on beyond `floor`.
            self.horizon = self.horizon.max(horizon.min(floor));
            self.finish_ended(Key::before(self.horizon));
        }
        self.merge = heap;
        is_cut
    }

    /// Advances a ring to its next event that has a position in the order.
    fn find_next(&mut self, index: usize) {
        let source = &mut self.sources[index];
        if !matches!(self.slots[source.image].stage, Stage::New) {
            self.run(index, Key::NONE);
        } else if source.peek().is_err() {
            self.slots[source.image].lost.add_unreadable(source.give_up());
        }
    }

    fn run(&mut self, index: usize, limit: Key) {
        let image = self.sources[index].image;
        if matches!(self.slots[image].stage, Stage::New) {
            self.start_image(image);
        }
        let (source, slot) = (&mut self.sources[index], &mut self.slots[image]);
        let Stage::Running(running) = &mut slot.stage else { return };
        if source.run(running, &mut self.shared, &mut self.order, limit).is_err() {
            slot.lost.add_unreadable(source.give_up());
        }
    }

    /// Pulls forward the free that must have come before an allocation of a live address: the first
    /// free of the address, unless the thread of the allocation makes it. Returns false if the free
    /// may still come.
    #[cold]
    fn settle(&mut self, index: usize, early: Early) -> bool {
        let image = self.sources[index].image;
        let mut earliest: Option<(Found, usize)> = None;
        for (other, source) in self.sources.iter().enumerate() {
            if source.image != image {
                continue;
            }
            match source.search(&early, other == index) {
                Search::Found(found) if earliest.is_none_or(|(known, _)| found.stamp < known.stamp) => {
                    earliest = Some((found, other));
                }
                Search::Found(_) | Search::Nothing => {}
                Search::Unknown => return false,
            }
        }
        let Stage::Running(running) = &mut self.slots[image].stage else { return true };
        match earliest.filter(|(_, other)| *other != index) {
            Some((found, other)) => {
                let time = Time(self.order.clock.time(early.stamp.max(self.order.reached)));
                if self.sources[other].pull(found, running, &mut self.shared, time).is_err() {
                    self.slots[image].lost.add_unreadable(self.sources[other].give_up());
                }
            }
            None => self.sources[index].early = Some(Early { is_missed: true, ..early }),
        }
        true
    }

    /// Finishes the images that ended before `limit` and whose events are all merged.
    fn finish_ended(&mut self, limit: Key) {
        let mut at = 0;
        while let Some(&(end, index)) = self.ending.get(at) {
            let is_complete = || self.sources.iter().all(|source| source.image != index || source.is_complete());
            if end <= limit && is_complete() {
                self.ending.remove(at);
                self.finish_image(index);
            } else {
                at += 1;
            }
        }
    }

    /// Releases the rings that have been read to their end.
    fn retire(&mut self) {
        let mut index = 0;
        while let Some(source) = self.sources.get(index) {
            if !source.is_complete() {
                index += 1;
                continue;
            }
            let source = self.sources.swap_remove(index);
            self.costs.ring_bytes -= source.ring().length() as u64;
            let (ticks, _) = source.ring().ring().measured();
            self.costs.hook_ticks = self.costs.hook_ticks.saturating_add(ticks.saturating_mul(MEASURED_ONE_IN));
            let image = source.image;
            let slot = &mut self.slots[image];
            slot.sources -= 1;
            if slot.ended.is_some() {
                slot.retired.extend(source.into_sound_ring());
                self.release_rings(image);
            }
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

    fn finish_image(&mut self, index: usize) {
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
        if let Some(counters) = slot.common.as_deref().map(image_counters) {
            let pids = counters.unreached.iter().map(|pid| pid.load(Ordering::Relaxed)).chain(std::iter::repeat(0));
            let count = counters.children_unreached.load(Ordering::Relaxed).min(UNREACHED_MAX);
            for child in pids.take(count as usize) {
                let departure = self.shared.departures.unreached(&slot.start, child);
                self.shared.records.extend(departure.map(Record::Departure));
            }
        }
        // The image may have ended a little before this segment began, or before events of others
        // that came until its end was noticed.
        let time = slot.ended.map_or(slot.start.time, |(_, time)| time);
        let time = time.max(self.session.begins).max(self.shared.timeline.last_time());
        let is_gone = slot.ended.is_some_and(|(reason, _)| reason != ImageEndReason::Detached);
        slot.frees_rings = is_gone && !slot.has_forked && !image.has_forked();
        let (counts, sites) = image.finish(&mut self.shared, time, &slot.external_counters());
        slot.common = None;
        slot.counts = counts;
        // The exit status of a process that was still running will not be reported.
        if slot.ended.is_some_and(|(reason, _)| reason == ImageEndReason::Detached) {
            slot.exit = Some(None);
        }
        if slot.exit.is_some() {
            write_end(slot, &mut self.shared);
        }
        let peak = self.shared.session.live().bytes_live_max;
        let open = OpenSites { image: slot.start.image, sites, peak };
        self.open_sites.push(open);
        self.release_rings(index);
        self.write_settled_sites(false);
    }

    /// Writes the sites of ended images whose shares in the session's peak are final: because the
    /// peak was at another time, so that they have none, or because the session is over.
    fn write_settled_sites(&mut self, is_last: bool) {
        let peak = self.shared.session.live().bytes_live_max;
        let writer = &self.shared.writer;
        self.open_sites.retain_mut(|open| {
            if open.peak != peak {
                for site in &mut open.sites {
                    site.live_at_session_peak = Live::default();
                    site.errors.live_at_session_peak = Live::default();
                }
            }
            let is_settled = is_last || open.sites.iter().all(|site| site.live_at_session_peak == Live::default());
            if is_settled {
                writer.send(Job::Sites(open.image, std::mem::take(&mut open.sites)));
            }
            !is_settled
        });
    }

    /// Does the periodic work: corrects the clock, samples memory, and writes what is old enough.
    pub(crate) fn keep_up(&mut self) {
        if self.order.clock.is_due(sys::monotonic_nanoseconds()) {
            self.order.clock.correct(Reading::now());
        }
        let now = self.now();
        self.sample_memory(now);
        self.save();
        if now < self.next_flush {
            return;
        }
        let interval = FLUSH_INTERVAL.as_nanos() as u64;
        self.next_flush = Time(now.0 + interval / 4);
        self.shared.forks.expire(now);
        self.note_private_bytes();
        let before = Time(now.0.saturating_sub(interval));
        for slot in &mut self.slots {
            let external = slot.external_counters();
            if let Stage::Running(image) = &mut slot.stage {
                image.flush(&mut self.shared, before, &external);
            }
        }
        self.write_settled_sites(false);
        self.write_departures(Some(now));
        self.shared.flush_records();
        if !self.shared.keeps_events && now >= self.next_snapshot {
            self.write_snapshot(now);
        }
    }

    /// Completes requests to save: flushes the file if everything up to the requested stamps is
    /// merged.
    fn save(&mut self) {
        let horizon = self.horizon;
        if !self.saves.iter().any(|(stamp, _)| *stamp <= horizon) {
            return;
        }
        for slot in &mut self.slots {
            let external = slot.external_counters();
            if let Stage::Running(image) = &mut slot.stage {
                image.flush(&mut self.shared, Time(u64::MAX), &external);
            }
        }
        self.shared.flush_records();
        let writer = &self.shared.writer;
        for (_, done) in self.saves.extract_if(.., |(stamp, _)| *stamp <= horizon) {
            writer.send(Job::Written(done));
        }
    }

    /// True if the current file has reached this age or this length.
    pub(crate) fn is_segment_full(&self, age: Option<Duration>, length: Option<u64>) -> bool {
        let writer = &self.shared.writer;
        let is_long = |length| {
            let has_begun = writer.segments() + 1 == self.session.segment;
            has_begun
                && self.shared.events - self.events_before >= SEGMENT_EVENTS_MIN
                && writer.bytes_written() >= length
        };
        let is_due = age.is_some_and(|age| self.segment_began.elapsed() >= age) || length.is_some_and(is_long);
        // A file without running images would be empty, and the last file of a session would have
        // no exit status.
        is_due && self.slots.iter().any(|slot| matches!(slot.stage, Stage::Running(_)))
    }

    /// Returns the number of complete files that were followed by another one.
    pub(crate) fn segments_ended(&self) -> u32 {
        self.shared.writer.segments()
    }

    /// Ends the file here, and continues in another one, which can be read on its own.
    pub(crate) fn rotate(&mut self, next: File) {
        // Events that are still to be merged are not earlier.
        self.order.reached = self.order.reached.max(self.horizon);
        let now = Time(self.order.clock.time(self.order.reached)).max(self.session.begins);
        self.write_settled_sites(true);
        for slot in &mut self.slots {
            let external = slot.external_counters();
            match &mut slot.stage {
                Stage::Running(image) => slot.counts = image.end_segment(&mut self.shared, now, &external),
                Stage::Over if !slot.end_is_written => write_end(slot, &mut self.shared),
                _ => {}
            }
        }
        let (counts, records) = self.process_totals();
        outcome::add_segment(&mut self.counts_before, &counts);
        let shared = &mut self.shared;
        shared.records.extend(records);
        shared.flush_records();
        let live = shared.session.live();
        let live = Live { bytes: live.bytes_live, blocks: live.blocks_live };
        let mut timeline = std::mem::replace(&mut shared.timeline, Timeline::new());
        timeline.add(now, live);
        shared.writer.send(Job::Timeline(None, timeline.finish()));
        let footer = Footer { time: now, complete: !self.was_refused, counts, ..Footer::default() };
        shared.writer.send(Job::Finish(Box::new(footer)));

        shared.writer.send(Job::Next(next));
        self.segment_began = Instant::now();
        self.events_before = shared.events;
        self.session.segment += 1;
        self.session.begins = now;
        shared.session.restart(heapledger_ledger::Time(now.0));
        shared.timeline.add(now, live);
        shared.records.push(Record::Session(self.session.clone()));
        shared.records.extend(self.pauses.iter().copied().map(Record::Pause));
        shared.records.extend(self.sampling.iter().copied().map(Record::Sampling));
        shared.records.extend(shared.modules.all().map(Record::Module));
        shared.records.extend(shared.texts.used().map(Record::Text));
        for slot in &mut self.slots {
            let external = slot.external_counters();
            match &mut slot.stage {
                Stage::Running(image) => image.begin_segment(&mut self.shared, now, &slot.start, &external),
                Stage::Over => slot.stage = Stage::Past,
                _ => {}
            }
        }
        self.shared.flush_records();
    }

    /// Replaces a recording without events by one with everything that is known now.
    fn write_snapshot(&mut self, now: Time) {
        let start = Instant::now();
        let is_sent = self.shared.writer.send_snapshot(|| {
            let mut jobs = Vec::new();
            for slot in &self.slots {
                if let Stage::Running(image) = &slot.stage {
                    jobs.extend(image.snapshot(&self.shared, &slot.external_counters()));
                }
            }
            jobs.extend(self.open_sites.iter().map(|open| Job::Sites(open.image, open.sites.clone())));
            let (counts, processes) = self.process_totals();
            jobs.push(Job::Records(processes));
            jobs.push(Job::Timeline(None, self.shared.timeline.clone().finish()));
            (jobs, Footer { time: now, complete: false, counts, ..Footer::default() })
        });
        if is_sent {
            self.snapshot_interval = (self.snapshot_interval * 2).min(SNAPSHOT_INTERVAL_MAX);
            let pause = self.snapshot_interval.max(start.elapsed() * 99);
            self.next_snapshot = Time(now.0.saturating_add(pause.as_nanos() as u64));
        }
    }

    /// Returns the totals of the session and, as records, of each process.
    fn process_totals(&self) -> (Counts, Vec<Record>) {
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
        let session = self.shared.session.live();
        total.bytes_live_max = session.bytes_live_max;
        total.bytes_live_max_time = Time(session.bytes_live_max_time.0);
        total.blocks_at_bytes_max = session.blocks_at_bytes_max;
        total.blocks_live_max = session.blocks_live_max;
        if let Some(sum) = &mut total.errors {
            sum.live_at_peak = errors(self.shared.session.variances().at_peak);
        }
        (total, records)
    }

    /// Returns the images of a process that are in the recording.
    fn images_of(&self, process: &Process) -> impl DoubleEndedIterator<Item = &Slot> {
        let images = process.images.iter().filter_map(|&image| self.slots.get(image));
        images.filter(|image| !matches!(image.stage, Stage::Absent | Stage::Past))
    }

    /// Samples the memory of running processes, as far as there is time for it.
    fn sample_memory(&mut self, now: Time) {
        if !self.probing.is_left() {
            return;
        }
        let start = thread_time();
        for process in self.by_pid.values().filter_map(|&process| self.processes.get(process)) {
            let Some(slot) = process.images.last().and_then(|&image| self.slots.get_mut(image)) else { continue };
            if let Stage::Running(image) = &mut slot.stage {
                image.sample_memory(&mut self.shared, &mut self.prober, process.pid, now);
            }
        }
        self.probing.spend(start);
    }

    fn note_private_bytes(&mut self) {
        let counters = self.slots.iter().filter_map(|slot| slot.common.as_deref()).map(image_counters);
        let bytes = counters.fold(0_u64, |sum, image| sum.saturating_add(image.private_bytes.load(Ordering::Relaxed)));
        self.costs.private_bytes_max = self.costs.private_bytes_max.max(bytes);
    }

    pub(crate) fn totals(&self) -> Totals {
        let session = self.shared.session.live();
        let counts = self.slots.iter().map(Slot::counts_so_far);
        Totals {
            elapsed: Duration::from_nanos(self.now().0),
            events: self.shared.events,
            allocations: Blocks(counts.map(|counts| counts.allocations.0).sum()),
            live: Live { bytes: session.bytes_live, blocks: session.blocks_live },
            bytes_live_max: session.bytes_live_max,
            processes: self.processes.len() as u32,
            processes_running: self.running(),
            bytes_written: self.shared.writer.bytes_written(),
        }
    }

    /// Ends the session, which the page already declares to be over: merges everything that the
    /// processes still running have written so far, and detaches from them.
    pub(crate) fn end_session(&mut self) {
        let end = units(arch::ticks());
        for source in &self.sources {
            let waiting = source.ring().ring().waiting();
            waiting.store(0, Ordering::Release);
            sys::futex_wake(waiting, 1);
        }
        self.timeout = BUSY_TIMEOUT_AT_END;
        while self.horizon <= end && self.sources.iter().any(|source| !source.has_ended) && !self.has_failed() {
            self.iterate();
            std::thread::sleep(SETTLING);
        }
        let now = units(arch::ticks());
        for index in 0..self.slots.len() {
            if self.slots[index].ended.is_none() {
                self.end_image(index, ImageEndReason::Detached, now);
            }
        }
        while !self.sources.is_empty() && !self.has_failed() {
            self.iterate();
        }
        // After a failure, nothing more is merged.
        self.sources.clear();
        for index in 0..self.slots.len() {
            self.finish_image(index);
        }
    }

    /// Writes what is known only at the end, and finishes the file.
    pub(crate) fn finish(mut self, end: &SessionEnd) -> Finished {
        self.take_messages();
        self.write_settled_sites(true);
        self.write_departures(None);
        for slot in &mut self.slots {
            if slot.start.pid == self.command && matches!(slot.ended, Some((ImageEndReason::Exit, _))) {
                // The process of the command is the first with its pid, and existed until we reaped
                // it.
                slot.exit = slot.exit.flatten().map(Some).or(Some(end.exit));
            }
            if !slot.end_is_written && matches!(slot.stage, Stage::Over) {
                write_end(slot, &mut self.shared);
            }
        }
        let (total, records) = self.process_totals();
        self.shared.records.extend(records);
        let mut processes = Vec::new();
        for process in &self.processes {
            let images: Vec<&Slot> = self.images_of(process).collect();
            let Some(last) = images.last() else { continue };
            processes.push(ProcessOutcome {
                pid: process.pid,
                parent_pid: process.parent_pid,
                exit: last.exit.flatten(),
                running: !matches!(last.ended, Some((ImageEndReason::Exit, _))),
                images: images.iter().map(|image| image.outcome()).collect(),
            });
        }
        self.shared.flush_records();

        let now = self.now();
        let Shared { writer, timeline, failure, departures, events, .. } = self.shared;
        let departures = departures.into_listed();
        let events_of_file = events - self.events_before;
        let stalls = self.pauses.into_iter().filter(|pause| pause.is_stall).collect();
        writer.send(Job::Timeline(None, timeline.finish()));
        let footer = Footer {
            time: now,
            complete: failure.is_none() && !self.was_refused,
            counts: total,
            exit: end.exit,
            costs: RunCosts {
                collector_cpu_ns: Some(end.collector_cpu_ns),
                collector_rss_max: process::own_rss_max().map(Bytes),
                ring_bytes: Some(Bytes(self.costs.ring_bytes_max)),
                target_private_bytes: Some(Bytes(self.costs.private_bytes_max)),
                hook_ns: Some(self.order.clock.duration(self.costs.hook_ticks)),
                program_cpu_ns: end.program_cpu_ns,
                program_wall_ns: Some(end.program_wall_ns),
            },
            peak_least: None,
        };
        writer.send(Job::Finish(Box::new(footer)));
        let (written, failure) = match writer.end() {
            Ok(bytes) => (bytes, failure.map(Failed::Here)),
            Err((bytes, there)) => (bytes, Some(Failed::Writing(there))),
        };
        let mut counts = self.counts_before;
        outcome::add_segment(&mut counts, &total);
        let footer = Footer { complete: footer.complete && failure.is_none(), counts, ..footer };
        let command_has_come = self.command_has_come;
        Finished {
            command_has_come,
            footer,
            events_of_file,
            stalls,
            processes,
            departures,
            bytes_written: written,
            failure,
        }
    }
}

/// The results of a session.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) command_has_come: bool,
    pub(crate) footer: Footer,
    /// The number of events that were merged since the last file began.
    pub(crate) events_of_file: u64,
    pub(crate) stalls: Vec<Pause>,
    pub(crate) processes: Vec<ProcessOutcome>,
    /// The number of programs and processes that ran unrecorded, and the first of them.
    pub(crate) departures: (u64, Vec<Departure>),
    pub(crate) bytes_written: u64,
    pub(crate) failure: Option<Failed>,
}

/// The place where a recording failed.
#[derive(Debug)]
pub(crate) enum Failed {
    Here(RecordError),
    Writing(writer::Failure),
}

impl Slot {
    fn external_counters(&self) -> ExternalCounters {
        let Some(counters) = self.common.as_deref().map(image_counters) else {
            return ExternalCounters { lost: self.lost, stacks: StackCounts::default() };
        };
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let stacks = StackCounts {
            truncated: read(&counters.stacks_truncated),
            dropped: read(&counters.stacks_dropped),
            verified: read(&counters.stacks_verified),
            mismatched: read(&counters.stacks_mismatched),
            unasked: read(&counters.stacks_unasked),
            outlasting: read(&counters.stacks_outlasting),
            missing: read(&counters.stacks_missing),
            folded: read(&counters.stacks_folded),
        };
        ExternalCounters { lost: self.lost.with(counters), stacks }
    }

    fn counts_so_far(&self) -> Counts {
        match &self.stage {
            Stage::New | Stage::Absent | Stage::Past => Counts::default(),
            Stage::Running(image) => image.counts(&self.external_counters()),
            Stage::Over => self.counts,
        }
    }

    fn outcome(&self) -> ImageOutcome {
        ImageOutcome {
            image: self.start.image,
            how: self.start.how,
            end: self.ended.map_or(ImageEndReason::Lost, |(reason, _)| reason),
            executable: self.start.executable.clone(),
            argv: self.start.argv.clone(),
            counts: self.counts_so_far(),
        }
    }
}

fn write_end(slot: &mut Slot, shared: &mut Shared) {
    let Some((reason, time)) = slot.ended else { return };
    slot.end_is_written = true;
    let exit = slot.exit.flatten();
    shared.records.push(Record::ImageEnd(ImageEnd { image: slot.start.image, time, reason, exit }));
}

fn image_counters(common: &SharedRing) -> &ImageCounters {
    &common.ring().header().image
}

#[cfg(test)]
mod tests;
