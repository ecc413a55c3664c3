//! Answers those who watch the recording: copies its figures between two iterations.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

use heapledger_recording::{Footer, Time};

use super::Collector;
use super::slot::Stage;
use crate::live_figures::{AnsweredFigures, FiguresCopy};
use crate::writer::Job;

/// The shortest time between two copies.
const INTERVAL_MIN: Duration = Duration::from_millis(250);
/// The time between two copies for each unit of time that one took: copies take 5 % of the
/// collector's time at most.
const INTERVAL_PER_COPY: u32 = 20;
/// The shortest time between two files that are replaced for watchers, if a file has no events.
const SNAPSHOT_INTERVAL_MIN: Duration = Duration::from_secs(1);

/// The requesters that wait for figures.
#[derive(Debug, Default)]
pub(super) struct Watchers {
    /// The stamps from which on they want figures, and where to send them.
    pub(super) asked: Vec<(u64, SyncSender<AnsweredFigures>)>,
    /// The time from which on the next copy may be made.
    next_copy: Time,
    /// The time from which on a file without events may be replaced again.
    next_snapshot: Time,
}

impl Collector {
    /// Answers all who wait, if a copy is due. All get the same copy.
    pub(super) fn answer_watchers(&mut self, now: Time) {
        let horizon = self.merge.horizon;
        // The stacks of such a file are there when it has been replaced.
        let next = if self.shared.keeps_events { Time(0) } else { self.watchers.next_snapshot };
        let next = next.max(self.watchers.next_copy);
        if now < next || !self.watchers.asked.iter().any(|(stamp, _)| *stamp <= horizon) {
            return;
        }
        let start = Instant::now();
        let mut copy = self.copy_figures(now);
        copy.copy_time = start.elapsed();
        let copy = Arc::new(copy);
        let writer = &self.shared.writer;
        for (_, done) in self.watchers.asked.extract_if(.., |(stamp, _)| *stamp <= horizon) {
            let (is_written, written) = sync_channel(1);
            writer.send(Job::Written(is_written));
            // The requester may not be waiting any more.
            let _ = done.try_send(AnsweredFigures { copy: Arc::clone(&copy), written });
        }
        self.watchers.next_copy = after(now, INTERVAL_MIN.max(start.elapsed() * INTERVAL_PER_COPY));
    }

    /// Has everything written that is needed to read the stacks of sites, and copies the figures.
    fn copy_figures(&mut self, now: Time) -> FiguresCopy {
        let shared = &mut self.shared;
        let mut images = Vec::new();
        for slot in &mut self.images.slots {
            let external = slot.external_counters();
            if let Stage::Running(image) = &mut slot.stage {
                let (counts, sites) = image.figures(shared, &external);
                images.push((slot.start.image, counts, sites));
            }
        }
        shared.flush_records();
        let (counts, processes) = self.images.process_totals(shared);
        let copy = FiguresCopy {
            images,
            open: self.images.open_sites.copy(),
            processes,
            timeline: shared.timeline.clone().finish(),
            footer: Footer { time: now, complete: false, counts, ..Footer::default() },
            is_sample: shared.is_sample,
            copy_time: Duration::ZERO,
        };
        // A file without events is written as a whole, and gets no stacks in between.
        if !self.shared.keeps_events {
            let start = Instant::now();
            self.write_snapshot(now);
            let interval = SNAPSHOT_INTERVAL_MIN.max(start.elapsed() * INTERVAL_PER_COPY);
            self.watchers.next_snapshot = after(now, interval);
        }
        copy
    }
}

fn after(now: Time, interval: Duration) -> Time {
    Time(now.0.saturating_add(interval.as_nanos() as u64))
}
