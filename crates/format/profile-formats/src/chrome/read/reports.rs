//! The allocator dumps of a trace as memory reports.

use std::borrow::Cow;
use std::collections::BTreeMap;

use heapledger_report_format::{Kind, Report, Reports, Unit};
use serde::Deserialize;

use super::Trace;
use super::heaps::Hex;
use crate::chrome::allocators::WEAK;
use crate::chrome::leaves::leaves;
use crate::read_error::ReadError;

#[derive(Deserialize)]
struct Allocator<'a> {
    #[serde(default, borrow)]
    attrs: BTreeMap<Cow<'a, str>, Attribute>,
    #[serde(default)]
    flags: u32,
}

#[derive(Deserialize)]
struct Attribute {
    #[serde(default)]
    units: String,
    value: String,
}

/// Reads a trace: the sizes of allocators in each process's last dump that has some, as reports
/// below `dumps/`.
///
/// # Errors
///
/// Fails if it is not such a file, or no dump has allocators.
pub fn reports(bytes: &[u8]) -> Result<Reports, ReadError> {
    let trace = Trace::of(bytes)?;
    let mut reports = Reports::default();
    for (pid, process) in &trace.processes {
        let mut all: BTreeMap<Cow<'_, str>, Allocator<'_>> = BTreeMap::new();
        for part in &process.allocators.1 {
            all.extend(trace.parse::<BTreeMap<Cow<'_, str>, Allocator<'_>>>(part)?);
        }
        let name = if process.name.is_empty() { "process" } else { &process.name };
        let name = format!("{name} (pid {pid})");
        // Memory that several processes own is in the reports of each, so the shared dump is left
        // out.
        let is_own = |name: &str| !name.starts_with("global/");
        let strong = all.iter().filter(|(name, allocator)| allocator.flags & WEAK == 0 && is_own(name));
        for (path, bytes) in leaves(strong.map(|(name, allocator)| (&**name, allocator.size()))) {
            reports.reports.push(Report {
                process: name.as_str().into(),
                path: format!("dumps/{path}").into(),
                stable_path: None,
                kind: Kind::Other,
                unit: Unit::Bytes,
                amount: i64::try_from(bytes).unwrap_or(i64::MAX),
                description: "What a provider of memory dumps says.".into(),
            });
        }
    }
    if reports.reports.is_empty() {
        return Err(ReadError::new(0, "it is a trace in which no memory dump says what allocators hold"));
    }
    Ok(reports)
}

impl Allocator<'_> {
    fn size(&self) -> Option<u64> {
        let size = self.attrs.get("size").filter(|size| size.units == "bytes")?;
        Hex::parse(&size.value)
    }
}
