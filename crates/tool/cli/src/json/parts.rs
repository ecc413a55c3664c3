//! Parts of a selection, for JSON.

use heapledger_analysis::{Amount, Part};
use heapledger_core::Bytes;
use heapledger_recording::Recording;
use serde::Serialize;

use crate::json::amounts::AmountJson;
use crate::json::document::Document;
use crate::json::table::TableJson;
use crate::question::Question;

impl Document for TableJson<PartJson> {
    const SCHEMA: &'static str = "parts";
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct PartJson {
    #[serde(flatten)]
    amount: AmountJson,
    share: f64,
    #[serde(flatten)]
    part: PartName,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(untagged)]
enum PartName {
    Thread { pid: Option<u32>, image: u32, thread: u32, tid: Option<u32>, name: Option<String> },
    Process { pid: u32, first_image: u32 },
    Size { size: u64 },
    SizeClass { size_min: u64, size_max: u64 },
    Rest { others: bool },
}

impl PartJson {
    pub(crate) fn new(question: &Question<'_, '_>, part: Part, amount: &Amount, whole: &Amount) -> PartJson {
        PartJson {
            amount: AmountJson::new(amount, question.selection.moment),
            share: amount.share(whole, question.metric),
            part: name(question.recording, part),
        }
    }
}

fn name(recording: &Recording<'_>, part: Part) -> PartName {
    match part {
        Part::Size(size) => PartName::Size { size: size.0 },
        Part::SizeClass(most) => PartName::SizeClass { size_min: smallest(most), size_max: most.0 },
        Part::Rest => PartName::Rest { others: true },
        Part::Process(first) => {
            PartName::Process { pid: recording.image(first).map_or(0, |image| image.pid), first_image: first.0 }
        }
        Part::Thread(image, thread) => {
            let known = recording.thread(image, thread);
            PartName::Thread {
                pid: recording.image(image).map(|image| image.pid),
                image: image.0,
                thread: thread.0,
                tid: known.map(|thread| thread.tid),
                name: known.map(|thread| String::from_utf8_lossy(&thread.name).into_owned()),
            }
        }
    }
}

/// Returns the smallest size of the class whose largest is `most`.
fn smallest(most: Bytes) -> u64 {
    if most.0 == 1 { 0 } else { most.0 / 2 + 1 }
}
