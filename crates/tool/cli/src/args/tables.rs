//! Verbs that print tables.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use heapledger_analysis::{LifetimeCondition, Pattern};

use super::by::{self, By, Grouping};
use crate::args::select::{Live, LiveMetric, What, Which};
use crate::args::values::{number, within};
use crate::args::{Input, Symbols};

/// Show the totals of a recording and of each process in it
///
/// Takes no time, however long the recording is: the totals are at its end. If the
/// recorder was killed, the totals are missing, and are counted again.
///
///     $ heapledger summary
///     $ heapledger summary build.hl --json | jq .bytes_live_max
///     $ heapledger summary --during 10s-20s --thread worker
///
/// With options that select blocks, the totals are of these alone, and there is no
/// list of processes. Retained memory was allocated --during a time and is still
/// live at its end.
///
/// Allocations are calls that returned a block; a reallocation is one more
/// allocation and one more free. Bytes are those of requested sizes. The peak is
/// the moment when the most bytes were live. A temporary allocation is freed
/// before the same thread allocates or frees anything else.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Summary {
    #[command(flatten)]
    pub(crate) input: Input,

    #[command(flatten)]
    pub(crate) what: Live,

    #[command(flatten)]
    pub(crate) symbols: Symbols,
}

/// Show which functions hold or allocate the most
///
///     $ heapledger top                            by owner, at the peak
///     $ heapledger top --by function              by the innermost function
///                                                 that is no allocator
///     $ heapledger top --by stack -n 3            the three largest stacks, in
///                                                 full
///     $ heapledger top --by thread --total        who allocated how much in
///                                                 all
///     $ heapledger top --by size --metric blocks  the most frequent block
///                                                 sizes at the peak
///     $ heapledger top --by context               for which of the scopes that
///                                                 the program declares
///     $ heapledger top --type Token               who holds blocks of a type
///     $ heapledger top --mappings --by kind       what is mapped by mmap, brk
///                                                 and the like
///     $ heapledger top --at 1.5s                  what was live then
///     $ heapledger top --during 10s-20s           what was allocated then and
///                                                 still live at 20 s
///     $ heapledger top --function "json::*" --size 4k.. --lifetime 1s..
///                                                 large blocks of a library
///                                                 that live long
///
/// A site is a stack that allocates. Its owner is the innermost function on it that
/// is the program's own: not of an allocator, a language's library, a container, a
/// wrapper such as xmalloc, a dependency or a library of the system. `via` says
/// which of those the owner called. The function of a site is the innermost one
/// that is not an allocator.
///
/// `--by thread`, `process` or `size`, a time with `--at`, and `--thread`,
/// `--size`, `--lifetime` and `--during` are answered from the events: the more
/// were recorded, the longer that takes. All else takes no time.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Top {
    #[command(flatten)]
    pub(crate) input: Input,

    /// Sum up by this
    #[arg(long, value_name = "WHAT", default_value = "owner")]
    pub(crate) by: By,

    /// How many rows to show; 0 for all
    #[arg(short = 'n', long = "rows", value_name = "N", default_value_t = 20, value_parser = number)]
    pub(crate) rows: usize,

    #[command(flatten)]
    pub(crate) what: What,

    #[command(flatten)]
    pub(crate) symbols: Symbols,
}

/// Show what was live at the end, by stack
///
/// Live at the end is not the same as lost: much of that memory may be in use until
/// the last moment, and the program is right not to free it. Look for blocks that
/// should not be there, or not so often. If a process was ended by a signal, all
/// that it used is live.
///
///     $ heapledger leaks
///     $ heapledger leaks --process 4411 -n 3 --metric blocks
///     $ heapledger leaks --by owner  in which functions of the program
///     $ heapledger leaks --during 1min.. --not-module "libcrypto*"
///     $ heapledger leaks --mappings  memory that is never unmapped
///     $ heapledger leaks --at 20s    what was live then, as if the program had
///                                    ended
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

    /// Sum up by this
    #[arg(long, value_name = "WHAT", default_value = "site")]
    pub(crate) by: By,

    /// Order by this
    #[arg(long, value_name = "WHAT", default_value = "bytes")]
    pub(crate) metric: LiveMetric,

    /// How many rows to show; 0 for all
    #[arg(short = 'n', long = "rows", value_name = "N", default_value_t = 10, value_parser = number)]
    pub(crate) rows: usize,

    #[command(flatten)]
    pub(crate) what: Live,

    #[command(flatten)]
    pub(crate) symbols: Symbols,
}

