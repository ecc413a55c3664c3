//! The heap checker: its options for `run` and `record`, and the verb that reads its reports.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};

use crate::args::Symbols;
use crate::args::values;

/// The options of the heap checker.
#[derive(Debug, Args)]
#[command(next_help_heading = "Heap checker")]
pub(crate) struct HeapChecker {
    /// Sample a few blocks, and catch wrong accesses to them where they happen
    ///
    /// A sampled block lies between inaccessible pages, and becomes inaccessible when it is
    /// freed. Overflows, uses after the free, double and invalid frees of these blocks are
    /// reported on stderr and in a file, with the stacks of the error, the free and the
    /// allocation. `heapledger phc FILE` shows the file.
    #[arg(long)]
    pub(crate) phc: bool,

    /// The allocations before the first sample, on average
    #[arg(long, value_name = "N", requires = "phc", default_value = "65536")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1 << 31))]
    pub(crate) phc_first: u64,

    /// The allocations from one sample to the next, on average; 1 samples every allocation
    #[arg(long, value_name = "N", requires = "phc", default_value = "16384")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1 << 31))]
    pub(crate) phc_normal: u64,

    /// The allocations for which the memory of a freed block is not used again
    #[arg(long, value_name = "N", requires = "phc", default_value = "262144")]
    #[arg(value_parser = clap::value_parser!(u64).range(2..=1 << 31))]
    pub(crate) phc_reuse: u64,

    /// The most memory for sampled blocks, in each process
    #[arg(long, value_name = "SIZE", requires = "phc", default_value = "16MiB", value_parser = room)]
    pub(crate) phc_size: u64,

    /// The memory of a machine on which the heap checker runs
    #[arg(long, value_name = "SIZE", requires = "phc", default_value = "8000000000", value_parser = values::size)]
    pub(crate) phc_min_memory: u64,

    /// The end of its memory at which a block lies: `start` catches underflows
    #[arg(long, value_name = "WHERE", requires = "phc", default_value = "end")]
    pub(crate) phc_placement: Placement,

    /// Sample stacks less that were sampled often, and others more
    #[arg(long, requires = "phc")]
    pub(crate) phc_adaptive: bool,

    /// Sample only blocks that are allocated in this function, or in one that it calls
    ///
    /// The name is without arguments: `main`, `Class::method`, `module::function`. That of a
    /// namespace, class or module stands for all that is in it. Functions that the compiler
    /// has inlined are not found. May be given several times.
    #[arg(long, value_name = "FUNCTION", requires = "phc", value_parser = function)]
    pub(crate) phc_only: Vec<String>,

    /// Never sample blocks that are allocated in this function, or in one that it calls
    #[arg(long, value_name = "FUNCTION", requires = "phc", value_parser = function)]
    pub(crate) phc_never: Vec<String>,

    /// Never sample blocks of the functions in a file: one on each line, `#` begins a comment
    #[arg(long, value_name = "FILE", requires = "phc", value_hint = ValueHint::FilePath)]
    pub(crate) phc_never_from: Option<PathBuf>,
}

/// Parses the name of a function.
pub(crate) fn function(text: &str) -> Result<String, String> {
    let name = text.trim();
    let name = name.strip_suffix("()").unwrap_or(name);
    let bytes_max = 512;
    if name.is_empty() || name.len() > bytes_max || name.contains(char::is_whitespace) || name.contains(['(', '<']) {
        return Err("expected a name without arguments and types, such as `main` or `Class::method`".to_owned());
    }
    Ok(name.to_owned())
}

/// Parses the memory for sampled blocks. One half of it is for blocks of up to a page: with less
/// than two pages there is no room for any.
fn room(text: &str) -> Result<u64, String> {
    const MIN: u64 = 8 << 10;
    let bytes = values::size(text)?;
    if bytes < MIN { Err("no block has room in it; the least is 8k".to_owned()) } else { Ok(bytes) }
}

/// The place of a sampled block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Placement {
    /// At the end
    End,
    /// At the beginning
    Start,
    /// Drawn for each block
    Drawn,
}

/// Show the reports of the heap checker, with functions and lines
///
/// `heapledger run --phc` and `record --phc` write such a file for each process in
/// which they have found an error.
///
///     $ heapledger run --phc -- ./server --port 8080
///     $ heapledger phc heapledger.server.4711.phc
///     $ heapledger phc --json heapledger.server.4711.phc
///
/// The core file of such a process has the same reports.
///
///     $ heapledger phc core
///
/// The programs and libraries must be those that ran.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Phc {
    /// The file of reports, or the core file
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,

    /// Print JSON
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) symbols: Symbols,
}
