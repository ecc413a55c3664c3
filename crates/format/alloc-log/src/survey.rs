//! Finds out what is in a log: who calls what, and what is live.

use std::collections::BTreeMap;

use hashbrown::{HashMap, HashSet};

use crate::blocks::BlockMap;
use crate::fields::Fields;
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

/// The blocks that arenas of one label gave out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArenaCalls {
    /// The blocks.
    pub blocks: u64,
    /// The sum of their requested bytes; `u64::MAX` if it is larger.
    pub bytes_requested: u64,
}

/// The contents of a log.
///
/// Memory is in proportion to the blocks that are live at once, some 100 bytes each.
#[derive(Debug, Default)]
pub struct Survey {
    functions: BTreeMap<Function, FunctionCalls>,
    threads: HashSet<(u64, u64), foldhash::fast::RandomState>,
    numbers: HashMap<u64, usize, foldhash::fast::RandomState>,
    /// By the numbers.
    processes: Vec<Process>,
    /// The process and thread of the latest line, and the number of the process.
    latest: Option<(u64, u64, usize)>,
    frees_unknown: u64,
    allocations_of_live: u64,
    is_munged: bool,
    time_first_ns: Option<u64>,
    time_last_ns: u64,
    usable: Usable,
    arenas: BTreeMap<Vec<u8>, ArenaCalls>,
}

/// The requested and the usable bytes of the blocks whose usable size the log has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usable {
    /// The blocks.
    pub blocks: u64,
    /// The sum of their requested bytes; `u64::MAX` if it is larger.
    pub bytes_requested: u64,
    /// The sum of their usable bytes; `u64::MAX` if it is larger.
    pub bytes_usable: u64,
}

/// The most labels of arenas that are told apart: a log is not trusted.
const ARENAS_MAX: usize = 4096;

/// A process: the requested sizes of its live blocks, and their sums.
#[derive(Clone, Debug, Default)]
struct Process {
    live: BlockMap<u64>,
    bytes: u64,
    bytes_max: u64,
    blocks_max: u64,
}

impl Survey {
    /// Counts a line.
    pub fn add(&mut self, line: &Line) {
        let process = self.process(line);
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
            self.free(process, block);
        }
        if let Some(result) = line.result.filter(|result| !result.is_null()) {
            self.allocate(process, result, line.request.size().unwrap_or_default());
        }
    }

    /// Counts the fields of a line.
    pub fn add_fields(&mut self, line: &Line, fields: &Fields<'_>) {
        if let Some(time) = fields.time_ns {
            self.time_first_ns = Some(self.time_first_ns.map_or(time, |first| first.min(time)));
            self.time_last_ns = self.time_last_ns.max(time);
        }
        let (true, Some(requested)) = (line.result.is_some_and(|it| !it.is_null()), line.request.size()) else {
            return;
        };
        if let Some(usable) = fields.usable {
            self.usable.blocks += 1;
            self.usable.bytes_requested = self.usable.bytes_requested.saturating_add(requested);
            self.usable.bytes_usable = self.usable.bytes_usable.saturating_add(usable);
        }
        if let Some(label) = fields.arena_label() {
            if !self.arenas.contains_key(&*label) && self.arenas.len() == ARENAS_MAX {
                return;
            }
            let arena = self.arenas.entry(label.into_owned()).or_default();
            arena.blocks += 1;
            arena.bytes_requested = arena.bytes_requested.saturating_add(requested);
        }
    }

    /// Returns the number of the process of a line.
    fn process(&mut self, line: &Line) -> usize {
        if let Some((process, thread, number)) = self.latest
            && (process, thread) == (line.process, line.thread)
        {
            return number;
        }
        self.threads.insert((line.process, line.thread));
        let number = *self.numbers.entry(line.process).or_insert(self.processes.len());
        if number == self.processes.len() {
            self.processes.push(Process::default());
        }
        self.latest = Some((line.process, line.thread, number));
        number
    }

    fn allocate(&mut self, process: usize, block: Pointer, size: u64) {
        self.is_munged |= matches!(block, Pointer::Slot(_));
        let process = &mut self.processes[process];
        if let Some(before) = process.live.insert(block.key(), size) {
            self.allocations_of_live += 1;
            process.bytes = process.bytes.saturating_sub(before);
        }
        process.bytes = process.bytes.saturating_add(size);
        process.bytes_max = process.bytes_max.max(process.bytes);
        process.blocks_max = process.blocks_max.max(process.live.len() as u64);
    }

    fn free(&mut self, process: usize, block: Pointer) {
        let process = &mut self.processes[process];
        match process.live.remove(block.key()) {
            Some(size) => process.bytes = process.bytes.saturating_sub(size),
            // In a munged log the null pointer has a slot, too, and unknown blocks have been left
            // out. In the log of a recording they are slot 0.
            None if block.is_null() || matches!(block, Pointer::Slot(1..)) => {}
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
        self.processes.iter().map(|process| process.live.len() as u64).sum()
    }

    /// Returns the requested bytes of the blocks that are live at the end.
    pub fn bytes_live(&self) -> u64 {
        self.processes.iter().fold(0, |sum, process| sum.saturating_add(process.bytes))
    }

    /// Returns the most requested bytes that were live at once in one process.
    pub fn bytes_live_max(&self) -> u64 {
        self.processes.iter().map(|process| process.bytes_max).max().unwrap_or_default()
    }

    /// Returns the most blocks that were live at once in one process.
    pub fn blocks_live_max(&self) -> u64 {
        self.processes.iter().map(|process| process.blocks_max).max().unwrap_or_default()
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

    /// Returns the first and the last time in nanoseconds; `None` if no line has one.
    pub fn times_ns(&self) -> Option<(u64, u64)> {
        self.time_first_ns.map(|first| (first, self.time_last_ns))
    }

    /// Returns the blocks whose usable size the log has.
    pub fn usable(&self) -> Usable {
        self.usable
    }

    /// Returns the blocks of arenas by the label of the arena: of the first 4,096 labels.
    pub fn arenas(&self) -> impl Iterator<Item = (&[u8], ArenaCalls)> + '_ {
        self.arenas.iter().map(|(label, &calls)| (&label[..], calls))
    }
}
