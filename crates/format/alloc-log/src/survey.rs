//! Finds out what is in a log: who calls what, and what is live.

use std::collections::BTreeMap;

use hashbrown::{HashMap, HashSet};

use crate::line::{Function, Line, Pointer, Request};

/// The calls of one function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FunctionCalls {
    /// The calls.
    pub calls: u64,
    /// The calls that returned null, though they requested bytes.
    pub failed: u64,
    /// The sum of the requested bytes, of failed calls too; `u64::MAX` if it is larger.
    pub bytes_requested: u64,
}

/// The contents of a log.
///
/// Memory is in proportion to the blocks that are live at once, some 40 bytes each.
#[derive(Debug, Default)]
pub struct Survey {
    functions: BTreeMap<Function, FunctionCalls>,
    threads: HashSet<(u64, u64), foldhash::fast::RandomState>,
    processes: HashMap<u64, Live, foldhash::fast::RandomState>,
    live: HashMap<(u64, u64), u64, foldhash::fast::RandomState>,
    frees_unknown: u64,
    allocations_of_live: u64,
    is_munged: bool,
}

/// The live amounts of a process.
#[derive(Clone, Copy, Debug, Default)]
struct Live {
    bytes: u64,
    bytes_max: u64,
    blocks: u64,
    blocks_max: u64,
}

impl Survey {
    /// Counts a line.
    pub fn add(&mut self, line: &Line) {
        self.processes.entry(line.process).or_default();
        self.threads.insert((line.process, line.thread));
        // A request for nothing may be answered with nothing, and then frees what it passes.
        let is_null = line.result.is_some_and(Pointer::is_null);
        let failed = is_null && line.request.size().is_some_and(|size| size > 0);
        let calls = self.functions.entry(line.request.function()).or_default();
        calls.calls += 1;
        calls.failed += u64::from(failed);
        calls.bytes_requested = calls.bytes_requested.saturating_add(line.request.size().unwrap_or_default());
        // A realloc that fails leaves its block alone.
        if let Request::Realloc { block, .. } | Request::Free { block } = line.request
            && !failed
        {
            self.free(line.process, block);
        }
        if let Some(result) = line.result.filter(|result| !result.is_null()) {
            self.allocate(line.process, result, line.request.size().unwrap_or_default());
        }
    }

    fn allocate(&mut self, process: u64, block: Pointer, size: u64) {
        self.is_munged |= matches!(block, Pointer::Slot(_));
        let live = self.processes.entry(process).or_default();
        match self.live.insert((process, block.key()), size) {
            Some(before) => {
                self.allocations_of_live += 1;
                live.bytes = live.bytes.saturating_sub(before);
            }
            None => live.blocks += 1,
        }
        live.bytes = live.bytes.saturating_add(size);
        live.bytes_max = live.bytes_max.max(live.bytes);
        live.blocks_max = live.blocks_max.max(live.blocks);
    }

    fn free(&mut self, process: u64, block: Pointer) {
        match self.live.remove(&(process, block.key())) {
            Some(size) => {
                let live = self.processes.entry(process).or_default();
                live.bytes = live.bytes.saturating_sub(size);
                live.blocks -= 1;
            }
            // In a munged log the null pointer has a slot, too, and unknown blocks have been left
            // out.
            None if block.is_null() || matches!(block, Pointer::Slot(_)) => {}
            None => self.frees_unknown += 1,
        }
    }

    /// Returns the functions that are called, and how.
    pub fn functions(&self) -> impl Iterator<Item = (Function, FunctionCalls)> + '_ {
        self.functions.iter().map(|(&function, &calls)| (function, calls))
    }

    /// Returns the calls of all functions.
    pub fn calls(&self) -> u64 {
        self.functions.values().map(|calls| calls.calls).sum()
    }

    /// Returns the number of processes.
    pub fn processes(&self) -> u64 {
        self.processes.len() as u64
    }

    /// Returns the number of threads, of all processes.
    pub fn threads(&self) -> u64 {
        self.threads.len() as u64
    }

    /// Returns the blocks that are live at the end, in all processes: also those of processes that
    /// have ended, which a log does not say.
    pub fn blocks_live(&self) -> u64 {
        self.live.len() as u64
    }

    /// Returns the requested bytes of the blocks that are live at the end.
    pub fn bytes_live(&self) -> u64 {
        self.processes.values().fold(0, |sum, live| sum.saturating_add(live.bytes))
    }

    /// Returns the most requested bytes that were live at once in one process.
    pub fn bytes_live_max(&self) -> u64 {
        self.processes.values().map(|live| live.bytes_max).max().unwrap_or_default()
    }

    /// Returns the most blocks that were live at once in one process.
    pub fn blocks_live_max(&self) -> u64 {
        self.processes.values().map(|live| live.blocks_max).max().unwrap_or_default()
    }

    /// Returns the calls that freed or reallocated a block that the log had not allocated in their
    /// process, as forked children do with the blocks of their parents. 0 in a munged log.
    pub fn frees_unknown(&self) -> u64 {
        self.frees_unknown
    }

    /// Returns the allocations whose block was live already: the log lacks the free in between.
    pub fn allocations_of_live(&self) -> u64 {
        self.allocations_of_live
    }

    /// True if blocks have the numbers of a munged log, not addresses.
    pub fn is_munged(&self) -> bool {
        self.is_munged
    }
}
