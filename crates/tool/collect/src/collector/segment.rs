//! The current file of a recording, of which there are several if files are rotated.

use std::fs::File;
use std::time::{Duration, Instant};

use heapledger_core::sample::Rate;
use heapledger_recording::{Counts, Footer, Live, Pause, Record, Sampling, Session as SessionRecord, Time, Timeline};

use super::Collector;
use super::slot::Stage;
use crate::outcome;
use crate::session_state::Shared;
use crate::writer::Job;

/// The maximum number of events that are merged per iteration, so that the rings are looked at
/// again.
const ITERATION_EVENTS_MAX: u64 = 1 << 19;
/// The same while files are rotated, which happens between iterations. Also the minimum number of
/// events in such a file: a new file already has all live blocks and stacks, so its length alone is
/// no reason to end it.
const SEGMENT_EVENTS_MIN: u64 = 1 << 16;

/// The current file, and what the next one has to repeat.
#[derive(Debug)]
pub(super) struct Segment {
    /// The session record of the current segment.
    session: SessionRecord,
    began: Instant,
    pub(super) events_before: u64,
    /// The totals of the earlier segments.
    pub(super) counts_before: Counts,
    /// The times in which allocations were not recorded.
    pub(super) pauses: Vec<Pause>,
    /// The rates at which blocks were sampled.
    sampling: Vec<Sampling>,
}

impl Segment {
    pub(super) fn new(session: SessionRecord) -> Segment {
        Segment {
            session,
            began: Instant::now(),
            events_before: 0,
            counts_before: Counts::default(),
            pauses: Vec::new(),
            sampling: Vec::new(),
        }
    }

    /// Returns the time at which the current file begins.
    pub(super) fn begins(&self) -> Time {
        self.session.begins
    }

    /// Returns the maximum number of events that are merged per iteration.
    pub(super) fn iteration_events_max(&self) -> u64 {
        if self.session.segment > 0 { SEGMENT_EVENTS_MIN } else { ITERATION_EVENTS_MAX }
    }

    /// Notes that allocations are not recorded from this time on.
    pub(super) fn pause(&mut self, from: Time, shared: &mut Shared) {
        let pause = Pause { from, until: None, is_stall: false };
        self.pauses.push(pause);
        shared.paused_from.get_or_insert(from);
        shared.records.push(Record::Pause(pause));
    }

    /// Notes that allocations are recorded again from this time on.
    pub(super) fn resume(&mut self, until: Time, shared: &mut Shared) {
        if let Some(pause) = self.pauses.iter_mut().rfind(|pause| !pause.is_stall) {
            pause.until = Some(until);
            shared.records.push(Record::Pause(*pause));
        }
    }

    /// Notes that programs did not wait for the recorder between these times.
    pub(super) fn note_stall(&mut self, from: Time, until: Time, shared: &mut Shared) {
        let stall = Pause { from: from.min(until), until: Some(until), is_stall: true };
        self.pauses.push(stall);
        shared.records.push(Record::Pause(stall));
    }

    /// Notes that blocks are sampled at this rate from this time on.
    pub(super) fn rate(&mut self, from: Time, rate: Rate, shared: &mut Shared) {
        let sampling = Sampling { from, rate };
        self.sampling.push(sampling);
        shared.records.push(Record::Sampling(sampling));
    }
}

impl Collector {
    /// True if the current file has reached this age or this length.
    pub(crate) fn is_segment_full(&self, age: Option<Duration>, length: Option<u64>) -> bool {
        let (segment, writer) = (&self.segment, &self.shared.writer);
        let is_long = |length| {
            let has_begun = writer.segments() + 1 == segment.session.segment;
            has_begun
                && self.shared.events - segment.events_before >= SEGMENT_EVENTS_MIN
                && writer.bytes_written() >= length
        };
        let is_due = age.is_some_and(|age| segment.began.elapsed() >= age) || length.is_some_and(is_long);
        // A file without running images would be empty, and the last file of a session would have
        // no exit status.
        is_due && self.images.slots.iter().any(|slot| matches!(slot.stage, Stage::Running(_)))
    }

    /// Returns the number of complete files that were followed by another one.
    pub(crate) fn segments_ended(&self) -> u32 {
        self.shared.writer.segments()
    }

    /// Ends the file here, and continues in another one, which can be read on its own.
    pub(crate) fn rotate(&mut self, next: File) {
        // Events that are still to be merged are not earlier.
        let order = &mut self.merge.order;
        order.reached = order.reached.max(self.merge.horizon);
        let now = Time(order.clock.time(order.reached)).max(self.segment.begins());
        let (segment, shared) = (&mut self.segment, &mut self.shared);
        self.images.end_segment(now, shared);
        let (counts, records) = self.images.process_totals(shared);
        outcome::add_segment(&mut segment.counts_before, &counts);
        shared.records.extend(records);
        shared.flush_records();
        let live = Live::from(shared.session.live());
        let mut timeline = std::mem::replace(&mut shared.timeline, Timeline::new());
        timeline.add(now, live);
        shared.writer.send(Job::Timeline(None, timeline.finish()));
        let footer = Footer { time: now, complete: !self.was_refused, counts, ..Footer::default() };
        shared.writer.send(Job::Finish(Box::new(footer)));

        shared.writer.send(Job::Next(next));
        segment.began = Instant::now();
        segment.events_before = shared.events;
        segment.session.segment += 1;
        segment.session.begins = now;
        shared.session.restart(heapledger_ledger::Time(now.0));
        shared.timeline.add(now, live);
        shared.records.push(Record::Session(segment.session.clone()));
        shared.records.extend(segment.pauses.iter().copied().map(Record::Pause));
        shared.records.extend(segment.sampling.iter().copied().map(Record::Sampling));
        shared.records.extend(shared.modules.all().map(Record::Module));
        shared.records.extend(shared.texts.used().map(Record::Text));
        self.images.begin_segment(now, shared);
        shared.flush_records();
    }
}
