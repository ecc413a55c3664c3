//! The map of a process's heap.

use clap::{Args, ValueHint};
use std::path::PathBuf;

use crate::args::values::number;

/// Show where the memory of a running program's heap is, run by run
///
/// Reads the chunks and runs of Heapledger's allocator from the memory of the
/// process, which needs no preparation and runs on meanwhile. A run has blocks of
/// one size. The table has a row for each size; below it, each line is a chunk of
/// 4 MiB, and each character a slice of it of 64 KiB. ▁▂▃▄▅▆▇█ is a run, by how
/// many of its blocks are in use, _ if none is. #== is a run of one larger block,
/// o== if it is free. A colon is no run, but pages may have memory; a full stop has
/// none.
///
///     $ heapledger run --allocator heapledger -- ./server &
///     $ heapledger heap-map $!
///     $ heapledger heap-map 4711 --svg -o heap.svg
///
/// Takes the rights of a debugger over the process: those of its user, or root's,
/// where the setting kernel.yama.ptrace_scope allows it.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct HeapMapOf {
    /// The process
    #[arg(value_name = "PID")]
    pub(crate) process: u32,

    /// The most chunks to draw; 0 for all. JSON has all
    #[arg(short = 'n', long = "rows", value_name = "N", default_value_t = 40, value_parser = number)]
    pub(crate) rows: usize,

    /// Draw the chunks as a picture (SVG)
    #[arg(long, conflicts_with = "json", help_heading = "Output")]
    pub(crate) svg: bool,

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
