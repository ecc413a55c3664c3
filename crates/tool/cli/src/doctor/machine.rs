//! The machine: kernel, C library, limits, memory, places for files; and a small recording made on
//! the spot.

use std::ffi::OsStr;
use std::fs;
use std::hint::black_box;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use heapledger_collect::{self as collect, Outcome, RecordOptions};
use rustix::fs::{Access, MemfdFlags};
use rustix::process::{PidfdFlags, Resource, getpid, getrlimit, pidfd_open};

use super::{Check, State};
use crate::code::Code;
use crate::exit::Exit;
use crate::format::{bytes, count};
use crate::preload::LIBRARY;

/// A recording is in danger if less memory than this is left, in bytes.
const MEMORY_MIN: u64 = 64 << 20;
/// A recording is in danger if less disk space than this is left, in bytes.
const DISK_MIN: u64 = 256 << 20;

pub(super) fn checks() -> Vec<Check> {
    let mut checks = vec![kernel()];
    let own = std::env::current_exe().ok();
    let libraries = own.and_then(|own| Some(super::program::libraries(&super::program::linker_of(&own)?, &own).0));
    checks.extend(library("C library", &libraries.unwrap_or_default()));
    checks.extend(limits());
    checks.extend(memory_group());
    checks.push(output());
    checks.push(debug_files());
    checks.extend(self_test());
    checks
}

fn kernel() -> Check {
    let read = |file: &str| fs::read_to_string(file).map(|text| text.trim().to_owned()).unwrap_or_default();
    let version = format!("Linux {}", read("/proc/sys/kernel/osrelease"));
    let memfd = rustix::fs::memfd_create("heapledger-doctor", MemfdFlags::CLOEXEC).map(drop);
    let pidfd = pidfd_open(getpid(), PidfdFlags::empty()).map(drop);
    let refused = [("memfd_create", memfd), ("pidfd_open", pidfd)];
    let refused: Vec<String> =
        refused.into_iter().filter_map(|(call, result)| Some(format!("{call}: {}", result.err()?))).collect();
    if !refused.is_empty() {
        let filter = read("/proc/self/status").lines().any(|line| line.starts_with("Seccomp:") && !line.ends_with('0'));
        let hint = if filter {
            "a seccomp filter is active: allow these calls (docker run --security-opt seccomp=unconfined …)"
        } else {
            "recording needs Linux 5.3 or newer"
        };
        return Check::problem(
            "kernel",
            State::Bad,
            Code::System,
            format!("{version} refuses {}", refused.join(", ")),
            hint,
        );
    }
    Check::good("kernel", format!("{version}; memory and process descriptors"))
}

/// Checks the C library among those that are loaded with a program.
pub(super) fn library(subject: &str, libraries: &[PathBuf]) -> Option<Check> {
    let library = libraries.iter().find(|library| library.file_name() == Some(OsStr::new("libc.so.6")))?;
    if super::program::mentions(library, &["_dl_find_object"], true) {
        return Some(Check::good(subject, format!("glibc 2.35 or newer ({})", library.display())));
    }
    let text = format!("{} is of a glibc before 2.35: there will be no stacks", library.display());
    Some(Check::problem(
        subject,
        State::Warning,
        Code::OldLibrary,
        text,
        "record on a newer distribution (Debian 12, Ubuntu 22.04)",
    ))
}

fn limits() -> Vec<Check> {
    // Below these limits, threads may have no ring, or the file may be cut.
    let watched = [
        ("open files", "-n 1024", Resource::Nofile, 64),
        ("address space", "-v unlimited", Resource::As, 1 << 30),
        ("file size", "-f unlimited", Resource::Fsize, DISK_MIN),
    ];
    let mut tight = vec![];
    for (name, option, resource, least) in watched {
        let Some(limit) = getrlimit(resource).current.filter(|limit| *limit < least) else { continue };
        let text = format!("at most {}", count(limit));
        let hint = format!("ulimit {option}");
        tight.push(Check::problem(format!("limit: {name}"), State::Warning, Code::Limit, text, hint));
    }
    if tight.is_empty() {
        let files = getrlimit(Resource::Nofile).current.map_or("any number of".to_owned(), count);
        tight.push(Check::good("limits", format!("{files} open files, address space, file size")));
    }
    tight
}

