//! The parts of a process's resident memory.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::{Args, ValueHint};
use heapledger_analysis::{Moment, ProcessPattern};

use super::common::{Named, Symbols};
use crate::args::By;
use crate::args::values::{duration, moment, number, process};

/// Show where the resident memory of a program is: every page of it
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
///     $ heapledger rss 4711 --idle 10s      also: what it does not touch
///     $ heapledger rss heapledger.server.4711.hl --by type
///     $ heapledger rss -- ./server --port 8080
///
/// A recording has snapshots of the same, in which live blocks are divided by what
/// allocated them: who keeps which pages, and which pages are kept by a few bytes.
/// The highest one is shown, or that at WHEN. With a COMMAND, it is recorded first.
/// If the process is being recorded, a snapshot is written into the recording.
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
    /// The process, or a recording: FILE, or FILE@WHEN for a moment of it [default: the newest
    /// recording]
    #[arg(value_name = "PID|FILE", value_hint = ValueHint::FilePath)]
    #[arg(conflicts_with = "command", value_parser = PathBufValueParser::new().try_map(Named::parse))]
    target: Option<Named>,

    /// The moment of a recording: peak (of resident memory), end, or a time such as 1.5s
    #[arg(long, value_name = "WHEN", value_parser = moment, help_heading = "What to show")]
    pub(crate) at: Option<Moment>,

    /// The property by which the live blocks of a recording are summed up [default: owner]
    #[arg(long, value_name = "WHAT", help_heading = "What to show")]
    pub(crate) by: Option<By>,

    /// The process of a recording, by its pid or a pattern of its program's name [default: the one
    /// with the most resident memory]
    #[arg(short, long = "process", value_name = "PROCESS", value_parser = process, help_heading = "What to show")]
    pub(crate) processes: Vec<ProcessPattern>,

    /// Also show the memory that the process does not touch for this long, such as 10s
    ///
    /// Takes a PID. The marks of touched pages are cleared, and looked at after that time.
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = "What to show")]
    pub(crate) idle: Option<Duration>,

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

    #[command(flatten)]
    pub(crate) symbols: Symbols,

    /// A program to record first, and its arguments
    #[arg(last = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

impl Rss {
    /// Returns the number of the process, if one is named.
    pub(crate) fn process(&self) -> Option<u32> {
        self.target.as_ref().filter(|target| target.at.is_none())?.to_str()?.parse().ok()
    }

    /// Returns the recording that is named.
    pub(crate) fn recording(&self) -> Option<&Named> {
        self.target.as_ref()
    }
}
