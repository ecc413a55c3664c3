//! Memory reports: the measurements that programs make of themselves.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, ValueHint};

/// Show, compare and save memory reports: what programs say their memory is for
///
/// The reports are those of a program with memory reporters (heapledger's own, or
/// Firefox), as the same text as on Firefox's page about:memory. A SOURCE is a
/// report file, `.json.gz` or `.json`, written by heapledger or by Firefox, or `-`
/// for standard input; or a trace of Chrome's with memory dumps, of which the last
/// of each process is shown; or the pid of a running process that answers: in Rust
/// it has called `heapledger::reports::listen()`; or the address of the page that a
/// program serves. The process collects its reports now, and those of its
/// descendants that answer.
///
///     $ heapledger reports show memory-report.json.gz
///     $ heapledger reports show 4711
///     $ heapledger reports show http://127.0.0.1:40321/5f…/
///     $ heapledger reports diff before.json.gz after.json.gz
///     $ heapledger reports merge -o all.json.gz server.json.gz worker.json.gz
///     $ heapledger reports save -o public.json.gz --anonymize report.json.gz
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Reports {
    #[command(subcommand)]
    pub(crate) action: ReportsAction,
}

/// The verbs about reports.
#[derive(Debug, Subcommand)]
pub(crate) enum ReportsAction {
    Show(ShowReports),
    Diff(DiffReports),
    Merge(MergeReports),
    Save(SaveReports),
}

/// Show reports as trees
///
/// Per process: the tree `explicit` of what the program has allocated, with the
/// part of the heap that no reporter covers as `heap-unclassified`; then all other
/// measurements. The figure after a value is its share of the whole tree. `++`
/// hides entries that are less than 1 % of the tree each, `(N tiny)` sums them up;
/// `[N]` is the sum of N reports with the same path, `[?!]` cannot be right.
///
/// Several sources are shown as one, each with its processes.
///
///     $ heapledger reports show memory-report.json.gz
///     $ heapledger reports show --verbose --filter explicit/cache a.json.gz
///     $ heapledger reports show --regex --filter "stacks/.*worker" a.json.gz
///     $ heapledger reports show --page before.json.gz after.json.gz
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct ShowReports {
    /// The sources to read
    #[arg(value_name = "SOURCE", required = true, value_hint = ValueHint::FilePath)]
    pub(crate) sources: Vec<String>,

    /// Serve a page to look at and compare the reports in a browser, until Ctrl-C
    #[arg(long, conflicts_with = "ReportsView", help_heading = "Output")]
    pub(crate) page: bool,

    #[command(flatten)]
    pub(crate) view: ReportsView,

    #[command(flatten)]
    pub(crate) privacy: Privacy,
}

/// Show what has changed from one set of reports to another
///
/// Amounts are those of AFTER minus those of BEFORE; unchanged reports are left
/// out. `[+]` is only in AFTER, `[-]` only in BEFORE. Parts of paths that differ in
/// each run are not compared: those that reporters have declared variable and, in
/// files of Firefox, ids of processes and threads, addresses and the like.
///
///     $ heapledger reports diff before.json.gz after.json.gz
///     $ heapledger reports diff --verbose --filter heap a.json.gz b.json.gz
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct DiffReports {
    /// The source to compare with
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) before: String,

    /// The source to compare
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) after: String,

    #[command(flatten)]
    pub(crate) view: ReportsView,

    #[command(flatten)]
    pub(crate) privacy: Privacy,
}

/// Make one report file from several
///
/// The file has the processes of all sources. Processes of the same name are told
/// apart by a number.
///
///     $ heapledger reports merge -o all.json.gz server.json.gz worker.json.gz
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct MergeReports {
    /// The sources to read
    #[arg(value_name = "SOURCE", required = true, num_args = 2.., value_hint = ValueHint::FilePath)]
    pub(crate) sources: Vec<String>,

    #[command(flatten)]
    pub(crate) target: ReportsTarget,

    #[command(flatten)]
    pub(crate) privacy: Privacy,
}

/// Write reports into a file, for later, for others, for Firefox or for Prometheus
///
///     $ heapledger reports save -o memory-report.json.gz dump.json
///     $ heapledger reports save -o - --to openmetrics memory-report.json.gz
///
/// Firefox shows such a file: about:memory, `Load…`.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct SaveReports {
    /// The source to read
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) source: String,

    #[command(flatten)]
    pub(crate) target: ReportsTarget,

    #[command(flatten)]
    pub(crate) privacy: Privacy,
}

/// Options for showing reports.
#[derive(Debug, Args)]
pub(crate) struct ReportsView {
    /// Show exact bytes, and hide nothing
    #[arg(short, long, help_heading = "What to show")]
    pub(crate) verbose: bool,

    /// Only reports with TEXT in their path, in which a `/` of a name is a `\`
    #[arg(long, value_name = "TEXT", help_heading = "What to show")]
    pub(crate) filter: Option<String>,

    /// TEXT is a regular expression
    #[arg(long, requires = "filter", help_heading = "What to show")]
    pub(crate) regex: bool,

    /// Print JSON
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
}

/// A report file to write.
#[derive(Debug, Args)]
pub(crate) struct ReportsTarget {
    /// The file to write; `-` is standard output
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: PathBuf,

    /// Replace the file if it is there
    #[arg(short, long)]
    pub(crate) force: bool,

    /// The format of the file [default: by its name, json.gz if that does not say]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) to: Option<ReportsFormat>,
}

/// The format in which reports are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportsFormat {
    /// A report file, compressed
    #[value(name = "json.gz")]
    Gzip,
    /// A report file
    Json,
    /// OpenMetrics text, as Prometheus reads it
    Openmetrics,
}

/// Options for hiding private data.
#[derive(Debug, Args)]
pub(crate) struct Privacy {
    /// Replace URLs, addresses, paths and names of files, and quoted texts by `<anonymized>`
    ///
    /// Applies to names of processes, paths and descriptions. A program that is asked for anonymous
    /// reports knows better what is private.
    #[arg(long, help_heading = "Privacy")]
    pub(crate) anonymize: bool,
}
