//! The options of `export`, and its formats.

use std::path::PathBuf;

use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::{Args, ValueEnum, ValueHint};
use heapledger_profile_formats::chrome::Cut;

use crate::args::select::What;
use crate::args::values::{cut, number};
use crate::args::{Named, Symbols};

/// Write the sites in the format of another tool
///
/// Writes what each stack ever allocated, and what it holds at a moment, as blocks
/// and bytes. Functions are named when the file is written: it needs nothing else.
/// The types of the blocks, and the contexts, tasks and heaps that the program
/// declares, are labels, if the format has any. Data for which the format has no
/// place is named on stderr.
///
///     $ heapledger export --to pprof -o peak.pb.gz
///     $ go tool pprof -top peak.pb.gz
///     $ go tool pprof -http=: -sample_index=alloc_space peak.pb.gz
///     $ heapledger export --to dhat -o dhat.json     for dh_view.html or
///                                                    profiler.firefox.com
///     $ heapledger export --to speedscope -o sites.json
///                                                    for www.speedscope.app
///     $ heapledger export --to collapsed --total -o - | sort -k2 -n -t " "
///     $ heapledger export --to heapprofile --at end -o end.heapprofile
///     $ heapledger export --to gperftools -o sites.heap
///     $ google-pprof --text ./server sites.heap
///     $ heapledger export --to chrome -o trace.json  then load it in
///                                                    about:tracing
///     $ heapledger export --to parquet -o sites.parquet
///                                                    for DuckDB, pandas,
///                                                    Polars, Spark
///
/// Formats with a timeline, or with every allocation and free; for these, --at is
/// the end of what is written.
///
///     $ heapledger export --to massif -o massif.out && ms_print massif.out
///     $ heapledger export --to heaptrack -o run.zst && heaptrack_print run.zst
///     $ heapledger export --to firefox -o run.json.gz  for
///                                                      profiler.firefox.com
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Export {
    /// The recording, or FILE@WHEN for a moment of it [default: the newest heapledger.*.hl here]
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    #[arg(value_parser = PathBufValueParser::new().try_map(Named::parse))]
    pub(crate) file: Option<Named>,

    /// The format
    #[arg(long, value_name = "FORMAT")]
    pub(crate) to: ExportFormat,

    /// Count mappings in place of blocks. Takes a recording made with `record --mappings`
    #[arg(long, help_heading = "What to show")]
    pub(crate) mappings: bool,

    /// The file to write; - for stdout
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: PathBuf,

    /// Replace the file if it is there
    #[arg(short, long)]
    pub(crate) force: bool,

    /// Firefox: if there are more blocks than this, write some together, with rounded times
    #[arg(long, value_name = "N", default_value_t = 500_000, value_parser = number)]
    pub(crate) blocks_max: usize,

    /// Chrome: leave out parts of heaps with fewer bytes, or with `share` those of less than 0.8 %
    /// of their callers'
    #[arg(long, value_name = "SIZE|share", default_value = "1KiB", value_parser = cut)]
    pub(crate) cut: Cut,

    #[command(flatten)]
    pub(crate) what: What,

    #[command(flatten)]
    pub(crate) symbols: Symbols,
}

/// The formats that can be written. A new one is a variant here, its writer in `verbs/export.rs`,
/// and a module of `heapledger-profile-formats`. The doc comments of the variants are printed in
/// the help of `--to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// For `go tool pprof`, Speedscope, Grafana Pyroscope and others
    Pprof,
    /// For Valgrind's dh_view.html and the Firefox Profiler: total, peak, end and lifetimes in one
    /// file
    Dhat,
    /// Lines `outer;…;inner FIGURE`, for flame graph tools, Speedscope, Perfetto and the Firefox
    /// Profiler
    Collapsed,
    /// A picture that browsers show
    Flamegraph,
    /// For speedscope.app: a profile for each kind of amount
    Speedscope,
    /// V8's format, for Chrome's DevTools and Speedscope
    Heapprofile,
    /// The text format of gperftools, for google-pprof and `go tool pprof`: addresses without names
    Gperftools,
    /// Valgrind's format, for ms_print and massif-visualizer: what was live over time, and by stack
    /// at the peak and at the end
    Massif,
    /// For heaptrack_print and heaptrack_gui: every allocation and free; compressed if the file's
    /// name ends in .zst or .gz
    Heaptrack,
    /// For profiler.firefox.com: every allocation and free, to be looked at for any range of time;
    /// compressed if the file's name ends in .gz
    Firefox,
    /// A trace with memory dumps, for Chrome's about:tracing and traceviewer: the parts that matter
    Chrome,
    /// The same for viewers from 2017 on: every stack and type
    ChromeV2,
    /// A trace with a heap profile, for ui.perfetto.dev and trace_processor
    Perfetto,
    /// Profiles for OpenTelemetry (v1development, version 1.10 of the protocol): not stable yet
    Otlp,
    /// A table, for DuckDB, pandas, Polars, Spark: a row for each stack, with all amounts (if it
    /// was built in)
    Parquet,
}

impl ExportFormat {
    /// Returns its name on the command line.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}
