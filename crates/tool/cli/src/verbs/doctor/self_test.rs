//! A small recording made on the spot.

use std::ffi::OsString;
use std::hint::black_box;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use heapledger_collect::{self as collect, Outcome, RecordOptions};

use super::{Check, State};
use crate::code::Code;
use crate::exit::Exit;
use crate::format::{bytes, count};
use crate::host;
use crate::launch::preload::LIBRARY;

/// The number of threads of the program that the self-test records, and of blocks that each
/// allocates.
const THREADS: usize = 2;
const BLOCKS: usize = 1000;

/// A script that makes the shell store a value for each block, in memory of its own.
const SCRIPT: &str = "i=0; while [ $i -lt 2000 ]; do i=$((i + 1)); done";

/// The program that the self-test records.
#[derive(Debug)]
pub(super) enum Tested {
    /// This command, at its path.
    Own(PathBuf),
    /// The shell, if this command is static.
    Shell(PathBuf),
}

impl Tested {
    /// Returns the program to record; `None` if both are static.
    pub(super) fn find() -> Option<Tested> {
        host::own().map(Tested::Own).or_else(|| host::shell().map(Tested::Shell))
    }

    pub(super) fn file(&self) -> &Path {
        match self {
            Tested::Own(file) | Tested::Shell(file) => file,
        }
    }

    fn command(&self) -> Vec<OsString> {
        let arguments: &[&str] = match self {
            Tested::Own(_) => &["self-test"],
            Tested::Shell(_) => &["-c", SCRIPT],
        };
        [self.file().as_os_str()].into_iter().chain(arguments.iter().map(AsRef::as_ref)).map(OsString::from).collect()
    }
}

/// Runs as the program that the self-test records.
pub(crate) fn be_the_self_test() -> ExitCode {
    let threads = (0..THREADS).map(|_| {
        std::thread::spawn(|| {
            let blocks: Vec<Vec<u8>> = (0..BLOCKS).map(|size| black_box(Vec::with_capacity(size + 1))).collect();
            blocks.len()
        })
    });
    let threads: Vec<_> = threads.collect();
    let done = threads.into_iter().map(|thread| thread.join().unwrap_or(0)).sum::<usize>();
    if done == THREADS * BLOCKS { Exit::Ok.into() } else { Exit::Unexpected.into() }
}

/// Records a small program, verifies its stacks if they can be captured, and checks that all
/// allocations are there.
pub(super) fn self_test(tested: &Tested, has_stacks: bool) -> Vec<Check> {
    let bad =
        |code, text: String| Check::problem("self-test", State::Bad, code, text, "heapledger doctor --json says more");
    let begun = Instant::now();
    let (outcome, length) = match record_the_self_test(tested) {
        Ok(recorded) => recorded,
        Err(text) => return vec![bad(Code::SelfTest, text)],
    };
    let counts = &outcome.footer.counts;
    let (stacks, allocations) = (&counts.stacks, counts.allocations.0);
    let wrong = if !outcome.command_recorded() {
        Some("a small program did not load the recorder's library".to_owned())
    } else if allocations < (THREADS * BLOCKS) as u64 || counts.events_lost > 0 {
        Some(format!("{} allocations were made, {} recorded", count((THREADS * BLOCKS) as u64), count(allocations)))
    } else if stacks.mismatched > 0 || has_stacks && stacks.verified == 0 {
        Some(format!("of the stacks, {} are right and {} are not", count(stacks.verified), count(stacks.mismatched)))
    } else {
        None
    };
    if let Some(wrong) = wrong {
        return vec![bad(Code::SelfTest, wrong)];
    }
    let (allocations, verified) = (count(allocations), count(stacks.verified));
    let took = begun.elapsed().as_millis();
    let program = match tested {
        Tested::Own(_) => "a small program".to_owned(),
        Tested::Shell(file) => file.display().to_string(),
    };
    let text = format!(
        "recorded {allocations} allocations of {program}, {verified} stacks verified: {}, {took} ms",
        bytes(length)
    );
    let mut checks = vec![Check::good("self-test", text)];
    if !outcome.clock_reliable {
        let text = "the time stamp counter does not order events of different processors";
        checks.push(Check::problem("clock", State::Warning, Code::Clock, text, "record on another machine"));
    }
    checks
}

/// Returns the outcome, and the length of the file.
fn record_the_self_test(tested: &Tested) -> Result<(Outcome, u64), String> {
    let told = |error: &dyn std::error::Error| match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    };
    let directory = tempfile::tempdir().map_err(|error| told(&error))?;
    let mut options = RecordOptions::new(tested.command(), LIBRARY);
    options.output = Some(directory.path().join("self-test.hl"));
    options.verify_stacks = true;
    let outcome = collect::record(&options, &mut |_| {}).map_err(|error| told(&error))?;
    if let Some(problem) = &outcome.problem {
        return Err(told(problem));
    }
    let length = outcome.output.metadata().map_or(0, |data| data.size());
    Ok((outcome, length))
}
