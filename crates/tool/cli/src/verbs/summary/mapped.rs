//! The memory that was mapped, in a summary.

use heapledger_analysis::Error;
use heapledger_analysis::rewrite::{self, MappedTotals};
use heapledger_recording::Recording;
use serde::Serialize;

use crate::error::Result;
use crate::format::{bytes, seconds, time};
use crate::input::Input;
use crate::messages::notify;

/// The most kinds that are named.
const KINDS_MAX: usize = 3;

/// Returns the memory that was mapped. `None` if mappings were not recorded, or have changed too
/// often.
pub(super) fn find(input: &Input, recording: &Recording<'_>) -> Result<Option<MappedTotals>> {
    let found = match rewrite::mapped_totals(recording) {
        // The other figures of the summary have nothing to do with it.
        Err(error @ Error::MappingsLimit) => {
            notify(format_args!("heapledger: what was mapped is not summed up: {error}"));
            None
        }
        found => found.map_err(|error| input.unanswered(error))?,
    };
    if let Some(found) = &found {
        input.warn_of(&found.damage);
    }
    Ok(found)
}

/// Adds the facts about it.
pub(super) fn print(mapped: &MappedTotals, fact: &mut impl FnMut(&str, String, String)) {
    fact("most mapped", bytes(mapped.bytes_max.0), format!("at {}", time(mapped.bytes_max_time)));
    let end: u64 = mapped.end.iter().map(|(_, live)| live.bytes.0).fold(0, u64::saturating_add);
    let kinds = mapped.end.iter().take(KINDS_MAX);
    let mut kinds: Vec<String> = kinds.map(|(it, live)| format!("{} {}", bytes(live.bytes.0), it.name())).collect();
    if mapped.end.len() > KINDS_MAX {
        kinds.push("…".to_owned());
    }
    fact("mapped at the end", bytes(end), kinds.join(" · "));
}

/// The memory that was mapped, for JSON.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct MappedJson {
    /// The most bytes that were mapped at once.
    bytes_max: u64,
    bytes_max_seconds: f64,
    /// The memory that was mapped at the end, by kind, the largest first.
    end: Vec<KindJson>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct KindJson {
    kind: &'static str,
    bytes: u64,
    mappings: u64,
}

impl MappedJson {
    pub(super) fn new(mapped: &MappedTotals) -> MappedJson {
        let kind = |(it, live): &(rewrite::MappedUse, heapledger_recording::Live)| KindJson {
            kind: it.name(),
            bytes: live.bytes.0,
            mappings: live.blocks.0,
        };
        MappedJson {
            bytes_max: mapped.bytes_max.0,
            bytes_max_seconds: seconds(mapped.bytes_max_time),
            end: mapped.end.iter().map(kind).collect(),
        }
    }
}
