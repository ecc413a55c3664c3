//! Resident snapshots of the session's processes.

use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use heapledger_recording::{SnapshotCause, Time};

use super::Collector;
use super::slot::{Slot, Stage};
use crate::exiting::Exiting;
use crate::live_pages::AgedBlock;
use crate::options::ResidentSnapshots;
use crate::resident::{Request, Snapshooter};
use crate::writer::Job;

/// The time for which the end of a session waits for a snapshot that is being made.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// The time in which last snapshots are made of processes that go on unrecorded, and the time after
/// which events are taken meanwhile.
const LAST_TIMEOUT: Duration = Duration::from_secs(2);
const STEP: Duration = Duration::from_millis(2);

/// The resident snapshots of a session.
#[derive(Debug, Default)]
pub(super) struct Resident {
    pub(super) options: ResidentSnapshots,
    snapshooter: Snapshooter,
    /// The snapshots that somebody has asked for: the process, the stamp from which on, and the
    /// requester.
    pub(super) asked: Vec<(u32, u64, SyncSender<()>)>,
    /// The same for live blocks.
    pub(super) blocks_asked: Vec<(u32, u64, SyncSender<Vec<AgedBlock>>)>,
    /// The processes that are about to exit, in the order in which they came.
    pub(super) exiting: Vec<Exiting>,
}

impl Resident {
    /// True if snapshots of this cause may only take a share of the session's time. Those that
    /// somebody asked for, one by one or by the times between them, are made in any case.
    fn is_limited(&self, cause: SnapshotCause) -> bool {
        match cause {
            SnapshotCause::Asked => false,
            SnapshotCause::Schedule => self.options.every.is_none(),
            SnapshotCause::End => self.options.exit_wait.is_none(),
            _ => true,
        }
    }
}

/// The requester of a snapshot, and the process that it is of.
type Waiting = (Option<SyncSender<()>>, Option<Exiting>);

impl Collector {
    /// Sets when snapshots are made.
    pub(crate) fn set_resident(&mut self, options: ResidentSnapshots) {
        self.resident.options = options;
        self.images.resident = options;
    }

    /// Writes the snapshot that has been made, and begins the next one that is due.
    pub(super) fn snapshot_resident(&mut self, now: Time) {
        self.write_resident(Duration::ZERO);
        self.answer_for_blocks(now);
        // Processes that have waited for too long exit.
        self.resident.exiting.retain(|exiting| !exiting.is_late());
        if self.resident.snapshooter.is_busy() || self.snapshot_exiting(now) {
            return;
        }
        let horizon = self.merge.horizon;
        if let Some(at) = self.resident.asked.iter().position(|(_, stamp, _)| *stamp <= horizon) {
            let (pid, _, done) = self.resident.asked.remove(at);
            // Without the process, the requester sees that nobody notifies it.
            if let Some(slot) = self.images.latest_of(pid) {
                self.begin_snapshot(slot, SnapshotCause::Asked, now, (Some(done), None));
            }
            return;
        }
        let due = |slot: &Slot| match &slot.stage {
            Stage::Running(image) if slot.ended.is_none() => Some((image.resident.due?, image.resident.begun())),
            _ => None,
        };
        let due = self.images.slots.iter().enumerate().filter_map(|(at, slot)| Some((at, due(slot)?)));
        // They come in turn, though there may be time for one of them only.
        let next =
            due.filter(|(at, (cause, _))| self.is_allowed(*at, *cause, now)).min_by_key(|(_, (_, begun))| *begun);
        if let Some((at, (cause, _))) = next {
            self.begin_snapshot(at, cause, now, (None, None));
        }
    }

    /// True if there is time for a snapshot of this cause.
    fn is_allowed(&self, slot: usize, cause: SnapshotCause, now: Time) -> bool {
        if !self.resident.is_limited(cause) {
            return true;
        }
        let Some(slot) = self.images.slots.get(slot) else { return false };
        let Stage::Running(image) = &slot.stage else { return false };
        let age = Duration::from_nanos(now.0.saturating_sub(slot.start.time.0));
        let expected = image.resident.expected_cost().processor;
        image.resident.has_allowance(age, cause) && self.resident.snapshooter.has_allowance(now, expected, cause)
    }

