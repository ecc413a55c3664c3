//! The details of one row.

use std::collections::BTreeMap;
use std::sync::Arc;

use heapledger_dmd::{Advice, CodeClass, DefectKind, DefectRecord, Record, Step};
use serde::Serialize;

use super::figures::{bytes, counted, number, percent};
use super::lists::{Amount, AnalysedLog, List, Row, RowsBy};

/// The details as sent to the browser.
#[derive(Debug, Default, Serialize)]
pub(super) struct Details {
    title: String,
    figures: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
    /// Names and texts.
    facts: Vec<(&'static str, String)>,
    sizes: Vec<String>,
    stacks: Vec<Stack>,
    parts: Vec<Part>,
    #[serde(skip_serializing_if = "Option::is_none")]
    within: Option<Within>,
}

#[derive(Debug, Serialize)]
struct Stack {
    title: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reporter: Option<String>,
    frames: Vec<Frame>,
}

#[derive(Debug, Serialize)]
struct Frame {
    function: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    place: Option<String>,
    whose: &'static str,
    is_owner: bool,
}

#[derive(Debug, Serialize)]
struct Part {
    value: String,
    count: String,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

/// The group of blocks as a selection to look at.
#[derive(Debug, Serialize)]
struct Within {
    by: RowsBy,
    name: String,
    list: List,
    label: String,
}

const SIZES_MAX: usize = 40;
const PARTS_MAX: usize = 30;
const NAMES_MAX: usize = 12;

/// Returns the details of blocks that one stack allocated.
pub(super) fn site(read: &AnalysedLog, record: &Record, amount: &Amount, list: List) -> Details {
    let owner = read.adviser.owner(&record.alloc);
    let owner = owner.as_ref();
    let mut stacks = vec![Stack::new(read, "Allocated at", &record.alloc)];
    for (report, title) in record.reports.iter().zip(["Reported by", "Reported again by"]) {
        let names: Vec<&str> = report.reporters.iter().map(|name| &**name).collect();
        let reporter = if names.is_empty() { NAMELESS.to_owned() } else { names.join(", ") };
        stacks.push(Stack { reporter: Some(reporter), ..Stack::new(read, title, &report.stack) });
    }
    let advice = read.kind_name(list).and_then(|kind| read.adviser.record(kind, record));
    Details {
        title: owner.map_or_else(|| "Nobody's that is known".to_owned(), ToString::to_string),
        figures: figures(amount, true),
        advice: advice.map(|advice| sentence(&advice)),
        facts: facts(read, &[record], &[RowsBy::Type, RowsBy::Context, RowsBy::Module]),
        sizes: sizes(&[record]),
        stacks,
        ..Details::default()
    }
}

/// Returns the details of blocks that have a name in common.
pub(super) fn group(read: &AnalysedLog, row: &Row, by: RowsBy, list: List) -> Details {
    let records: Vec<&Record> = row.records.iter().filter_map(|&at| read.records(list).get(at)).collect();
    let others =
        [RowsBy::Owner, RowsBy::Type, RowsBy::Context, RowsBy::Module].into_iter().filter(|&other| other != by);
    // If a record has several types, only its stacks are known to belong to this one.
    let is_whole = !matches!(by, RowsBy::Type | RowsBy::Context);
    Details {
        title: row.name.to_string(),
        figures: figures(&row.amount, is_whole),
        facts: if is_whole { facts(read, &records, &others.collect::<Vec<_>>()) } else { Vec::new() },
        sizes: if is_whole { sizes(&records) } else { Vec::new() },
        parts: owners(read, &records, by, &row.name),
        within: Some(Within { by, name: row.name.to_string(), list, label: "Show its stacks".to_owned() }),
        ..Details::default()
    }
}

/// Returns the details of a step of the plan.
pub(super) fn step(step: &Step, list: List, total: i64) -> Details {
    let owner = step.advice.owner();
    let of = if list == List::Twice { "of what is reported twice" } else { "of what is not reported" };
    let (blocks, usable) = (counted(step.blocks as f64, "block"), counted(step.bytes as f64, "byte"));
    let parts = step.parts.iter().take(PARTS_MAX).map(|part| Part {
        value: bytes(part.bytes as f64),
        count: counted(part.blocks as f64, "block"),
        name: part.location.clone(),
        detail: part.type_name.clone(),
    });
    Details {
        title: owner.map_or_else(|| "Reported twice".to_owned(), |owner| owner.subject().to_owned()),
        figures: format!("{usable} in {blocks}, {} {of}", percent(step.bytes as f64, total as f64)),
        advice: Some(sentence(&step.advice)),
        parts: parts.collect(),
        within: owner.map(|owner| Within {
            by: RowsBy::Owner,
            name: owner.subject().to_owned(),
            list,
            label: "Show their stacks".to_owned(),
        }),
        ..Details::default()
    }
}

/// Returns the details of a reporter's defect.
pub(super) fn defect(read: &AnalysedLog, flaw: &DefectRecord) -> Details {
    let stacks = [("Reported at", &flaw.stack), ("Allocated at", &flaw.alloc)];
    let stacks = stacks.into_iter().filter_map(|(title, stack)| Some(Stack::new(read, title, stack.as_ref()?)));
    let known = |amount: u64| if amount == 0 { String::new() } else { counted(amount as f64, "byte") };
    Details {
        title: flaw.reporter.as_deref().unwrap_or(NAMELESS).to_owned(),
        figures: format!("{}, {}", flaw.what(), counted(flaw.count as f64, "time")),
        advice: Some(remedy(flaw.kind).to_owned()),
        facts: vec![
            ("Address", if flaw.address == 0 { String::new() } else { format!("{:#x}", flaw.address) }),
            ("Measured", known(flaw.measured)),
            ("Usable", known(flaw.usable)),
        ],
        stacks: stacks.collect(),
        ..Details::default()
    }
}

/// The name for a reporter without one.
pub(super) const NAMELESS: &str = "a reporter without a name";

fn remedy(kind: DefectKind) -> &'static str {
    match kind {
        DefectKind::NoBlock => "Measure what is alive: this address was freed, or never allocated.",
        DefectKind::Interior => {
            "Measure a block by the address that the allocator gave; where only a place inside is known, ask for the block \
             around it."
        }
        DefectKind::NotHeap => "Report it as what it is: it is on a stack, static, or mapped, and no part of the heap.",
        DefectKind::Partly => "Measure what the allocator gave, the usable size: the rest of the block is nobody's.",
        DefectKind::FreedWhileReported => "Take the mark back where the block is freed.",
        DefectKind::Unmarked => {
            "Measure blocks by their addresses, so that they are marked; report as heap nothing that is computed."
        }
    }
}

pub(super) fn figures(amount: &Amount, is_whole: bool) -> String {
    let error = amount.error();
    let (usable, blocks) = (amount.usable as f64, counted(amount.blocks as f64, "block"));
    let usable = match error >= 1.0 {
        true => format!("{} ± {} bytes", number(usable), number(error)),
        false => counted(usable, "byte"),
    };
    match is_whole {
        true => {
            format!("{usable} in {blocks}: {} requested, {} slop", number(amount.requested), number(amount.slop))
        }
        false => format!("{usable} in {blocks}"),
    }
}

pub(super) fn sentence(advice: &Advice) -> String {
    let text = advice.to_string();
    let mut letters = text.chars();
    let first: String = letters.next().into_iter().flat_map(char::to_uppercase).collect();
    first + letters.as_str() + "."
}

impl Stack {
    fn new(read: &AnalysedLog, title: &'static str, stack: &heapledger_dmd::DmdStack) -> Stack {
        let owner = read.adviser.owner_at(stack);
        let frames = stack.iter().enumerate().map(|(at, text)| {
            let (function, place) = match text.strip_suffix(')').and_then(|text| text.rsplit_once(" (")) {
                Some((function, place)) if place.contains(':') => (function, Some(place.to_owned())),
                _ => (&**text, None),
            };
            let whose = match read.adviser.code_class(text) {
                CodeClass::Own => "own",
                CodeClass::Helper => "helper",
                CodeClass::Dependency => "dependency",
                CodeClass::Library => "library",
            };
            Frame { function: function.to_owned(), place, whose, is_owner: owner == Some(at) }
        });
        Stack { title, reporter: None, frames: frames.collect() }
    }
}

/// Returns the blocks' names in other groupings, the one with the most bytes first.
fn facts(read: &AnalysedLog, records: &[&Record], by: &[RowsBy]) -> Vec<(&'static str, String)> {
    let fact = |&by: &RowsBy| {
        let mut names: BTreeMap<Arc<str>, i64> = BTreeMap::new();
        for (name, amount) in records.iter().flat_map(|record| read.parts(record, by)) {
            *names.entry(name).or_default() += amount.usable;
        }
        let mut names: Vec<(Arc<str>, i64)> = names.into_iter().collect();
        names.sort_by_key(|(_, usable)| std::cmp::Reverse(usable.abs()));
        let title = match by {
            RowsBy::Site | RowsBy::Owner => "Allocated by",
            RowsBy::Type => "Type",
            RowsBy::Module => "Module",
            RowsBy::Context => "Context",
        };
        let text = match &names[..] {
            [(name, _)] if name.starts_with('(') => String::new(),
            [(name, _)] => name.to_string(),
            names => {
                let line = |(name, usable): &(Arc<str>, i64)| format!("{name}: {}", bytes(*usable as f64));
                let mut lines: Vec<String> = names.iter().take(NAMES_MAX).map(line).collect();
                if names.len() > NAMES_MAX {
                    lines.push(format!("and {} more", number((names.len() - NAMES_MAX) as f64)));
                }
                lines.join("\n")
            }
        };
        (title, text)
    };
    by.iter().map(fact).collect()
}

/// Returns the sizes of blocks, the largest first.
fn sizes(records: &[&Record]) -> Vec<String> {
    let mut sizes: BTreeMap<(i64, bool), i64> = BTreeMap::new();
    for (size, count) in records.iter().flat_map(|record| &record.sizes) {
        *sizes.entry((size.abs(), *size < 0)).or_default() += count;
    }
    let shown = sizes.iter().rev().take(SIZES_MAX).map(|((size, is_less), &count)| {
        let times = if count == 1 { String::new() } else { format!(" × {}", number(count as f64)) };
        format!("{}{}{times}", if *is_less { "-" } else { "" }, number(*size as f64))
    });
    let mut shown: Vec<String> = shown.collect();
    if sizes.len() > SIZES_MAX {
        shown.push(format!("{} more sizes", number((sizes.len() - SIZES_MAX) as f64)));
    }
    shown
}

/// Returns the owners of those of the records' blocks that have this name.
fn owners(read: &AnalysedLog, records: &[&Record], by: RowsBy, name: &str) -> Vec<Part> {
    let mut owners: BTreeMap<String, Amount> = BTreeMap::new();
    for record in records {
        let place = read.adviser.owner(&record.alloc);
        let place = place
            .as_ref()
            .map_or_else(|| record.alloc.first().map_or("", |frame| frame).to_owned(), ToString::to_string);
        let own = read.parts(record, by).into_iter().filter(|(other, _)| **other == *name);
        own.for_each(|(_, amount)| owners.entry(place.clone()).or_default().add(&amount));
    }
    let mut owners: Vec<(String, Amount)> = owners.into_iter().collect();
    owners.sort_by_key(|(_, amount)| std::cmp::Reverse(amount.usable.abs()));
    let part = |(name, amount): (String, Amount)| Part {
        value: bytes(amount.usable as f64),
        count: counted(amount.blocks as f64, "block"),
        name,
        detail: None,
    };
    owners.into_iter().take(PARTS_MAX).map(part).collect()
}
