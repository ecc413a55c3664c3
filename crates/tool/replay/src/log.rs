//! The calls of a log.

use heapledger_alloc_log::{Fields, Line, Request};

use crate::work::{Call, WorkError, WorkWriter};

/// Adds the calls of one process of a log to a work.
#[derive(Debug, Default)]
pub struct LogReader {
    failed: u64,
    /// The time of the first line that has one, and the latest time, in nanoseconds.
    times: Option<(u64, u64)>,
}

impl LogReader {
    /// Adds a line of the process, and returns its moment: its time, or its number in the log if
    /// the log has no times. In a log with times, a line without one has that of the line before.
    ///
    /// # Errors
    ///
    /// As for [`WorkWriter::allocate`].
    pub fn add(
        &mut self,
        number: u64,
        line: &Line,
        fields: &Fields<'_>,
        work: &mut WorkWriter,
    ) -> Result<u64, WorkError> {
        if let Some(time) = fields.time_ns {
            if self.times.is_none() {
                work.set_begin(time);
            }
            // Threads write lines in another order than they call.
            let (first, latest) = self.times.unwrap_or((time, time));
            self.times = Some((first, latest.max(time)));
            if !matches!(line.request, Request::Free { block } if block.is_null()) {
                work.wait(line.thread, time.saturating_sub(first))?;
            }
        }
        let moment = self.times.map_or(number, |(_, latest)| latest);
        work.set_moment(moment);
        self.add_call(line, fields, work)?;
        Ok(moment)
    }

    fn add_call(&mut self, line: &Line, fields: &Fields<'_>, work: &mut WorkWriter) -> Result<(), WorkError> {
        let (thread, result) = (line.thread, line.result.filter(|result| !result.is_null()));
        let call = match line.request {
            Request::Free { block } if block.is_null() => return Ok(()),
            Request::Free { block } => return work.free(thread, block.key()),
            Request::JemallocStats => return work.statistics(thread),
            // `realloc(block, 0)` frees it.
            Request::Realloc { block, size: 0 } if result.is_none() => return work.free(thread, block.key()),
            Request::Realloc { block, size } if !block.is_null() => {
                return match result {
                    Some(new) => work.reallocate(thread, block.key(), new.key(), size),
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
            (Some(block), Some(size)) => {
                let label = fields.arena_label().filter(|label| !label.is_empty());
                let arena = label.and_then(|label| work.arena(&label));
                work.allocate_in(thread, arena, call, block.key(), size)
            }
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
