//! The document that `heapledger timeline --json` prints.

use heapledger_analysis::{Metric, ProcessChangeKind};
use heapledger_recording::{MemorySample, Sample, Time};
use serde::Serialize;

use super::view::{Band, Program, View, at};
use crate::format::seconds;
use crate::json::amounts::{ErrorsJson, RateJson, rates_json};
use crate::json::document::Document;
use crate::json::recording::{ExitJson, PauseJson};
use crate::json::selection::SelectionJson;
use crate::question::Question;

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct TimelineJson {
    /// The processes that were asked for; empty means all.
    processes: Vec<String>,
    #[serde(flatten)]
    selection: SelectionJson,
    from_seconds: f64,
    to_seconds: f64,
    /// The rates at which blocks were sampled, if they were. The live figures are then estimates.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    sampling: Vec<RateJson>,
    peak: PeakJson,
    live: Vec<LiveJson>,
    /// The slop over time, with `--slop`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    slop: Vec<SlopJson>,
    /// The memory that the system counted, for all processes together.
    memory: Vec<MemoryJson>,
    programs: Vec<ProgramJson>,
    pauses: Vec<PauseJson>,
    /// The breakdown of the groups: the word of `--by`; `resident` with `--resident`.
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<&'static str>,
    /// The times of the groups' figures.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    times_seconds: Vec<f64>,
    /// The groups, the largest first, and last all others. With `--resident`, the parts of resident
    /// memory.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    groups: Vec<LayerJson>,
}

impl Document for TimelineJson {
    const SCHEMA: &'static str = "timeline";
    const ROWS: Option<&'static str> = Some("live");
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct PeakJson {
    time_seconds: f64,
    bytes: u64,
    blocks: u64,
    #[serde(flatten)]
    errors: ErrorsJson,
}

/// The amount live at a moment.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct LiveJson {
    time_seconds: f64,
    bytes: u64,
    blocks: u64,
}

/// The slop of the live blocks at a moment.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct SlopJson {
    time_seconds: f64,
    bytes: u64,
}

/// The memory that the system counted at a moment, in bytes.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct MemoryJson {
    time_seconds: f64,
    resident: u64,
    resident_anonymous: u64,
    resident_file: u64,
    brk: u64,
    mappings: u64,
    swapped: u64,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ProgramJson {
    image: u32,
    pid: u32,
    /// How the program started: `exec` or `began`.
    how: &'static str,
    from_seconds: f64,
    to_seconds: Option<f64>,
    exit: Option<ExitJson>,
    command: String,
}

/// The bytes that a group had live at each of the times.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct LayerJson {
    name: String,
    bytes: Vec<u64>,
}

impl TimelineJson {
    pub(super) fn new(view: &View<'_, '_>, question: &Question<'_, '_>, by: Option<&'static str>) -> TimelineJson {
        let inside = |time: Time| (view.from..=view.to).contains(&time);
        // The amount live when the shown part begins.
        let first = at(&view.history.live, view.from);
        let live = view.history.live.iter().filter(|sample| inside(sample.time));
        let first_slop = at(&view.history.slop, view.from);
        let slop = view.history.slop.iter().filter(|sample| inside(sample.time));
        let has_first = view.from > view.history.begins;
        TimelineJson {
            processes: view.processes(),
            selection: SelectionJson::of(question).ordered_by(Metric::Bytes),
            from_seconds: seconds(view.from),
            to_seconds: seconds(view.to),
            sampling: rates_json(view.recording),
            peak: PeakJson {
                time_seconds: seconds(view.peak.time),
                bytes: view.at_peak.bytes.0,
                blocks: view.at_peak.blocks.0,
                errors: ErrorsJson::new(&view.at_peak),
            },
            live: has_first.then_some(&first).into_iter().chain(live).map(LiveJson::from).collect(),
            slop: (has_first && !view.history.slop.is_empty())
                .then_some(&first_slop)
                .into_iter()
                .chain(slop)
                .map(SlopJson::from)
                .collect(),
            memory: view.history.memory.iter().filter(|sample| inside(sample.time)).map(MemoryJson::from).collect(),
            programs: view.programs.iter().map(ProgramJson::from).collect(),
            by,
            times_seconds: view.times.iter().copied().map(seconds).collect(),
            groups: view.bands.iter().map(LayerJson::from).collect(),
            pauses: view.history.pauses.iter().map(PauseJson::from).collect(),
        }
    }
}

impl From<&Sample> for LiveJson {
    fn from(sample: &Sample) -> LiveJson {
        LiveJson { time_seconds: seconds(sample.time), bytes: sample.live.bytes.0, blocks: sample.live.blocks.0 }
    }
}

impl From<&Sample> for SlopJson {
    fn from(sample: &Sample) -> SlopJson {
        SlopJson { time_seconds: seconds(sample.time), bytes: sample.live.bytes.0 }
    }
}

impl From<&MemorySample> for MemoryJson {
    fn from(sample: &MemorySample) -> MemoryJson {
        MemoryJson {
            time_seconds: seconds(sample.time),
            resident: sample.resident.0,
            resident_anonymous: sample.resident_anonymous.0,
            resident_file: sample.resident_file.0,
            brk: sample.heap.0,
            mappings: sample.mappings.0,
            swapped: sample.swapped.0,
        }
    }
}

impl From<&Program> for ProgramJson {
    fn from(program: &Program) -> ProgramJson {
        ProgramJson {
            image: program.image.0,
            pid: program.pid,
            how: if program.how == ProcessChangeKind::Exec { "exec" } else { "began" },
            from_seconds: seconds(program.from),
            to_seconds: program.to.map(seconds),
            exit: program.exit.map(ExitJson::from),
            command: program.command.clone(),
        }
    }
}

impl From<&Band> for LayerJson {
    fn from(band: &Band) -> LayerJson {
        LayerJson { name: band.name.clone(), bytes: band.bytes.clone() }
    }
}
