//! Replays against allocators.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, ValueHint};
use heapledger_analysis::ProcessPattern;

use super::allocator::{AllocatorName, InstalledAllocator};
use crate::args::Written;
use crate::args::values::process;

/// Replay a program's allocator calls against several allocators, and compare them
///
/// Makes the calls of a recording or of a log again, in a process of their own for
/// each allocator, and measures its processor time, memory, page faults and system
/// calls. So an allocator is chosen by the work that a program really does.
///
///     $ heapledger record -o server.hl -- ./server
///     $ heapledger replay server.hl
///     $ heapledger replay server.hl -a jemalloc -a ./libown.so
///     $ heapledger replay server.hl -a "MALLOC_CONF=dirty_decay_ms:0 jemalloc"
///     $ heapledger replay build.log.zst --process 4711 --threads --svg
///     $ heapledger replay server.hl --tuned --json -o r.json
///     $ heapledger advise server.hl --replay r.json
///
/// FILE is a recording, a file of another tool that import reads, or a log of log
/// record or Firefox. Each process is replayed by itself, one after the other, and
/// their figures are added up; --process chooses. A forked process begins with the
/// blocks that it has inherited. Blocks of arenas are put into arenas, by
/// allocators that have them.
///
/// - time: the processor time of all calls and of one, with the page faults of the
///   first use of their memory, without the time that the replay itself takes;
/// - peak, end: resident memory, as anonymous memory beyond that of the process
///   before the first call. A byte of each page of a block is written;
/// - slop: usable bytes beyond the requested ones, as a part of these;
/// - faults, calls: page faults, and system calls that change mappings;
/// - wall: the time from the first call to the last, without the replay itself;
/// - mapped: the addresses that it has mapped, at the most;
/// - committed, allocated, waste: at the peak, resident memory, the usable bytes of
///   live blocks, and the rest;
/// - fragmentation: waste as a part of resident memory, the mean over all calls.
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
    ///
    /// Variables in front of the name are set for this allocator, as in a shell:
    /// -a "MALLOC_CONF=narenas:1 jemalloc".
    #[arg(short, long = "allocator", value_name = "[VARIABLE=VALUE …] NAME|LIB.so")]
    #[arg(value_parser = OsStringValueParser::new().try_map(ReplayAllocator::parse), value_hint = ValueHint::FilePath)]
    #[arg(verbatim_doc_comment)]
    pub(crate) allocators: Vec<ReplayAllocator>,

    /// Also try the allocators with options that make them keep less memory
    #[arg(long)]
    pub(crate) tuned: bool,

    /// A process to replay: its pid or, in a recording, a pattern of its program's file name; may
    /// be given several times [default: all]
    #[arg(short, long = "process", value_name = "PROCESS", value_parser = process)]
    pub(crate) processes: Vec<ProcessPattern>,

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
    ///
    /// Processes that ran at the same time are then replayed at the same time.
    #[arg(long, verbatim_doc_comment)]
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

    /// Also show the requests by their size, the slop of each allocator, and its bins
    #[arg(long)]
    pub(crate) sizes: bool,

    /// Also show resident memory and fragmentation at tenths of the calls
    #[arg(long)]
    pub(crate) over_time: bool,

    /// Draw resident memory and fragmentation over the calls as SVG
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

/// An allocator with variables of its environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReplayAllocator {
    /// The variables, with their values.
    pub(crate) variables: Vec<(String, String)>,
    /// The allocator.
    pub(crate) name: AllocatorName,
}

impl ReplayAllocator {
    fn parse(text: OsString) -> Result<ReplayAllocator, String> {
        let (mut variables, mut rest) = (Vec::new(), text.to_str().unwrap_or("").trim_start());
        while let Some((word, after)) = rest.split_once(' ')
            && let Some((name, value)) = word.split_once('=')
            && !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        {
            variables.push((name.to_owned(), value.to_owned()));
            rest = after.trim_start();
        }
        let name = if variables.is_empty() { text } else { rest.to_owned().into() };
        Ok(ReplayAllocator { variables, name: AllocatorName::parse(name)? })
    }

    /// Returns the allocator as it is, and then with options that make it keep less memory.
    pub(crate) fn tuned(&self) -> Vec<ReplayAllocator> {
        let options: &[(&str, &str)] = match (&self.name, self.variables.is_empty()) {
            (_, false) | (AllocatorName::File(_), _) => &[],
            // Thresholds that are set do not grow by themselves: glibc's mallopt(3).
            (AllocatorName::System, _) => &[
                ("GLIBC_TUNABLES", "glibc.malloc.arena_max=1"),
                ("GLIBC_TUNABLES", "glibc.malloc.trim_threshold=131072:glibc.malloc.mmap_threshold=131072"),
            ],
            (AllocatorName::Heapledger, _) => &[("HEAPLEDGER_ALLOCATOR_OPTIONS", "dirty-shift=-4")],
            (AllocatorName::Installed(InstalledAllocator::Jemalloc), _) => {
                &[("MALLOC_CONF", "narenas:1,dirty_decay_ms:0,muzzy_decay_ms:0")]
            }
            (AllocatorName::Installed(InstalledAllocator::Tcmalloc), _) => &[("TCMALLOC_AGGRESSIVE_DECOMMIT", "1")],
            // Version 2.0 has the first one, later ones the second.
            (AllocatorName::Installed(InstalledAllocator::Mimalloc), _) => {
                &[("MIMALLOC_PAGE_RESET", "1"), ("MIMALLOC_PURGE_DELAY", "0")]
            }
        };
        let with = |&(name, value): &(&str, &str)| ReplayAllocator {
            variables: vec![(name.to_owned(), value.to_owned())],
            name: self.name.clone(),
        };
        [self.clone()].into_iter().chain(options.iter().map(with)).collect()
    }
}

/// Writes the allocator as it is given on the command line.
impl fmt::Display for ReplayAllocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.variables {
            write!(f, "{name}={value} ")?;
        }
        self.name.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_stand_in_front_of_names() {
        for text in ["system", "A=1 B=x:y,z=2 jemalloc", "./lib with = spaces.so", "A= ./lib.so"] {
            assert_eq!(ReplayAllocator::parse(text.into()).unwrap().to_string(), text);
        }
        let parsed = ReplayAllocator::parse("A=1 B=x=2  jemalloc".into()).unwrap();
        assert_eq!(parsed.variables, [("A".to_owned(), "1".to_owned()), ("B".to_owned(), "x=2".to_owned())]);
        assert!(ReplayAllocator::parse("A=1".into()).is_err());
        assert_eq!(parsed.tuned(), [parsed]);
        let system = ReplayAllocator::parse("system".into()).unwrap();
        assert_eq!((system.tuned().len(), &system.tuned()[0]), (3, &system));
    }
}
