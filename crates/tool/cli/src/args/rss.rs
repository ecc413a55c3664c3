//! The parts of a process's resident memory.

use clap::{Args, ValueHint};
use std::path::PathBuf;

use crate::args::values::number;

/// Show where the resident memory of a running program is: every page of it
///
/// Puts each resident page of the process into a part: the blocks in use and the
/// free memory of glibc's malloc, which is walked from outside, arena by arena; the
/// same of jemalloc, mimalloc, tcmalloc, musl's malloc and Heapledger's allocator;
/// the files that are mapped, stacks of threads, memory that processes share, and
/// all other private memory by its name. The parts add up to the figure that the
/// kernel shows as RSS; what is missing has a line of its own.
///
///     $ heapledger rss 4711
///     $ heapledger rss $(pidof redis-server) --rows 0
///     $ heapledger rss 4711 --json | jq .glibc.arenas
///
/// The process is not stopped, and needs no preparation. No page becomes resident
/// because it is looked at. What changes meanwhile is in the difference.
///
/// If a change would make 1 MiB and 5 % less resident, it is advised, with the
/// bytes: calling malloc_trim, fewer arenas, no caches of threads, no huge pages.
///
/// Takes the rights of a debugger over the process: those of its user, or root's,
/// where the setting kernel.yama.ptrace_scope allows it.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Rss {
    /// The process
    #[arg(value_name = "PID")]
    pub(crate) process: u32,

    /// The most files, and the most names of private memory, to show; 0 for all. JSON has all
    #[arg(short = 'n', long = "rows", value_name = "N", default_value_t = 8, value_parser = number)]
    pub(crate) rows: usize,

    /// Print JSON
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,

    /// Write to this file; - for stdout
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Output")]
    pub(crate) output: Option<PathBuf>,

    /// Replace the file if it is there
    #[arg(short, long, help_heading = "Output")]
    pub(crate) force: bool,
}
