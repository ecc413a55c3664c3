//! The kinds of files, and the verbs that read each.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use heapledger_recording::Recording;
use serde::Serialize;

use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::import_format::{ImportFormat, unpacking};
use crate::input::Input;
use crate::text::shown;

/// The kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// A recording with all events.
    Recording,
    /// A recording of a sample.
    Sample,
    /// A recording with totals only.
    Aggregate,
    /// A profile or an allocation log of another tool.
    Profile,
    /// A trace of Chrome with memory dumps.
    Dump,
    /// A heap snapshot of a JavaScript engine.
    Snapshot,
    /// A log of the dark matter detector.
    Dmd,
    /// A memory report file.
    Reports,
}

/// The verbs for everything that is a recording, or is made one.
const RECORDED: [&str; 18] = [
    "summary",
    "top",
    "tree",
    "timeline",
    "temporary",
    "leaks",
    "sizes",
    "reallocations",
    "blocks",
    "growth",
    "advise",
    "types",
    "callers",
    "callees",
    "diff",
    "flame",
    "info",
    "rss",
];

/// The verbs for files without events.
const TOTALS: [&str; 11] =
    ["summary", "top", "tree", "leaks", "temporary", "types", "callers", "callees", "diff", "flame", "info"];

/// The contents of a file, as far as verbs depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Contents {
    pub(super) kind: Kind,
    /// True if it has single allocations and frees over time.
    pub(super) has_events: bool,
}

impl Contents {
    /// Returns the verbs that can be asked about such a file. An action of a verb follows it after
    /// a slash.
    pub(super) fn verbs(self) -> Vec<&'static str> {
        let recorded = if self.has_events { &RECORDED[..] } else { &TOTALS[..] };
        match self.kind {
            Kind::Recording | Kind::Sample => [recorded, &["dmd"]].concat(),
            Kind::Aggregate | Kind::Profile => recorded.to_vec(),
            Kind::Dump => [recorded, &["reports/show"]].concat(),
            Kind::Snapshot => {
                let actions = ["heap/census", "heap/find", "heap/dominators", "heap/node", "heap/paths", "heap/diff"];
                [&["summary", "top", "tree", "types", "diff", "info"][..], &actions].concat()
            }
            Kind::Dmd => vec!["dmd"],
            Kind::Reports => vec!["reports/show", "reports/diff"],
        }
    }

    /// Finds out the contents of a file, from its first 64 KiB and, if it is a recording, its end.
    pub(super) fn of(path: &Path) -> Result<Contents> {
        let input = Input::map_unconverted(path)?;
        if input.is_recording() {
            return Ok(of_recording(&input.recording()?));
        }
        if let Some(format) = input.import_format() {
            return Ok(of_import(format));
        }
        let head = head(path).unwrap_or_default();
        let has = |key: &str| head.windows(key.len()).any(|window| window == key.as_bytes());
        let kind = match () {
            () if has("\"invocation\"") && has("\"version\"") => Kind::Dmd,
            () if has("\"hasMozMallocUsableSize\"") || has("\"reports\"") => Kind::Reports,
            () => {
                let what = format_args!("`{}` is not a file that the page shows", shown(path));
                return Err(
                    Failure::new(Exit::Unreadable, what).hint("`heapledger help open` says which files it shows")
                );
            }
        };
        Ok(Contents { kind, has_events: false })
    }
}

fn of_recording(recording: &Recording<'_>) -> Contents {
    match recording.session() {
        Some(session) if session.totals_only => Contents { kind: Kind::Aggregate, has_events: false },
        _ if recording.is_sample() => Contents { kind: Kind::Sample, has_events: true },
        _ => Contents { kind: Kind::Recording, has_events: true },
    }
}

fn of_import(format: ImportFormat) -> Contents {
    let (kind, has_events) = match format {
        ImportFormat::V8Snapshot | ImportFormat::FirefoxSnapshot => (Kind::Snapshot, false),
        ImportFormat::Chrome => (Kind::Dump, false),
        ImportFormat::Log | ImportFormat::Heaptrack | ImportFormat::Bytehound => (Kind::Profile, true),
        // Files of memray and Firefox have events or totals, which only reading them tells.
        _ => (Kind::Profile, false),
    };
    Contents { kind, has_events }
}

/// Returns the first 64 KiB of a file, unpacked if it is packed.
fn head(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut head = Vec::new();
    unpacking(BufReader::new(File::open(path)?))?.take(64 << 10).read_to_end(&mut head)?;
    Ok(head)
}

#[cfg(test)]
mod tests;
