//! The periodic work of the collector: corrects the clock, samples memory, and writes what is old
//! enough.

use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use heapledger_core::sys;
use heapledger_recording::{Footer, Time};

use super::Collector;
use super::slot::Stage;
use crate::clock::Reading;
use crate::memory::{Budget, Prober, thread_time};
use crate::writer::Job;

/// The time after which chunks are written at the latest.
const FLUSH_INTERVAL: Duration = Duration::from_secs(1);

/// The shortest interval at which a recording without events is replaced. It is doubled each time,
/// up to the longest.
const SNAPSHOT_INTERVAL_MIN: Duration = Duration::from_secs(1);
const SNAPSHOT_INTERVAL_MAX: Duration = Duration::from_secs(10);

/// The times at which periodic work is due.
#[derive(Debug)]
pub(super) struct Upkeep {
    prober: Prober,
    probing: Budget,
    next_flush: Time,
    /// The time when the file is to be replaced next, and the interval after that.
    next_snapshot: Time,
    snapshot_interval: Duration,
    /// The requests to be notified when the file has everything up to a stamp.
    pub(super) saves: Vec<(u64, SyncSender<()>)>,
}

impl Upkeep {
    pub(super) fn new() -> Upkeep {
        Upkeep {
            prober: Prober::default(),
            probing: Budget::default(),
            next_flush: Time(0),
            next_snapshot: Time(SNAPSHOT_INTERVAL_MIN.as_nanos() as u64),
            snapshot_interval: SNAPSHOT_INTERVAL_MIN,
            saves: Vec::new(),
        }
    }
}

impl Collector {
    /// Does the periodic work that is due.
    pub(crate) fn keep_up(&mut self) {
        if self.merge.order.clock.is_due(sys::monotonic_nanoseconds()) {
            self.merge.order.clock.correct(Reading::now());
        }
        let now = self.now();
        self.sample_memory(now);
        if self.shared.keeps_mappings {
            let merged = self.merge.time(self.merge.horizon);
            self.images.check_mappings(now, merged, &mut self.shared);
        }
        self.snapshot_resident(now);
        self.save();
        self.answer_watchers(now);
        if now < self.upkeep.next_flush {
            return;
        }
        let interval = FLUSH_INTERVAL.as_nanos() as u64;
        self.upkeep.next_flush = Time(now.0 + interval / 4);
        self.shared.forks.expire(now);
        self.images.note_private_bytes();
        self.images.flush(Time(now.0.saturating_sub(interval)), &mut self.shared);
        self.images.open_sites.write_settled(false, &self.shared);
        self.write_departures(Some(now));
        self.shared.flush_records();
        if !self.shared.keeps_events && now >= self.upkeep.next_snapshot {
            self.write_snapshot(now);
        }
    }

    /// Samples the memory of running processes, as far as there is time for it.
    fn sample_memory(&mut self, now: Time) {
        if !self.upkeep.probing.is_left() {
            return;
        }
        let start = thread_time();
        self.images.sample_memory(&mut self.upkeep.prober, now, &mut self.shared);
        self.upkeep.probing.spend(start);
    }

    /// Completes requests to save: flushes the file if everything up to the requested stamps is
    /// merged.
    fn save(&mut self) {
        let horizon = self.merge.horizon;
        if !self.upkeep.saves.iter().any(|(stamp, _)| *stamp <= horizon) {
            return;
        }
        self.images.flush(Time(u64::MAX), &mut self.shared);
        self.shared.flush_records();
        let writer = &self.shared.writer;
        for (_, done) in self.upkeep.saves.extract_if(.., |(stamp, _)| *stamp <= horizon) {
            writer.send(Job::Written(done));
        }
    }

    /// Replaces a recording without events by one with everything that is known now. Without
    /// effect while the one before is being written.
    pub(super) fn write_snapshot(&mut self, now: Time) {
        let start = Instant::now();
        let (images, shared) = (&self.images, &self.shared);
        let is_sent = shared.writer.send_snapshot(|| {
            let mut jobs = Vec::new();
            for slot in &images.slots {
                if let Stage::Running(image) = &slot.stage {
                    jobs.extend(image.snapshot(shared, &slot.external_counters()));
                }
            }
            jobs.extend(images.open_sites.snapshot());
            let (counts, processes) = images.process_totals(shared);
            jobs.push(Job::Records(processes));
            jobs.push(Job::Timeline(None, shared.timeline.clone().finish()));
            (jobs, Footer { time: now, complete: false, counts, ..Footer::default() })
        });
        if is_sent {
            let upkeep = &mut self.upkeep;
            upkeep.snapshot_interval = (upkeep.snapshot_interval * 2).min(SNAPSHOT_INTERVAL_MAX);
            let pause = upkeep.snapshot_interval.max(start.elapsed() * 99);
            upkeep.next_snapshot = Time(now.0.saturating_add(pause.as_nanos() as u64));
        }
    }
}
