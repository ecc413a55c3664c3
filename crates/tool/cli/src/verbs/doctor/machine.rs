//! The machine: kernel, C library, limits, memory, places for files.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, MemfdFlags};
use rustix::process::{PidfdFlags, Resource, getpid, getrlimit, pidfd_open};

use super::linking::{libraries, library, linker_of};
use super::self_test::{Tested, self_test};
use super::{Check, State};
use crate::code::Code;
use crate::format::{bytes, count};
use crate::host;

/// A recording is in danger if less memory than this is left, in bytes.
const MEMORY_MIN: u64 = 64 << 20;
/// A recording is in danger if less disk space than this is left, in bytes.
const DISK_MIN: u64 = 256 << 20;

pub(super) fn checks() -> Vec<Check> {
    let mut checks = vec![kernel()];
    let tested = Tested::find();
    let c_library = tested.as_ref().and_then(|tested| c_library(tested.file()));
    let has_stacks = c_library.as_ref().is_none_or(|check| check.state == State::Good);
    checks.extend(c_library);
    checks.extend(limits());
    checks.extend(memory_group());
    checks.push(output());
    checks.push(debug_files());
    match tested {
        Some(tested) => checks.extend(self_test(&tested, has_stacks)),
        None => checks.push(no_glibc()),
    }
    checks
}

/// Checks the C library of a program.
fn c_library(program: &Path) -> Option<Check> {
    if host::is_for_musl(program) {
        let text = "musl: `record` records programs; `check`, `run` and other allocators are for glibc";
        return Some(Check::problem("C library", State::Note, Code::OtherLibrary, text, "heapledger explain HL0004"));
    }
    let (loaded, _) = libraries(&linker_of(program)?, program);
    library("C library", &loaded)
}

fn no_glibc() -> Check {
    let text = "this command and /bin/sh are static programs: there is nothing to record for a test of the machine";
    let hint = "copy this command to where the program is";
    Check::problem("self-test", State::Warning, Code::NoGlibc, text, hint)
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
