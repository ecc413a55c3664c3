//! `heapledger reallocations`: where blocks are reallocated, how often, and how much is copied for it.

use std::cmp::Reverse;

use heapledger_analysis::{Key, Metric, Moment, Reallocating, Reallocations as Found, reallocations};
use heapledger_reports::Tree;
use serde::Serialize;

use crate::args::{ReallocationOrder, Reallocations};
use crate::error::Result;
use crate::format::{bytes, count, counted, percent};
use crate::input::Input;
use crate::label::{DeclaredJson, FrameJson};
use crate::output::Output;
use crate::question::{Question, SelectionJson};
use crate::ranks::{Depth, limit, stack_row};

pub(crate) fn run(arguments: &Reallocations, out: &mut Output) -> Result<()> {
    let selection = arguments.which.at(Moment::Total);
    let input = Input::find(arguments.input.file.as_deref())?;
    let recording = input.open()?;
    let mut question =
        Question::new(&input, &recording, &arguments.symbols, selection, Metric::Blocks).expect_something()?;
    let mut found = question.answer(|names, selection, progress| reallocations(names, selection, progress))?;
    input.warn_of(&found.damage);
    found.sites.sort_by_key(|(stack, site)| {
        let first = match arguments.by {
            ReallocationOrder::Copied => site.bytes_copied_max.0,
            ReallocationOrder::Count => site.reallocations.0,
            ReallocationOrder::Chain => site.chain_max,
        };
        (Reverse((first, site.bytes_copied_max, site.reallocations)), *stack)
    });
    if arguments.input.json {
        return out.json(&json(&mut question, &found, arguments.rows));
    }
    let whole = &found.whole;
    let growing = percent(whole.grown.0, whole.reallocations.0);
    let times = counted(whole.reallocations.0, "reallocation", "reallocations");
    out.title(format_args!(
        "{times} ({growing} to larger blocks), {} copied at most",
        bytes(whole.bytes_copied_max.0)
    ))?;
    question.words(out)?;
    if found.sites.is_empty() {
        return Ok(());
    }
    let (shown, rest) = found.sites.split_at(found.sites.len().min(limit(arguments.rows)));
    let mut table = Tree::new(["copied", "times", "grown", "shrunk", "chain", "largest"]);
    let mut functions = Vec::new();
    let labels = &mut question.labels;
    for (stack, site) in shown {
        let cells = [
            bytes(site.bytes_copied_max.0),
            count(site.reallocations.0),
            count(site.grown.0),
            count(site.shrunk.0),
            count(site.chain_max),
            bytes(site.size_max.0),
        ];
        let frames = labels.names.useful_frames(&found.stacks, *stack);
        table.push(0, stack_row(labels, &found.stacks, *stack, &frames, Depth::Callers).cells(cells));
        functions.extend(frames.first().map(|frame| frame.function));
    }
    out.line("")?;
    out.tree(&table)?;
    if !rest.is_empty() {
        let copied = rest.iter().fold(0_u64, |sum, (_, site)| sum.saturating_add(site.bytes_copied_max.0));
        let rows = count(rest.len() as u64);
        out.aside(format_args!("and {rows} more with {} in all: -n 0 shows them", bytes(copied)))?;
    }
    out.hint(question.labels.hint_for_unnamed(functions));
    Ok(())
}

#[derive(Debug, Serialize)]
struct ReallocationsJson {
    #[serde(flatten)]
    selection: SelectionJson,
    total: ReallocatingJson,
    rows_all: usize,
    rows: Vec<SiteJson>,
}

#[derive(Debug, Serialize)]
struct SiteJson {
    #[serde(flatten)]
    figures: ReallocatingJson,
    #[serde(flatten)]
    frame: FrameJson,
    #[serde(flatten)]
    declared: DeclaredJson,
    /// Innermost first.
    stack: Vec<FrameJson>,
}

#[derive(Debug, Serialize)]
struct ReallocatingJson {
    bytes_copied_max: u64,
    reallocations: u64,
    grown: u64,
    shrunk: u64,
    /// How often one block was reallocated, at most.
    chain_max: u64,
    size_max: u64,
}

impl From<&Reallocating> for ReallocatingJson {
    fn from(site: &Reallocating) -> ReallocatingJson {
        ReallocatingJson {
            bytes_copied_max: site.bytes_copied_max.0,
            reallocations: site.reallocations.0,
            grown: site.grown.0,
            shrunk: site.shrunk.0,
            chain_max: site.chain_max,
            size_max: site.size_max.0,
        }
    }
}

fn json(question: &mut Question<'_, '_>, found: &Found, rows: usize) -> ReallocationsJson {
    let shown = found.sites.iter().take(limit(rows));
    let rows = shown.map(|(id, site)| {
        let frame = question.labels.names.useful_frame(&found.stacks, *id);
        let stack = question.labels.names.useful_frames(&found.stacks, *id);
        SiteJson {
            figures: site.into(),
            frame: question.labels.frame(&frame),
            declared: DeclaredJson::new(&question.labels, &found.stacks, Key::Site(*id)),
            stack: stack.iter().map(|frame| question.labels.frame(frame)).collect(),
        }
    });
    let rows = rows.collect();
    ReallocationsJson {
        selection: SelectionJson::new(&question.selection, question.metric),
        total: (&found.whole).into(),
        rows_all: found.sites.len(),
        rows,
    }
}
