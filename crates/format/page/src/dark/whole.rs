//! All that is known of what one row shows.

use std::collections::BTreeMap;

use heapledger_dmd::{Advice, Amount, Defect, DefectKind, FrameId, Group, Mode, Report, Step, TraceId, Whose};
use serde::Serialize;

use super::figures::{bytes, counted, number, percent};
use super::lists::{By, List, NO_STACK, Read, Row};

/// As the browser gets it.
#[derive(Debug, Default, Serialize)]
pub(super) struct Whole {
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

/// The blocks that this is a group of, as something to be looked at.
#[derive(Debug, Serialize)]
struct Within {
    by: By,
    name: String,
    list: List,
    label: String,
}

const SIZES_MAX: usize = 40;
const PARTS_MAX: usize = 30;
const NAMES_MAX: usize = 12;

/// Blocks that were allocated in one place.
pub(super) fn site(read: &Read, base: Option<&Read>, row: &Row) -> Whole {
    let Some((from, group)) = first(read, base, row) else { return Whole::default() };
    let owner = from.adviser.owner(group.alloc);
    let mut stacks = vec![Stack { title: "Allocated at", reporter: None, frames: frames(from, group.alloc) }];
    for (report, title) in group.reports.iter().flatten().zip(["Reported by", "Reported again by"]) {
        stacks.push(reported(from, report, title));
    }
    let advice = from.adviser.group(group).map(|advice| advice.to_string());
    Whole {
        title: owner.map_or_else(|| from.group_name(group, By::Site).to_owned(), ToString::to_string),
        figures: figures(&row.amount),
        advice: advice.map(sentence),
        facts: facts(read, base, row, &[By::Type, By::Context, By::Module]),
        sizes: sizes(read, base, row),
        stacks,
        ..Whole::default()
    }
}

/// Blocks that have a name in common.
pub(super) fn group(read: &Read, base: Option<&Read>, row: &Row, by: By, list: List) -> Whole {
    let Some((from, group)) = first(read, base, row) else { return Whole::default() };
    let name = from.group_name(group, by).to_owned();
    let others: Vec<By> =
        [By::Owner, By::Type, By::Context, By::Module].into_iter().filter(|&other| other != by).collect();
    Whole {
        title: name.clone(),
        figures: figures(&row.amount),
        facts: facts(read, base, row, &others),
        sizes: sizes(read, base, row),
        parts: owners(read, base, row),
        within: Some(Within { by, name, list, label: "Show its stacks".to_owned() }),
        ..Whole::default()
    }
}

/// Something to do.
pub(super) fn step(step: &Step, list: List, total: f64) -> Whole {
    let owner = match &step.advice {
        Advice::Register { owner } | Advice::Extend { owner, .. } | Advice::LeaveOut { owner, .. } => Some(owner),
        Advice::ReportOnce { .. } | Advice::Choose { .. } => None,
    };
    let of = if list == List::Twice { "of what is reported twice" } else { "of what nobody reports" };
    let (blocks, usable) = (counted(step.blocks, "block"), counted(step.bytes, "byte"));
    let parts = step.parts.iter().take(PARTS_MAX).map(|part| Part {
        value: bytes(part.bytes),
        count: counted(part.blocks, "block"),
        name: part.place.clone(),
        detail: part.type_name.clone(),
    });
    Whole {
        title: owner.map_or_else(|| "Reported twice".to_owned(), |owner| owner.subject().to_owned()),
        figures: format!("{usable} in {blocks}, {} {of}", percent(step.bytes, total)),
        advice: Some(sentence(step.advice.to_string())),
        parts: parts.collect(),
        within: owner.map(|owner| Within {
            by: By::Owner,
            name: owner.subject().to_owned(),
            list,
            label: "Show their stacks".to_owned(),
        }),
        ..Whole::default()
    }
}

/// Something that a reporter did wrong.
pub(super) fn defect(read: &Read, defect: &Defect) -> Whole {
    let mut stacks = Vec::new();
    if let Some(trace) = defect.trace {
        stacks.push(Stack { title: "Reported at", reporter: None, frames: frames(read, Some(trace)) });
    }
    if defect.alloc.is_some() {
        stacks.push(Stack { title: "Allocated at", reporter: None, frames: frames(read, defect.alloc) });
    }
    let known = |amount: u64| if amount == 0 { String::new() } else { counted(amount as f64, "byte") };
    Whole {
        title: read.name(defect.reporter).unwrap_or("a reporter without a name").to_owned(),
        figures: format!("{}, {}", wrong(defect.kind), counted(defect.count as f64, "time")),
        advice: Some(remedy(defect.kind).to_owned()),
        facts: vec![
            ("Address", format!("{:#x}", defect.address)),
            ("Measured", known(defect.measured)),
            ("The block has", known(defect.usable)),
        ],
        stacks,
        ..Whole::default()
    }
}

/// What is wrong.
pub(super) fn wrong(kind: DefectKind) -> &'static str {
    match kind {
        DefectKind::NoBlock => "reports what is no live block",
        DefectKind::Interior => "reports an address inside a block",
        DefectKind::NotHeap => "reports memory that is not of the heap",
        DefectKind::Partly => "measures less than there is of a block",
        DefectKind::FreedWhileReported => "has reported a block that was freed while its report counted",
    }
}

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
    }
}

