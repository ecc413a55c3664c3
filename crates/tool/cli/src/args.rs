//! The command line. The doc comments here are the manual: help, man pages and completions come from them.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::styling::{AnsiColor, Styles};
use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum, ValueHint};
use heapledger_analysis::{Lifetime, Moment, Pattern, ProcessPattern};
use heapledger_recording::Time;

use crate::select::{self, AnyMetric, Limit, LiveMetric, What, Which, moment, percentage, within};

const STYLES: Styles =
    Styles::styled().header(AnsiColor::Green.on_default().bold()).usage(AnsiColor::Green.on_default().bold());

/// Every byte accounted for: records and explains what programs allocate
///
/// Works on unmodified Linux programs and everything they start. `heapledger
/// record` runs a program and writes a recording; the other verbs read one.
/// Without a file they read the newest `heapledger.*.hl` here.
///
///     $ heapledger record -- ./server --port 8080
///     $ heapledger top                    what is live at the peak, by function
///     $ heapledger tree                   the same as a tree of calls
///     $ heapledger leaks                  what was never freed
///     $ heapledger temporary              what was freed at once
///     $ heapledger sizes                  a histogram of sizes
///     $ heapledger flame -o flame.svg     a picture
///     $ heapledger timeline               what was live over time
///     $ heapledger diff before.hl after.hl
///     $ heapledger export --to pprof -o peak.pb.gz
///
/// `heapledger FILE` is short for `heapledger summary FILE`.
///
/// Exit status: 0 all went well; 1 something unexpected; 2 a command line that
/// makes no sense; 102 the recording cannot be read; 103 there is nothing to
/// show, because nothing was recorded; 104 `heapledger diff` found more growth
/// than --fail-above allows. `heapledger record` and `run` end as the program did;
/// 101: it could not be started, 126: it is not executable, 127: there is no such
/// program.
#[derive(Debug, Parser)]
#[command(name = "heapledger", version, verbatim_doc_comment, arg_required_else_help = true, styles = STYLES)]
#[command(disable_help_subcommand = true, subcommand_value_name = "VERB", subcommand_help_heading = "Verbs")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) verb: Option<Verb>,

    #[command(flatten)]
    pub(crate) input: Input,

    /// When to use colours.
    ///
    /// `auto`: on a terminal, unless the environment variable NO_COLOR is set.
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", help_heading = "Output")]
    pub(crate) color: Color,
}

/// When to use colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, unless NO_COLOR is set
    #[default]
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Record(Record),
    Run(Run),
    Start(Start),
    Stop(Stop),
    Status(Status),
    Summary(Summary),
    Top(Top),
    Tree(Tree),
    Leaks(Leaks),
    Temporary(Temporary),
    Reallocations(Reallocations),
    Callers(Neighbours),
    /// Show what one function calls, and how much memory goes through each of these
    ///
    /// All that was allocated on stacks with the function on them, by the functions
    /// that it calls directly; what it allocates itself is `(itself)`. Each stack
    /// counts once: of a function that is on a stack several times, its innermost
    /// call counts. So the rows add up.
    ///
    ///     $ heapledger callees "json::parse*" --at end
    ///     $ heapledger callees /^main$/ --total --metric blocks
    ///
    /// FUNCTION is a pattern, as with --function: several functions that match are
    /// taken as one.
    #[command(verbatim_doc_comment)]
    Callees(Neighbours),
    Sizes(Sizes),
    Flame(Flame),
    Timeline(Timeline),
    Diff(Diff),
    Export(Export),
    Merge(Merge),
    Trim(Trim),
    Anonymize(Anonymize),
    Info(Info),
    Doctor(Doctor),
    Explain(Explain),
    Completions(Completions),
    Man(Man),
    /// The program that `doctor` records
    #[command(hide = true)]
    SelfTest,
}