/// Show where memory is allocated only to be freed at once
///
/// A temporary allocation is freed before the same thread allocates or frees
/// anything else. If there are many, a buffer that is kept, or one on the stack,
/// often does as well.
///
/// With --within, blocks count that are freed soon, in numbers: before the thread
/// that allocated them has made more than N further allocations (0: before its next
/// one), whichever thread frees them and whatever is freed in between; or within a
/// time. Times of events are kept in steps of 0.5 ms. A sample does not tell how
/// many allocations lie between, so for a sampled recording only a time can be
/// given.
///
///     $ heapledger temporary -n 5
///     $ heapledger temporary --within 10
///     $ heapledger temporary --within 1ms --size 4k..
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Temporary {
    #[command(flatten)]
    pub(crate) input: Input,

    /// Count blocks that are freed within N further allocations of their thread, or within a time
    /// such as 1ms
    #[arg(long, value_name = "N|TIME", value_parser = within)]
    pub(crate) within: Option<LifetimeCondition>,

    /// Sum up by this
    #[arg(long, value_name = "WHAT", default_value = "site")]
    pub(crate) by: By,

    /// How many rows to show; 0 for all
    #[arg(short = 'n', long = "rows", value_name = "N", default_value_t = 20, value_parser = number)]
    pub(crate) rows: usize,

    #[command(flatten)]
    pub(crate) which: Which,

    #[command(flatten)]
    pub(crate) symbols: Symbols,
}

/// Show where blocks are reallocated, how often, and how much is copied for it
///
/// Rows are the stacks that call realloc. If many reallocations grow few blocks in
/// long chains, asking for the memory beforehand saves them. `copied` is an upper
/// bound: the smaller one of both sizes, each time; an allocator that finds room
/// behind a block copies nothing.
///
///     $ heapledger reallocations -n 5
///     $ heapledger reallocations --size 1M.. --thread "worker*"
///
/// Reallocations are selected by the block that they return: by its size, lifetime
/// and thread, and by the time of the call. realloc(NULL, n) is an allocation like
/// any other, and not counted here.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Reallocations {
    #[command(flatten)]
    pub(crate) input: Input,

    /// Sum up by this
    #[arg(long, value_name = "WHAT", default_value = "site", value_parser = by::grouping())]
    pub(crate) by: Grouping,

    /// Order by this
    #[arg(long, value_name = "WHAT", default_value = "copied")]
    pub(crate) metric: ReallocationOrder,

    /// How many rows to show; 0 for all
    #[arg(short = 'n', long = "rows", value_name = "N", default_value_t = 20, value_parser = number)]
    pub(crate) rows: usize,

    #[command(flatten)]
    pub(crate) which: Which,

    #[command(flatten)]
    pub(crate) symbols: Symbols,
}

/// The order of reallocations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReallocationOrder {
    /// The upper bound of the bytes that were copied
    Copied,
    /// The number of reallocations
    Count,
    /// The length of the longest chain: reallocations of the same block
    Chain,
}

/// Show the callers of one function, and how much memory goes through each
///
/// Sums up all that was allocated on stacks with the function on them, by the
/// functions that call it directly. Each stack counts once: if a function is on a
/// stack several times, its outermost call counts. So the rows add up.
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
    #[arg(short = 'n', long = "rows", value_name = "N", default_value_t = 20, value_parser = number)]
    pub(crate) rows: usize,

    #[command(flatten)]
    pub(crate) what: What,

    #[command(flatten)]
    pub(crate) symbols: Symbols,
}

/// Show how large blocks are: a histogram by size class
///
/// A class has the sizes up to a power of two, and above half of it. Sizes are
/// requested sizes. For exact ones: `heapledger top --by size`.
///
///     $ heapledger sizes                          what is live at the peak, by
///                                                 bytes
///     $ heapledger sizes --total --metric blocks  how often each size is asked
///                                                 for
///     $ heapledger sizes --at end --module libfoo.so
///     $ heapledger sizes --by owner -n 3          of which sizes the blocks of
///                                                 three functions are
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Sizes {
    #[command(flatten)]
    pub(crate) input: Input,

    /// Show a histogram for each of the largest of these
    #[arg(long, value_name = "WHAT", value_parser = by::grouping())]
    pub(crate) by: Option<Grouping>,

    /// How many of them to show; 0 for all
    #[arg(short = 'n', long = "rows", value_name = "N", default_value_t = 5, value_parser = number, requires = "by")]
    pub(crate) rows: usize,

    #[command(flatten)]
    pub(crate) what: What,

    #[command(flatten)]
    pub(crate) symbols: Symbols,
}
