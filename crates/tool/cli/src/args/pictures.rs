//! Verbs that draw: trees, plots, pictures; and those that say what grows, and what to do.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use crate::args::select::{BlockFilter, What};
use crate::args::values::{number, percentage};
use crate::args::{By, Input, Range, Symbols};

/// Show how much memory functions hold or allocate, as a tree of calls
///
/// The tree goes from the outermost callers to the functions that allocate, or the
/// other way round. Inlined functions are shown if debug information names them. If
/// all that a function holds goes through one that it calls, the two share one row
/// of figures.
///
///     $ heapledger tree                         the peak, from main inwards
///     $ heapledger tree --bottom-up --depth 4   who wanted the memory
///     $ heapledger tree --at end --threshold 5  at the end, 5 % and more
///     $ heapledger tree --by context,stack      by the scopes of the program
///     $ heapledger tree --by owner,type         which types in which functions
///     $ heapledger tree --by process,owner      the functions of each process
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Tree {
    #[command(flatten)]
    pub(crate) input: Input,

    /// The levels, the outermost first: one of these, or several, such as type,owner
    #[arg(long, value_name = "WHAT", default_value = "stack", value_delimiter = ',')]
    pub(crate) by: Vec<By>,

    /// Begin with the functions that allocate, and go to their callers
    #[arg(short, long)]
    pub(crate) bottom_up: bool,

    /// How many levels to show; functions that share a row are one level
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) depth: Option<u32>,

    /// Leave out rows with a smaller share of the whole, in percent
    #[arg(short, long, value_name = "PERCENT", default_value_t = 1.0, value_parser = percentage)]
    pub(crate) threshold: f64,

    /// How many rows to show, the largest ones; 0 for all
    #[arg(short = 'n', long = "rows", value_name = "N", default_value_t = 0, value_parser = number)]
    pub(crate) rows: usize,

    /// Show every function of long chains
    #[arg(long)]
    pub(crate) unfold: bool,

    #[command(flatten)]
    pub(crate) what: What,

    #[command(flatten)]
    pub(crate) symbols: Symbols,
}

/// Draw a flame graph, or write the stacks for tools that do
///
/// Each box is a function, as wide as the memory that it and its callees hold or
/// allocate. The picture is a file that browsers show: click on a box to enlarge
/// it, press Ctrl-F to search. The program's own functions have warm colours,
/// libraries cool ones, each crate, namespace or module its own. Frames of
/// runtimes, interpreters and libraries that lead to the owner of a stack are one
/// grey box: --frames all shows them.
///
/// Without -o, the picture of NAME.hl is NAME.flame.svg, in the current directory.
///
///     $ heapledger flame
///     $ heapledger flame --total --metric blocks -o calls.svg
///     $ heapledger flame --thread "worker*" --at end -o workers.svg
///     $ heapledger flame --by context,stack -o requests.svg
///     $ heapledger flame --by owner,stack  a box for each owner, then stacks
///     $ heapledger flame --collapsed | grep parse
///     $ heapledger flame --json            the tree of its boxes
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Flame {
    #[command(flatten)]
    pub(crate) input: Input,

    /// The boxes, from the bottom: one of these, or several, such as context,stack
    #[arg(long, value_name = "WHAT", default_value = "stack", value_delimiter = ',')]
    pub(crate) by: Vec<By>,

    /// Write text, not a picture: a line `outer;…;inner FIGURE` for each stack
    #[arg(long, conflicts_with = "json")]
    pub(crate) collapsed: bool,

    #[command(flatten)]
    pub(crate) what: What,

    #[command(flatten)]
    pub(crate) symbols: Symbols,
}

/// Advise what to do about memory, why, and which command shows the evidence
///
/// Rules search a recording for what is worth a change; advice with the most bytes
/// at stake comes first. A rule gives no advice if its evidence is not sufficient.
///
///     leak       what grows at a constant rate to the end of 10 s and more
///     reserve    blocks that grow by realloc, and copy what they have
///     temporary  blocks that are freed at once, over and over
///     slop       sizes of which glibc takes much more than is used
///     pool       blocks that keep pages which are empty otherwise
///     reporters  blocks that memory reporters miss, or report twice
///     allocator  another allocator that saves memory or time, by a replay
///
///     $ heapledger advise server.hl
///     $ heapledger replay server.hl --tuned --json -o replay.json
///     $ heapledger advise server.hl --replay replay.json
///     $ heapledger advise --process worker --json | jq .advice
///
/// All events are read: the more were recorded, the longer it takes.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Advise {
    #[command(flatten)]
    pub(crate) input: Input,

    /// How many pieces of advice to show; 0 for all
    #[arg(short = 'n', long = "rows", value_name = "N", default_value_t = 10, value_parser = number)]
    pub(crate) rows: usize,

    /// A replay of the recording, saved by `replay --json -o RESULT.json`: advises on allocators
    #[arg(long, value_name = "RESULT.json", value_hint = ValueHint::FilePath)]
    pub(crate) replay: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) blocks: BlockFilter,

    #[command(flatten)]
    pub(crate) symbols: Symbols,
}