/// Run a program and record what it allocates
///
/// Every call of the malloc family is recorded with its stack, in the program and
/// in all that it starts. The program sees no difference, except that it takes
/// somewhat longer. The report is on stderr; stdout is the program's.
///
///     $ heapledger record -- ./server --port 8080
///     $ heapledger record -o build.hl -- make -j8
///
/// Returns when the program has ended; what it left running goes on unrecorded.
/// Ends with the program's exit status, or by the signal that killed it. Programs
/// that are statically linked, or that run with the rights of another user
/// (set-user-ID), cannot be recorded: they run as always.
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

    /// Record for so long only, such as 30s or 2min; the program goes on unrecorded
    ///
    /// Counted from the first moment at which allocations are recorded. The file is
    /// complete then; `heapledger record` stays until the program has ended.
    #[arg(long, value_name = "TIME", value_parser = select::duration, verbatim_doc_comment)]
    pub(crate) duration: Option<Duration>,

    /// Begin to record so long after the program was started
    #[arg(long, value_name = "TIME", value_parser = select::duration, conflicts_with = "start_paused")]
    pub(crate) start_after: Option<Duration>,

    /// Begin to record when told to: by `heapledger start`, or a signal
    ///
    /// SIGUSR1, sent to `heapledger record`, starts recording; SIGUSR2 pauses it. While
    /// it is paused, frees of recorded blocks are still recorded, so that what is live
    /// stays right; nothing else is.
    #[arg(long, verbatim_doc_comment)]
    pub(crate) start_paused: bool,

    /// What to do when events come faster than they can be taken
    #[arg(long, value_name = "WHAT", default_value = "wait")]
    pub(crate) on_full: OnFull,

    /// Go on in another file after this time, or when the file is this long: 1h, 500MiB, or 1h,1GiB for both
    ///
    /// The files are NAME.0001.hl, NAME.0002.hl … Each can be read alone: it begins with
    /// what was live then, and its totals are of its own time.
    #[arg(long, value_name = "TIME|SIZE", value_parser = file_limit, value_delimiter = ',', verbatim_doc_comment)]
    #[arg(conflicts_with = "aggregate")]
    pub(crate) rotate: Vec<FileLimit>,

    /// With --rotate: remove the oldest file when there are more than this
    #[arg(long, value_name = "N", requires = "rotate", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) keep: Option<u32>,

    /// Keep totals of each stack, no events: a small file, however long the run
    ///
    /// The file is replaced every ten seconds at the most by one with all that is known
    /// by then, so that a recorder that is killed leaves the last one. What takes
    /// events (a moment that is neither the peak nor the end; threads; sizes) cannot be
    /// asked of it.
    #[arg(long)]
    pub(crate) aggregate: bool,

    /// What to take of the place where a block is allocated
    #[arg(long, value_name = "MODE", default_value = "mixed")]
    pub(crate) stacks: Stacks,

    /// Compare every captured stack with what the program's C library says
    ///
    /// Each is checked frame by frame against glibc's `backtrace`, at the same place
    /// in the program. That takes 10 microseconds and more for each allocation. How
    /// many are equal is in the report and in `summary`; `info` shows both stacks of
    /// the first that are not.
    #[arg(long, verbatim_doc_comment, conflicts_with = "stacks")]
    pub(crate) verify_stacks: bool,

    /// Load this hook library too, as `heapledger run` does; may be given several times
    #[arg(long, value_name = "LIB.so", value_hint = ValueHint::FilePath)]
    pub(crate) hook: Vec<PathBuf>,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    #[arg(value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// Run a program with hooks of your own on its allocator, and record nothing
///
/// A hook library is told of every call of the malloc family, or takes the place of
/// the allocator, in the program and in all that it starts. It is written in C or
/// Rust against include/heapledger/hooks.h; examples/hooks has one of each kind.
///
///     $ heapledger run --hook ./libhistogram.so -- ./server --port 8080
///     $ heapledger run --hook ./libfail.so --hook ./libhistogram.so -- make test
///
/// The libraries are asked for their hooks in the order given, before the program's
/// first allocation returns. Ends with the program's exit status, or by the signal
/// that killed it. Programs that cannot be recorded cannot have hooks either: they
/// run as always. To record as well: `heapledger record --hook`.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Run {
    /// The hook library; may be given several times
    #[arg(long, required = true, value_name = "LIB.so", value_hint = ValueHint::FilePath)]
    pub(crate) hook: Vec<PathBuf>,

    /// Print nothing
    #[arg(short, long)]
    pub(crate) quiet: bool,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    #[arg(value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// Begin or go on to record a program that runs under `heapledger record`
///
///     $ heapledger record --start-paused -- ./server &
///     $ heapledger start
///     $ heapledger stop 4411
///
/// Takes effect at once, in all processes of the recording. What was allocated
/// before is not in the recording; that it is freed later is counted apart. The
/// same by a signal: `kill -USR1` to the process of `heapledger record`.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Start {
    #[command(flatten)]
    pub(crate) control: Control,
}

/// Pause the recording of a program that runs under `heapledger record`
///
///     $ heapledger stop
///
/// From now on allocations are not recorded, in any process of the recording;
/// frees of recorded blocks are, so that what is live stays right. The program goes
/// on. `heapledger start` resumes. The same by a signal: `kill -USR2` to the process
/// of `heapledger record`.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Stop {
    #[command(flatten)]
    pub(crate) control: Control,
}

/// List the recordings that are going on
///
/// Those of the same user; root sees all. Whether allocations are recorded at the
/// moment, for how long it has run, and how much it has recorded.
///
///     $ heapledger status
///     $ heapledger status 4411 --json
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Status {
    #[command(flatten)]
    pub(crate) control: Control,
}

/// Which recording that is going on.
#[derive(Debug, Args)]
pub(crate) struct Control {
    /// The id of a recorded process or of its recorder, or the file [default: the only one]
    #[arg(value_name = "PID|FILE", value_hint = ValueHint::FilePath)]
    pub(crate) target: Option<String>,

    /// Print JSON
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
}

