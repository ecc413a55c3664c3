//! Snapshots of the heaps of browsers and JavaScript engines.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, ValueHint};

use super::common::Written;
use super::values::{node_id, number, size};

/// Show who is in a JavaScript heap, who holds it, and what would be freed
///
/// FILE is a snapshot of such a heap: `.heapsnapshot` or `.heaptimeline`, as
/// Chrome, Node.js and other programs with V8 write it, or `.fxsnapshot`, as
/// Firefox does. It has nodes (objects, strings, code, the engine's own data) and
/// the edges by which they hold each other.
///
///     $ node --heapsnapshot-signal=SIGUSR2 server.js
///     $ heapledger heap census Heap.1.heapsnapshot
///     $ heapledger heap diff Heap.1.heapsnapshot Heap.2.heapsnapshot
///     $ heapledger heap find Heap.2.heapsnapshot
///     $ heapledger heap dominators Heap.2.heapsnapshot
///     $ heapledger heap node Heap.2.heapsnapshot 4711
///     $ heapledger heap paths Heap.2.heapsnapshot 4711
///     $ heapledger heap export Heap.2.heapsnapshot -o leak.fxsnapshot
///
/// A snapshot contains the texts of the program, which may be private.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Heap {
    #[command(subcommand)]
    pub(crate) action: HeapAction,
}

/// The verbs about snapshots.
#[derive(Debug, Subcommand)]
pub(crate) enum HeapAction {
    Census(HeapCensus),
    Diff(HeapDiff),
    Find(HeapFind),
    Dominators(HeapDominators),
    Node(HeapNode),
    Paths(HeapPaths),
    Export(HeapExport),
}

/// Count the nodes of a snapshot, and sum up their sizes
///
/// Counts what can be reached from the roots. Without --by and --breakdown: objects
/// by class, other nodes by type, DOM nodes by name, scripts, strings.
///
///     $ heapledger heap census heap.heapsnapshot
///     $ heapledger heap census heap.heapsnapshot --by objectClass
///     $ heapledger heap census heap.fxsnapshot --by filename,coarseType
///     $ heapledger heap census a.fxsnapshot --by allocationStack --bottom-up
///     $ heapledger heap census heap.heapsnapshot --filter Session --list 5
///     $ heapledger heap census b.heapsnapshot --newer-than a.heapsnapshot
///     $ heapledger heap census heap.fxsnapshot --breakdown "$(cat by.json)"
///
/// --by a,b groups by a, and within each group by b. --breakdown takes the breakdowns
/// of SpiderMonkey's `takeCensus`, as JSON: other things within each group, and
/// several breakdowns side by side in a list.
///
/// --json prints the result alone, in the form that `takeCensus` returns.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct HeapCensus {
    /// The snapshot to read
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,

    #[command(flatten)]
    pub(crate) breakdown: Breakdown,

    #[command(flatten)]
    pub(crate) nodes: NodeFilter,

    #[command(flatten)]
    pub(crate) report: ReportView,

    /// List so many nodes of the groups, those with the largest retained sizes first
    ///
    /// With --filter, of the groups with TEXT in their name.
    #[arg(long, value_name = "N", value_parser = number, conflicts_with = "json", help_heading = "What to show")]
    pub(crate) list: Option<usize>,

    #[command(flatten)]
    pub(crate) answer: HeapAnswer,
}

/// Show what a later snapshot has more or less than an earlier one
///
/// Figures are those of AFTER minus those of BEFORE. Groups without a difference are
/// left out; --json has them, too, as zeros.
///
///     $ heapledger heap diff before.heapsnapshot after.heapsnapshot
///     $ heapledger heap diff a.fxsnapshot b.fxsnapshot --by filename
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct HeapDiff {
    /// The snapshot to compare with
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) before: PathBuf,

    /// The snapshot to compare
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) after: PathBuf,

    #[command(flatten)]
    pub(crate) breakdown: Breakdown,

    #[command(flatten)]
    pub(crate) report: ReportView,

    #[command(flatten)]
    pub(crate) answer: HeapAnswer,
}

