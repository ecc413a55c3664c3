//! Verbs that run programs, and that control recorders.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum, ValueHint};

use heapledger_analysis::Pattern;
use heapledger_core::Bytes;
use heapledger_core::sample::Rate;

use super::common::{Data, Symbols};
use super::phc::HeapChecker;
use crate::args::{AllocatorOption, ResidentOptions, values};

/// Run a program and record what it allocates
///
/// Every call of the malloc family is recorded with its stack, in the program and
/// in all that it starts. The program sees no difference, except that it takes
/// somewhat longer. The report is on stderr; stdout is the program's.
///
///     $ heapledger record -- ./server --port 8080
///     $ heapledger record -o build.hl -- make -j8
///     $ heapledger record --sample 512KiB -- ./server --port 8080
///
/// Returns when the program has ended; processes that it left running go on
/// unrecorded. Ends with the program's exit status, or by the signal that killed
/// it. Programs that run with the rights of another user (set-user-ID) cannot be
/// recorded: they run as always.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Record {
    /// The file to write [default: heapledger.PROGRAM.PID.hl]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,

    /// Replace the file if it is there
    #[arg(short, long)]
    pub(crate) force: bool,

    /// Print nothing
    #[arg(short, long)]
    pub(crate) quiet: bool,

    /// Wait for everything that the program started, not only for the program
    #[arg(long)]
    pub(crate) wait: bool,

    /// Record only for this long, such as 30s or 2min; the program goes on unrecorded
    ///
    /// Counted from the first moment at which allocations are recorded. The file is
    /// complete then; `heapledger record` stays until the program has ended.
    #[arg(long, value_name = "TIME", value_parser = values::duration, verbatim_doc_comment)]
    pub(crate) duration: Option<Duration>,

    /// Begin to record this long after the program was started
    #[arg(long, value_name = "TIME", value_parser = values::duration, conflicts_with = "start_paused")]
    pub(crate) start_after: Option<Duration>,

    /// Begin to record when told to: by `heapledger start`, or a signal
    ///
    /// SIGUSR1, sent to `heapledger record`, starts recording; SIGUSR2 pauses it. While
    /// it is paused, frees of recorded blocks are still recorded, so that what is live
    /// stays right; nothing else is.
    #[arg(long, verbatim_doc_comment)]
    pub(crate) start_paused: bool,

    /// Wait, or drop events, when they come faster than they can be recorded
    #[arg(long, value_name = "WHAT", default_value = "wait")]
    pub(crate) on_full: OnFull,

    /// The time that the program waits for a recorder that stands still; `never` sets no limit
    ///
    /// The recorder stands still while it is stopped, or while the place that it writes
    /// to does not answer. After this time, events are dropped as with `--on-full drop`
    /// until the recorder is back. A recorder that is merely slow is always waited for.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = stall_timeout, verbatim_doc_comment)]
    pub(crate) stall_timeout: StallTimeout,

    /// The most memory that the recorder may take in each process for itself, such as 16MiB
    ///
    /// For programs near a limit of their own (`ulimit -v`, a memory cgroup). Beyond this
    /// size, a new stack ends at the innermost frame that is known already: its bytes
    /// count for that caller, and reports say how many stacks were folded so. The rings
    /// of 256 KiB a thread, which are shared with the recorder, do not count.
    #[arg(long, value_name = "SIZE", value_parser = target_memory, verbatim_doc_comment)]
    pub(crate) target_memory: Option<Bytes>,

    /// Begin another file after this time, or at this length: 1h, 500MiB, or 1h,1GiB for both
    ///
    /// The files are NAME.0001.hl, NAME.0002.hl … Each can be read alone: it begins with
    /// the blocks that were live then, and its totals are of its own time.
    #[arg(long, value_name = "TIME|SIZE", value_parser = file_limit, value_delimiter = ',', verbatim_doc_comment)]
    #[arg(conflicts_with = "aggregate")]
    pub(crate) rotate: Vec<FileLimit>,

    /// With --rotate: remove the oldest file when there are more than this
    #[arg(long, value_name = "N", requires = "rotate", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) keep: Option<u32>,

    /// Keep totals of each stack, no events: a small file, however long the run
    ///
    /// The file is replaced every ten seconds at the most by one with all totals so far, so that a
    /// recorder that is killed leaves the last one. Questions that need events (a moment that is
    /// neither the peak nor the end; threads; sizes) cannot be answered from such a file.
    #[arg(long)]
    pub(crate) aggregate: bool,

    /// Record a sample: the blocks at sample points, one in SIZE bytes on average, such as 512KiB
    ///
    /// For programs in production, and for long runs: a block that is not in the sample
    /// costs the program some ten instructions, and the recording nothing. All figures
    /// are then estimates of the whole, without bias, and are shown with error bars (of
    /// 95 %). SIZE is rounded to a power of two. `heapledger sample` sets another SIZE
    /// while the program runs.
    #[arg(long, value_name = "SIZE", value_parser = sample_size, verbatim_doc_comment)]
    #[arg(conflicts_with = "verify_stacks")]
    pub(crate) sample: Option<Bytes>,

    /// Record the usable size of each block, as the program's allocator gives it
    ///
    /// The usable size less the requested one is slop: `heapledger top --metric slop`.
    /// Without this option slop is computed, from what is known of the size classes of
    /// common allocators: exactly for most blocks, but not for blocks that happened to
    /// get a larger piece than they need. The option costs a question to the allocator
    /// for each recorded block, and next to no room in the file (docs/usable-sizes.md).
    #[arg(long, verbatim_doc_comment, conflicts_with = "aggregate")]
    pub(crate) usable: bool,

    /// Record the calls that change mappings: mmap, munmap, mremap, brk, mprotect, madvise
    /// and shared memory
    ///
    /// Each with its stack and thread, those of the allocator too. What code maps that makes
    /// system calls itself, as the dynamic linker does, is found in /proc/PID/maps and has no
    /// stack. In programs for musl that are linked dynamically, all mappings are found so
    /// (docs/mappings.md).
    #[arg(long, verbatim_doc_comment, conflicts_with = "aggregate")]
    pub(crate) mappings: bool,

    #[command(flatten)]
    pub(crate) resident: ResidentOptions,

    /// The stack or context to record for each allocation
    #[arg(long, value_name = "MODE", default_value = "mixed")]
    pub(crate) stacks: Stacks,

    /// Compare every captured stack with that of the program's C library
    ///
    /// Each stack is checked frame by frame against glibc's `backtrace`, at the same
    /// place in the program. That takes 10 microseconds and more for each allocation.
    /// The report and `summary` show how many are equal; `info` shows both stacks of the
    /// first that differ.
    #[arg(long, verbatim_doc_comment, conflicts_with = "stacks")]
    pub(crate) verify_stacks: bool,

    /// The names of functions to put into the file at the end
    ///
    /// With names, files and lines of all functions on its stacks, a recording gives the
    /// same answers on another machine, and after a rebuild. `heapledger names` puts them
    /// in later.
    #[arg(long, value_name = "WHICH", default_value = "auto", verbatim_doc_comment)]
    pub(crate) names: KeptNames,

    /// Load this hook library too, as `heapledger run` does; may be given several times
    #[arg(long, value_name = "LIB.so", value_hint = ValueHint::FilePath)]
    pub(crate) hook: Vec<PathBuf>,

    #[command(flatten)]
    pub(crate) allocator: AllocatorOption,

    /// A function that allocates for its callers, such as xmalloc: the report names the callers
    /// instead
    ///
    /// A PATTERN is as for --function of `heapledger top`. Can be given more than once.
    #[arg(long, value_name = "PATTERN", value_parser = Pattern::new)]
    pub(crate) wrapper: Vec<Pattern>,

    #[command(flatten)]
    pub(crate) heap_checker: HeapChecker,

    /// Record the process of this id, which runs already, as `heapledger attach` does
    #[arg(short, long, value_name = "PID")]
    #[arg(conflicts_with_all = ["wait", "start_after", "start_paused", "rotate", "verify_stacks", "hook", "allocator", "phc"])]
    pub(crate) pid: Option<String>,

    /// The program and its arguments
    #[arg(
        required_unless_present = "pid",
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    #[arg(value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// Run a program with another allocator, the heap checker, or hooks of your own
///
///     $ heapledger run --allocator heapledger -- ./server --port 8080
///     $ heapledger run --allocator ./liballocator.so -- make test
///     $ heapledger run --phc -- ./server --port 8080
///     $ heapledger run --hook ./libhistogram.so -- ./server --port 8080
///     $ heapledger run --hook ./libfail.so --hook ./libcount.so -- make test
///
/// A hook library observes every call of the malloc family, or replaces the
/// allocator, in the program and in all that it starts. It is written in C or
/// Rust against include/heapledger/hooks.h; examples/hooks has one of each kind.
/// The libraries are asked for their hooks in the order given, before the program's
/// first allocation returns. The allocator comes below them. A library of
/// replace-malloc, which has `replace_init`, is accepted, too.
///
/// Without a library and with the system's allocator, the program runs as it would
/// by itself. Ends with the program's exit status, or by the signal that killed it.
/// Programs that cannot be recorded cannot have hooks or another allocator either:
/// they run as always. To record as well: `heapledger record --allocator --hook`.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Run {
    /// The hook library; may be given several times
    #[arg(long, value_name = "LIB.so", value_hint = ValueHint::FilePath)]
    pub(crate) hook: Vec<PathBuf>,

    #[command(flatten)]
    pub(crate) allocator: AllocatorOption,

    #[command(flatten)]
    pub(crate) heap_checker: HeapChecker,

    /// Print nothing
    #[arg(short, long)]
    pub(crate) quiet: bool,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    #[arg(value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// Run a program and report how it misuses its allocator; record nothing