/// When a file is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileLimit {
    /// After this time.
    Age(Duration),
    /// At this length.
    Bytes(u64),
}

/// A time or a size.
fn file_limit(text: &str) -> Result<FileLimit, String> {
    const BYTES_MIN: u64 = 64 << 10;
    let unknown = || format!("`{text}` is neither a time such as 1h nor a size such as 500MiB");
    let limit = select::duration(text).map(FileLimit::Age);
    match limit.or_else(|_| select::size(text).map(FileLimit::Bytes)).map_err(|_| unknown())? {
        FileLimit::Age(age) if age < Duration::from_millis(100) => Err("files are at least 100ms long".to_owned()),
        FileLimit::Bytes(..BYTES_MIN) => Err("files are at least 64KiB long".to_owned()),
        limit => Ok(limit),
    }
}

/// What happens when a ring is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnFull {
    /// Let the program wait: nothing is lost
    #[default]
    Wait,
    /// Drop allocations and frees; totals are lower bounds then, and every report says how many were lost
    Drop,
}

/// What is taken of the place where a block is allocated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Stacks {
    /// The stack, and the context that the program declares
    #[default]
    Mixed,
    /// The stack
    Native,
    /// The context that the program declares: cheaper, and of no use to programs that declare none
    Pseudo,
    /// Nothing: totals and sizes only
    None,
}

/// Show the totals of a recording and of each process in it
///
/// Takes no time, however long the recording is: the totals are at its end. If
/// the recorder was killed they are not; then they are counted again.
///
///     $ heapledger summary
///     $ heapledger summary build.hl --json | jq .bytes_live_max
///     $ heapledger summary --during 10s-20s --thread worker
///
/// With options that select blocks, the totals are of these alone, and there is no
/// list of processes. Retained is what was allocated --during a time and is still
/// live at its end.
///
/// Allocations are calls that returned a block; a reallocation is one more
/// allocation and one more free. Bytes are those that were asked for. The peak is
/// the moment when the most bytes were live. A temporary allocation is freed
/// before the same thread allocates or frees anything else.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Summary {
    #[command(flatten)]
    pub(crate) input: Input,

    #[command(flatten)]
    pub(crate) which: Which,

    #[command(flatten)]
    pub(crate) symbols: Symbols,
}

/// Show who holds or allocates the most
///
///     $ heapledger top                             by function, at the peak
///     $ heapledger top --by stack -n 3             the three largest stacks, in full
///     $ heapledger top --by thread --total         who allocated how much in all
///     $ heapledger top --by size --metric blocks   the most frequent block sizes at the peak
///     $ heapledger top --by context                for which of the scopes that the program declares
///     $ heapledger top --at 1.5s                   what was live then
///     $ heapledger top --during 10s-20s            what was allocated then and still live at 20 s
///     $ heapledger top --function "json::*" --size 4k.. --lifetime 1s..
///                                                  large blocks of a library that live long
///
/// A site is a stack that allocates. Its function is the innermost one that is no
/// allocator: not malloc, operator new, or a known wrapper such as xmalloc.
///
/// `--by thread` or `size`, a time with `--at`, and `--thread`, `--size`,
/// `--lifetime` and `--during` are answered from the events: that takes the
/// longer, the more were recorded. All else takes no time.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Top {
    #[command(flatten)]
    pub(crate) input: Input,

    /// What to sum up by
    #[arg(long, value_name = "WHAT", default_value = "function")]
    pub(crate) by: By,

    /// How many rows to show; 0 for all
    #[arg(short = 'n', long = "rows", value_name = "N", default_value_t = 20)]
    pub(crate) rows: usize,

    #[command(flatten)]
    pub(crate) what: What,

    #[command(flatten)]
    pub(crate) symbols: Symbols,
}

/// What `top` sums up by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum By {
    /// The function that wanted the memory
    Function,
    /// The stack, shown by its innermost functions
    Site,
    /// The stack, shown in full
    Stack,
    /// The executable or library of that function
    Module,
    /// What the program was doing: the scopes that it declares, from the outermost to the innermost
    Context,
    /// The name of the innermost of these scopes, whatever its value
    Scope,
    /// The innermost of these scopes that is a task, such as a request
    Task,
    /// The heap, of those that the program declares
    Heap,
    /// The thread that allocated
    Thread,
    /// The exact size that was asked for
    Size,
}