/// Find nodes that often are too many, or held for too long
///
/// Without WHAT, everything is looked for.
///
///     $ heapledger heap find heap.heapsnapshot
///     $ heapledger heap find heap.heapsnapshot retainers -n 50
///     $ heapledger heap find heap.heapsnapshot detached closures --json
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct HeapFind {
    /// The snapshot to read
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,

    /// The kind of nodes to find
    #[arg(value_name = "WHAT")]
    pub(crate) what: Vec<Finding>,

    /// How many rows to show of each kind; 0 for all
    #[arg(short = 'n', long = "rows", value_name = "N", default_value_t = 10, value_parser = number)]
    pub(crate) rows: usize,

    #[command(flatten)]
    pub(crate) answer: HeapAnswer,
}

/// Show which nodes keep others alive, and how much would be freed with each
///
/// A node dominates another one if every path from the roots to that one leads
/// through it. Its retained size is its own size and that of all nodes that it
/// dominates: what would be freed with it. Below each node are the nodes that it
/// dominates immediately, the largest first.
///
///     $ heapledger heap dominators heap.heapsnapshot
///     $ heapledger heap dominators heap.heapsnapshot 4711 --depth 2
///     $ heapledger heap dominators heap.heapsnapshot 4711 4713 --json
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct HeapDominators {
    /// The snapshot to read
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,

    /// The nodes to begin with [default: the root]
    #[arg(value_name = "ID", value_parser = node_id)]
    pub(crate) ids: Vec<u64>,

    /// How many levels to show below a node
    #[arg(long, value_name = "LEVELS", default_value_t = 4, value_parser = number)]
    pub(crate) depth: usize,

    /// How many nodes to show below each node; 0 for all
    #[arg(short = 'n', long = "rows", value_name = "N", default_value_t = 15, value_parser = number)]
    pub(crate) rows: usize,

    #[command(flatten)]
    pub(crate) answer: HeapAnswer,
}

/// Show one node: what it is, where it was allocated, what it holds and who holds it
///
///     $ heapledger heap node heap.heapsnapshot 4711
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct HeapNode {
    /// The snapshot to read
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,

    /// The number of the node, as other verbs print it
    #[arg(value_parser = node_id)]
    pub(crate) id: u64,

    /// How many edges and how many holders to show; 0 for all
    #[arg(short = 'n', long = "rows", value_name = "N", default_value_t = 20, value_parser = number)]
    pub(crate) rows: usize,

    #[command(flatten)]
    pub(crate) answer: HeapAnswer,
}

/// Show the shortest paths from the roots to a node
///
///     $ heapledger heap paths heap.heapsnapshot 4711
///     $ heapledger heap paths heap.heapsnapshot 4711 --max 1 --json
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct HeapPaths {
    /// The snapshot to read
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,

    /// The nodes to reach
    #[arg(value_name = "ID", required = true, value_parser = node_id)]
    pub(crate) ids: Vec<u64>,

    /// The node to begin at [default: the root]
    #[arg(long, value_name = "ID", value_parser = node_id)]
    pub(crate) from: Option<u64>,

    /// The most paths to show for each node
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = number)]
    pub(crate) max: usize,

    #[command(flatten)]
    pub(crate) answer: HeapAnswer,
}

/// Write a snapshot in the format of the other browser
///
/// Reads `.heapsnapshot`, `.heaptimeline` and `.fxsnapshot`. The file that is written
/// can be loaded in the panel Memory of Firefox or of Chrome. Each format has things
/// that the other cannot hold: a warning says which are lost, and how many.
///
///     $ heapledger heap export page.heapsnapshot -o page.fxsnapshot
///     $ heapledger heap export page.fxsnapshot -o page.heapsnapshot
///     $ heapledger heap export a.heapsnapshot.gz --to heapsnapshot -o a
///
/// Stacks with sizes, for flame graphs and other profilers, are written by
/// `heapledger export`.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct HeapExport {
    /// The snapshot to read
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,

    /// The format [default: by the end of the output's name]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) to: Option<SnapshotFormat>,

    /// The file to write; - for stdout
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: PathBuf,

    /// Replace the file if it is there
    #[arg(short, long)]
    pub(crate) force: bool,

    /// Print, as JSON, what was written and what was lost
    #[arg(long)]
    pub(crate) json: bool,
}