///
/// The check finds blocks that are freed twice, or by a function that does not go
/// with the one that allocated them (malloc and delete, new[] and delete), or with
/// a wrong size; frees of addresses that are not blocks; writes in front of a
/// block, as far as 16 bytes, and past its end (`--past-end`), when it is freed,
/// reallocated, or live at the exit; and writes to blocks that were freed, as long
/// as these are kept from reuse (`--quarantine`), when they are given back, or at
/// the exit.
///
///     $ heapledger check -- ./server --port 8080
///     $ heapledger check --error-exitcode 9 -- ./run-tests
///     $ heapledger check --json -o misuse.json -- make check
///     $ heapledger check --quarantine 256M -- ./server --port 8080
///     $ heapledger check --past-end 4k -- ./server --port 8080
///
/// It does not find reads; writes farther away from a block, unless they reach a
/// freed block that is kept, or the bytes around another block; writes to a freed
/// block that has been given back; and writes of the bytes that are there.
/// `heapledger run --phc` finds all of these, at the access, in a few blocks.
///
/// The program and all that it starts run with the checks. They see no difference,
/// except that they take longer, that freed blocks have other contents, and that a
/// block is not freed a second time, which would end them. The report is on stderr
/// when the program has ended; each finding is listed once, with its stacks and how
/// often it was found. Ends with the program's exit status, or by the signal that
/// killed it. Programs that cannot be recorded cannot be checked either: they run
/// as always.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Check {
    /// Keep freed blocks from reuse, up to this size in each process, to find writes to them
    ///
    /// The oldest block is given back first. The size includes 96 bytes for each block. 0
    /// switches it off.
    #[arg(long, value_name = "SIZE", default_value = "16MiB", value_parser = values::size)]
    pub(crate) quarantine: u64,

    /// Find writes up to so many bytes past the end of a block
    ///
    /// Each block becomes longer by as many bytes; at most 1 MiB. They are searched when
    /// the block is freed or reallocated, or at the exit.
    #[arg(long, value_name = "SIZE", default_value = "16", value_parser = values::canary)]
    pub(crate) past_end: u64,

    /// End with this exit status if misuse was found
    #[arg(long, value_name = "STATUS", value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) error_exitcode: Option<u8>,

    /// Write JSON, to stdout or to the file
    #[arg(long)]
    pub(crate) json: bool,

    /// Write the report to a file
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,

    /// Replace the file if it is there
    #[arg(short, long, requires = "output")]
    pub(crate) force: bool,

    /// Print nothing if nothing was found
    #[arg(short, long)]
    pub(crate) quiet: bool,

    /// Load this hook library too, as `heapledger run` does; may be given several times
    #[arg(long, value_name = "LIBRARY", value_hint = ValueHint::FilePath)]
    pub(crate) hook: Vec<PathBuf>,

    #[command(flatten)]
    pub(crate) allocator: AllocatorOption,

    #[command(flatten)]
    pub(crate) symbols: Symbols,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    #[arg(value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// Pause the recording of a program that runs under `heapledger record`
