//! The collector: drains the rings, puts events in order, and updates the ledgers and the file.
//!
//! One iteration reads the counter, takes the messages of the broker, polls every ring
//! ([`Source::poll`]), and then merges the copied events by stamp (`merge`).

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use heapledger_core::sample::Rate;
use heapledger_core::{Blocks, arch, sys};
use heapledger_recording::{ImageEndReason, ImageId, Record, Session as SessionRecord, Time};
use heapledger_wire::event::units;

use crate::clock::Clock;
use crate::error::RecordError;
use crate::inbox::{Inbox, Message};
use crate::outcome::Totals;
use crate::session_state::Shared;
use crate::shared::{Page, Pool};
use crate::source::Source;
use crate::writer::Writer;

pub(crate) mod end;
mod images;
mod merge;
mod open_sites;
mod resident;
mod segment;
mod slot;
mod upkeep;
mod watchers;

use images::Images;
use merge::Merge;
use resident::Resident;
use segment::Segment;
use slot::Slot;
use upkeep::Upkeep;
use watchers::Watchers;

/// The shortest sleep, after activity, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// The state of a session that is being recorded.
#[derive(Debug)]
pub(crate) struct Collector {
    page: Arc<Page>,
    inbox: Arc<Inbox>,
    merge: Merge,
    images: Images,
    segment: Segment,
    upkeep: Upkeep,
    resident: Resident,
    watchers: Watchers,
    shared: Shared,
    /// The time to sleep when there is nothing to do.
    pause: Duration,
    /// True if a process or thread was refused.
    was_refused: bool,
    messages: Vec<Message>,
}

/// The other threads and the programs of a session, as the collector reaches them.
#[derive(Debug)]
pub(crate) struct Connections {
    pub(crate) page: Arc<Page>,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) writer: Writer,
}

impl Collector {
    /// Returns the collector of a session. `command` is the pid of the command.
    pub(crate) fn new(command: u32, clock: Clock, session: SessionRecord, connections: Connections) -> Collector {
        let Connections { page, inbox, pool, writer } = connections;
        let keeps_mappings = inbox.keeps_mappings();
        Collector {
            page,
            inbox,
            merge: Merge::new(clock),
            images: Images::new(command, pool),
            shared: Shared { keeps_mappings, ..Shared::new(&session, writer) },
            segment: Segment::new(session),
            upkeep: Upkeep::new(),
            resident: Resident::default(),
            watchers: Watchers::default(),
            pause: PAUSE_MIN,
            was_refused: false,
            messages: Vec::new(),
        }
    }

    /// Returns the current time by the clock of the recording.
    pub(crate) fn now(&self) -> Time {
        self.merge.time(units(arch::ticks()))
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
        self.images.pids()
    }

    /// Returns the number of processes so far.
    pub(crate) fn processes(&self) -> u32 {
        self.images.processes()
    }

    /// True if there has been any image.
    pub(crate) fn has_images(&self) -> bool {
        self.processes() > 0
    }

    /// Returns the number of images that have not ended.
    pub(crate) fn running(&self) -> u32 {
        self.images.running()
    }

    /// True if there was a fork within the last `moment` whose child has not introduced itself yet.
    pub(crate) fn awaits_children(&self, moment: Duration) -> bool {
        let moment = moment.as_nanos() as u64;
        self.shared.forks.newest().is_some_and(|time| time.0.saturating_add(moment) > self.now().0)
    }

    pub(crate) fn totals(&self) -> Totals {
        let session = self.shared.session.live();
        let counts = self.images.slots.iter().map(Slot::counts_so_far);
        Totals {
            elapsed: Duration::from_nanos(self.now().0),
            events: self.shared.events,
            allocations: Blocks(counts.map(|counts| counts.allocations.0).sum()),
            live: session.into(),
            bytes_live_max: session.bytes_live_max,
            processes: self.images.processes(),
            processes_running: self.running(),
            bytes_written: self.shared.writer.bytes_written(),
        }
    }

    /// Notes that allocations are not recorded from this time on.
    pub(crate) fn pause(&mut self, from: Time) {
        self.segment.pause(from, &mut self.shared);
    }

    /// Notes that blocks are sampled at this rate from this time on.
    pub(crate) fn rate(&mut self, from: Time, rate: Rate) {
        self.segment.rate(from, rate, &mut self.shared);
    }

