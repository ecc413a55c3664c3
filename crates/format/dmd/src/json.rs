//! An analysis as JSON.

use serde_json::{Map, Value, json};

use crate::advice::{Owner, Part, Plan, Step};
use crate::analysis::{Analysis, DefectRecord, GroupBy, Kind, Record, Share, Total};

impl Plan {
    /// Returns the plan as JSON: all steps, those with the most bytes first. Sizes are in bytes.
    pub fn to_json(&self) -> Value {
        let part = |part: &Part| json!({ "place": part.location, "type": part.type_name, "bytes": part.bytes, "blocks": part.blocks });
        let step = |step: &Step| {
            json!({
                "advice": step.advice.to_string(),
                "action": step.advice.action(),
                "owner": step.advice.owner().map(Owner::subject),
                "bytes": step.bytes,
                "blocks": step.blocks,
                "parts": step.parts.iter().map(part).collect::<Vec<_>>(),
            })
        };
        json!({
            "unreported": self.unreported.iter().map(step).collect::<Vec<_>>(),
            "twice_reported": self.twice.iter().map(step).collect::<Vec<_>>(),
        })
    }
}

impl Analysis {
    /// Returns the analysis as JSON: everything that the text says, uncut. Sizes are in bytes.
    pub fn to_json(&self) -> Value {
        json!({
            "mode": self.mode.name(),
            "by": self.by.name(),
            "variables": self.variables,
            "is_estimated": self.is_estimated,
            "heap": total(&self.heap),
            "kinds": self.kinds.iter().map(kind).collect::<Vec<_>>(),
            "defects": self.defects.iter().map(flaw).collect::<Vec<_>>(),
            "defects_count": self.defects_count,
        })
    }
}

impl GroupBy {
    /// Returns the name in options and JSON.
    pub fn name(self) -> &'static str {
        match self {
            GroupBy::Stack => "stack",
            GroupBy::Type => "type",
            GroupBy::Module => "module",
            GroupBy::Context => "context",
            GroupBy::Owner => "owner",
            GroupBy::Line => "line",
            GroupBy::File => "file",
            GroupBy::Function => "function",
        }
    }
}

fn total(total: &Total) -> Value {
    let mut value = json!({ "bytes": total.bytes, "blocks": total.blocks });
    if total.bytes_error > 0.0 {
        value["bytes_error"] = total.bytes_error.into();
        value["blocks_error"] = total.blocks_error.into();
    }
    value
}

fn kind(kind: &Kind) -> Value {
    let mut value = total(&kind.total);
    value["name"] = kind.name.name().into();
    value["records_count"] = kind.records_count.into();
    value["records"] = kind.records.iter().map(record).collect();
    value
}

fn record(record: &Record) -> Value {
    let mut value = Map::new();
    let mut add = |key: &str, item: Value| value.insert(key.to_owned(), item);
    if let Some(name) = &record.name {
        add("name", name.as_ref().into());
    }
    add("blocks", record.blocks.into());
    add("bytes", record.usable.into());
    add("requested", record.requested.into());
    add("slop", record.slop.into());
    if let Some(estimate) = record.estimate {
        add("blocks_error", estimate.blocks_error.into());
        add("bytes_error", estimate.bytes_error.into());
        add("blocks_sampled", estimate.sampled_blocks.into());
    }
    add("sizes", record.sizes.iter().map(|(size, blocks)| json!({ "bytes": size, "blocks": blocks })).collect());
    if let Some(module) = &record.module {
        add("module", module.as_ref().into());
    }
    for (key, shares) in [("types", &record.types), ("contexts", &record.contexts)] {
        if shares.iter().any(|share| share.name.is_some()) {
            add(key, shares.iter().map(share).collect());
        }
    }
    if !record.addresses.is_empty() {
        add("addresses", record.addresses.iter().map(|address| Value::from(format!("0x{address:x}"))).collect());
    }
    if record.name.is_none() {
        add("allocated_at", json!(strings(&record.alloc)));
    }
    if !record.reports.is_empty() {
        let reports = record.reports.iter();
        let report =
            reports.map(|it| json!({ "reporters": strings(&it.reporters), "reported_at": strings(&it.stack) }));
        add("reports", report.collect());
    }
    value.into()
}

fn share(share: &Share) -> Value {
    json!({ "name": share.name.as_deref(), "bytes": share.bytes, "blocks": share.blocks })
}

fn flaw(flaw: &DefectRecord) -> Value {
    json!({
        "kind": flaw.kind.name(),
        "what": flaw.what(),
        "reporter": flaw.reporter.as_deref(),
        "address": format!("0x{:x}", flaw.address),
        "reported_at": flaw.stack.as_deref().map(strings),
        "allocated_at": flaw.alloc.as_deref().map(strings),
        "measured": flaw.measured,
        "usable": flaw.usable,
        "reports": flaw.count,
    })
}

fn strings(texts: &[std::sync::Arc<str>]) -> Vec<&str> {
    texts.iter().map(AsRef::as_ref).collect()
}
