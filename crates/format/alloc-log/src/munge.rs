//! Numbers processes, threads and blocks from 1, as logalloc's munge script does.

use std::collections::VecDeque;
use std::fmt;

use crate::blocks::BlockMap;
use crate::line::{Latest, Line, LineError, Pointer, Request};

/// The state of a log that is being munged.
///
/// - Processes have numbers from 1 in the order in which they occur; threads too, in each process.
/// - Blocks have slots from 1 in each process. The slot of a freed block is given to a later one;
///   the slot that is free longest is taken first. `realloc` frees the old block before the new one
///   has its slot, so the slot often stays.
/// - The null pointer has a slot that is never freed, once a call has passed it.
///
/// Memory is in proportion to the live blocks.
#[derive(Debug, Default)]
pub struct Munge {
    numbers: Numbers,
    /// By the number of the process minus 1.
    processes: Vec<Process>,
    /// The process of the latest line, with its number: most lines have the same.
    latest: Option<(u64, u64)>,
    beginning: Latest,
}

#[derive(Debug, Default)]
struct Process {
    threads: Numbers,
    latest_thread: Option<(u64, u64)>,
    blocks: Numbers,
}

/// The reason why a line is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MungeError {
    /// It is no call.
    Line(LineError),
    /// It frees or reallocates a block that the log has not allocated.
    UnknownPointer,
    /// The call failed.
    NullResult,
}

impl fmt::Display for MungeError {
    /// Writes logalloc's own words.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MungeError::Line(error) => error.fmt(f),
            MungeError::UnknownPointer => f.write_str("Did not see an alloc for pointer"),
            MungeError::NullResult => f.write_str("Result is NULL"),
        }
    }
}

impl std::error::Error for MungeError {}

impl From<LineError> for MungeError {
    fn from(error: LineError) -> MungeError {
        MungeError::Line(error)
    }
}

impl Munge {
    /// Returns the call of the next line, with its numbers.
    ///
    /// # Errors
    ///
    /// Fails if the line has to be left out. Its process and its thread have numbers nevertheless,
    /// if it names them, and a block that a failed `realloc` passes is gone.
    pub fn line(&mut self, line: &[u8]) -> Result<Line, MungeError> {
        let split = self.beginning.split(line)?;
        let process = number(split.process, &mut self.numbers, &mut self.latest);
        let at = process as usize - 1;
        if at == self.processes.len() {
            self.processes.push(Process::default());
        }
        let Process { threads, latest_thread, blocks } = &mut self.processes[at];
        let thread = number(split.thread, threads, latest_thread);
        let mut line = split.call()?;
        if let Request::Realloc { block, .. } | Request::Free { block } = &mut line.request {
            *block = if block.is_null() {
                Pointer::Slot(blocks.of(block.key()))
            } else {
                Pointer::Slot(blocks.recycle(block.key()).ok_or(MungeError::UnknownPointer)?)
            };
        }
        if let Some(result) = &mut line.result {
            if result.is_null() {
                return Err(MungeError::NullResult);
            }
            *result = Pointer::Slot(blocks.of(result.key()));
        }
        Ok(Line { process, thread, ..line })
    }
}

/// Returns the number of a value, which may be the latest one.
fn number(value: u64, numbers: &mut Numbers, latest: &mut Option<(u64, u64)>) -> u64 {
    match *latest {
        Some((same, number)) if same == value => number,
        _ => {
            let number = numbers.of(value);
            *latest = Some((value, number));
            number
        }
    }
}

/// Numbers from 1 for values. Those of values that are gone are given out again, the oldest first.
#[derive(Debug, Default)]
struct Numbers {
    numbers: BlockMap<u64>,
    recycled: VecDeque<u64>,
    last: u64,
}

impl Numbers {
    fn of(&mut self, value: u64) -> u64 {
        if let Some(number) = self.numbers.get(value) {
            return number;
        }
        let number = self.recycled.pop_front().unwrap_or_else(|| {
            self.last += 1;
            self.last
        });
        self.numbers.insert(value, number);
        number
    }

    fn recycle(&mut self, value: u64) -> Option<u64> {
        let number = self.numbers.remove(value)?;
        self.recycled.push_back(number);
        Some(number)
    }
}