///
///     $ heapledger pause
///
/// From now on allocations are not recorded, in any process of the recording; frees
/// of recorded blocks are, so that the live blocks stay right. The program goes on.
/// `heapledger start` resumes. A signal does the same: `kill -USR2` to the process
/// of `heapledger record`. Given the process id of a program with a ledger of its
/// own, stops that ledger; its contents can be asked for until it is started again.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Pause {
    #[command(flatten)]
    pub(crate) control: Control,
}

/// Set the rate of a sampled recording that is running, or of a program's profile
///
///     $ heapledger sample 2MiB
///     $ heapledger sample 64KiB 4411
///     $ heapledger sample off
///
/// The program runs under `heapledger record --sample`. This takes effect at once,
/// in all processes of the recording: from now on there is one sample point in SIZE
/// bytes on average, rounded to a power of two; with `off`, all blocks are
/// recorded. Blocks that were recorded before keep their weight, so totals stay
/// estimates of the whole.
///
/// A program that has Heapledger in it and answers (docs/profile.md) is named by
/// its process id. If its ledger does not run, it is started: blocks that are live
/// already stay unknown to it.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Sample {
    /// The mean distance between sample points, or `off`
    #[arg(value_name = "SIZE|off", value_parser = sample_rate)]
    pub(crate) rate: Rate,

    #[command(flatten)]
    pub(crate) control: Control,
}

