//! Tools that the tests run, and programs that they build.

#![allow(dead_code, reason = "each test file uses a part")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use heapledger_entries::{Allocator, Module, Plan, find, plan_all};

/// The directory of Debian's libraries.
pub(crate) const LIBRARIES: &str = "/usr/lib/x86_64-linux-gnu";

/// Reports that a test did not run, or fails it if nothing may be skipped.
pub(crate) fn skipped(why: &str) {
    assert!(std::env::var_os("HEAPLEDGER_NO_SKIP").is_none_or(|value| value != "1"), "may not be skipped: {why}");
    // eprintln! is not used, because the test runner captures its output.
    std::io::stderr().write_all(format!("skipped: {why}\n").as_bytes()).unwrap();
}

/// Returns the file if it is there.
pub(crate) fn installed(path: impl Into<PathBuf>) -> Option<PathBuf> {
    let path = path.into();
    if !path.exists() {
        skipped(&format!("there is no {}", path.display()));
        return None;
    }
    Some(path)
}

/// Runs a command, and returns its output; `None` if it is not installed. Panics if it fails.
pub(crate) fn run(directory: &Path, command: &[&str]) -> Option<String> {
    let mut process = Command::new(command[0]);
    match process.args(&command[1..]).current_dir(directory).stdin(Stdio::null()).output() {
        Err(error) => {
            skipped(&format!("{}: {error}", command[0]));
            None
        }
        Ok(output) => {
            assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
            Some(String::from_utf8_lossy(&output.stdout).into_owned())
        }
    }
}

pub(crate) fn look(path: &Path) -> (Vec<Allocator>, Vec<Plan>) {
    let module = Module::open(path).unwrap();
    let found = find(&module).unwrap();
    let plans = plan_all(&module, &found.allocators);
    (found.allocators, plans)
}

/// Renames jemalloc's functions in the static library, as builds with a prefix name them.
pub(crate) fn prefixed_jemalloc(scratch: &Path, prefix: &str) -> Option<PathBuf> {
    prefixed(scratch, "libjemalloc.a", prefix)
}

/// Does the same with a library that is named: `libjemalloc_pic.a` can be linked into any program.
pub(crate) fn prefixed(scratch: &Path, library: &str, prefix: &str) -> Option<PathBuf> {
    let library = installed(Path::new(LIBRARIES).join(library))?;
    let names = "malloc calloc realloc free memalign aligned_alloc posix_memalign valloc malloc_usable_size \
                 mallocx rallocx xallocx dallocx sdallocx nallocx sallocx mallctl";
    let renamed = scratch.join("libprefixed.a");
    let mut command = vec!["objcopy".to_owned()];
    command.extend(names.split_whitespace().map(|name| format!("--redefine-sym={name}={prefix}{name}")));
    command.extend([library.to_str()?.to_owned(), renamed.to_str()?.to_owned()]);
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    run(scratch, &command)?;
    Some(renamed)
}
