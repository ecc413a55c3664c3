//! What a log says: blocks in records, by where they were allocated and reported; and the difference of two logs.

use std::io;
use std::sync::Arc;

use crate::digest::Digest;
use crate::heap::Heap;
use crate::log::{DefectKind, Log, Mode};
use crate::spooled::SpooledLog;

/// The probability with which each byte of Mozilla's own logs has its block chosen (`--stacks=partial`).
pub const MOZILLA_PROBABILITY: f64 = 0.003;

/// What is wanted of an analysis.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// How many frames of each stack count, and are shown. Stacks that differ only beyond are the same.
    pub max_frames: usize,
    /// What records are sorted by, the largest first.
    pub sort: Sort,
    /// Leave out functions that allocate, where stacks begin with them.
    pub ignore_alloc_fns: bool,
    /// Only records with a frame of the allocation in which each of these is; `!` before it: in none. A `\` before it, so
    /// that it may begin with one of the two.
    pub filters: Vec<String>,
    /// Show stacks through the detector itself as one frame.
    pub filter_stacks_for_testing: bool,
    /// Estimate sites of a log of which only some blocks have stacks, and that does not say by which probability: each
    /// usable byte has had its block chosen with this one.
    pub estimate: Option<f64>,
    /// What makes blocks one record.
    pub by: By,
    /// How many records of each kind are wanted, the first ones. Not for differences.
    pub records_max: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            max_frames: 8,
            sort: Sort::Usable,
            ignore_alloc_fns: false,
            filters: Vec::new(),
            filter_stacks_for_testing: false,
            estimate: None,
            by: By::Stack,
            records_max: usize::MAX,
        }
    }
}

/// What records are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// Usable bytes, then those that were asked for.
    Usable,
    /// Bytes that were asked for.
    Requested,
    /// Bytes beyond those.
    Slop,
    /// Blocks, then usable bytes.
    Blocks,
}

/// What makes blocks one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Where they were allocated and reported.
    Stack,
    /// Their type.
    Type,
    /// The library of the innermost frame that is no function that allocates.
    Module,
    /// The context in which they were allocated.
    Context,
    /// The function of the program's own that they are for: see [`Owner`](crate::Owner).
    Owner,
    /// The source line in that function.
    Line,
    /// The source file of that function.
    File,
    /// The innermost function that does not allocate.
    Function,
}

/// What a log says, or the difference of two.
#[derive(Clone, Debug)]
pub struct Analysis {
    /// What the logs are of; [`Mode::Live`] also for logs with contents, as the text has it.
    pub mode: Mode,
    /// The environment variable of each log.
    pub variables: Vec<Option<String>>,
    /// What makes blocks one record.
    pub by: By,
    /// All blocks.
    pub heap: Total,
    /// Whether records are estimates, made from the blocks whose stacks are known.
    pub is_estimated: bool,
    /// By who has reported them: twice-reported, unreported, once-reported; of other modes, one for all.
    pub kinds: Vec<Kind>,
    /// What reporters did wrong; of a difference, in the second log.
    pub defects: Vec<Flaw>,
    /// How many there were.
    pub defects_count: u64,
}

/// Bytes and blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Total {
    /// Usable bytes.
    pub bytes: i64,
    /// Blocks.
    pub blocks: i64,
    /// The standard error of the bytes: 0 if all have been counted.
    pub bytes_error: f64,
    /// The standard error of the blocks.
    pub blocks_error: f64,
}

/// How often blocks of a kind were reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KindName {
    /// All live blocks.
    Live,
    /// All live blocks and those that were freed.
    Cumulative,
    /// More than once.
    TwiceReported,
    /// Not at all.
    Unreported,
    /// Once.
    OnceReported,
}

impl KindName {
    pub(crate) const COUNT: usize = 5;

    /// As the text has it.
    pub fn name(self) -> &'static str {
        match self {
            KindName::Live => "live",
            KindName::Cumulative => "cumulative",
            KindName::TwiceReported => "twice-reported",
            KindName::Unreported => "unreported",
            KindName::OnceReported => "once-reported",
        }
    }
}

/// Blocks that were reported equally often.
#[derive(Clone, Debug)]
pub struct Kind {
    /// How often.
    pub name: KindName,
    /// Those that pass the filters, sorted.
    pub records: Vec<Record>,
    /// How many records there are without filters.
    pub records_count: usize,
    /// All blocks of the kind that pass the filters. Exact without filters, even where records are estimates, unless the
    /// blocks themselves are a sample.
    pub total: Total,
}

/// The frames of a stack as they are shown, without numbers, innermost first.
pub type Stack = Vec<Arc<str>>;