/// A group that a row shows, and the log that it is in.
pub(super) fn first<'a>(read: &'a Read, base: Option<&'a Read>, row: &Row) -> Option<(&'a Read, &'a Group)> {
    let (from, number) = match row.groups.first() {
        Some(number) => (read, number),
        None => (base?, row.base.first()?),
    };
    Some((from, from.log().groups.get(*number as usize)?))
}

/// The groups that a row shows, and those that it has less.
fn groups<'a>(
    read: &'a Read,
    base: Option<&'a Read>,
    row: &'a Row,
) -> impl Iterator<Item = (&'a Read, &'a Group, f64)> {
    let of = |from: &'a Read, numbers: &'a [u32], sign: f64| {
        numbers.iter().filter_map(move |&number| Some((from, from.log().groups.get(number as usize)?, sign)))
    };
    of(read, &row.groups, 1.0).chain(base.into_iter().flat_map(move |base| of(base, &row.base, -1.0)))
}

pub(super) fn figures(amount: &Amount) -> String {
    let error = amount.usable_error();
    let error = if error >= 1.0 { format!(" ± {}", number(error)) } else { String::new() };
    let usable = if error.is_empty() {
        counted(amount.usable, "byte")
    } else {
        format!("{}{error} bytes", number(amount.usable))
    };
    let (blocks, requested, slop) = (counted(amount.blocks, "block"), number(amount.requested), number(amount.slop()));
    format!("{usable} in {blocks}: {requested} requested, {slop} slop")
}

fn sentence(advice: String) -> String {
    let mut letters = advice.chars();
    let first: String = letters.next().into_iter().flat_map(char::to_uppercase).collect();
    first + letters.as_str() + "."
}

fn frames(read: &Read, trace: Option<TraceId>) -> Vec<Frame> {
    let Some(trace) = trace else {
        return vec![Frame { function: NO_STACK.to_owned(), place: None, whose: "library", is_owner: false }];
    };
    let owner = read.adviser.frame(trace);
    let frames = read.log().traces.get(trace.0 as usize).into_iter().flatten();
    frames.map(|&frame| shown(read, frame, owner == Some(frame))).collect()
}

fn shown(read: &Read, frame: FrameId, is_owner: bool) -> Frame {
    let text = read.log().frames.get(frame.0 as usize).map_or("", |text| text);
    let (function, place) = match text.strip_suffix(')').and_then(|text| text.rsplit_once(" (")) {
        Some((function, place)) if place.contains(':') => (function, Some(place.to_owned())),
        _ => (text, None),
    };
    let whose = match read.adviser.whose(frame) {
        Whose::Own => "own",
        Whose::Helper => "helper",
        Whose::Dependency => "dependency",
        Whose::Library => "library",
    };
    Frame { function: function.to_owned(), place, whose, is_owner }
}