/// A format of snapshots that can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
pub(crate) enum SnapshotFormat {
    /// For Firefox
    FxSnapshot,
    /// For Chrome and other programs with V8
    HeapSnapshot,
}

/// The form and destination of an answer about snapshots.
#[derive(Debug, Args)]
pub(crate) struct HeapAnswer {
    /// Print JSON
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) written: Written,
}

/// The groups of a census.
#[derive(Debug, Args)]
#[command(next_help_heading = "Groups")]
pub(crate) struct Breakdown {
    /// Group by this; by several, each within the one before
    #[arg(long, value_name = "WORD,…", value_delimiter = ',', conflicts_with = "breakdown")]
    pub(crate) by: Vec<Word>,

    /// Group as this breakdown says, in the JSON of `takeCensus`
    #[arg(long, value_name = "JSON")]
    pub(crate) breakdown: Option<String>,
}

/// The nodes that a census counts.
#[derive(Debug, Args)]
#[command(next_help_heading = "What to show")]
pub(crate) struct NodeFilter {
    /// Only nodes that are not in this earlier snapshot of the same process
    #[arg(long, value_name = "SNAPSHOT", value_hint = ValueHint::FilePath)]
    pub(crate) newer_than: Option<PathBuf>,

    /// Only nodes of at least this size
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) min_size: Option<u64>,

    /// Only nodes of the global object that this node belongs to; can be given more than once
    ///
    /// `heapledger heap find FILE globals` lists them. Objects and functions belong to one, and in
    /// Firefox the DOM nodes that scripts have seen; strings and code do not.
    #[arg(long, value_name = "ID", value_parser = node_id)]
    pub(crate) global: Vec<u64>,

    /// Only what can be reached from this node; can be given more than once
    #[arg(long, value_name = "ID", value_parser = node_id)]
    pub(crate) reachable_from: Vec<u64>,

    /// Only nodes to which edges lead that keep them alive: no weak ones
    #[arg(long)]
    pub(crate) only_retained: bool,
}

/// The form of a census for people.
#[derive(Debug, Args)]
#[command(next_help_heading = "What to show")]
pub(crate) struct ReportView {
    /// How many groups to show at each level; 0 for all
    #[arg(short = 'n', long = "rows", value_name = "N", default_value_t = 10, value_parser = number)]
    pub(crate) rows: usize,

    /// Sort groups by these bytes, then by numbers of nodes
    #[arg(long, value_name = "WHICH", default_value = "total")]
    pub(crate) sort: ReportSort,

    /// Show the innermost groups first, and below each those that it is in
    #[arg(long)]
    pub(crate) bottom_up: bool,

    /// Only groups with TEXT in their name, and those around them
    #[arg(long, value_name = "TEXT")]
    pub(crate) filter: Option<String>,
}

/// A word of the language of breakdowns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "camelCase")]
pub(crate) enum Word {
    /// No groups: number and bytes
    Count,
    /// No groups: the ids of the nodes, with --json or --list
    Bucket,
    /// Objects, scripts, strings, DOM nodes, others
    CoarseType,
    /// The class of an object
    ObjectClass,
    /// The engine's name of the type
    InternalType,
    /// The name of a DOM node
    DescriptiveType,
    /// The stack that allocated the node, if it was recorded
    AllocationStack,
    /// The file of the script
    Filename,
}

/// The figures by which the groups of a census are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportSort {
    /// The figures of the group with all within it; in a difference without their sign
    Total,
    /// The figures of the group itself
    Own,
}

/// A kind of nodes that `find` looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Finding {
    /// Nodes with the largest retained sizes
    Retainers,
    /// Classes and types whose nodes together retain the most
    Classes,
    /// Functions whose closures keep contexts alive, with the variables in them
    Closures,
    /// Strings of equal text
    Strings,
    /// Large strings that only parts of them keep alive
    Slices,
    /// Concatenated strings, which keep their pieces alive
    Concatenations,
    /// Strings by representation, and code by form: source, bytecode, machine code, caches
    Kinds,
    /// DOM nodes that no document contains
    Detached,
    /// Global objects of windows, frames and contexts, with the nodes that belong to each
    Globals,
    /// Nodes that nothing retains
    Unreachable,
}
