//! The map of a process's heap.

use clap::{Args, ValueEnum, ValueHint};
use std::path::PathBuf;

use crate::args::values::number;

/// Show where the memory of a running program's heap is, page by page
///
/// Reads the heaps of glibc's malloc, jemalloc, mimalloc, tcmalloc, musl and
/// Heapledger's allocator from the memory of the process, which needs no
/// preparation and runs on meanwhile.
///
/// Each character is a page or some neighbouring pages, by how much is in use on
/// them: ▁▂▃▄▅▆▇█, and _ if nothing is. What is blank is not in memory. The table
/// has a row for each arena, with the pages that have nothing in use, and those
/// that have less than a quarter in use.
///
/// Heapledger's allocator is shown run by run, unless --by asks for pages. A run
/// has blocks of one size. The table has a row for each size; below it, each line
/// is a chunk of 4 MiB, and each character a slice of it of 64 KiB. ▁▂▃▄▅▆▇█ is a
/// run, by how many of its blocks are in use, _ if none is. #== is a run of one
/// larger block, o== if it is free. A colon is no run, but pages may have memory; a
/// full stop has none.
///
///     $ ./server &
///     $ heapledger heap-map $!
///     $ heapledger heap-map 4711 --svg -o heap.svg
///     $ heapledger run --allocator heapledger -- ./server
///     $ heapledger record -- ./server &
///     $ heapledger heap-map $(pgrep server) --by owner
///
/// Takes the rights of a debugger over the process: those of its user, or root's,
/// where the setting kernel.yama.ptrace_scope allows it.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct HeapMapOf {
    /// The process
    #[arg(value_name = "PID")]
    pub(crate) process: u32,

    /// The property by which pages are grouped. By default the arena, and the runs
    /// of Heapledger's allocator
    #[arg(long, value_name = "PROPERTY")]
    pub(crate) by: Option<MapBy>,

    /// The most lines to draw; 0 for all. With fewer lines, more pages are one
    /// character. JSON has all
    #[arg(short = 'n', long = "rows", value_name = "N", default_value_t = 40, value_parser = number)]
    pub(crate) rows: usize,

    /// Draw a picture (SVG), with a colour for each group or block size
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

/// The property by which the memory of a heap is grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum MapBy {
    /// Pages by the arena that they belong to; of mimalloc, by thread
    Arena,
    /// Runs by the size of their blocks: of Heapledger's allocator alone
    Run,
    /// Pages by the owner that has the most live bytes on them: of a program that is
    /// being recorded
    Owner,
    /// Pages by the age of the oldest live block on them: of a program that is being
    /// recorded
    Age,
}
