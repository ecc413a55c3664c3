//! Pages of other sizes than 4 KiB: a program in C under the option `P`, whose system calls strace
//! shows.

mod library;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use self::library::{compiled_with, is_installed, library, scratch};

/// The calls about memory that the allocator makes.
const CALLS: &str = "mmap,munmap,mremap,madvise,mprotect";

fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| compiled_with("page_storm.c", &scratch("page_storm"), &[library()]))
}

fn number(text: &str) -> usize {
    let text = text.trim();
    text.strip_prefix("0x").map_or_else(|| text.parse(), |digits| usize::from_str_radix(digits, 16)).unwrap_or(0)
}

/// A call: its name, and the numbers that it was given.
#[derive(Debug)]
struct Call {
    name: String,
    start: usize,
    lengths: Vec<usize>,
}

impl Call {
    fn parse(name: &str, rest: &str) -> Call {
        let arguments: Vec<_> = rest.split([',', ')', '<']).map(number).collect();
        let lengths = if name == "mremap" { &arguments[1..3] } else { &arguments[1..2] };
        Call { name: name.to_owned(), start: arguments[0], lengths: lengths.to_vec() }
    }

    fn is_of_pages(&self, page: usize) -> bool {
        self.start.is_multiple_of(page) && self.lengths.iter().all(|length| length.is_multiple_of(page))
    }
}

/// Returns the calls between the two marks in strace's output, and the ranges that were mapped.
fn calls(text: &str) -> (Vec<Call>, Vec<(usize, usize)>) {
    let (mut calls, mut mapped) = (Vec::new(), Vec::new());
    // The lengths of calls of `mmap` that have not returned yet, by thread.
    let mut waiting = BTreeMap::new();
    let mut is_between = false;
    for line in text.lines() {
        let (thread, line) = line.split_once(' ').unwrap();
        let line = line.trim_start();
        let result = line.rsplit_once(" = ").map(|(_, result)| number(result.split(' ').next().unwrap()));
        if line.starts_with("write(1, \"begin") || line.starts_with("write(1, \"end") {
            is_between = line.contains("begin");
        } else if line.starts_with("<... mmap resumed") {
            if let (Some(length), Some(start)) = (waiting.remove(thread), result) {
                mapped.push((start, length));
            }
        } else if let Some((name, rest)) = line.split_once('(').filter(|(name, _)| CALLS.contains(name))
            && is_between
        {
            let call = Call::parse(name, rest);
            if name == "mmap" {
                match result {
                    Some(start) => mapped.push((start, call.lengths[0])),
                    None => drop(waiting.insert(thread, call.lengths[0])),
                }
            }
            calls.push(call);
        }
    }
    (calls, mapped)
}

fn storm(options: &str, page: usize) {
    let trace = scratch(&format!("page_size_{page}_{}", options.contains("guard"))).join("trace");
    let mut command = if is_installed("strace") {
        let mut strace = Command::new("strace");
        strace.args(["-f", "-qq", "-e", &format!("trace={CALLS},write"), "-E"]);
        strace.arg(format!("LD_PRELOAD={}", library().display())).arg("-o").arg(&trace).arg(program());
        strace
    } else {
        let mut command = Command::new(program());
        command.env("LD_PRELOAD", library());
        command
    };
    let output = command.arg(page.to_string()).env("HEAPLEDGER_ALLOCATOR_OPTIONS", options).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && stderr.is_empty(), "{options}: {}, {stderr}", output.status);
    let Ok(text) = fs::read_to_string(&trace) else { return };
    let (calls, mapped) = calls(&text);
    assert!(calls.len() > 100, "{options}: {} calls", calls.len());
    if page == 4 << 10 {
        // So the calls that are looked at are those whose lengths depend on the page.
        assert!(calls.iter().any(|call| call.name != "munmap" && !call.is_of_pages(64 << 10)));
    }
    for call in calls {
        // The kernel here places mappings at multiples of 4 KiB, so that the parts before and
        // behind an aligned range may be of other lengths. They end where their mapping does.
        let start = call.start;
        let is_end = |&(from, length): &(usize, usize)| start == from || start + call.lengths[0] == from + length;
        let is_rest = call.name == "munmap" && mapped.iter().any(is_end);
        assert!(call.is_of_pages(page) || is_rest, "{options}: {call:x?}");
    }
}

#[test]
fn all_calls_are_of_whole_pages() {
    storm("", 4 << 10);
    storm("2P", 16 << 10);
    storm("page-shift=4", 64 << 10);
}

#[test]
fn guards_are_of_whole_pages() {
    storm("2P guard", 16 << 10);
    storm("9P guard", 64 << 10);
}

#[test]
fn other_options_do_not_change_that() {
    storm("4P keyed random Q", 64 << 10);
}
