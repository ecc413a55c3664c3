//! The result of an analysis, in which blocks are in records by the stacks that allocated and
//! reported them; and the options for it.

use std::sync::Arc;

use crate::log::{DefectKind, Mode};

/// The probability with which each byte of Mozilla's own logs has its block chosen
/// (`--stacks=partial`).
pub const MOZILLA_PROBABILITY: f64 = 0.003;

/// The options for an analysis.
#[derive(Clone, Debug, PartialEq)]
pub struct DmdOptions {
    /// The number of frames of each stack that are compared and shown. Stacks that differ only
    /// beyond them are the same.
    pub max_frames: usize,
    /// The sort key of records, the largest first.
    pub sort: Sort,
    /// True to leave out allocating functions at the start of stacks.
    pub ignore_alloc_fns: bool,
    /// Texts that must each occur in a frame of the allocation stack; with `!` before it, a text
    /// must occur in none. A `\` before a text lets it begin with `!` or `\`.
    pub filters: Vec<String>,
    /// Show stacks through the detector itself as one frame.
    pub filter_stacks_for_testing: bool,
    /// For a log in which only some blocks have stacks, and which does not say with which
    /// probability: the probability with which each usable byte had its block chosen, from which
    /// sites are estimated.
    pub estimate: Option<f64>,
    /// The property by which blocks are grouped into records.
    pub by: GroupBy,
    /// The most records of each kind that are wanted, from the first on. Not used for differences.
    pub records_max: usize,
}

impl Default for DmdOptions {
    fn default() -> DmdOptions {
        DmdOptions {
            max_frames: 8,
            sort: Sort::Usable,
            ignore_alloc_fns: false,
            filters: Vec::new(),
            filter_stacks_for_testing: false,
            estimate: None,
            by: GroupBy::Stack,
            records_max: usize::MAX,
        }
    }
}

/// The sort keys of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// Usable bytes, then requested bytes.
    Usable,
    /// Requested bytes.
    Requested,
    /// Slop.
    Slop,
    /// Blocks, then usable bytes.
    Blocks,
}

/// The properties by which blocks can be grouped into records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupBy {
    /// The stacks that allocated and reported them.
    Stack,
    /// Their type.
    Type,
    /// The library of the innermost frame that is not an allocating function.
    Module,
    /// The context in which they were allocated.
    Context,
    /// The program's own function that they are allocated for: see [`Owner`](crate::Owner).
    Owner,
    /// The source line in that function.
    Line,
    /// The source file of that function.
    File,
    /// The innermost function that does not allocate.
    Function,
}

/// The result for one log, or the difference of two.
#[derive(Clone, Debug)]
pub struct Analysis {
    /// The mode of the logs; [`Mode::Live`] also for logs with contents, as in the text.
    pub mode: Mode,
    /// The value of the environment variable in each log.
    pub variables: Vec<Option<String>>,
    /// The property by which blocks were grouped into records.
    pub by: GroupBy,
    /// All blocks.
    pub heap: Total,
    /// True if records are estimates from the blocks whose stacks are known.
    pub is_estimated: bool,
    /// The blocks by the number of their reports: twice-reported, unreported, once-reported. One
    /// kind for all blocks in other modes.
    pub kinds: Vec<Kind>,
    /// The defects of reporters; for a difference, those in the second log.
    pub defects: Vec<DefectRecord>,
    /// The number of defects.
    pub defects_count: u64,
}

/// Bytes and blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Total {
    /// Usable bytes.
    pub bytes: i64,
    /// Blocks.
    pub blocks: i64,
    /// The standard error of the bytes: 0 if all blocks have been counted.
    pub bytes_error: f64,
    /// The standard error of the blocks.
    pub blocks_error: f64,
}

/// The kinds of blocks, by the number of their reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KindName {
    /// All live blocks.
    Live,
    /// All live blocks and those that were freed.
    Cumulative,
    /// Reported more than once.
    TwiceReported,
    /// Not reported.
    Unreported,
    /// Reported once.
    OnceReported,
}

impl KindName {
    pub(crate) const COUNT: usize = 5;

    /// Returns the name in the text.
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
    /// The name of the kind.
    pub name: KindName,
    /// The records that pass the filters, sorted.
    pub records: Vec<Record>,
    /// The number of records without filters.
    pub records_count: usize,
    /// All blocks of the kind that pass the filters. Exact without filters, even if records are
    /// estimates, unless the blocks themselves are a sample.
    pub total: Total,
}

/// The frames of a stack as they are shown, without numbers, innermost first.
pub type DmdStack = Vec<Arc<str>>;

/// Blocks of one kind with the same stacks, or with the same type, module or context.
#[derive(Clone, Debug)]
pub struct Record {
    /// The type, module or context; `None`: records are by stacks, or it is not known.
    pub name: Option<Arc<str>>,
    /// The stack that allocated them; empty if records are not by stacks.
    pub alloc: DmdStack,
    /// The library of the innermost frame that is not an allocating function.
    pub module: Option<Arc<str>>,
    /// The stacks and reporters that reported them.
    pub reports: Vec<Reported>,
    /// The number of blocks; rounded if it is an estimate.
    pub blocks: i64,
    /// The requested bytes.
    pub requested: i64,
    /// The slop, in bytes.
    pub slop: i64,
    /// The usable bytes: requested bytes and slop.
    pub usable: i64,
    /// Usable sizes and the number of blocks of each, the largest first. In a difference, the size
    /// is negative if there are fewer blocks.
    pub sizes: Vec<(i64, i64)>,
    /// The errors of the estimate; `None`: all blocks have been counted.
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
    /// The stack that made the report.
    pub stack: DmdStack,
    /// The names of the reporters: several, if reporters share the frames that are shown.
    pub reporters: Vec<Arc<str>>,
}

/// The errors of an estimate.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// The standard error of the usable bytes.
    pub bytes_error: f64,
    /// The standard error of the number of blocks.
    pub blocks_error: f64,
    /// The blocks that it was made from.
    pub sampled_blocks: u64,
}

/// The part of a record that has a property in common.
#[derive(Clone, Debug, PartialEq)]
pub struct Share {
    /// The name of the property's value; `None`: not known.
    pub name: Option<Arc<str>>,
    /// Usable bytes.
    pub bytes: i64,
    /// Blocks.
    pub blocks: i64,
}

/// A reporter's defect.
#[derive(Clone, Debug, PartialEq)]
pub struct DefectRecord {
    /// The kind of defect.
    pub kind: DefectKind,
    /// The reporter.
    pub reporter: Option<Arc<str>>,
    /// The address that was reported.
    pub address: u64,
    /// The stack that reported it.
    pub stack: Option<DmdStack>,
    /// The stack that allocated the block in question.
    pub alloc: Option<DmdStack>,
    /// The number of bytes that the reporter measured; 0: it did not say.
    pub measured: u64,
    /// The usable size of the block in question; 0: there is no such block.
    pub usable: u64,
    /// The number of times that it was found.
    pub count: u64,
}

impl Analysis {
    /// True if a reporter has reported any of the blocks.
    pub(crate) fn is_any_reported(&self) -> bool {
        let reported = [KindName::OnceReported, KindName::TwiceReported].map(|name| self.kind(name));
        reported.into_iter().flatten().any(|kind| kind.records_count > 0)
    }

    /// Returns the kind of this name.
    pub fn kind(&self, name: KindName) -> Option<&Kind> {
        self.kinds.iter().find(|kind| kind.name == name)
    }
}
