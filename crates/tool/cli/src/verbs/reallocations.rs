//! `heapledger reallocations`: the sites that reallocate blocks, with how often they do and how
//! much is copied for it.

use std::cmp::Reverse;

use heapledger_analysis::{Metric, PartSplit, Rank, ReallocationTotals, Reallocations as Found, reallocations};
use heapledger_core::Blocks;
use heapledger_report_format::Tree;
use serde::Serialize;

use crate::args::{ReallocationOrder, Reallocations};
use crate::error::Result;
use crate::format::{bytes, count, percent};
use crate::json::document::Document;
use crate::json::group::GroupJson;
use crate::json::names::FrameJson;
use crate::json::selection::SelectionJson;
use crate::output::Output;
use crate::question::Question;
use crate::views::parts::part_labels;
use crate::views::rows::row;
use crate::views::sampled;
use crate::views::table::limit;

pub(crate) fn run(arguments: &Reallocations, out: &mut Output) -> Result<()> {
    let selection = arguments.which.until(arguments.input.at())?;
    let hint = "who maps memory: heapledger top FILE --mappings --total";
    arguments.input.needs_blocks(false, "reallocations are", hint)?;
    let input = arguments.input.find(out)?;
    input.needs_history("the nodes that are there: heapledger heap census FILE")?;
    let recording = input.open()?;
    let mut question =
        Question::new(&input, &recording, &arguments.symbols, selection, Metric::Blocks).expect_something()?;
    let label = part_labels(&recording);
    let split = arguments.by.parts.map(|by| PartSplit { by, label: &label });
    let found =
        question.answer(|names, selection, progress| reallocations(names, selection, split.as_ref(), progress))?;
    input.warn_of(&found.damage);
    question.expect_match(found.sites.is_empty())?;
    let mut groups = found.grouped(&mut question.labels.names, arguments.by.rank);
    groups.sort_by_key(|(rank, site)| {
        let first = match arguments.metric {
            ReallocationOrder::Copied => site.bytes_copied_max.0,
            ReallocationOrder::Count => site.reallocations.0,
            ReallocationOrder::Chain => site.chain_max,
        };
        (Reverse((first, site.bytes_copied_max, site.reallocations)), rank.key)
    });
    if let Some(form) = arguments.input.form() {
        return out.document(&json(&mut question, &found, &groups, arguments), form);
    }
    let whole = &found.whole;
    let of_all = |part: Blocks| percent(part.0, whole.reallocations.0);
    let growing = format!("{} to larger blocks", of_all(whole.grown));
    let unknown = match whole.unknown {
        Blocks(0) => String::new(),
        unknown => format!(", {} of unknown sizes before", of_all(unknown)),
    };
    let (error_copied, error_times) = whole.variance.errors();
    let times = sampled::count_with(whole.reallocations, error_times);
    let unit = if whole.reallocations.0 == 1 { "reallocation" } else { "reallocations" };
    let copied = sampled::bytes_with(whole.bytes_copied_max, error_copied);
    out.title(format_args!("{times} {unit} ({growing}{unknown}), {copied} copied at most"))?;
    sampled::print_notice(question.recording, out)?;
    question.words(out)?;
    if groups.is_empty() {
        return Ok(());
    }
    let (shown, rest) = groups.split_at(groups.len().min(limit(arguments.rows)));
    let mut table = Tree::new(["copied", "times", "grown", "shrunk", "chain", "largest"]);
    let mut functions = Vec::new();
    let labels = &mut question.labels;
    for (rank, site) in shown {
        let (error_copied, error_times) = site.variance.errors();
        let cells = [
            sampled::bytes_cell(site.bytes_copied_max, error_copied),
            sampled::count_cell(site.reallocations, error_times),
            count(site.grown.0),
            count(site.shrunk.0),
            count(site.chain_max),
            bytes(site.size_max.0),
        ];
        table.push(0, row(labels, &found.stacks, rank, arguments.by.depth).cells(cells));
        functions.push(labels.names.owner(&found.stacks, rank.largest).frame.function);
    }
    out.line("")?;
    out.tree(&table)?;
    if !rest.is_empty() {
        let copied = rest.iter().fold(0_u64, |sum, (_, site)| sum.saturating_add(site.bytes_copied_max.0));
        let rows = count(rest.len() as u64);
        out.dim_line(format_args!("and {rows} more with {} in all: -n 0 shows them", bytes(copied)))?;
    }
    out.hint(question.labels.hint_for_unnamed(functions));
    Ok(())
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ReallocationsJson {
    by: &'static str,
    #[serde(flatten)]
    selection: SelectionJson,
    total: ReallocatingJson,
    rows_all: usize,
    rows: Vec<SiteJson>,
}

impl Document for ReallocationsJson {
    const SCHEMA: &'static str = "reallocations";
}

/// A group of sites that reallocate blocks, for JSON.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct SiteJson {
    #[serde(flatten)]
    figures: ReallocatingJson,
    #[serde(flatten)]
    group: GroupJson,
    /// The number of stacks.
    sites: usize,
    /// The stack that copied most, innermost first.
    stack: Vec<FrameJson>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ReallocatingJson {
    bytes_copied_max: u64,
    reallocations: u64,
    /// The standard error, if the figure is an estimate.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_copied_standard_error: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reallocations_standard_error: Option<u64>,
    grown: u64,
    shrunk: u64,
    /// The number of reallocations of blocks whose previous size is not known.
    unknown: u64,
    /// The largest number of reallocations of one block.
    chain_max: u64,
    size_max: u64,
}

impl From<&ReallocationTotals> for ReallocatingJson {
    fn from(site: &ReallocationTotals) -> ReallocatingJson {
        let (bytes, blocks) = site.variance.errors();
        let given = |error: u64| Some(error).filter(|&error| error > 0);
        ReallocatingJson {
            bytes_copied_max: site.bytes_copied_max.0,
            reallocations: site.reallocations.0,
            bytes_copied_standard_error: given(bytes.0),
            reallocations_standard_error: given(blocks.0),
            grown: site.grown.0,
            shrunk: site.shrunk.0,
            unknown: site.unknown.0,
            chain_max: site.chain_max,
            size_max: site.size_max.0,
        }
    }
}

fn json(
    question: &mut Question<'_, '_>,
    found: &Found,
    groups: &[(Rank, ReallocationTotals)],
    arguments: &Reallocations,
) -> ReallocationsJson {
    let labels = &mut question.labels;
    let rows = groups.iter().take(limit(arguments.rows)).map(|(rank, site)| SiteJson {
        figures: site.into(),
        group: GroupJson::new(labels, &found.stacks, rank),
        sites: rank.sites,
        stack: labels.stack(&found.stacks, rank.largest),
    });
    let rows = rows.collect();
    ReallocationsJson {
        by: arguments.by.name,
        selection: SelectionJson::new(&question.selection, question.metric),
        total: (&found.whole).into(),
        rows_all: groups.len(),
        rows,
    }
}
