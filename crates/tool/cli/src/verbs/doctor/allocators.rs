//! The allocators inside a program and its libraries, and which of their entry points can be
//! redirected.

use std::path::{Path, PathBuf};

use heapledger_entries::{Allocator, Entry, Family, Module, Plan, find, plan_all};
use heapledger_wire::entries::EntryKind;
use serde::Serialize;

use super::{Check, State};
use crate::code::Code;

/// An allocator whose code is in the program's file, or in a library that is loaded with it.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct InnerAllocator {
    /// The file with the code.
    path: PathBuf,
    /// Its name, such as `jemalloc`.
    family: &'static str,
    /// The beginning of its functions' names, before those of malloc; often empty.
    prefix: String,
    /// Its functions that allocate, resize and free blocks, by address.
    entries: Vec<InnerEntry>,
    /// False if the file is stripped and functions that it does not export are missing above.
    is_complete: bool,
}

/// An entry point of an allocator.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct InnerEntry {
    name: String,
    /// The address in the file's own addresses.
    address: u64,
    /// `dynamic symbols`, `symbol table`, `debug file`, `signature` or `calls`.
    found_by: &'static str,
    /// True if a jump can replace its first instructions.
    can_be_redirected: bool,
    /// The reason if it cannot.
    reason: Option<String>,
}

/// Looks for allocators in the program and its libraries. The C library's own malloc in a shared
/// library is none. Files that cannot be read have none.
pub(super) fn look(program: &Path, libraries: &[PathBuf]) -> Vec<InnerAllocator> {
    let mut allocators = in_file(program);
    for library in libraries {
        let of_library = in_file(library).into_iter();
        allocators.extend(of_library.filter(|one| ![Family::Glibc.name(), Family::Musl.name()].contains(&one.family)));
    }
    allocators
}

fn in_file(path: &Path) -> Vec<InnerAllocator> {
    let Ok(module) = Module::open(path) else { return vec![] };
    let found = find(&module).unwrap_or_default();
    let plans = plan_all(&module, &found.allocators);
    // Every jemalloc has this function, and Rust programs call it.
    let is_complete = |allocator: &Allocator| {
        found.has_names || allocator.family != Family::Jemalloc || allocator.entry(EntryKind::Mallocx).is_some()
    };
    let new = |(allocator, plan)| InnerAllocator::new(path, allocator, plan, is_complete(allocator));
    found.allocators.iter().zip(&plans).map(new).collect()
}

impl InnerAllocator {
    fn new(path: &Path, allocator: &Allocator, plan: &Plan, is_complete: bool) -> InnerAllocator {
        let entry = |entry: &Entry| {
            let refused = plan.refused.iter().find(|refused| refused.entry == *entry);
            InnerEntry {
                name: entry.name.clone(),
                address: entry.at,
                found_by: entry.evidence.name(),
                can_be_redirected: refused.is_none(),
                reason: refused.map(|refused| refused.reason.to_string()),
            }
        };
        // Functions that only ask about blocks are not redirected.
        let entries = allocator.entries.iter().filter(|entry| entry.kind.is_event()).map(entry).collect();
        let prefix = allocator.prefix.clone();
        InnerAllocator { path: path.to_owned(), family: allocator.family.name(), prefix, entries, is_complete }
    }

    /// Returns a finding about the allocator.
    pub(super) fn check(&self) -> Check {
        let name = self.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let under = if self.prefix.is_empty() { String::new() } else { format!(" as {}…", self.prefix) };
        let mut found_by: Vec<&str> = self.entries.iter().map(|entry| entry.found_by).collect();
        found_by.sort_unstable();
        found_by.dedup();
        let text = format!(
            "{}{under} is inside {name}, found by {}: {} entry points",
            self.family,
            found_by.join(" and "),
            self.entries.len(),
        );
        let refused: Vec<&InnerEntry> = self.entries.iter().filter(|entry| !entry.can_be_redirected).collect();
        if !self.is_complete {
            let text = format!("{text}; others, which it does not export, are not found: the file is stripped");
            let hint = "keep its symbol table: do not strip it, or install its debug file";
            return Check::problem("inside", State::Note, Code::Irredirectable, text, hint);
        }
        let [first, ..] = refused.as_slice() else {
            return Check::good("inside", format!("{text}; all can be redirected"));
        };
        let reason = first.reason.as_deref().unwrap_or_default();
        let more = if refused.len() > 1 { format!(", nor can {} more", refused.len() - 1) } else { String::new() };
        let text = format!("{text}; {} cannot be redirected: {reason}{more}", first.name);
        let hint = "link the allocator as a shared library; heapledger doctor --json lists all";
        Check::problem("inside", State::Note, Code::Irredirectable, text, hint)
    }
}
