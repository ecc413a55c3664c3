//! Resident snapshots of the session's processes.

use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use heapledger_recording::{SnapshotCause, Time};

use super::Collector;
use super::slot::{Slot, Stage};
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
}

impl Resident {
    /// True if snapshots of this cause may only take a share of the session's time. Those that
    /// somebody asked for, one by one or by the times between them, are made in any case.
    fn is_limited(&self, cause: SnapshotCause) -> bool {
        match cause {
            SnapshotCause::Asked => false,
            SnapshotCause::Schedule => self.options.every.is_none(),
            _ => true,
        }
    }
}

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
        if self.resident.snapshooter.is_busy() {
            return;
        }
        let horizon = self.merge.horizon;
        if let Some(at) = self.resident.asked.iter().position(|(_, stamp, _)| *stamp <= horizon) {
            let (pid, _, done) = self.resident.asked.remove(at);
            // Without the process, the requester sees that nobody notifies it.
            if let Some(slot) = self.images.latest_of(pid) {
                self.begin_snapshot(slot, SnapshotCause::Asked, now, Some(done));
            }
            return;
        }
        let due = |slot: &Slot| match &slot.stage {
            Stage::Running(image) if slot.ended.is_none() => Some((image.resident.due?, image.resident.begun())),
            _ => None,
        };
        let has_allowance = self.resident.snapshooter.has_allowance(now);
        let is_allowed = |cause: SnapshotCause| has_allowance || !self.resident.is_limited(cause);
        let due = self.images.slots.iter().enumerate().filter_map(|(at, slot)| Some((at, due(slot)?)));
        // They come in turn, though there may be time for one of them only.
        let next = due.filter(|(_, (cause, _))| is_allowed(*cause)).min_by_key(|(_, (_, begun))| *begun);
        if let Some((at, (cause, _))) = next {
            self.begin_snapshot(at, cause, now, None);
        }
    }

    /// Copies the live blocks of processes for those who ask for them.
    fn answer_for_blocks(&mut self, now: Time) {
        let horizon = self.merge.horizon;
        while let Some(at) = self.resident.blocks_asked.iter().position(|(_, stamp, _)| *stamp <= horizon) {
            let (pid, _, done) = self.resident.blocks_asked.remove(at);
            let slot = self.images.latest_of(pid).and_then(|slot| self.images.slots.get(slot));
            // Without an answer, the requester sees that none will come. Of a sample, the addresses
            // are not known.
            if let Some(Slot { stage: Stage::Running(image), .. }) = slot
                && !self.shared.is_sample
            {
                let _ = done.try_send(image.aged_blocks(now));
            }
        }
    }

    /// Copies the live blocks of an image, and has the thread do the rest.
    fn begin_snapshot(&mut self, slot: usize, cause: SnapshotCause, now: Time, done: Option<SyncSender<()>>) {
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
            done,
        });
    }

    /// Writes the snapshot that is being made, if it is finished within `timeout`.
    fn write_resident(&mut self, timeout: Duration) {
        let Some(made) = self.resident.snapshooter.take(timeout) else { return };
        let Some(slot) = self.images.slots.get_mut(made.image.0 as usize) else { return };
        if let Stage::Running(image) = &mut slot.stage {
            image.resident.on_outcome(made.snapshot.as_ref().map(|snapshot| snapshot.figures.resident.0));
            image.flush_resident(&mut self.shared);
        }
        // An image of an earlier file has no stacks in this one.
        if matches!(slot.stage, Stage::Running(_) | Stage::Over)
            && let Some(mut snapshot) = made.snapshot
        {
            snapshot.time = snapshot.time.max(self.segment.begins());
            self.shared.writer.send(Job::Resident(made.image, Box::new(snapshot)));
            if let Some(done) = made.done {
                self.shared.writer.send(Job::Written(done));
            }
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
                self.begin_snapshot(slot, SnapshotCause::End, self.now(), None);
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