/// Show who holds or allocates how much as a tree of calls
///
/// From the outermost callers to those that allocate, or the other way round.
/// Functions that were inlined are shown where debug information tells them. If
/// all that a function holds goes through one that it calls, the two stand in one
/// place, with one row of figures.
///
///     $ heapledger tree                            the peak, from main inwards
///     $ heapledger tree --bottom-up --depth 4      who wanted the memory, and who called them
///     $ heapledger tree --at end --threshold 5     what was live at the end, without what is below 5 %
///     $ heapledger tree --by context,stack         by the scopes of the program, and in each by function
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Tree {
    #[command(flatten)]
    pub(crate) input: Input,

    /// What the levels are, the outermost first: stack, context, heap, or several, such as context,stack
    #[arg(long, value_name = "WHAT", default_value = "stack", value_delimiter = ',')]
    pub(crate) by: Vec<Levels>,

    /// From the functions that allocate to their callers
    #[arg(short, long)]
    pub(crate) bottom_up: bool,

    /// How many levels to show; functions that stand in one place are one level
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) depth: Option<u32>,

    /// Leave out what has a smaller share of the whole, in percent
    #[arg(short, long, value_name = "PERCENT", default_value_t = 1.0, value_parser = percentage)]
    pub(crate) threshold: f64,

    /// Show every function of long chains
    #[arg(long)]
    pub(crate) unfold: bool,

    #[command(flatten)]
    pub(crate) what: What,

    #[command(flatten)]
    pub(crate) symbols: Symbols,
}

/// What levels of a tree are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Levels {
    /// Functions
    Stack,
    /// The scopes that the program declares
    Context,
    /// The heaps that the program declares
    Heap,
}

/// Show what was live at the end, by stack
///
/// Live at the end is not the same as lost: much of it may be in use until the
/// last moment, and its program is right not to free it. Look for what should not
/// be there, or not so often. Of a process that was ended by a signal, everything
/// is live that it used.
///
///     $ heapledger leaks
///     $ heapledger leaks --process 4411 -n 3 --metric blocks
///     $ heapledger leaks --during 1min.. --not-module "libcrypto*"
///     $ heapledger leaks --suppressions known.supp --error-exitcode 1
///
/// A suppression file has the syntax of LeakSanitizer: `leak:PATTERN` on a line,
/// empty lines and lines that begin with # between them. A leak is suppressed if
/// the PATTERN is found in a function, a module's path or a source file of its
/// stack; `*` is any text, `^` and `$` are the start and the end of the name.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Leaks {
    #[command(flatten)]
    pub(crate) input: Input,

    /// A file of known leaks, which are not shown; can be given more than once
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) suppressions: Vec<PathBuf>,

    /// End with this exit status if leaks are shown, for checks that are to fail
    #[arg(long, value_name = "STATUS", value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) error_exitcode: Option<u8>,

    /// What to order by
    #[arg(long, value_name = "WHAT", default_value = "bytes")]
    pub(crate) metric: LiveMetric,

    /// How many stacks to show; 0 for all
    #[arg(short = 'n', long = "rows", value_name = "N", default_value_t = 10)]
    pub(crate) rows: usize,

    #[command(flatten)]
    pub(crate) which: Which,

    #[command(flatten)]
    pub(crate) symbols: Symbols,
}

/// Show where memory is allocated only to be freed at once
///
/// A temporary allocation is freed before the same thread allocates or frees
/// anything else. Where there are many, a buffer that is kept, or one on the
/// stack, often does as well.
///
/// With --within, a block counts that is freed soon, in numbers: before the thread
/// that allocated it has made more than N further allocations (0: before its next
/// one), whoever frees it and whatever is freed in between; or within a time. Times
/// of events are kept in steps of 0.1 ms.
///
///     $ heapledger temporary -n 5
///     $ heapledger temporary --within 10
///     $ heapledger temporary --within 1ms --size 4k..
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Temporary {
    #[command(flatten)]
    pub(crate) input: Input,

    /// Count blocks that are freed within N further allocations of their thread, or within a time such as 1ms
    #[arg(long, value_name = "N|TIME", value_parser = within)]
    pub(crate) within: Option<Lifetime>,

    /// How many sites to show; 0 for all
    #[arg(short = 'n', long = "rows", value_name = "N", default_value_t = 20)]
    pub(crate) rows: usize,

    #[command(flatten)]
    pub(crate) which: Which,

    #[command(flatten)]
    pub(crate) symbols: Symbols,
}

/// Show where blocks are reallocated, how often, and how much is copied for it
///
/// By the stack that calls realloc. Where many reallocations grow few blocks in long
/// chains, asking for the room beforehand saves them. `copied` is a bound: the
/// smaller one of both sizes, each time; an allocator that finds room behind a block
/// copies nothing.
///
///     $ heapledger reallocations -n 5
///     $ heapledger reallocations --size 1M.. --thread "worker*"
///
/// Selected are reallocations by the block that comes of them: by its size, lifetime
/// and thread, and by the time of the call. realloc(NULL, n) is an allocation like
/// any other, and not counted here.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Reallocations {
    #[command(flatten)]
    pub(crate) input: Input,

    /// What to order by
    #[arg(long, value_name = "WHAT", default_value = "copied")]
    pub(crate) by: ReallocationOrder,

    /// How many stacks to show; 0 for all
    #[arg(short = 'n', long = "rows", value_name = "N", default_value_t = 20)]
    pub(crate) rows: usize,

    #[command(flatten)]
    pub(crate) which: Which,

    #[command(flatten)]
    pub(crate) symbols: Symbols,
}