fn reported(read: &Read, report: &Report, title: &'static str) -> Stack {
    let reporter = read.name(report.reporter).unwrap_or("a reporter without a name").to_owned();
    Stack { title, reporter: Some(reporter), frames: frames(read, Some(report.trace)) }
}

/// What the blocks are called otherwise, the most bytes first.
fn facts(read: &Read, base: Option<&Read>, row: &Row, by: &[By]) -> Vec<(&'static str, String)> {
    let fact = |&by: &By| {
        let mut names: BTreeMap<&str, f64> = BTreeMap::new();
        for (from, group, sign) in groups(read, base, row) {
            *names.entry(from.group_name(group, by)).or_default() += sign * from.log().estimated(group).usable;
        }
        let mut names: Vec<(&str, f64)> = names.into_iter().collect();
        names.sort_by(|one, other| other.1.abs().total_cmp(&one.1.abs()));
        let title = match by {
            By::Site | By::Owner => "Allocated by",
            By::Type => "Type",
            By::Module => "Module",
            By::Context => "Context",
        };
        let text = match &names[..] {
            [(name, _)] if name.starts_with('(') => String::new(),
            [(name, _)] => (*name).to_owned(),
            names => {
                let mut lines: Vec<String> =
                    names.iter().take(NAMES_MAX).map(|(name, usable)| format!("{name}: {}", bytes(*usable))).collect();
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

/// The sizes of blocks, the largest first. Of a sample, as they are in it.
fn sizes(read: &Read, base: Option<&Read>, row: &Row) -> Vec<String> {
    let mut sizes: BTreeMap<u64, i64> = BTreeMap::new();
    for (_, group, sign) in groups(read, base, row) {
        for size in &group.sizes {
            let count = if sign < 0.0 { -(size.count as i64) } else { size.count as i64 };
            *sizes.entry(size.requested.saturating_add(size.slop)).or_default() += count;
        }
    }
    sizes.retain(|_, count| *count != 0);
    let shown = sizes.iter().rev().take(SIZES_MAX).map(|(&size, &count)| {
        let (sign, count) = (if count < 0 { "-" } else { "" }, count.unsigned_abs());
        let times = if count == 1 { String::new() } else { format!(" × {}", number(count as f64)) };
        format!("{sign}{}{times}", number(size as f64))
    });
    let mut shown: Vec<String> = shown.collect();
    if sizes.len() > SIZES_MAX {
        shown.push(format!("{} more sizes", number((sizes.len() - SIZES_MAX) as f64)));
    }
    shown
}

/// Who allocates the blocks.
fn owners(read: &Read, base: Option<&Read>, row: &Row) -> Vec<Part> {
    let mut owners: BTreeMap<(String, Option<&str>), Amount> = BTreeMap::new();
    for (from, group, sign) in groups(read, base, row) {
        let place = from.adviser.owner(group.alloc);
        let place = place.map_or_else(|| from.group_name(group, By::Site).to_owned(), ToString::to_string);
        let amount = owners.entry((place, from.name(group.type_name))).or_default();
        if sign < 0.0 {
            *amount -= from.log().estimated(group);
        } else {
            *amount += from.log().estimated(group);
        }
    }
    let mut owners: Vec<_> = owners.into_iter().collect();
    owners.sort_by(|one, other| other.1.usable.abs().total_cmp(&one.1.usable.abs()));
    let part = |((name, type_name), amount): ((String, Option<&str>), Amount)| Part {
        value: bytes(amount.usable),
        count: counted(amount.blocks, "block"),
        name,
        detail: type_name.map(str::to_owned),
    };
    owners.into_iter().take(PARTS_MAX).map(part).collect()
}

/// What a log is of.
pub(super) fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Live => "live",
        Mode::DarkMatter => "dark-matter",
        Mode::Cumulative => "cumulative",
        Mode::Scan => "scan",
    }
}