/// Show what grows steadily: how fast, since when, and how sure that is
///
/// A leak raises the level to which live memory falls back, however much the work
/// in hand takes. So for every owner, the time is cut into 32 parts, and the least
/// that was live in each is compared: does it rise, steadily, to the end? Nobody
/// has to choose moments.
///
///     $ heapledger growth server.hl
///     $ heapledger growth --from 1min --by type
///     $ heapledger growth --process worker --by context
///     $ heapledger growth --slop                  what the allocator rounds up
///     $ heapledger growth --all --json | jq .rows
///
/// Growth is `certain` if it is even in every part of the time, and never lost more
/// than a 25th of what it gained; `likely` growth is less even. Memory that grows
/// by a factor now and then (`in steps`) is that of one container, such as a
/// vector, whose elements become more. Caches that fill up, and structures that are
/// built once, grow more and more slowly: they are counted, and shown with --all.
/// The gain has to be a thousandth of the peak at least.
///
/// A program that works through its input may rightly grow for as long as that
/// takes. A recording of some minutes under even load tells the most. All events
/// are read: the more were recorded, the longer it takes.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Growth {
    #[command(flatten)]
    pub(crate) input: Input,

    #[command(flatten)]
    pub(crate) range: Range,

    /// Look for growth by this
    #[arg(long, value_name = "WHAT", default_value = "owner", help_heading = "What to show")]
    pub(crate) by: By,

    /// Also show what grows more and more slowly
    #[arg(long, help_heading = "What to show")]
    pub(crate) all: bool,

    /// Look for growth of slop: usable bytes beyond those that were asked for, recorded with
    /// `record --usable`, else computed
    #[arg(long, help_heading = "What to show")]
    pub(crate) slop: bool,

    /// How many rows to show; 0 for all
    #[arg(short = 'n', long = "rows", value_name = "N", default_value_t = 20, value_parser = number)]
    pub(crate) rows: usize,

    #[command(flatten)]
    pub(crate) blocks: BlockFilter,

    #[command(flatten)]
    pub(crate) symbols: Symbols,
}

/// Draw what was live over time
///
/// A plot for the terminal, or a picture. Each column shows the most that was live
/// in its part of the time. Beside it are the system's figures for the same
/// processes, if `record` has taken them: resident memory, the part of it that
/// belongs to no file, the brk heap, and private mappings without a file (among
/// them those that malloc makes by mmap). They show whether live memory is also
/// resident, and whether freed memory went back to the system.
///
///     $ heapledger timeline
///     $ heapledger timeline --svg -o live.svg
///     $ heapledger timeline --during 10s-12s --process 4411
///     $ heapledger timeline --by function         which function grows
///     $ heapledger timeline --by context          what the program did when it
///                                                 grew
///     $ heapledger timeline --by type             blocks of which types it has
///                                                 more and more
///     $ heapledger timeline --by thread           which thread allocates what
///                                                 grows
///     $ heapledger timeline --function "json::*"  what these functions have
///                                                 live
///     $ heapledger timeline --by site -n 5 --svg -o sites.svg
///     $ heapledger timeline --slop                what the allocator rounds up
///     $ heapledger timeline --json | jq .peak
///
/// With --by, each column shows what was held at its end. For this, for --slop, and
/// for a selection of blocks, all events are read: the more were recorded, the
/// longer it takes. For a selection, no resident memory is shown. FILE@WHEN shows
/// the time up to that moment.
///
/// Memory that processes share is counted for each of them. The plot is in plain
/// ASCII if the locale is not UTF-8.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Timeline {
    #[command(flatten)]
    pub(crate) input: Input,

    #[command(flatten)]
    pub(crate) range: Range,

    /// Show over time what each of these held, for the largest at the peak: which one grows
    #[arg(long, value_name = "WHAT", help_heading = "What to show")]
    pub(crate) by: Option<By>,

    /// How many of them to show
    #[arg(short = 'n', long = "rows", value_name = "N", default_value_t = 8, help_heading = "What to show")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=50), requires = "by")]
    pub(crate) rows: u16,

    /// Show the parts of resident memory over time: live blocks, free memory of the allocator,
    /// files, stacks and so on, from the recording's snapshots
    #[arg(long, help_heading = "What to show", conflicts_with_all = ["by", "slop"])]
    pub(crate) resident: bool,

    /// Show also the slop over time: usable bytes beyond those that were asked for, recorded with
    /// `record --usable`, else computed
    #[arg(long, help_heading = "What to show", conflicts_with = "svg")]
    pub(crate) slop: bool,

    #[command(flatten)]
    pub(crate) blocks: BlockFilter,

    #[command(flatten)]
    pub(crate) symbols: Symbols,

    /// Draw a picture: for NAME.hl, NAME.timeline.svg in the current directory, unless -o names
    /// another file
    #[arg(long, help_heading = "Output", conflicts_with = "json")]
    pub(crate) svg: bool,
}
