//! Verbs that make recordings of recordings, or say what is in one.

use std::path::PathBuf;

use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::{Args, ValueHint};

use crate::args::{Input, Named, Range, SymbolFiles, Symbols, Target};

/// Make one recording of several
///
/// The processes of all stand side by side, with the times at which they really
/// ran: those of the earliest recording begin at 0. Totals, the peak and what is
/// live over time are counted again, over all of them. Recordings of different
/// machines are put together by the clocks of those machines.
///
/// Segments of one session (`record --rotate`), in any order, become one
/// recording again. It begins with the earliest of them; none may be missing
/// between two others. If a recording has no events (`record --aggregate`), the
/// new one has none: totals and what is live at the end add up. The peak of
/// those that ran at the same time is the sum of theirs, which is the most
/// that it can have been; `summary` shows the least, too.
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

/// Make a recording of another tool's file
///
/// Every verb also reads these files directly; a recording is quicker to ask
/// twice. Formats, known by what the file begins with, packed or not:
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
///                  and of Firefox itself (MOZ_PROFILER_SHUTDOWN)
///     V8           .heapprofile of Chrome and Node.js (estimates, bytes only);
///                  .heaptimeline: what was live, and allocated since it began
///     Speedscope   its JSON: the profile of bytes; of memray by way of
///                  memray transform speedscope
///     collapsed    lines of outer;middle;inner BYTES
///
/// What a file does not say (many know one moment only) is said on stderr.
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

/// Cut a part of the time out of a recording
///
/// The new recording answers for itself: what was live when its time begins is in
/// it, with the stacks that allocated it, and all times are those of the whole
/// recording. Totals are of the part alone: calls are those made in it, while the
/// peak and what is live count what was there before, too. Processes that were over
/// by then, or began later, are not in it.
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
/// With names, files and lines of all functions on its stacks, a recording says the
/// same on another machine, and after a rebuild. `heapledger record` puts them in
/// at its end, as far as that is quick; this does it later, and completely, or
/// again with other debug files. Where nothing as good is found, the names that are
/// there stay. The file is replaced when the new one is whole.
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
/// of threads by thread-HASH, and the names of scopes and heaps, labels of stamps,
/// and the values of scopes, by text-HASH, types of stamps by type-HASH; the same
/// name by the same hash. Your own are all that are not below /usr (without
/// /usr/local, /usr/src and /usr/home), /lib, /lib32, /lib64, /libx32, /bin or
/// /sbin.
///
/// Hashes are made with a random key that is not kept: nobody can try names out.
/// To compare several recordings, give them the same hashes with --key-file.
///
/// Kept: the date, pids, times, how processes began and ended, addresses in
/// modules, paths and build ids of the distribution's modules, and all figures.
/// Who reads it finds the functions of the distribution by build id. Yours are in
/// it with --keep-functions, and can be found with --keep-build-ids by those who
/// have your programs.
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

    /// Keep the file names of your own programs and libraries, without their directories, and the names of threads, scopes, heaps and stamped types
    #[arg(long)]
    pub(crate) keep_names: bool,

    /// Keep the names of functions and of the files that they are in, without the directories of your own
    #[arg(long)]
    pub(crate) keep_functions: bool,

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
