//! The dark matter detector.

use std::path::PathBuf;

use clap::{ArgAction, Args, ValueEnum, ValueHint};
use heapledger_analysis::{Moment, ProcessPattern};

use super::Symbols;
use crate::args::values;

/// Show which memory nobody has reported, and which was reported twice
///
/// A SOURCE is a log of the dark matter detector (DMD, version 5 of the format;
/// `.json` or `.json.gz`), written by heapledger or by Firefox; `-` is standard
/// input. Or it is the pid of a running process that answers: in Rust it has called
/// `heapledger::reports::listen()`, in C `heapledger_listen()`. The process asks
/// its reporters and makes a log of the same heap. Or it is a recording, shown at
/// the moment when all reporters had been asked for the last time. For the pid of a
/// process that is being recorded, the recording so far is shown.
///
/// The text is that of Mozilla's script dmd.py, and options have its names; options
/// that it does not have are below `Beyond dmd.py`. Given two logs of the same
/// mode, the second is shown minus the first.
///
///     $ heapledger dmd dmd-4711.json.gz
///     $ heapledger dmd 4711
///     $ heapledger dmd --mode live --save before.json.gz 4711
///     $ heapledger dmd heapledger.server.4711.hl
///     $ heapledger dmd --max-frames 4 --filter "Cache::insert" dmd-7.json.gz
///     $ heapledger dmd before.json.gz after.json.gz
///     $ heapledger dmd --by type dmd-4711.json.gz
///     $ heapledger dmd --advice dmd-4711.json.gz
///     $ heapledger dmd --page before.json.gz after.json.gz
///     $ heapledger dmd --who-points-to 0x7f21a4c03010 scan.json.gz
///
/// Names of functions are looked up in the programs and libraries of this machine;
/// if a log has build ids, only in files with these. The log itself is never
/// changed.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
#[command(mut_arg("full_names", |argument| argument.hide(true)))]
pub(crate) struct Dmd {
    /// The source to read; given two, the second minus the first
    #[arg(value_name = "SOURCE", required = true, num_args = 1..=2, value_hint = ValueHint::FilePath)]
    pub(crate) sources: Vec<String>,

    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Output")]
    pub(crate) output: Option<PathBuf>,

    /// Replace files that are there
    #[arg(long, help_heading = "Output")]
    pub(crate) force: bool,

    #[command(flatten)]
    pub(crate) process: DmdProcess,

    #[command(flatten)]
    pub(crate) recording: DmdRecording,

    #[command(flatten)]
    pub(crate) view: DmdView,

    #[command(flatten)]
    pub(crate) beyond: DmdBeyond,

    #[command(flatten)]
    pub(crate) symbols: Symbols,
}

/// Options for the log of a running process.
#[derive(Debug, Args)]
#[command(next_help_heading = "Of a running process")]
pub(crate) struct DmdProcess {
    /// The blocks to log, and their details [default: dark-matter]; a file's mode cannot be changed
    #[arg(long, value_name = "MODE")]
    pub(crate) mode: Option<DmdMode>,

    /// Have reporters leave out private data, and leave out the contents of blocks
    #[arg(long)]
    pub(crate) anonymize: bool,

    /// Show on standard error how much memory the log took in the program, as the detector in
    /// Firefox does with DMD=--show-dump-stats=yes; for a file, the figures that it contains
    #[arg(long)]
    pub(crate) show_dump_stats: bool,
}

/// Options for the log of a recording.
#[derive(Debug, Args)]
#[command(next_help_heading = "Of a recording")]
pub(crate) struct DmdRecording {
    /// Show this moment: peak, end, or a time such as 1.5s; FILE@WHEN is the same [default: when
    /// all reporters had been asked for the last time, or the end]
    #[arg(long, value_name = "WHEN", value_parser = values::moment)]
    pub(crate) at: Option<Moment>,

    /// Only these processes: by pid, or by the program's name; can be given more than once
    #[arg(long = "process", value_name = "PID|NAME", value_parser = values::process)]
    pub(crate) processes: Vec<ProcessPattern>,
}

/// Options of Mozilla's script.
#[derive(Debug, Args)]
#[command(next_help_heading = "As in dmd.py")]
pub(crate) struct DmdView {
    /// How many frames of each stack to consider: blocks whose stacks differ only further out are
    /// shown as one record
    #[arg(short = 'f', long, value_name = "1..24", default_value = "8", value_parser = clap::value_parser!(u8).range(1..=24))]
    pub(crate) max_frames: u8,

