//! Replays against allocators.

use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, ValueHint};

use super::allocator::AllocatorName;
use crate::args::Written;

/// Replay a program's allocator calls against several allocators, and compare them
///
/// Makes the calls of a recording or of a log again, in a process of their own for
/// each allocator, and measures its processor time, memory, page faults and system
/// calls. So an allocator is chosen by the work that a program really does.
///
///     $ heapledger record -o server.hl -- ./server
///     $ heapledger replay server.hl
///     $ heapledger replay server.hl -a jemalloc -a ./libown.so
///     $ heapledger replay build.log.zst --process 4711 --threads --svg
///
/// FILE is a recording, a file of another tool that import reads, or a log of log
/// record or Firefox. One process is replayed: the one with the most calls (of
/// standard input, the first one), or that of --process.
///
/// - time: the processor time of all calls and of one, with the page faults of the
///   first use of their memory, without the time that the replay itself takes;
/// - peak, end: resident memory, as anonymous memory beyond that of the process
///   before the first call. A byte of each page of a block is written;
/// - mapped: the addresses that it has mapped, at the most;
/// - slop: usable bytes beyond the requested ones, as a part of these;
/// - faults, calls: page faults, and system calls that change mappings.
///
/// Allocators take turns, and the shortest of several times counts. The environment
/// is that of this command: GLIBC_TUNABLES, MALLOC_CONF and the like have their
/// effect.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Replay {
    /// The recording or log; - for a log on standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,

    /// An allocator, as for `run`; may be given several times [default: all that are there]
    #[arg(short, long = "allocator", value_name = "NAME|LIB.so", value_hint = ValueHint::FilePath)]
    #[arg(value_parser = OsStringValueParser::new().try_map(AllocatorName::parse))]
    pub(crate) allocators: Vec<AllocatorName>,

    /// The process to replay [default: the one with the most calls]
    #[arg(long, value_name = "PID")]
    pub(crate) process: Option<u64>,

    /// Make the calls in as many threads as the program did
    ///
    /// Otherwise one thread makes all calls, in their order. With threads, a call waits
    /// for the earlier one about the same block, and no thread is far ahead.
    #[arg(long, verbatim_doc_comment)]
    pub(crate) threads: bool,

    /// Do not write to blocks, as programs do
    ///
    /// Otherwise a byte of each page of a block is written when it is allocated: else
    /// memory that an allocator itself does not write to would not be resident.
    #[arg(long, verbatim_doc_comment)]
    pub(crate) no_touch: bool,

    /// Keep the times of the calls, for what an allocator does as time passes
    #[arg(long)]
    pub(crate) time: bool,

    /// The factor of all times, with --time: 0.1 is ten times as fast
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, requires = "time", value_parser = factor)]
    pub(crate) scale: f64,

    /// The rounds of which the shortest time counts
    #[arg(long, value_name = "NUMBER", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,

    /// Go on after lines of a log that are no calls
    #[arg(long)]
    pub(crate) keep_going: bool,

    /// Also show the requests by their size, and the slop of each allocator
    #[arg(long)]
    pub(crate) sizes: bool,

    /// Draw resident memory over the calls as SVG
    #[arg(long, conflicts_with = "json", help_heading = "Output")]
    pub(crate) svg: bool,

    /// Print JSON
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) written: Written,
}

fn factor(text: &str) -> Result<f64, String> {
    let factor = text.parse::<f64>().ok().filter(|factor| (0.000_001..=1_000.0).contains(factor));
    factor.ok_or_else(|| "expected a number from 0.000001 to 1000".to_owned())
}
