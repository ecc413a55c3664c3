//! `heapledger heap census`: the nodes of a heap, in groups.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::io::{self, Write};

use heapledger_census::breakdown::{self, By};
use heapledger_census::count::CensusOptions;
use heapledger_census::dominators::Dominators;
use heapledger_census::find::Globals;
use heapledger_census::graph::{Graph, NodeIndex, NodeSet};
use heapledger_census::result::Census;
use heapledger_census::tree::{CensusTree, individuals};
use heapledger_report_format::{Row, Tree};

use super::{begin, names, report, snapshot};
use crate::args::{Breakdown, HeapCensus, Word};
use crate::code::Code;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::format::{bytes, counted};
use crate::output::Output;
use crate::text::quoted;
use crate::views::table::limit;

pub(super) fn run(arguments: &HeapCensus, out: &mut Output) -> Result<()> {
    let breakdown = parse(&arguments.breakdown)?;
    let inputs: Vec<_> = [Some(&arguments.file), arguments.nodes.newer_than.as_ref()].into_iter().flatten().collect();
    begin(&arguments.answer.written, &inputs.iter().map(|path| path.as_path()).collect::<Vec<_>>(), out)?;
    let graph = snapshot::read(&arguments.file)?;
    let earlier = arguments.nodes.newer_than.as_deref().map(snapshot::read).transpose()?;
    let roots = arguments.nodes.reachable_from.iter().map(|id| snapshot::find(&graph, *id));
    let roots: Vec<NodeIndex> = roots.collect::<Result<_>>()?;
    let only = of_globals(&graph, arguments)?;
    let options = CensusOptions {
        only: only.as_ref(),
        roots: (!roots.is_empty()).then_some(&roots[..]),
        newer_than: earlier.as_ref(),
        size_min: arguments.nodes.min_size.unwrap_or(0),
        only_retained: arguments.nodes.only_retained,
    };
    let census = Census::take_with(&graph, &breakdown, options).map_err(invalid)?;
    if arguments.answer.json {
        serde_json::to_writer_pretty(out.stream(), &census).map_err(io::Error::from)?;
        writeln!(out.stream())?;
        return Ok(());
    }
    let whole = Census::take_with(&graph, &breakdown::Breakdown::count(), options).map_err(invalid)?;
    let size = report::figures(&whole.value).bytes.unwrap_or_default();
    out.title(format_args!("{} in {}", bytes(size.unsigned_abs()), counted(census.count, "node", "nodes")))?;
    if census.sizes_unknown > 0 {
        out.dim_line(format_args!("without a known size: {}", counted(census.sizes_unknown, "node", "nodes")))?;
    }
    report::print(&census, size, &arguments.report, out)?;
    match arguments.list {
        Some(rows) => list(&graph, &census, options, arguments, limit(rows), out),
        None => Ok(()),
    }
}

/// Returns the nodes of the global objects that were asked for, or `None` if none were.
fn of_globals(graph: &Graph, arguments: &HeapCensus) -> Result<Option<NodeSet>> {
    let ids = &arguments.nodes.global;
    if ids.is_empty() {
        return Ok(None);
    }
    let globals = Globals::of(graph).map_err(|why| {
        Failure::caused(Exit::Usage, "`--global` has no answer here", why)
            .code(Code::NotInSnapshot)
            .hint("what a node holds: heapledger heap census FILE --reachable-from ID")
    })?;
    let named = ids.iter().map(|id| {
        let node = snapshot::find(graph, *id)?;
        globals.global(node).ok_or_else(|| {
            let file = quoted(&arguments.file.to_string_lossy());
            Failure::new(Exit::Usage, format_args!("node {id} belongs to no global object"))
                .hint(format_args!("`heapledger heap find {file} globals` lists them"))
        })
    });
    Ok(Some(globals.nodes_of(&named.collect::<Result<Vec<_>>>()?)))
}

/// Lists nodes of the groups that the filter chooses.
fn list(
    graph: &Graph,
    census: &Census,
    options: CensusOptions<'_>,
    arguments: &HeapCensus,
    rows: usize,
    out: &mut Output,
) -> Result<()> {
    let groups = CensusTree::of(census);
    let text = arguments.report.filter.as_deref().unwrap_or_default();
    let ids = individuals(graph, census, options, &groups.leaves_with(text)).map_err(invalid)?;
    out.line("")?;
    if ids.is_empty() {
        return Ok(out.dim_line("nodes in these groups: none")?);
    }
    let dominators = Dominators::of(graph);
    let mut nodes: Vec<NodeIndex> = ids.iter().filter_map(|id| graph.find(*id)).collect();
    // Each breakdown of a list has all nodes.
    let mut known = HashSet::new();
    nodes.retain(|node| known.insert(*node));
    // The order of the census remains among equals.
    nodes.sort_by_key(|node| Reverse(dominators.retained(*node)));
    let mut table = Tree::new(["retained", "size"]);
    for node in nodes.iter().take(rows) {
        let retained = dominators.retained(*node).map_or_else(String::new, bytes);
        table.push(0, Row::new(names::node(graph, *node)).cells([retained, bytes(graph.size(*node))]));
    }
    Ok(out.tree(&table)?)
}

/// Returns the breakdown that the options ask for.
pub(super) fn parse(arguments: &Breakdown) -> Result<breakdown::Breakdown> {
    if let Some(json) = &arguments.breakdown {
        return breakdown::Breakdown::from_json(json).map_err(invalid);
    }
    if arguments.by.is_empty() {
        return Ok(breakdown::Breakdown::default());
    }
    let words: Vec<By> = arguments.by.iter().map(|word| by(*word)).collect();
    breakdown::Breakdown::nested(&words).map_err(invalid)
}

fn by(word: Word) -> By {
    match word {
        Word::Count => By::Count,
        Word::Bucket => By::Bucket,
        Word::CoarseType => By::CoarseType,
        Word::ObjectClass => By::ObjectClass,
        Word::InternalType => By::InternalType,
        Word::DescriptiveType => By::DescriptiveType,
        Word::AllocationStack => By::AllocationStack,
        Word::Filename => By::Filename,
    }
}

/// Returns the failure for a breakdown that makes no sense.
pub(super) fn invalid(error: breakdown::BreakdownError) -> Failure {
    Failure::caused(Exit::Usage, "the breakdown makes no sense", error)
        .hint("the words of breakdowns are in the help: heapledger heap census --help")
}
