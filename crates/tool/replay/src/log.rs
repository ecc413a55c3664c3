//! The calls of a log.

use heapledger_alloc_log::{Line, LineError, Pointer, Request};

use crate::work::{Call, WorkError, WorkWriter};

/// Adds the calls of one process of a log to a work.
#[derive(Debug)]
pub struct LogReader {
    process: u64,
    skipped: Skipped,
}

/// The lines of a log that are not played.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Calls of other processes.
    pub others: u64,
    /// Calls that failed in the program.
    pub failed: u64,
}

impl LogReader {
    /// Reads the calls of a process.
    pub fn new(process: u64) -> LogReader {
        LogReader { process, skipped: Skipped::default() }
    }

    /// Adds a line. The inner error says why it is no call; the outer one why the work cannot be
    /// written.
    ///
    /// # Errors
    ///
    /// As for [`WorkWriter::allocate`].
    pub fn add(&mut self, line: &[u8], work: &mut WorkWriter) -> Result<Result<(), LineError>, WorkError> {
        match Line::parse(line) {
            Ok(line) => self.add_call(&line, work).map(Ok),
            Err(error) => Ok(Err(error)),
        }
    }

    fn add_call(&mut self, line: &Line, work: &mut WorkWriter) -> Result<(), WorkError> {
        if line.process != self.process {
            self.skipped.others += 1;
            return Ok(());
        }
        let (thread, result) = (line.thread, line.result.filter(|result| !result.is_null()));
        let call = match line.request {
            Request::Free { block } if block.is_null() => return Ok(()),
            Request::Free { block } => return work.free(thread, key(block)),
            Request::JemallocStats => return work.statistics(thread),
            // `realloc(block, 0)` frees it.
            Request::Realloc { block, size: 0 } if result.is_none() => return work.free(thread, key(block)),
            Request::Realloc { block, size } if !block.is_null() => {
                return match result {
                    Some(new) => work.reallocate(thread, key(block), key(new), size),
                    None => self.skip(),
                };
            }
            Request::Malloc { .. } | Request::Realloc { .. } => Call::Malloc,
            Request::Calloc { .. } => Call::Calloc,
            Request::Memalign { alignment, .. } => Call::Memalign { alignment },
            Request::PosixMemalign { alignment, .. } => Call::PosixMemalign { alignment },
            Request::AlignedAlloc { alignment, .. } => Call::AlignedAlloc { alignment },
            Request::Valloc { .. } => Call::Valloc,
        };
        match (result, line.request.size()) {
            (Some(block), Some(size)) => work.allocate(thread, call, key(block), size),
            _ => self.skip(),
        }
    }

    fn skip(&mut self) -> Result<(), WorkError> {
        self.skipped.failed += 1;
        Ok(())
    }

    /// Returns what was not played.
    pub fn skipped(&self) -> Skipped {
        self.skipped
    }
}

/// Returns a number that no other block of the log has: addresses are below half of all numbers.
fn key(block: Pointer) -> u64 {
    match block {
        Pointer::Address(address) => address,
        Pointer::Slot(slot) => !slot,
    }
}