    /// Copies the live blocks of processes for those who ask for them.
    fn answer_for_blocks(&mut self, now: Time) {
        let horizon = self.merge.horizon;
        while let Some(at) = self.resident.blocks_asked.iter().position(|(_, stamp, _)| *stamp <= horizon) {
            let (pid, _, done) = self.resident.blocks_asked.remove(at);
            let slot = self.images.latest_of(pid).and_then(|slot| self.images.slots.get(slot));
            // Without an answer, the requester sees that none will come. The addresses of blocks
            // are not all known if they are sampled.
            if let Some(Slot { stage: Stage::Running(image), .. }) = slot
                && !self.shared.is_sample
                && let Some(blocks) = image.aged_blocks(now)
            {
                let _ = done.try_send(blocks);
            }
        }
    }

    /// Begins the snapshot of a process that is about to exit, and of which all events have been
    /// merged, or lets it exit if there is no time for one. Returns false if there is no such
    /// process.
    fn snapshot_exiting(&mut self, now: Time) -> bool {
        let horizon = self.merge.horizon;
        let Some(at) = self.resident.exiting.iter().position(|exiting| exiting.stamp <= horizon) else { return false };
        let exiting = self.resident.exiting.remove(at);
        let index = self.images.latest_of(exiting.pid);
        let reading = index.and_then(|index| match &self.images.slots.get(index)?.stage {
            Stage::Running(image) => Some(image.resident.expected_cost().reading),
            _ => None,
        });
        let is_asked = self.resident.options.exit_wait.is_some();
        // Otherwise the wait would be too short, and in vain.
        if let (Some(index), Some(reading)) = (index, reading)
            && (is_asked || reading < exiting.wait)
            && self.is_allowed(index, SnapshotCause::End, now)
        {
            self.begin_snapshot(index, SnapshotCause::End, now, (None, Some(exiting)));
        }
        true
    }

    /// Copies the live blocks of an image, and has the thread do the rest. `waiting` are the
    /// requester and the process, if they wait.
    fn begin_snapshot(&mut self, slot: usize, cause: SnapshotCause, now: Time, waiting: Waiting) {
        let Some(slot) = self.images.slots.get_mut(slot) else { return };
        let Stage::Running(image) = &mut slot.stage else { return };
        image.resident.on_begun(now);
        let start = Instant::now();
        let blocks = if self.shared.is_sample { None } else { image.placed_blocks() };
        let (has_sites, blocks) = (blocks.is_some(), blocks.unwrap_or_default());
        let copy_ns = start.elapsed().as_nanos() as u64;
        self.resident.snapshooter.begin(Request {
            image: slot.start.image,
            pid: slot.start.pid,
            identity: slot.identity,
            time: now,
            cause,
            is_limited: self.resident.is_limited(cause),
            blocks,
            has_sites,
            live: image.live(),
            copy_ns,
            done: waiting.0,
            exiting: waiting.1,
        });
    }

    /// Writes the snapshot that is being made, if it is finished within `timeout`.
    fn write_resident(&mut self, timeout: Duration) {
        let Some(made) = self.resident.snapshooter.take(timeout) else { return };
        let Some(slot) = self.images.slots.get_mut(made.image.0 as usize) else { return };
        if let Stage::Running(image) = &mut slot.stage {
            image.resident.on_outcome(&made);
            image.flush_resident(&mut self.shared);
        }
        // An image of an earlier file has no stacks in this one.
        if matches!(slot.stage, Stage::Running(_) | Stage::Over)
            && let Some(mut snapshot) = made.snapshot
        {
            snapshot.time = snapshot.time.max(self.segment.begins());
            self.shared.writer.send(Job::Resident(made.image, Box::new(snapshot)));
            // The requester reads the file: also its records of the process, and the stacks.
            self.upkeep.saves.extend(made.done.map(|done| (0, done)));
        }
    }

    /// Makes a last snapshot of each process that goes on unrecorded, as far as there is time.
    /// Events are taken meanwhile.
    pub(crate) fn make_last_snapshots(&mut self) {
        if !self.resident.options.automatic {
            return;
        }
        let until = Instant::now() + LAST_TIMEOUT;
        for slot in 0..self.images.slots.len() {
            while self.resident.snapshooter.is_busy() && Instant::now() < until && !self.has_failed() {
                self.write_resident(STEP);
                self.iterate();
            }
            let is_running = self.images.slots[slot].ended.is_none();
            if is_running && !self.resident.snapshooter.is_busy() && Instant::now() < until {
                self.begin_snapshot(slot, SnapshotCause::End, self.now(), (None, None));
            }
        }
        while self.resident.snapshooter.is_busy() && Instant::now() < until && !self.has_failed() {
            self.write_resident(STEP);
            self.iterate();
        }
    }

    /// Writes the snapshot that is being made when the session ends.
    pub(super) fn end_resident(&mut self) {
        self.write_resident(END_TIMEOUT);
    }
}
