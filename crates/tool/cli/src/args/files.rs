//! Verbs that make recordings from others, or show what is in one.

use std::path::PathBuf;

use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::{Args, ValueHint};

use crate::args::{Input, Named, Range, SymbolFiles, Symbols, Target};

/// Make one recording from several
///
/// The new recording has the processes of all, with the times at which they really
/// ran: those of the earliest recording begin at 0. Totals, the peak and the bytes
/// live over time are counted again, over all processes. Recordings from different
/// machines are aligned by the clocks of those machines.
///
/// Segments of one session (`record --rotate`), in any order, become one recording
/// again. It begins with the earliest of them; none may be missing between two
/// others. If a recording has no events (`record --aggregate`), the new one has
/// none either: totals and bytes live at the end are added up. The peak of
/// recordings that ran at the same time is the sum of their peaks, which is an
/// upper bound; `summary` shows the lower bound, too.
///
///     $ heapledger merge -o both.hl client.hl server.hl
///     $ heapledger merge -o app.hl app.*.hl
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Merge {
    /// The recordings
    #[arg(value_name = "FILE", required = true, num_args = 2.., value_hint = ValueHint::FilePath)]
    pub(crate) files: Vec<PathBuf>,

    #[command(flatten)]
    pub(crate) target: Target,
}

/// Make a recording from another tool's file
///
/// Every verb also reads these files directly; a recording is faster if it is read
/// more than once. Formats, known by the beginning of the file, compressed or not:
///
///     jemalloc     heap profiles (prof:true), sampled: figures are estimates
///     gperftools   heap profiles (HEAPPROFILE), sampled or not
///     DHAT         of valgrind and of the crate dhat: dhat.out.PID
///     massif       of valgrind: massif.out.PID; bytes only, at the peak
///     heaptrack    heaptrack.PROGRAM.PID.zst, and .raw.zst: every allocation
///     pprof        heap profiles of Go and others: profile.pb.gz
///     Chrome       traces with memory dumps that have heaps: trace.json; of
///                  several dumps the last is the end, the largest the peak
///     Firefox      profiles with native allocations: of profiler.firefox.com,
///                  and of Firefox itself (MOZ_PROFILER_SHUTDOWN); .fxsnapshot
///     V8           .heapprofile of Chrome and Node.js (estimates, bytes only);
///                  .heapsnapshot: the nodes of its heap, by type and script;
///                  .heaptimeline: also by stack, and allocated since it began
///     memray       memray run -o FILE (1.11 to 1.20): every allocation, or
///                  with --aggregate the peak and the end
///     bytehound    memory-profiling_*.dat (0.11)
///     logalloc     logs of allocator calls: every allocation
///     Speedscope   its JSON: the profile of bytes
///     collapsed    lines of outer;middle;inner BYTES
///
/// Data that a file does not have (many have one moment only) is named on stderr.
///
///     $ heapledger import -o service.hl heaptrack.service.4711.zst
///     $ heapledger top jeprof.4711.0.f.heap
///     $ heapledger diff jeprof.4711.3.i3.heap jeprof.4711.9.i9.heap
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Import {
    /// The file
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,

    #[command(flatten)]
    pub(crate) target: Target,
}

/// Extract a range of time from a recording
///
/// The new recording is complete in itself: it has the blocks that were live when
/// its time begins, with the stacks that allocated them. All times are those of the
/// whole recording. Totals are of the range alone: calls are those made in it,
/// while the peak and the live bytes also count what was there before. Processes
/// that ended before the range, or began after it, are not in the new recording.
///
///     $ heapledger trim --during 10s-20s -o part.hl run.hl
///     $ heapledger trim --during 1h.. -o end.hl run.hl
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Trim {
    /// The recording, or FILE@WHEN to cut it there [default: the newest heapledger.*.hl here]
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    #[arg(value_parser = PathBufValueParser::new().try_map(Named::parse))]
    pub(crate) file: Option<Named>,

    #[command(flatten)]
    pub(crate) range: Range,

    #[command(flatten)]
    pub(crate) target: Target,
}

/// Put the names of functions into a recording
///
/// With names, files and lines of all functions on its stacks, a recording gives
/// the same answers on another machine, and after a rebuild. `heapledger record`
/// puts them in at its end, as far as that is quick; this verb does it later, and
/// completely, or again with other debug files. Names that are there stay if
/// nothing as good is found. The file is replaced when the new one is complete.
///
///     $ heapledger names heapledger.server.4411.hl
///     $ heapledger names --debug-dir ./debug heapledger.server.4411.hl
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Names {
    /// The recording [default: the newest heapledger.*.hl here]
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) symbols: SymbolFiles,
}

/// Make a recording that can be shown to others
///
/// Removed: command lines, the working directory, options of `record`, annotations,
/// names of functions and of the files that they are in, and the build ids of your
/// own programs and libraries. Replaced: the paths of these by /own/HASH, the names
/// of threads by thread-HASH, the names of scopes and heaps, labels of stamps, and
/// values of scopes by text-HASH, and types of stamps by type-HASH; the same name
/// by the same hash. Your own programs and libraries are those not below /usr
/// (without /usr/local, /usr/src and /usr/home), /lib, /lib32, /lib64, /libx32,
/// /bin or /sbin.
///
/// Hashes are made with a random key that is not kept, so that nobody can find
/// names by trying. To compare several recordings, give them the same hashes with
/// --key-file.
///
/// Kept: the date, pids, times, how processes began and ended, addresses in
/// modules, paths and build ids of the distribution's modules, and all figures.
/// Readers find the functions of the distribution by build id. Your own functions
/// are in the recording with --keep-functions; with --keep-build-ids, those who
/// have your programs can find them.
///
///     $ heapledger anonymize -o public.hl heapledger.server.4411.hl
///     $ heapledger anonymize --keep-names -o public.hl heapledger.app.4411.hl
///     $ heapledger info public.hl  what is in it now
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Anonymize {
    /// The recording [default: the newest heapledger.*.hl here]
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: Option<PathBuf>,

    /// Keep the file names of your own programs and libraries, without their directories, and the
    /// names of threads, scopes, heaps and stamped types
    #[arg(long)]
    pub(crate) keep_names: bool,

    /// Keep the names of functions and of the files that they are in, without the directories of
    /// your own
    #[arg(long)]
    pub(crate) keep_functions: bool,

    /// Keep the build ids of your own programs and libraries
    #[arg(long)]
    pub(crate) keep_build_ids: bool,

    /// Take the key from this file, of 16 bytes or more, so that recordings made with it have the
    /// same hashes
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) key_file: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) target: Target,
}

/// Show what a recording consists of
///
/// Lists the session; processes and how they ended; modules with their build ids,
/// and where their names can be taken from; threads; the parts of the file and
/// their sizes; and damaged parts.
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
