//! Logs of allocator calls.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

use crate::args::{AllocatorOption, Written};

/// Write and read logs of allocator calls, in the lines of Mozilla's logalloc
///
/// Each line of a log is a call, with its process, its thread and its result:
///
///     18545 18547 malloc(32)=0x7f90495120e0
///     18545 18545 realloc(0x7f90495120e0,64)=0x7f9049536680
///     18545 18547 free(0x7f9049536680)
///
/// A LOG is a file, or `-` for standard input; compressed by gzip or zstd, or not.
///
///     $ heapledger log record -o server.log -- ./server --port 8080
///     $ heapledger log info server.log
///     $ heapledger log stats firefox.log.gz
///     $ heapledger log munge firefox.log.gz -o firefox.munged
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Log {
    #[command(subcommand)]
    pub(crate) action: LogAction,
}

/// The verbs about logs.
#[derive(Debug, Subcommand)]
pub(crate) enum LogAction {
    Record(RecordLog),
    Info(InfoLog),
    Stats(StatsLog),
    Munge(MungeLog),
    Convert(ConvertLog),
}

/// Run a program and write a line for each call of its allocator
///
/// The calls of all processes that the program starts are in the log, those of each
/// process in the order in which they were made; there are no stacks. An allocation
/// is logged after the call and a free before it, so that a block is never allocated
/// again in the log before it was freed. The log is complete even if a process is
/// killed.
///
///     $ heapledger log record -o server.log -- ./server --port 8080
///     $ heapledger log record -o >(zstd -o build.log.zst) -- make
///
/// Without -o, the environment variable MALLOC_LOG says where the log goes, as in
/// logalloc: a number below 10000 is an open descriptor, all else is a file, to
/// which the log is appended. With MALLOC_LOG_MINIMAL in the environment, calls of
/// posix_memalign, aligned_alloc and valloc are written as memalign.
///
///     $ MALLOC_LOG=3 heapledger log record -- ./server 3>server.log
///
/// A line is one of logalloc's, which other tools read, unless fields are asked for,
/// which follow the call: `malloc(32)=0x7f90495120e0 usable=40 time=51204`. `log munge`
/// removes them. Calls of malloc_stats and malloc_info are lines `jemalloc_stats()`:
/// a replay prints statistics there.
///
/// Returns when the program has ended; processes that it left running go on without
/// a log. Ends with the exit status of the program, or by the signal that killed it.
/// Programs that cannot be recorded have no log either: they run as always.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct RecordLog {
    /// The log to write: a file, a pipe, or - for stdout [default: what MALLOC_LOG names]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,

    /// Replace the file if it is there
    #[arg(short, long)]
    pub(crate) force: bool,

    #[command(flatten)]
    pub(crate) allocator: AllocatorOption,

    #[command(flatten)]
    pub(crate) fields: LogFieldOptions,

    /// Print nothing, unless calls are missing in the log
    #[arg(short, long)]
    pub(crate) quiet: bool,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    #[arg(value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// Show what is in a log or recording: processes, functions, live bytes and blocks
///
/// Amounts are requested bytes. A block that is freed without having been allocated
/// in the log is counted: the log does not begin with the program, or lacks lines.
///
///     $ heapledger log info firefox.log.gz
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct InfoLog {
    /// The log, or a recording; - for a log from standard input
    #[arg(value_name = "LOG", value_hint = ValueHint::FilePath)]
    pub(crate) log: String,

    /// Print JSON
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
}

/// Count the requests of a log or recording by their size, as logalloc_stats.py does
///
/// Small requests are smaller than a page of 4 KiB, large ones smaller than 1 MiB.
/// Calls of malloc, calloc, memalign and realloc are counted, unless they request
/// 0 bytes; in a minimal log (MALLOC_LOG_MINIMAL) these are all there are.
///
///     $ heapledger log stats firefox.log.gz
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct StatsLog {
    /// The log, or a recording; - for a log from standard input
    #[arg(value_name = "LOG", value_hint = ValueHint::FilePath)]
    pub(crate) log: String,

    /// Print JSON
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
}

/// Number the processes, threads and blocks of a log from 1, for logalloc-replay
///
/// Does what logalloc_munge.py does: blocks have slots instead of addresses, and a
/// slot that is free is used again. A line that is no call, that frees a block which
/// the log has not allocated, or whose call failed, is left out, and shown on stderr
/// with the reason.
///
///     $ heapledger log munge firefox.log.gz -o firefox.munged
///     $ zcat firefox.log.gz | heapledger log munge - | logalloc-replay
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct MungeLog {
    /// The log; - for standard input
    #[arg(value_name = "LOG", value_hint = ValueHint::FilePath)]
    pub(crate) log: String,

    #[command(flatten)]
    pub(crate) written: Written,
}

/// Make a recording of a log, or a log of a recording
///
/// A log becomes a recording, which all verbs read: processes, threads, functions,
/// sizes and statistics points are in it, and arenas, usable sizes and times if the
/// log has them. There are no stacks. Without times, each line counts as 1 us. All
/// verbs read logs as they are, too; a recording is smaller, and read faster.
///
///     $ heapledger log convert server.log.zst -o server.hl
///     $ heapledger top --by size server.hl
///
/// A recording becomes a log, for tools that read logalloc's lines. Blocks have
/// numbers, as after munge, but none is used twice: munge makes that so. Processes
/// follow each other. Files of other tools that import reads can be converted, too.
///
///     $ heapledger log convert server.hl -o server.log
///     $ heapledger log convert server.hl | heapledger log munge - | logalloc-replay
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct ConvertLog {
    /// The log or the recording; - for a log from standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,

    /// Leave out lines of a log that are no calls
    #[arg(long)]
    pub(crate) keep_going: bool,

    #[command(flatten)]
    pub(crate) fields: LogFieldOptions,

    #[command(flatten)]
    pub(crate) written: Written,
}

/// The fields behind the calls of a log.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Fields behind each call of the log")]
pub(crate) struct LogFieldOptions {
    /// Add times: time=NANOSECONDS since the beginning
    #[arg(long)]
    pub(crate) times: bool,

    /// Add usable sizes of blocks: usable=BYTES
    #[arg(long)]
    pub(crate) usable: bool,

    /// Add the arenas of blocks: arena=LABEL
    #[arg(long)]
    pub(crate) arenas: bool,
}
