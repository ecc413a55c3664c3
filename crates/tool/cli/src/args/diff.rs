//! The verb `diff`.

use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::{Args, ValueHint};
use heapledger_analysis::Moment;

use super::by::{self, Grouping};
use super::common::Data;
use crate::args::select::{AnyMetric, Which};
use crate::args::values::{self, Limit, moment, number};
use crate::args::{Named, Symbols, Written};

/// Compare two runs, or two moments of one
///
/// The rows that grew most come first, those that shrank most last.
///
///     $ heapledger diff before.hl after.hl            functions that hold more
///                                                     at the peak
///     $ heapledger diff before.hl after.hl --at end --by stack
///                                                     leaks that are new
///     $ heapledger diff before.hl after.hl --total --metric blocks
///                                                     calls that are more
///     $ heapledger diff before.hl after.hl --by type  types of which there is
///                                                     more
///     $ heapledger diff before.hl after.hl --by thread
///                                                     threads that hold more
///     $ heapledger diff run.hl --at 5s --at 20s       what grew between these
///                                                     times
///     $ heapledger diff old.hl@end new.hl@1min        moments beside the names
///     $ heapledger diff main.hl new.hl --markdown --fail-above 5% > comment.md
///
/// Functions are the same if they have the same name, in a module of the same file
/// name and, if that is known, in a source file of the same name: addresses,
/// process ids and directories do not count, nor do versions of libraries. Types
/// are the same if their full names are the same, however the compiler spells
/// them. Threads are the same if they have the same name, and processes if they run
/// the same program. If no names are known, only the same build of a module can be
/// compared, so keep the old programs, or their debug information, for
/// --debug-dir.
///
/// Exit status: 104 if the whole grew by more than --fail-above allows; for
/// samples, by more than their error bar beyond that.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Diff {
    /// A recording and another one, or one with two moments; FILE@WHEN is FILE at that moment
    #[arg(value_name = "FILE", required = true, num_args = 1..=2, value_hint = ValueHint::FilePath)]
    #[arg(value_parser = PathBufValueParser::new().try_map(Named::parse))]
    pub(crate) files: Vec<Named>,

    /// Sum up by this
    #[arg(long, value_name = "WHAT", default_value = "owner", value_parser = by::grouping())]
    pub(crate) by: Grouping,

    /// How many rows to show; 0 for all
    #[arg(short = 'n', long = "rows", value_name = "N", default_value_t = 20, value_parser = number)]
    pub(crate) rows: usize,

    /// Leave out rows that differ by less: a share of the whole before (0.5%), or a figure (16KiB,
    /// 100)
    #[arg(short, long, value_name = "LIMIT", value_parser = values::amount, default_value = "0")]
    pub(crate) threshold: Limit,

    /// Fail if the whole has grown by more: a share of it (10%), or a figure (1MiB, 100)
    #[arg(long, value_name = "LIMIT", value_parser = values::amount)]
    pub(crate) fail_above: Option<Limit>,

    /// Compare what was live at this moment: peak, end, or a time such as 1.5s; given twice, before
    /// and after [default: peak]
    #[arg(long, value_name = "WHEN", value_parser = moment, conflicts_with = "total", help_heading = "What to show")]
    pub(crate) at: Vec<Moment>,

    /// Compare all that was ever allocated, live or not
    #[arg(long, help_heading = "What to show")]
    pub(crate) total: bool,

    /// Compare this amount; temporary implies --total
    #[arg(long, value_name = "WHAT", default_value = "bytes", help_heading = "What to show")]
    pub(crate) metric: AnyMetric,

    /// Compare mappings in place of blocks. Takes recordings made with `record --mappings`
    #[arg(long, help_heading = "What to show")]
    pub(crate) mappings: bool,

    #[command(flatten)]
    pub(crate) which: Which,

    #[command(flatten)]
    pub(crate) symbols: Symbols,

    #[command(flatten)]
    pub(crate) data: Data,

    /// Print Markdown, such as for a comment on a change
    #[arg(long, help_heading = "Output", conflicts_with_all = ["json", "csv"])]
    pub(crate) markdown: bool,

    #[command(flatten)]
    pub(crate) written: Written,
}
