//! The end of a session: what is written only then, and its results.

use heapledger_core::{Bytes, arch};
use heapledger_recording::{Departure, ExitStatus, Footer, ImageEndReason, Pause, RunCosts};
use heapledger_wire::event::units;

use super::Collector;
use super::merge::SETTLING;
use crate::error::RecordError;
use crate::file_state::WriteFailure;
use crate::outcome::{self, DamagedCodeFile, ProcessOutcome};
use crate::process;
use crate::session_state::Shared;
use crate::writer::Job;

/// The end of a session, apart from its images.
#[derive(Debug)]
pub(crate) struct SessionEnd {
    pub(crate) exit: Option<ExitStatus>,
    pub(crate) program_cpu_ns: Option<u64>,
    pub(crate) program_wall_ns: u64,
    pub(crate) collector_cpu_ns: u64,
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
    pub(crate) code_files_damaged: Vec<DamagedCodeFile>,
    pub(crate) bytes_written: u64,
    pub(crate) failure: Option<Failed>,
}

/// The place where a recording failed.
#[derive(Debug)]
pub(crate) enum Failed {
    Here(RecordError),
    Writing(WriteFailure),
}

impl Collector {
    /// Ends the session, which the page already declares to be over: merges everything that the
    /// processes still running have written so far, and detaches from them.
    pub(crate) fn end_session(&mut self) {
        let end = units(arch::ticks());
        self.merge.end_session();
        while self.merge.may_get(end) && !self.has_failed() {
            self.iterate();
            std::thread::sleep(SETTLING);
        }
        let now = units(arch::ticks());
        for index in 0..self.images.slots.len() {
            if self.images.slots[index].ended.is_none() {
                self.end_image(index, ImageEndReason::Detached, now);
            }
        }
        while !self.merge.sources.is_empty() && !self.has_failed() {
            self.iterate();
        }
        // After a failure, nothing more is merged.
        self.merge.sources.clear();
        for index in 0..self.images.slots.len() {
            self.images.finish(index, self.segment.begins(), &mut self.shared);
        }
    }

    /// Writes what is known only at the end, and finishes the file.
    pub(crate) fn finish(mut self, end: &SessionEnd) -> Finished {
        self.take_messages();
        self.end_resident();
        self.images.open_sites.write_settled(true, &self.shared);
        self.write_departures(None);
        self.images.write_ends(end.exit, &mut self.shared);
        let (total, records) = self.images.process_totals(&self.shared);
        self.shared.records.extend(records);
        let processes = self.images.outcomes();
        self.shared.flush_records();

        let now = self.now();
        let Shared { writer, timeline, failure, departures, events, code_files_damaged, .. } = self.shared;
        let departures = departures.into_listed();
        let events_of_file = events - self.segment.events_before;
        let stalls = self.segment.pauses.into_iter().filter(|pause| pause.is_stall).collect();
        writer.send(Job::Timeline(None, timeline.finish()));
        let footer = Footer {
            time: now,
            complete: failure.is_none() && !self.was_refused,
            counts: total,
            exit: end.exit,
            costs: RunCosts {
                collector_cpu_ns: Some(end.collector_cpu_ns),
                collector_rss_max: process::own_rss_max().map(Bytes),
                ring_bytes: Some(Bytes(self.merge.costs.bytes_max)),
                target_private_bytes: Some(Bytes(self.images.private_bytes_max)),
                hook_ns: Some(self.merge.order.clock.duration(self.merge.costs.hook_ticks)),
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
        let mut counts = self.segment.counts_before;
        outcome::add_segment(&mut counts, &total);
        let footer = Footer { complete: footer.complete && failure.is_none(), counts, ..footer };
        Finished {
            command_has_come: self.images.command_has_come,
            footer,
            events_of_file,
            stalls,
            processes,
            departures,
            code_files_damaged,
            bytes_written: written,
            failure,
        }
    }
}