/// Checks the memory that is left below the limits of this process's memory cgroups.
fn memory_group() -> Option<Check> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let left = groups.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let (root, limit, used) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max", "memory.current"),
            _ if controllers.split(',').any(|one| one == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes")
            }
            _ => return None,
        };
        let directory = PathBuf::from(format!("{root}{path}"));
        let number =
            |directory: &Path, file: &str| fs::read_to_string(directory.join(file)).ok()?.trim().parse::<u64>().ok();
        // The limits of parent groups count, too.
        let above = directory.ancestors().take_while(|above| above.starts_with(root));
        above.filter_map(|above| Some(number(above, limit)?.saturating_sub(number(above, used)?))).min()
    });
    let left = left.min()?;
    if left < MEMORY_MIN {
        let hint = "raise it: systemctl set-property UNIT MemoryMax=…, docker update --memory …";
        let text = format!("{} left below the limit of this memory group", bytes(left));
        return Some(Check::problem("memory", State::Warning, Code::LittleMemory, text, hint));
    }
    // Version 1 of cgroups reports a very large number if there is no limit.
    (left < 1 << 60)
        .then(|| Check::good("memory", format!("{} left below the limit of this memory group", bytes(left))))
}

/// Checks the place where recordings are written.
fn output() -> Check {
    let problem = |text: String| {
        let hint = "write elsewhere: heapledger record -o FILE -- COMMAND";
        Check::problem("recordings", State::Warning, Code::NoOutput, text, hint)
    };
    if let Err(error) = rustix::fs::access(".", Access::WRITE_OK) {
        return problem(format!("the current directory cannot be written: {error}"));
    }
    let free = rustix::fs::statvfs(".").map_or(u64::MAX, |system| system.f_bavail.saturating_mul(system.f_frsize));
    if free < DISK_MIN {
        return problem(format!("only {} free in the current directory", bytes(free)));
    }
    Check::good("recordings", format!("{} free in the current directory", bytes(free)))
}

/// Checks the sources of names that are not in the programs themselves.
fn debug_files() -> Check {
    let directory = if Path::new("/usr/lib/debug").is_dir() { "/usr/lib/debug is there" } else { "no /usr/lib/debug" };
    let urls = match std::env::var("DEBUGINFOD_URLS") {
        Ok(urls) if !urls.trim().is_empty() => "DEBUGINFOD_URLS is set",
        _ => "DEBUGINFOD_URLS is not set",
    };
    Check::good("debug files", format!("{directory}; {urls}"))
}

// --------------------------------------------------------------------------------------- self-test

/// The number of threads of the program that the self-test records, and of blocks that each
/// allocates.
const THREADS: usize = 2;
const BLOCKS: usize = 1000;

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

/// Records a small program, verifies its stacks, and checks that all allocations are there.
fn self_test() -> Vec<Check> {
    let bad =
        |code, text: String| Check::problem("self-test", State::Bad, code, text, "heapledger doctor --json says more");
    let begun = Instant::now();
    let (outcome, length) = match record_the_self_test() {
        Ok(recorded) => recorded,
        Err(text) => return vec![bad(Code::SelfTest, text)],
    };
    let counts = &outcome.footer.counts;
    let (stacks, allocations) = (&counts.stacks, counts.allocations.0);
    let wrong = if !outcome.command_recorded() {
        Some("a small program did not load the recorder's library".to_owned())
    } else if allocations < (THREADS * BLOCKS) as u64 || counts.events_lost > 0 {
        Some(format!("{} allocations were made, {} recorded", count((THREADS * BLOCKS) as u64), count(allocations)))
    } else if stacks.mismatched > 0 || stacks.verified == 0 {
        Some(format!("of the stacks, {} are right and {} are not", count(stacks.verified), count(stacks.mismatched)))
    } else {
        None
    };
    if let Some(wrong) = wrong {
        return vec![bad(Code::SelfTest, wrong)];
    }
    let (allocations, verified) = (count(allocations), count(stacks.verified));
    let took = begun.elapsed().as_millis();
    let text = format!(
        "recorded {allocations} allocations of a small program, {verified} stacks verified: {}, {took} ms",
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
fn record_the_self_test() -> Result<(Outcome, u64), String> {
    let told = |error: &dyn std::error::Error| match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    };
    let directory = tempfile::tempdir().map_err(|error| told(&error))?;
    let own = std::env::current_exe().map_err(|error| told(&error))?;
    let mut options = RecordOptions::new(vec![own.into_os_string(), "self-test".into()], LIBRARY);
    options.output = Some(directory.path().join("self-test.hl"));
    options.verify_stacks = true;
    let outcome = collect::record(&options, &mut |_| {}).map_err(|error| told(&error))?;
    if let Some(problem) = &outcome.problem {
        return Err(told(problem));
    }
    let length = outcome.output.metadata().map_or(0, |data| data.size());
    Ok((outcome, length))
}
