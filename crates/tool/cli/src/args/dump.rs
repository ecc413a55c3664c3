//! Memory dumps of running programs.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum, ValueHint};

use crate::args::values;

/// Ask running programs what their parts hold, and write that for Chrome's viewer
///
/// In a memory dump, all parts of a program say what they hold at one moment, with
/// the heap by stack and type if the program accounts for it. The file is a
/// trace, which Chrome's about:tracing shows. Several processes are asked at the
/// same time.
///
/// A program answers when it has been built with the library's feature `dump`, and
/// has called `heapledger::reports::listen()`: see docs/dumps.md.
///
///     $ heapledger dump 4711 -o trace.json
///     $ heapledger dump 4711 4712 --level light -o trace.json
///     $ heapledger dump 4711 --every 1s --count 10 -o trace.json
///
/// For heaps, the program calls `heapledger::dump::set_heap_profiling(true)`, or
/// runs with HEAPLEDGER_HEAP_PROFILING=1 in its environment.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Dump {
    /// The processes
    #[arg(value_name = "PID", required = true)]
    pub(crate) processes: Vec<u32>,

    /// The file to write; - for stdout
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: PathBuf,

    /// Replace the file if it is there
    #[arg(short, long)]
    pub(crate) force: bool,

    /// The level of detail
    #[arg(long, value_name = "LEVEL", default_value = "detailed")]
    pub(crate) level: DumpLevel,

    /// The format of heaps
    #[arg(long, value_name = "HOW", default_value = "entries")]
    pub(crate) heaps: DumpHeaps,

    /// The time from one dump to the next
    #[arg(long, value_name = "TIME", value_parser = values::duration, default_value = "1s")]
    pub(crate) every: Duration,

    /// The number of dumps
    #[arg(long, value_name = "NUMBER", default_value = "1")]
    pub(crate) count: NonZeroU32,
}

/// The level of detail of a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DumpLevel {
    /// Only figures, under names that reveal nothing about what users do
    Background,
    /// A few entries for each part of the program
    Light,
    /// Everything, with heaps and mappings
    Detailed,
}

/// The format of heaps in a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DumpHeaps {
    /// The parts that matter, for viewers of all versions
    Entries,
    /// Every stack and type, for viewers from 2017 on
    Aggregated,
}
