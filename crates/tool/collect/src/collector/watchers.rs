//! Answers those who watch the recording: copies its figures between two iterations.

use std::path::{self, Path, PathBuf};
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
/// The shortest time between two copies if a file has no events: it is replaced for each.
const SNAPSHOT_INTERVAL_MIN: Duration = Duration::from_secs(1);
/// The shortest time after which those who have got an old copy ask again.
const RETRY: Duration = Duration::from_millis(20);

/// The time for which a copy is kept after the next one could have been made: it takes some 150
/// bytes per site.
const KEPT: Duration = Duration::from_secs(5);

/// The requesters that wait for figures.
#[derive(Debug, Default)]
pub(super) struct Watchers {
    /// The stamps from which on they want figures, and where to send them.
    pub(super) asked: Vec<(u64, SyncSender<AnsweredFigures>)>,
    /// The last copy, and the stamp up to which it has all events.
    last: Option<(Arc<FiguresCopy>, u64)>,
    /// The time from which on the next copy may be made.
    next_copy: Time,
    /// The file that is being written.
    file: PathBuf,
}

impl Collector {
    /// Sets the path of the file that is being written, for those who watch it.
    pub(crate) fn set_file(&mut self, path: &Path) {
        // Without a current directory, watchers cannot find the file.
        self.watchers.file = path::absolute(path).unwrap_or_default();
    }

    /// Answers all who wait: with a new copy if one is due, else with the last one. All get the
    /// same copy.
    pub(super) fn answer_watchers(&mut self, now: Time) {
        let horizon = self.merge.horizon;
        let watchers = &mut self.watchers;
        if watchers.asked.is_empty() {
            if now > after(watchers.next_copy, KEPT) {
                watchers.last = None;
            }
            return;
        }
        // A file without events gets no stacks before the next snapshot of it.
        let can_write = self.shared.keeps_events || !self.shared.writer.is_writing_snapshot();
        let is_due = now >= watchers.next_copy && can_write;
        if is_due {
            if !watchers.asked.iter().any(|(stamp, _)| *stamp <= horizon) {
                return;
            }
            self.copy_for_watchers(now, horizon);
        }
        let watchers = &mut self.watchers;
        let Some((copy, stamp_of_copy)) = &watchers.last else { return };
        let next_copy = watchers.next_copy.0.saturating_sub(now.0);
        // Also while a snapshot is being written that takes longer.
        let next_copy = Duration::from_nanos(next_copy).max(RETRY);
        // After a new copy, requests that it is too old for wait for the events until then.
        let answered = |stamp: u64| !is_due || stamp <= horizon;
        for (stamp, done) in watchers.asked.extract_if(.., |(stamp, _)| answered(*stamp)) {
            let (is_written, written) = sync_channel(1);
            self.shared.writer.send(Job::Written(is_written));
            let is_new = stamp <= *stamp_of_copy;
            // The requester may not be waiting any more.
            let _ = done.try_send(AnsweredFigures { copy: Arc::clone(copy), is_new, next_copy, written });
        }
    }

    /// Makes a copy for those who wait.
    fn copy_for_watchers(&mut self, now: Time, horizon: u64) {
        let start = Instant::now();
        let mut copy = self.copy_figures(now);
        copy.copy_time = start.elapsed();
        let mut interval = INTERVAL_MIN.max(copy.copy_time * INTERVAL_PER_COPY);
        if !self.shared.keeps_events {
            interval = interval.max(SNAPSHOT_INTERVAL_MIN);
        }
        self.watchers.last = Some((Arc::new(copy), horizon));
        self.watchers.next_copy = after(now, interval);
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
            file: self.watchers.file.clone(),
        };
        // A file without events is written as a whole, and gets no stacks in between.
        if !self.shared.keeps_events {
            self.write_snapshot(now);
        }
        copy
    }
}

fn after(now: Time, interval: Duration) -> Time {
    Time(now.0.saturating_add(interval.as_nanos() as u64))
}
