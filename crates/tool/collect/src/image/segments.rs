//! Writes an image's part of the file: from time to time, at the end of a file, at the beginning of
//! the next one, and at the image's own end.

use heapledger_core::StackId;
use heapledger_recording::{Counts, ImageCounts, ImageEnd, ImageEndReason, ImageStart, Record, Site, Time, Timeline};

use super::Image;
use super::totals::Anomalies;
use crate::external_counters::ExternalCounters;
use crate::memory::Prober;
use crate::options::ResidentSnapshots;
use crate::session_state::Shared;
use crate::writer::Job;

impl Image {
    /// Samples the memory of its process, if a sample is due.
    /// `snapshots` says when resident snapshots are made, and when the image began.
    pub(crate) fn sample_memory(
        &mut self,
        shared: &mut Shared,
        prober: &mut Prober,
        pid: u32,
        now: Time,
        snapshots: (ResidentSnapshots, Time),
    ) {
        if self.memory.is_due(now)
            && let Some(sample) = prober.sample(pid, now)
        {
            let (options, begun) = snapshots;
            self.serial_times.add(self.ledger.next_serial().0, now);
            self.resident.on_sample(options, begun, now, sample.resident.0);
            if let Some(samples) = self.memory.add(sample) {
                shared.writer.send(Job::Memory(self.id, samples));
            }
        }
    }

    /// Writes the nodes that a resident snapshot may refer to.
    pub(crate) fn flush_resident(&mut self, shared: &mut Shared) {
        self.flush_nodes(shared, false);
    }

    /// Writes the nodes that are known by now, and returns the totals and sites so far.
    pub(crate) fn figures(&mut self, shared: &mut Shared, external: &ExternalCounters) -> (Counts, Vec<Site>) {
        self.flush_nodes(shared, false);
        (self.counts(external), self.sites(shared))
    }

    /// Brings the file up to date, if it lacks events from before `before`.
    pub(crate) fn flush(&mut self, shared: &mut Shared, before: Time, external: &ExternalCounters) {
        if !self.chunks.events.is_empty() && self.chunks.events_begin < before {
            self.flush_events(shared);
            shared.records.push(Record::ImageCounts(ImageCounts { image: self.id, counts: self.counts(external) }));
        } else if self.tree.has_open() || !shared.keeps_events {
            self.flush_nodes(shared, false);
        }
        self.chunks.flush_annotations(shared);
        self.flush_mappings(before, shared);
        self.flush_threads(shared);
    }

    /// Finishes an image that has ended: writes everything except the sites, which are returned
    /// with the totals.
    pub(crate) fn finish(
        mut self,
        shared: &mut Shared,
        time: Time,
        external: &ExternalCounters,
    ) -> (Counts, Vec<Site>) {
        for pending in self.threads.take_all_pending() {
            self.ledger.cancel_realloc(&mut shared.session, pending);
        }
        self.ledger.end(&mut shared.session);
        shared.timeline.add(time, shared.session.live().into());
        self.flush_nodes(shared, true);
        self.flush_events(shared);
        self.write_names(shared);
        self.tree.generated.end();
        self.chunks.flush_annotations(shared);
        self.finish_mappings(shared);
        self.flush_threads(shared);
        self.unproven.outdate();
        let counts = self.counts(external);
        shared.records.push(Record::ImageCounts(ImageCounts { image: self.id, counts }));
        let sites = self.sites(shared);
        shared.writer.send(Job::Timeline(Some(self.id), self.timeline.finish()));
        shared.writer.send(Job::Memory(self.id, self.memory.take()));
        (counts, sites)
    }

    /// Ends the current file for an image that continues: writes its part of the file.
    pub(crate) fn end_segment(&mut self, shared: &mut Shared, time: Time, external: &ExternalCounters) -> Counts {
        self.flush_nodes(shared, false);
        self.flush_events(shared);
        self.write_names(shared);
        self.chunks.flush_annotations(shared);
        self.flush_mappings(Time(u64::MAX), shared);
        self.flush_threads(shared);
        self.timeline.add(time, self.live());
        self.unproven.outdate();
        let counts = self.counts(external);
        let (reason, exit) = (ImageEndReason::Detached, None);
        shared.records.push(Record::ImageEnd(ImageEnd { image: self.id, time, reason, exit }));
        shared.records.push(Record::ImageCounts(ImageCounts { image: self.id, counts }));
        shared.writer.send(Job::Sites(self.id, self.sites(shared)));
        let timeline = std::mem::replace(&mut self.timeline, Timeline::new());
        shared.writer.send(Job::Timeline(Some(self.id), timeline.finish()));
        shared.writer.send(Job::Memory(self.id, self.memory.take()));
        counts
    }

    /// Begins another file, after [`Image::end_segment`]: writes everything that is needed to read
    /// it on its own. The session's ledger must have been restarted.
    pub(crate) fn begin_segment(
        &mut self,
        shared: &mut Shared,
        time: Time,
        start: &ImageStart,
        external: &ExternalCounters,
    ) {
        self.ledger.restart(heapledger_ledger::Time(time.0));
        self.external_before = *external;
        self.anomalies = Anomalies::default();
        self.unproven.outdate();
        self.chunks.begin_segment(time);
        self.threads.begin_segment();
        self.begin_with_names();
        let counts = self.ledger.counts();
        shared.records.push(Record::ImageStart(ImageStart {
            fork_node_base: StackId::ROOT,
            inherited_blocks: counts.blocks_inherited,
            inherited_bytes: counts.bytes_inherited,
            carried: Some(self.live()),
            ..start.clone()
        }));
        shared.records.extend(self.tree.mappings(self.id).map(Record::Mapping));
        self.flush_threads(shared);
        self.write_kept_nodes(shared);
        self.write_checkpoint(shared, time);
        self.repeat_marks(shared, time);
        self.mappings.begin_segment(time);
        self.timeline.add(time, self.live());
    }

    /// Returns the current state of the image, for a file that is replaced later.
    pub(crate) fn snapshot(&self, shared: &Shared, external: &ExternalCounters) -> [Job; 4] {
        self.unproven.outdate();
        let counts = Record::ImageCounts(ImageCounts { image: self.id, counts: self.counts(external) });
        [
            Job::Records(vec![counts]),
            Job::Sites(self.id, self.sites(shared)),
            Job::Timeline(Some(self.id), self.timeline.clone().finish()),
            Job::Memory(self.id, self.memory.so_far().to_vec()),
        ]
    }
}