/// What to order reallocations by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReallocationOrder {
    /// Bytes that were copied at most
    Copied,
    /// How often
    Count,
    /// How often the same block
    Chain,
}

/// Show who calls one function, and how much memory goes through each of these
///
/// All that was allocated on stacks with the function on them, by the functions
/// that call it directly. Each stack counts once: of a function that is on a stack
/// several times, its outermost call counts. So the rows add up.
///
///     $ heapledger callers "json::parse*"
///     $ heapledger callers xrealloc --total -n 5
///
/// FUNCTION is a pattern, as with --function: several functions that match are
/// taken as one.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Neighbours {
    /// The function: a part of its name, wildcards, or /regex/
    #[arg(value_name = "FUNCTION", value_parser = Pattern::new)]
    pub(crate) of: Pattern,

    #[command(flatten)]
    pub(crate) input: Input,

    /// How many rows to show; 0 for all
    #[arg(short = 'n', long = "rows", value_name = "N", default_value_t = 20)]
    pub(crate) rows: usize,

    #[command(flatten)]
    pub(crate) what: What,

    #[command(flatten)]
    pub(crate) symbols: Symbols,
}

/// Show how large blocks are: a histogram by size class
///
/// A class has the sizes up to a power of two, and above half of it. Sizes are those
/// that were asked for. Exact ones: `heapledger top --by size`.
///
///     $ heapledger sizes                              what is live at the peak, by bytes
///     $ heapledger sizes --total --metric blocks      how often each size is asked for
///     $ heapledger sizes --at end --module libfoo.so
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Sizes {
    #[command(flatten)]
    pub(crate) input: Input,

    #[command(flatten)]
    pub(crate) what: What,

    #[command(flatten)]
    pub(crate) symbols: Symbols,
}

/// Draw a flame graph, or write the stacks for tools that do
///
/// Each box is a function, as wide as what it and all that it calls hold or
/// allocate. The picture is a file that browsers show: click on a box to enlarge
/// it, press Ctrl-F to search.
///
///     $ heapledger flame -o peak.svg
///     $ heapledger flame --total --metric blocks -o calls.svg
///     $ heapledger flame --thread "worker*" --at end -o workers.svg
///     $ heapledger flame --by context,stack -o requests.svg
///     $ heapledger flame --collapsed -o - | grep parse
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Flame {
    /// The recording [default: the newest heapledger.*.hl here]
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: Option<PathBuf>,

    /// The file to write; - for stdout
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: PathBuf,

    /// What boxes are, from the bottom: stack, context, heap, or several, such as context,stack
    #[arg(long, value_name = "WHAT", default_value = "stack", value_delimiter = ',')]
    pub(crate) by: Vec<Levels>,

    /// Write text, not a picture: a line `outer;…;inner FIGURE` for each stack
    #[arg(long)]
    pub(crate) collapsed: bool,

    #[command(flatten)]
    pub(crate) what: What,

    #[command(flatten)]
    pub(crate) symbols: Symbols,
}

/// Write the sites in the format of another tool
///
/// What each stack ever allocated, and what it holds at a moment, as blocks and
/// bytes. Functions are named here and now: the file needs nothing else. Contexts,
/// tasks and heaps that the program declares are labels.
///
///     $ heapledger export --to pprof -o peak.pb.gz
///     $ go tool pprof -top peak.pb.gz
///     $ go tool pprof -http=: -sample_index=alloc_space peak.pb.gz
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Export {
    /// The recording [default: the newest heapledger.*.hl here]
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: Option<PathBuf>,

    /// The format
    #[arg(long, value_name = "FORMAT")]
    pub(crate) to: crate::export::Format,

    /// The file to write; - for stdout
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: PathBuf,

    /// When what is live is looked at: peak, end, or a time such as 1.5s or 200ms [default: peak]
    #[arg(long, value_name = "WHEN", value_parser = moment, help_heading = "What to show")]
    pub(crate) at: Option<Moment>,

    #[command(flatten)]
    pub(crate) which: Which,

    #[command(flatten)]
    pub(crate) symbols: Symbols,
}