    /// Sort records by this
    #[arg(short, long, value_name = "WHAT", default_value = "usable")]
    pub(crate) sort_by: DmdSort,

    /// Leave out functions that allocate at the beginning of stacks
    #[arg(short = 'a', long)]
    pub(crate) ignore_alloc_fns: bool,

    /// Show frames as the log has them
    #[arg(long)]
    pub(crate) no_fix_stacks: bool,

    /// Replace words in blocks by the start of the block that they point into, or by 0 if there is
    /// none. See --save
    #[arg(long)]
    pub(crate) clamp_contents: bool,

    /// Say how many words --clamp-contents has changed
    #[arg(long, requires = "clamp_contents")]
    pub(crate) print_clamp_stats: bool,

    /// Show stacks through the detector as one frame, and no addresses: for tests of the detector
    #[arg(long)]
    pub(crate) filter_stacks_for_testing: bool,

    /// Only blocks with TEXT in a frame of the stack that allocated them; with `!` before it, in
    /// none
    ///
    /// If TEXT begins with `!` or `\` itself, put a `\` before it. Can be given more than once: all
    /// must hold.
    #[arg(long, value_name = "TEXT", action = ArgAction::Append, allow_hyphen_values = true)]
    pub(crate) filter: Vec<String>,
}

/// Options that Mozilla's script does not have.
#[derive(Debug, Args)]
#[command(next_help_heading = "Beyond dmd.py")]
pub(crate) struct DmdBeyond {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Sum up by owners, types, libraries, contexts …: the words of `top --by`
    #[arg(long, value_name = "WHAT")]
    pub(crate) by: Option<DmdBy>,

    /// Show types, contexts and the names of reporters
    #[arg(long)]
    pub(crate) details: bool,

    /// Show what reporters did wrong
    #[arg(long)]
    pub(crate) defects: bool,

    /// Show advice: which type needs a reporter, which reporter to extend, which of two should
    /// leave blocks out; given two logs, about the second
    #[arg(long)]
    pub(crate) advice: bool,

    /// Show the page about:memory in a browser, on this machine, until Ctrl-C
    #[arg(long, conflicts_with_all = ["by", "json", "details", "defects", "advice", "output", "who_points_to"])]
    pub(crate) page: bool,

    /// Estimate from the blocks whose stacks are known, if the log has stacks for only some blocks
    /// (--stacks=partial)
    ///
    /// Logs written by heapledger say with which probability their blocks were chosen, and are
    /// always estimated. For other logs, the probability is taken to be Mozilla's: 0.003 for each
    /// usable byte.
    #[arg(long)]
    pub(crate) estimate: bool,

    /// In a log with contents: show the chains of blocks that lead to the one at this address
    #[arg(long, value_name = "ADDRESS", value_parser = address, conflicts_with_all = ["by", "details", "defects", "advice"])]
    pub(crate) who_points_to: Option<u64>,

    /// Save the log, with the clamped contents if --clamp-contents is given
    ///
    /// Stacks are saved as they were, unless --resolve is given. If the name ends in `.gz`, the
    /// file is gzipped. Given two logs, the second is saved.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) save: Option<PathBuf>,

    /// Save the log with the names of functions and types, so that it can be read on another
    /// machine
    ///
    /// Frames are saved as Mozilla's fix_stacks leaves them, with inlined functions as frames of
    /// their own.
    #[arg(long, requires = "save", conflicts_with = "no_fix_stacks")]
    pub(crate) resolve: bool,
}

/// The blocks that a log has, and their details.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DmdMode {
    /// Live blocks
    Live,
    /// Live blocks, and the reporters that have reported them
    DarkMatter,
    /// Live blocks and those that have been freed, if the program's ledger keeps these
    Cumulative,
    /// Live blocks one by one, with their addresses and contents
    Scan,
}

/// The order of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DmdSort {
    /// Usable bytes
    Usable,
    /// Requested bytes
    Req,
    /// Slop: usable bytes less requested bytes
    Slop,
    /// Blocks
    NumBlocks,
}

/// The breakdown of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DmdBy {
    /// The owners: the program's own functions that the blocks are for
    Owner,
    /// The source lines in the owners
    Line,
    /// The source files of the owners
    File,
    /// The innermost functions that do not allocate
    Function,
    /// The types of the blocks
    Type,
    /// The programs or libraries that allocate the blocks
    Module,
    /// The contexts in which the blocks are allocated
    Context,
}

/// Parses a hexadecimal number, with or without 0x.
fn address(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u64::from_str_radix(digits, 16).map_err(|_| "an address is a hexadecimal number, such as 0x7f21a4c03010".to_owned())
}