/// List running recordings, and programs with a ledger of their own
///
/// Lists those of the same user; root sees all. Shows whether allocations are
/// recorded at the moment, for how long each has run, and how much it has recorded.
///
///     $ heapledger status
///     $ heapledger status 4411 --json
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Status {
    #[command(flatten)]
    pub(crate) control: Control,
}

/// The recording or program to control.
#[derive(Debug, Args)]
pub(crate) struct Control {
    /// The id of a recorded process or of its recorder, or the file (with --rotate, its name
    /// without the number) [default: the only one]; or the id of a program that answers
    #[arg(value_name = "PID|FILE", value_hint = ValueHint::FilePath)]
    pub(crate) target: Option<String>,

    #[command(flatten)]
    pub(crate) data: Data,
}

/// Parses the mean distance between sample points.
pub(super) fn sample_size(text: &str) -> Result<Bytes, String> {
    match values::size(text)? {
        0 | 1 => Err("to record all blocks, leave out --sample".to_owned()),
        size => Ok(Bytes(size)),
    }
}

/// Parses the mean distance between sample points, or `off`.
fn sample_rate(text: &str) -> Result<Rate, String> {
    match text {
        "off" => Ok(Rate::EXACT),
        _ => match values::size(text)? {
            0 | 1 => Err("to record all blocks, say `off`".to_owned()),
            size => Ok(Rate::nearest(Bytes(size))),
        },
    }
}

/// Parses a size that is enough for the least that the recorder keeps in a program.
fn target_memory(text: &str) -> Result<Bytes, String> {
    const BYTES_MIN: u64 = 256 << 10;
    match values::size(text)? {
        ..BYTES_MIN => Err("it is at least 256KiB".to_owned()),
        size => Ok(Bytes(size)),
    }
}

/// The time to wait for a recorder that stands still; `None` is for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StallTimeout(pub(crate) Option<Duration>);

/// Parses a time; `never` and 0 are for ever.
fn stall_timeout(text: &str) -> Result<StallTimeout, String> {
    let time = if text == "never" { Duration::ZERO } else { values::duration(text)? };
    Ok(StallTimeout((!time.is_zero()).then_some(time)))
}

/// The limit at which a file is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileLimit {
    /// After this time.
    Age(Duration),
    /// At this length.
    Bytes(u64),
}

/// Parses a time or a size.
fn file_limit(text: &str) -> Result<FileLimit, String> {
    const BYTES_MIN: u64 = 64 << 10;
    let unknown = || format!("invalid limit `{text}`: expected a time or a size, such as 1h or 500MiB");
    let limit = values::duration(text).map(FileLimit::Age);
    match limit.or_else(|_| values::size(text).map(FileLimit::Bytes)).map_err(|_| unknown())? {
        FileLimit::Age(age) if age < Duration::from_millis(100) => Err("files are at least 100ms long".to_owned()),
        FileLimit::Bytes(..BYTES_MIN) => Err("files are at least 64KiB long".to_owned()),
        limit => Ok(limit),
    }
}

/// The action when a ring is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnFull {
    /// Let the program wait: nothing is lost
    #[default]
    Wait,
    /// Drop allocations and frees; totals are lower bounds then, and every report says how many
    /// were lost
    Drop,
}

/// Names of functions that go into a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum KeptNames {
    /// As many as fit 5 seconds and a tenth of the file, those on the largest stacks first
    #[default]
    Auto,
    /// All
    All,
    /// None
    None,
}

/// The stack or context that is recorded for each allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Stacks {
    /// The stack, and the context that the program declares
    #[default]
    Mixed,
    /// The stack
    Native,
    /// The context that the program declares: cheaper, but useless for programs that declare none
    Pseudo,
    /// Nothing: totals and sizes only
    None,
}