/// Draw what was live over time
///
/// A plot for the terminal, or a picture. Each column shows the most that was live
/// in its part of the time. Beside it stands what the system counted of the same
/// processes, where `record` looked: resident memory, what of it belongs to no
/// file, the brk heap, and private mappings without a file (what malloc takes by
/// mmap among them). So it shows whether what is live is also resident, and
/// whether what was freed went back to the system.
///
///     $ heapledger timeline
///     $ heapledger timeline --svg live.svg
///     $ heapledger timeline --from 10s --to 12s --process 4411
///     $ heapledger timeline --by function                  which function grows
///     $ heapledger timeline --by context                   what the program did when it grew
///     $ heapledger timeline --by site -n 5 --svg sites.svg
///     $ heapledger timeline --json | jq .peak
///
/// With --by, each column shows what was held at its end; that takes the events, and
/// the longer, the more were recorded.
///
/// Memory that processes share is counted for each of them. The plot is in plain
/// ASCII where the locale is not UTF-8.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Timeline {
    #[command(flatten)]
    pub(crate) input: Input,

    #[command(flatten)]
    pub(crate) range: Range,

    /// Only this process, or one of several: its pid, or a pattern of its program's file name
    #[arg(short, long, value_name = "PROCESS", value_parser = select::process, help_heading = "What to show")]
    pub(crate) process: Vec<ProcessPattern>,

    /// Show what the largest of these at the peak held over time: which one grows
    #[arg(long, value_name = "WHAT", help_heading = "What to show")]
    pub(crate) by: Option<DiffBy>,

    /// How many of them
    #[arg(short = 'n', long = "rows", value_name = "N", default_value_t = 8, help_heading = "What to show")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=50), requires = "by")]
    pub(crate) rows: u16,

    #[command(flatten)]
    pub(crate) symbols: Symbols,

    /// Write a picture to this file, - for stdout
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Output", conflicts_with = "json")]
    pub(crate) svg: Option<PathBuf>,
}

/// Compare two runs, or two moments of one
///
/// What grew most comes first, what shrank most last.
///
///     $ heapledger diff before.hl after.hl               functions that hold more at the peak
///     $ heapledger diff before.hl after.hl --at end --by stack      leaks that are new
///     $ heapledger diff before.hl after.hl --total --metric blocks  calls that are more
///     $ heapledger diff run.hl --at 5s --at 20s          what grew between these times
///     $ heapledger diff old.hl@end new.hl@1min           moments beside the names
///     $ heapledger diff main.hl branch.hl --markdown --fail-above 5% > comment.md
///
/// Functions are the same if they have the same name, in a module of the same file
/// name and, where that is known, in a source file of the same name: addresses,
/// process ids and directories do not count, nor do versions of libraries. Where
/// no names are known only the same build of a module can be compared, so keep the
/// old programs, or their debug information, for --debug-dir.
///
/// Exit status: 104 if the whole grew by more than --fail-above allows.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Diff {
    /// A recording and another one, or one with two moments; FILE@WHEN is FILE at that moment
    #[arg(value_name = "FILE", required = true, num_args = 1..=2, value_hint = ValueHint::FilePath)]
    pub(crate) files: Vec<PathBuf>,

    /// What to sum up by
    #[arg(long, value_name = "WHAT", default_value = "function")]
    pub(crate) by: DiffBy,

    /// How many rows to show; 0 for all
    #[arg(short = 'n', long = "rows", value_name = "N", default_value_t = 20)]
    pub(crate) rows: usize,

    /// Leave out what differs by less: a share of the whole before (0.5%), or a figure (16KiB, 100)
    #[arg(short, long, value_name = "LIMIT", value_parser = select::amount, default_value = "0")]
    pub(crate) threshold: Limit,

    /// Fail if the whole has grown by more: a share of it (10%), or a figure (1MiB, 100)
    #[arg(long, value_name = "LIMIT", value_parser = select::amount)]
    pub(crate) fail_above: Option<Limit>,

    /// What was live at a moment: peak, end, or a time such as 1.5s; given twice, before and after [default: peak]
    #[arg(long, value_name = "WHEN", value_parser = moment, conflicts_with = "total", help_heading = "What to show")]
    pub(crate) at: Vec<Moment>,

    /// All that was ever allocated, live or not
    #[arg(long, help_heading = "What to show")]
    pub(crate) total: bool,

    /// What to compare; temporary implies --total
    #[arg(long, value_name = "WHAT", default_value = "bytes", help_heading = "What to show")]
    pub(crate) metric: AnyMetric,

    #[command(flatten)]
    pub(crate) which: Which,

    #[command(flatten)]
    pub(crate) symbols: Symbols,

    /// Print JSON
    #[arg(long, help_heading = "Output", conflicts_with = "markdown")]
    pub(crate) json: bool,

    /// Print Markdown, such as for a comment on a change
    #[arg(long, help_heading = "Output")]
    pub(crate) markdown: bool,
}

/// What `diff` and `timeline` sum up by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DiffBy {
    /// The function that wanted the memory
    Function,
    /// The stack, shown by its innermost functions
    Site,
    /// The stack, shown in full
    Stack,
    /// The executable or library of that function
    Module,
    /// What the program was doing: the scopes that it declares, from the outermost to the innermost
    Context,
    /// The name of the innermost of these scopes, whatever its value
    Scope,
    /// The innermost of these scopes that is a task, such as a request
    Task,
    /// The heap, of those that the program declares
    Heap,
}

/// Make one recording of several
///
/// The processes of all stand side by side, with the times at which they really
/// ran: those of the earliest recording begin at 0. Totals, the peak and what is
/// live over time are counted again, over all of them. Recordings of different
/// machines are put together by the clocks of those machines.
///
///     $ heapledger merge -o both.hl client.hl server.hl
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Merge {
    /// The recordings
    #[arg(value_name = "FILE", required = true, num_args = 2.., value_hint = ValueHint::FilePath)]
    pub(crate) files: Vec<PathBuf>,

    #[command(flatten)]
    pub(crate) target: Target,
}

