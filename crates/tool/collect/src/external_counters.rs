//! Counts of an image that are not in its events, but are kept by the program and the collector
//! elsewhere.

use std::sync::atomic::{AtomicU64, Ordering};

use heapledger_recording::StackCounts;
use heapledger_wire::session::ImageCounters;

use crate::lost::Lost;

/// The external counters of an image.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ExternalCounters {
    pub(crate) lost: Lost,
    pub(crate) stacks: StackCounts,
}

impl ExternalCounters {
    /// Reads the counters of the image, if they are there, in addition to what the collector lost.
    pub(crate) fn read(lost: Lost, counters: Option<&ImageCounters>) -> ExternalCounters {
        let Some(counters) = counters else { return ExternalCounters { lost, stacks: StackCounts::default() } };
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let stacks = StackCounts {
            truncated: read(&counters.stacks_truncated),
            dropped: read(&counters.stacks_dropped),
            verified: read(&counters.stacks_verified),
            mismatched: read(&counters.stacks_mismatched),
            unasked: read(&counters.stacks_unasked),
            outlasting: read(&counters.stacks_outlasting),
            missing: read(&counters.stacks_missing),
            folded: read(&counters.stacks_folded),
            unproven: 0,
        };
        ExternalCounters { lost: lost.with(counters), stacks }
    }

    /// Returns the counts since an earlier state.
    pub(crate) fn since(&self, before: &ExternalCounters) -> ExternalCounters {
        let (now, then) = (&self.stacks, &before.stacks);
        let stacks = StackCounts {
            truncated: now.truncated.saturating_sub(then.truncated),
            dropped: now.dropped.saturating_sub(then.dropped),
            verified: now.verified.saturating_sub(then.verified),
            mismatched: now.mismatched.saturating_sub(then.mismatched),
            unasked: now.unasked.saturating_sub(then.unasked),
            outlasting: now.outlasting.saturating_sub(then.outlasting),
            missing: now.missing.saturating_sub(then.missing),
            folded: now.folded.saturating_sub(then.folded),
            unproven: now.unproven.saturating_sub(then.unproven),
        };
        ExternalCounters { lost: self.lost.since(before.lost), stacks }
    }
}
