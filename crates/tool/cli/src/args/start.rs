//! `start` and `stop`: recordings of programs that run.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};

use heapledger_core::Bytes;

use super::record::{Control, KeptNames, OnFull, Stacks, sample_size};
use crate::args::{ResidentOptions, values};

/// Begin to record a program that runs
///
///     $ export LD_PRELOAD=$(heapledger lib record)
///     $ ./server --port 8080 &
///     $ heapledger start 4411 --duration 30s -o server.hl
///
/// A program that was started with the library in LD_PRELOAD is armed: nothing
/// is recorded, at the cost of four instructions for each call, until this
/// command asks for it. The program, and all that it starts from then on, is
/// recorded until Ctrl-C, the end of the duration, or `heapledger stop PID`. It
/// goes on, and can be started again. What it allocated before is not in the
/// recording. Without PID, lists the armed programs, if nothing is being
/// recorded. See docs/services.md.
///
/// A program under `heapledger record` that is paused or has not begun is resumed:
///
///     $ heapledger record --start-paused -- ./server &
///     $ heapledger start
///
/// That takes effect at once, in all processes of the recording. Blocks that were
/// allocated before are not in the recording; their frees are counted apart. A
/// signal does the same: `kill -USR1` to the process of `heapledger record`. To
/// start the ledger of a program that has Heapledger in it and answers
/// (docs/profile.md), give its process id: the ledger begins to sample, one point
/// in 512 KiB.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Start {
    #[command(flatten)]
    pub(crate) control: Control,

    /// Record a program under seccomp filters, which may end it when it joins
    #[arg(long)]
    pub(crate) sandboxed: bool,

    #[command(flatten)]
    pub(crate) options: RunningOptions,
}

/// The options of a recording of a program that runs.
#[derive(Debug, Args)]
pub(crate) struct RunningOptions {
    /// The file to write [default: heapledger.PROGRAM.PID.hl]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,

    /// Replace the file if it is there
    #[arg(short, long)]
    pub(crate) force: bool,

    /// Print nothing
    #[arg(short, long)]
    pub(crate) quiet: bool,

    /// Record only for this long, such as 30s or 2min
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub(crate) duration: Option<Duration>,

    /// Record a sample: the blocks at sample points, one in SIZE bytes on average, such as 512KiB
    #[arg(long, value_name = "SIZE", value_parser = sample_size)]
    pub(crate) sample: Option<Bytes>,

    /// Keep totals of each stack, no events: a small file, however long the run
    #[arg(long)]
    pub(crate) aggregate: bool,

    /// Record the usable size of each block, as the program's allocator gives it
    #[arg(long, conflicts_with = "aggregate")]
    pub(crate) usable: bool,

    /// Record what is mapped, and the calls that change it: see docs/mappings.md
    #[arg(long, conflicts_with = "aggregate")]
    pub(crate) mappings: bool,

    #[command(flatten)]
    pub(crate) resident: ResidentOptions,

    /// The stack or context to record for each allocation
    #[arg(long, value_name = "MODE", default_value = "mixed")]
    pub(crate) stacks: Stacks,

    /// Wait, or drop events, when they come faster than they can be recorded
    #[arg(long, value_name = "WHAT", default_value = "wait")]
    pub(crate) on_full: OnFull,

    /// The names of functions to put into the file at the end
    #[arg(long, value_name = "WHICH", default_value = "auto")]
    pub(crate) names: KeptNames,
}

/// End the recording of a program that `heapledger start` began
///
///     $ heapledger stop 4411
///
/// The program goes on unrecorded, and can be started again; the file is
/// complete when `heapledger start` has ended. A program under `heapledger
/// record` is paused, as by `heapledger pause`.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Stop {
    #[command(flatten)]
    pub(crate) control: Control,
}

/// Record a program that runs already
///
///     $ heapledger attach 4411 --duration 30s -o server.hl
///     $ heapledger record --pid 4411 --sample 512KiB
///
/// The program need not have been prepared. The recorder is placed into its
/// memory, and the entry points of its allocator are redirected there; all
/// threads are stopped for a moment only, and that time is printed. The
/// recording ends with Ctrl-C, after the duration, by `heapledger stop PID`, or
/// with the process. Then all of that is taken back, and the program goes on as
/// before. What it allocated before is unknown; frees of it are counted. What it
/// forks is recorded, too; programs that it starts are not.
///
/// It takes the rights of a debugger: the program is yours, or you are root.
/// Programs that are being debugged, or are in a sandbox (seccomp), are refused.
/// See docs/attach.md.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Attach {
    /// The id of the process
    #[arg(value_name = "PID")]
    pub(crate) pid: String,

    #[command(flatten)]
    pub(crate) options: RunningOptions,
}