/// Cut a part of the time out of a recording
///
/// The new recording answers for itself: what was live when its time begins is in
/// it, with the stacks that allocated it, and all times are those of the whole
/// recording. Totals are of the part alone: calls are those made in it, while the
/// peak and what is live count what was there before, too. Processes that were over
/// by then, or began later, are not in it.
///
///     $ heapledger trim --from 10s --to 20s -o part.hl run.hl
///     $ heapledger trim --from 1h -o end.hl run.hl
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Trim {
    /// The recording [default: the newest heapledger.*.hl here]
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) range: Range,

    #[command(flatten)]
    pub(crate) target: Target,
}

/// Make a recording that can be shown to others
///
/// Removed: command lines, the working directory, options of `record`,
/// annotations, and the build ids of your own programs and libraries. Replaced:
/// the paths of these by /own/HASH, the names of threads by thread-HASH, and the
/// names of scopes and heaps, and the values of scopes, by text-HASH; the same name
/// by the same hash. Your own are all that are not below /usr (without
/// /usr/local, /usr/src and /usr/home), /lib, /lib32, /lib64, /libx32, /bin or
/// /sbin.
///
/// Hashes are made with a random key that is not kept: nobody can try names out.
/// To compare several recordings, give them the same hashes with --key-file.
///
/// Kept: the date, pids, times, how processes began and ended, addresses in
/// modules, paths and build ids of the distribution's modules, and all figures.
/// Names of functions are in no recording: whoever reads it finds those of the
/// distribution by build id, and yours only with --keep-build-ids and your
/// programs at hand.
///
///     $ heapledger anonymize -o public.hl heapledger.server.4411.hl
///     $ heapledger anonymize --keep-names -o public.hl heapledger.server.4411.hl
///     $ heapledger info public.hl                                   what is in it now
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Anonymize {
    /// The recording [default: the newest heapledger.*.hl here]
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: Option<PathBuf>,

    /// Keep the file names of your own programs and libraries, without their directories, and the names of threads, scopes and heaps
    #[arg(long)]
    pub(crate) keep_names: bool,

    /// Keep the build ids of your own programs and libraries
    #[arg(long)]
    pub(crate) keep_build_ids: bool,

    /// Take the key from this file, of 16 bytes or more, so that recordings made with it have the same hashes
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) key_file: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) target: Target,
}

/// Show what a recording consists of
///
/// The session; processes and how they ended; modules with their build ids, and
/// what is there to take names from; threads; the parts of the file and their
/// sizes; what is damaged.
///
///     $ heapledger info build.hl
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Info {
    #[command(flatten)]
    pub(crate) input: Input,

    #[command(flatten)]
    pub(crate) symbols: Symbols,
}

/// Say what can be recorded here, and what not
///
/// Looks at the machine: kernel, limits, memory, places for files; and records a
/// small program to see whether all of it works. With a command, looks at its
/// program too, without running it: can it be recorded, and wholly; whose malloc
/// it has; and for it and its libraries, how stacks and names will look.
///
/// Each finding has a code, which `heapledger explain` explains, and a hint.
///
///     $ heapledger doctor
///     $ heapledger doctor ./server
///     $ heapledger doctor --json ./server | jq .verdict
///
/// Exit status: 0 it can be recorded (perhaps with warnings), 101 it cannot.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Doctor {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// The program; its arguments, if given, are of no interest
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    #[arg(value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// Explain a code that stands beside a message
///
/// Errors, warnings and findings of `doctor` have codes like HL0005. Says what is
/// behind one, what follows from it, and what to do. Without a code lists them.
///
///     $ heapledger explain HL0005
///     $ heapledger explain
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Explain {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// The code, or its number
    #[arg(value_name = "CODE")]
    pub(crate) code: Option<String>,
}

/// Print a completion script for a shell
///
///     $ heapledger completions bash > ~/.local/share/bash-completion/completions/heapledger
///     $ heapledger completions fish > ~/.config/fish/completions/heapledger.fish
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Completions {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}

/// Print the manual page, or write those of all verbs to a directory
///
///     $ heapledger man | man -l -
///     $ heapledger man --dir ~/.local/share/man/man1
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Man {
    /// The directory to write to; made if it is not there
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) dir: Option<PathBuf>,
}

/// What to read.
#[derive(Debug, Args)]
pub(crate) struct Input {
    /// The recording [default: the newest heapledger.*.hl here]
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: Option<PathBuf>,

    /// Print JSON
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
}

/// A recording to write.
#[derive(Debug, Args)]
pub(crate) struct Target {
    /// The recording to write
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: PathBuf,

    /// Replace the file if it is there
    #[arg(short, long)]
    pub(crate) force: bool,
}

