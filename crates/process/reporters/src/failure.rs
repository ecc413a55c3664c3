//! The report of a failure.

use heapledger_report_format::{Kind, Report, Unit};

use crate::path::{RenderedPath, part};

/// Returns a report for a reporter, or a process, that has failed.
pub(crate) fn failed(name: &str, reason: &str, is_anonymous: bool) -> Report {
    let path = RenderedPath::join("heapledger-failed", part(name), is_anonymous);
    let name = RenderedPath::new(name, is_anonymous).text;
    Report {
        process: "".into(),
        path: path.text.into(),
        stable_path: path.stable.map(Into::into),
        kind: Kind::Other,
        unit: Unit::Count,
        amount: 1,
        description: format!("The reports of {name} are missing, or incomplete: {reason}.").into(),
    }
}
