//! The state that all images of a session share.

use heapledger_recording::{Compressor, Record, Session as SessionRecord, TextId, Time, Timeline};

use crate::departures::Departures;
use crate::error::RecordError;
use crate::forks::Forks;
use crate::modules::Modules;
use crate::outcome::DamagedCodeFile;
use crate::texts::Texts;
use crate::writer::{Job, Writer};

/// The state that all images share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) session: heapledger_ledger::Session,
    pub(crate) modules: Modules,
    pub(crate) texts: Texts,
    pub(crate) forks: Forks,
    pub(crate) timeline: Timeline,
    /// CLOCK_MONOTONIC at about the session's beginning, in nanoseconds.
    pub(crate) started_monotonic_ns: u64,
    pub(crate) compressor: Compressor,
    pub(crate) writer: Writer,
    /// The programs that may run unrecorded.
    pub(crate) departures: Departures,
    /// The metadata that are not written yet.
    pub(crate) records: Vec<Record>,
    /// True if nodes are needed again for further files.
    pub(crate) keeps_nodes: bool,
    /// True if events go to the file, not only to the ledgers.
    pub(crate) keeps_events: bool,
    /// True if mappings are recorded.
    pub(crate) keeps_mappings: bool,
    /// The number of events so far.
    pub(crate) events: u64,
    /// True if the recording is of a sample; frees of unknown blocks are then not recorded.
    pub(crate) is_sample: bool,
    /// The time when recording was paused for the first time; later frees of unknown blocks are
    /// attributed to the pause.
    pub(crate) paused_from: Option<Time>,
    /// The first files with names of generated code that could not be read to their ends.
    pub(crate) code_files_damaged: Vec<DamagedCodeFile>,
    /// The error that ends the recording.
    pub(crate) failure: Option<RecordError>,
}

impl Shared {
    /// Returns the state at the beginning of a session.
    pub(crate) fn new(session: &SessionRecord, writer: Writer) -> Shared {
        Shared {
            session: heapledger_ledger::Session::new(),
            modules: Modules::default(),
            texts: Texts::default(),
            forks: Forks::default(),
            timeline: Timeline::new(),
            started_monotonic_ns: heapledger_core::sys::monotonic_nanoseconds(),
            departures: Departures::default(),
            compressor: Compressor::new(),
            writer,
            keeps_nodes: session.segment > 0,
            keeps_events: !session.totals_only,
            keeps_mappings: false,
            is_sample: session.samples,
            records: vec![Record::Session(session.clone())],
            events: 0,
            paused_from: None,
            code_files_damaged: Vec::new(),
            failure: None,
        }
    }

    pub(crate) fn fail(&mut self, error: RecordError) {
        self.failure.get_or_insert(error);
    }

    /// Returns the number of a text that is not at an address of a program. The file has it from
    /// now on.
    pub(crate) fn name_text(&mut self, bytes: &[u8]) -> TextId {
        let id = self.texts.named(bytes);
        self.records.extend(self.texts.use_text(id).map(Record::Text));
        id
    }

    /// Sends the metadata gathered so far to the file.
    pub(crate) fn flush_records(&mut self) {
        if !self.records.is_empty() {
            let records = std::mem::take(&mut self.records);
            self.writer.send(Job::Records(records));
        }
    }
}