/// A part of the time.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "What to show")]
pub(crate) struct Range {
    /// From this time on, such as 1.5s or 200ms [default: the beginning]
    #[arg(long, value_name = "TIME", value_parser = select::time)]
    pub(crate) from: Option<Time>,

    /// Up to this time [default: the end]
    #[arg(long, value_name = "TIME", value_parser = select::time)]
    pub(crate) to: Option<Time>,
}

/// Where the names of functions come from.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Names of functions")]
pub(crate) struct Symbols {
    /// A directory with separate debug information, before /usr/lib/debug; can be given more than once
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, action = ArgAction::Append)]
    pub(crate) debug_dir: Vec<PathBuf>,

    /// A file, or a directory to search with all that is below it, for programs, libraries and debug information
    ///
    /// For a recording of another machine, or of a program that has been replaced since: files are known by
    /// their build ids, and by their names where they have none. Can be given more than once.
    ///
    /// What is not found anywhere is asked of the debuginfod servers in the environment variable
    /// DEBUGINFOD_URLS, if that is set and `debuginfod-find` is installed.
    #[arg(long = "symbols", value_name = "PATH", value_hint = ValueHint::AnyPath, action = ArgAction::Append)]
    pub(crate) search: Vec<PathBuf>,

    /// Whether servers may be asked.
    #[arg(skip = true)]
    pub(crate) download: bool,

    /// The root of the file system in which the program ran
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) sysroot: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use heapledger_analysis::{Filter, Metric, Selection};

    use super::*;

    fn parse(line: &str) -> Result<Arguments, clap::Error> {
        Arguments::try_parse_from(line.split_whitespace())
    }

    #[test]
    fn the_tree_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn a_file_alone_is_summarised() {
        let arguments = parse("heapledger x.hl --json").unwrap();
        assert!(arguments.verb.is_none() && arguments.input.json);
        assert_eq!(arguments.input.file, Some("x.hl".into()));
        assert!(parse("heapledger").is_err());
        assert!(parse("heapledger x.hl y.hl").is_err());
    }

    #[test]
    fn the_command_is_left_alone() {
        let Some(Verb::Record(record)) = parse("heapledger record -o f -- cc -o x --color never").unwrap().verb else {
            panic!("not record")
        };
        assert_eq!(record.command, ["cc", "-o", "x", "--color", "never"]);
        assert_eq!(record.output, Some("f".into()));
        let Some(Verb::Record(record)) = parse("heapledger record -q ls -f --wait").unwrap().verb else {
            panic!("not record")
        };
        assert_eq!(record.command, ["ls", "-f", "--wait"]);
        assert!(record.quiet && !record.force && !record.wait);
        assert!(parse("heapledger record").is_err());
    }

    #[test]
    fn selections() {
        let resolve = |line: &str| match parse(&format!("heapledger top {line}")).map(|arguments| arguments.verb) {
            Ok(Some(Verb::Top(top))) => top.what.resolve().map_err(str::to_owned),
            other => Err(format!("{other:?}")),
        };
        assert_eq!(resolve(""), Ok((Selection::at(Moment::Peak), Metric::Bytes)));
        let of_7 = Selection { filter: Filter::process(7), ..Selection::at(Moment::End) };
        assert_eq!(resolve("--at end -p 7"), Ok((of_7, Metric::Bytes)));
        assert_eq!(resolve("--total --metric blocks").unwrap().0.moment, Moment::Total);
        assert_eq!(resolve("--metric temporary").unwrap(), (Selection::at(Moment::Total), Metric::Temporaries));
        assert_eq!(resolve("--at 1.5s").unwrap().0.moment, Moment::At(Time(1_500_000_000)));
        let of_time = |range| Filter { allocated: Some(range), ..Filter::default() };
        for (line, moment, range) in [
            ("--during 1s-2s", Moment::At(Time(2_000_000_000)), 1_000_000_000..=2_000_000_000),
            ("--during 1s..", Moment::End, 1_000_000_000..=u64::MAX),
            ("--during ..1s --total", Moment::Total, 0..=1_000_000_000),
            ("--during 1s --at peak", Moment::Peak, 1_000_000_000..=1_000_000_000),
        ] {
            let expected = Selection { filter: of_time(range), ..Selection::at(moment) };
            assert_eq!(resolve(line), Ok((expected, Metric::Bytes)), "{line}");
        }
        let filter =
            resolve("--function a --function /b/ --not-module *.so --size 1k.. --lifetime ..1ms").unwrap().0.filter;
        let patterns = |texts: &[&str]| texts.iter().map(|text| Pattern::new(text).unwrap()).collect::<Vec<_>>();
        assert_eq!((filter.functions, filter.not_modules), (patterns(&["a", "/b/"]), patterns(&["*.so"])));
        assert_eq!((filter.size, filter.lifetime), (Some(1024..=u64::MAX), Some(0..=1_000_000)));
        assert!(resolve("--metric temporary --at peak").is_err());
        assert!(resolve("--total --at peak").is_err());
        assert!(resolve("--at soon").is_err());
    }
}
