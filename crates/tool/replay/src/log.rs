//! The calls of a log.

use heapledger_alloc_log::{Line, Pointer, Request};

use crate::work::{Call, WorkError, WorkWriter};

/// Adds the calls of one process of a log to a work.
#[derive(Debug, Default)]
pub struct LogReader {
    failed: u64,
}

impl LogReader {
    /// Adds a line of the process.
    ///
    /// # Errors
    ///
    /// As for [`WorkWriter::allocate`].
    pub fn add(&mut self, line: &Line, work: &mut WorkWriter) -> Result<(), WorkError> {
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
        self.failed += 1;
        Ok(())
    }

    /// Returns the number of calls that failed in the program: they are not played.
    pub fn failed(&self) -> u64 {
        self.failed
    }
}

/// Returns a number that no other block of the log has: addresses are below half of all numbers.
fn key(block: Pointer) -> u64 {
    match block {
        Pointer::Address(address) => address,
        Pointer::Slot(slot) => !slot,
    }
}