    /// Performs one iteration: takes what has come, and merges what is complete.
    pub(crate) fn iterate(&mut self) {
        self.page.beat();
        let stamp = units(arch::ticks());
        self.take_messages();
        let (floor, words) = self.merge.poll(stamp, &mut self.images);
        // There is room in the rings again, so programs that stopped waiting for the recorder wait
        // again.
        if let Some(ticks) = self.page.end_stall() {
            let (from, until) = (self.merge.time(units(ticks)), self.now());
            self.segment.note_stall(from, until, &mut self.shared);
        }
        let is_cut = self.merge.merge(floor, &self.segment, &mut self.images, &mut self.shared);
        self.merge.retire(&mut self.images);
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
        let is_pressing = || self.merge.sources.iter().any(Source::is_pressing);
        if self.inbox.is_empty() && !is_pressing() && !is_awaited() {
            // A process that is about to exit waits for the events before.
            let pause = if self.resident.exiting.is_empty() { self.pause } else { PAUSE_MIN };
            let left = until.map_or(pause, |until| until.saturating_duration_since(Instant::now()));
            sys::futex_wait(&self.page.sleeping, 1, Some(pause.min(left).as_millis() as u32 + 1));
        }
        self.page.sleeping.store(0, Ordering::Relaxed);
    }

    fn take_messages(&mut self) {
        let mut messages = std::mem::take(&mut self.messages);
        self.inbox.take(&mut messages);
        for message in messages.drain(..) {
            match message {
                Message::Image(new) => {
                    let time = self.merge.time(new.stamp);
                    self.images.add(new, time, &mut self.shared);
                }
                Message::Ring(new) => {
                    if let Some(source) = self.images.add_ring(new) {
                        self.merge.add(source);
                    }
                }
                Message::Ended { image, reason, stamp } => self.end_image(image.0 as usize, reason, stamp),
                Message::Exit { image, exit } => self.images.set_exit(image.0 as usize, exit, &mut self.shared),
                Message::Paused { stamp } => self.pause(self.merge.time(stamp)),
                Message::Resumed { stamp } => self.segment.resume(self.merge.time(stamp), &mut self.shared),
                Message::Rated { stamp, rate } => self.rate(self.merge.time(stamp), rate),
                Message::Save { stamp, done } => self.upkeep.saves.push((stamp, done)),
                Message::Resident { pid, stamp, done } => self.resident.asked.push((pid, stamp, done)),
                Message::LiveBlocks { pid, stamp, done } => self.resident.blocks_asked.push((pid, stamp, done)),
                Message::Figures { stamp, done } => self.watchers.asked.push((stamp, done)),
                Message::Exiting(exiting) => self.resident.exiting.push(exiting),
                Message::Declined { image, stamp } => self.decline(image, stamp),
                Message::NotRedirected { image, stamp } => self.not_redirected(image, stamp),
                Message::Followed { pid, stamp } => self.shared.departures.introduce(pid, stamp),
                Message::NotFollowed { pid } => self.shared.departures.not_followed(pid),
                Message::Refused => self.was_refused = true,
            }
        }
        self.messages = messages;
    }

    fn end_image(&mut self, index: usize, reason: ImageEndReason, stamp: u64) {
        if self.images.end(index, reason, self.merge.time(stamp)) {
            self.merge.end_image(index, stamp);
        }
    }

    /// Notes that an image could not take what the broker gave it.
    fn decline(&mut self, image: ImageId, stamp: u64) {
        let Some(slot) = self.images.slots.get(image.0 as usize) else { return };
        let departure = self.shared.departures.decline(&slot.start, self.merge.time(stamp));
        self.shared.records.extend(departure.map(Record::Departure));
    }

    /// Notes that an image's allocator is not redirected as it should be.
    fn not_redirected(&mut self, image: ImageId, stamp: u64) {
        let Some(slot) = self.images.slots.get(image.0 as usize) else { return };
        let departure = self.shared.departures.not_redirected(&slot.start, self.merge.time(stamp));
        self.shared.records.push(Record::Departure(departure));
    }

    /// Writes the programs that are known to run unrecorded by now; without `now`, all.
    fn write_departures(&mut self, now: Option<Time>) {
        let slots = &self.images.slots;
        let pid_of = |image: ImageId| slots.get(image.0 as usize).map_or(0, |slot| slot.start.pid);
        let settled = self.shared.departures.settle(now, pid_of);
        self.shared.records.extend(settled.into_iter().map(Record::Departure));
    }
}

#[cfg(test)]
mod tests;