/// Blocks of one kind with the same stacks, or with the same type, module or context.
#[derive(Clone, Debug)]
pub struct Record {
    /// The type, module or context; `None`: it is by stacks, or not known.
    pub name: Option<Arc<str>>,
    /// Where they were allocated; of records that are not by stacks, empty.
    pub alloc: Stack,
    /// The library of the innermost frame that is no function that allocates.
    pub module: Option<Arc<str>>,
    /// Where they were reported, and by whom.
    pub reports: Vec<Reported>,
    /// How many blocks: of an estimate, rounded.
    pub blocks: i64,
    /// What was asked for, in bytes.
    pub requested: i64,
    /// What may be used beyond it, in bytes.
    pub slop: i64,
    /// Both.
    pub usable: i64,
    /// Usable sizes and how many blocks there are of each, the largest first. Of a difference, the size is negative where
    /// there are fewer.
    pub sizes: Vec<(i64, i64)>,
    /// How far the estimate may be off; `None`: all blocks have been counted.
    pub estimate: Option<Estimate>,
    /// Their types, by bytes.
    pub types: Vec<Share>,
    /// Their contexts, by bytes.
    pub contexts: Vec<Share>,
    /// Their addresses, in a log that has them.
    pub addresses: Vec<u64>,
}

/// A report of blocks.
#[derive(Clone, Debug, PartialEq)]
pub struct Reported {
    /// Where.
    pub stack: Stack,
    /// By whom: several, if reporters share the frames that are shown.
    pub reporters: Vec<Arc<str>>,
}

/// How far an estimate may be off.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// The standard error of the usable bytes.
    pub bytes_error: f64,
    /// The standard error of the number of blocks.
    pub blocks_error: f64,
    /// The blocks that it was made from.
    pub sampled_blocks: u64,
}

/// The part of a record that has something in common.
#[derive(Clone, Debug, PartialEq)]
pub struct Share {
    /// What; `None`: it is not known.
    pub name: Option<Arc<str>>,
    /// Usable bytes.
    pub bytes: i64,
    /// Blocks.
    pub blocks: i64,
}

/// Something that a reporter did wrong.
#[derive(Clone, Debug, PartialEq)]
pub struct Flaw {
    /// What.
    pub kind: DefectKind,
    /// Whose.
    pub reporter: Option<Arc<str>>,
    /// What it reported.
    pub address: u64,
    /// Where it reported it.
    pub stack: Option<Stack>,
    /// Where the block was allocated that this is about.
    pub alloc: Option<Stack>,
    /// What the reporter measured, in bytes; 0: it did not say.
    pub measured: u64,
    /// The usable size of the block that this is about; 0: there is none.
    pub usable: u64,
    /// How often.
    pub count: u64,
}

/// Two logs that cannot be compared: they are of different modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DifferentModes(pub Mode, pub Mode);

impl std::fmt::Display for DifferentModes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "one is of mode `{}`, the other of mode `{}`", self.0.name(), self.1.name())
    }
}

impl std::error::Error for DifferentModes {}

impl Analysis {
    /// What a log says.
    pub fn of(mut log: &Log, options: &Options) -> Analysis {
        let Ok(digest) = Digest::of(&mut log, options, Some(options.records_max));
        digest.analysis(options)
    }

    /// Returns what a stored log says.
    ///
    /// # Errors
    ///
    /// An error if what is stored cannot be read.
    pub fn of_spooled(log: &mut SpooledLog<'_>, options: &Options) -> io::Result<Analysis> {
        Ok(Digest::of(log, options, Some(options.records_max))?.analysis(options))
    }

    /// What is in the second log and not in the first one, and the other way around with negative numbers.
    ///
    /// # Errors
    ///
    /// They are of different modes.
    pub fn difference(mut before: &Log, mut after: &Log, options: &Options) -> Result<Analysis, DifferentModes> {
        let Ok(analysis) = difference_of(&mut before, &mut after, options);
        analysis
    }

    /// Returns the same of stored logs.
    ///
    /// # Errors
    ///
    /// What is stored cannot be read; or, inside, the logs are of different modes.
    pub fn difference_spooled(
        before: &mut SpooledLog<'_>,
        after: &mut SpooledLog<'_>,
        options: &Options,
    ) -> io::Result<Result<Analysis, DifferentModes>> {
        difference_of(before, after, options)
    }

    /// Returns true if a reporter has reported any of the blocks.
    pub(crate) fn is_any_reported(&self) -> bool {
        let reported = [KindName::OnceReported, KindName::TwiceReported].map(|name| self.kind(name));
        reported.into_iter().flatten().any(|kind| kind.records_count > 0)
    }

    /// What is shown of the kind of this name.
    pub fn kind(&self, name: KindName) -> Option<&Kind> {
        self.kinds.iter().find(|kind| kind.name == name)
    }
}

fn difference_of<H: Heap>(
    before: &mut impl Heap<Error = H::Error>,
    after: &mut H,
    options: &Options,
) -> Result<Result<Analysis, DifferentModes>, H::Error> {
    let (before, after) = (Digest::of(before, options, None)?, Digest::of(after, options, None)?);
    if before.mode != after.mode {
        return Ok(Err(DifferentModes(before.mode, after.mode)));
    }
    Ok(Ok(after.minus(before).analysis(options)))
}

/// The parts of names that make a function one that allocates.
const ALLOC_FNS: [&str; 9] = [
    "malloc",
    "calloc",
    "realloc",
    "memalign",
    "operator new(",
    "operator new[](",
    "g_slice_alloc",
    "mozilla::dmd::AllocCallback",
    "mozilla::dmd::StackTrace::Get",
];

/// Whether a frame is one of a function that allocates.
pub fn is_alloc_fn(frame: &str) -> bool {
    ALLOC_FNS.iter().any(|part| frame.contains(part))
}
