//! The totals of a ledger.

use std::fmt;

use heapledger_core::{Blocks, Bytes};
use heapledger_inprocess::{LEDGER, control, query};
use heapledger_ledger::{Counts, Live, Variances};

use crate::error::{Estimated, StandardError};

/// The amounts that have been counted since the ledger was started, and those that are live. Bytes
/// are requested bytes.
///
/// In a ledger that has sampled these are estimates for the whole program: each sampled block
/// counts with its weight. Only `failed`, `frees_unknown` and `frees_missing` are exact: they count
/// calls that the ledger has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Totals {
    /// The number of calls that returned a block. A reallocation is a free and an allocation.
    pub allocations: Blocks,
    /// The requested bytes of these blocks.
    pub bytes_allocated: Bytes,
    /// The number of these blocks that have been freed.
    pub frees: Blocks,
    /// The number of these allocations that were reallocations.
    pub reallocations: Blocks,
    /// The number of temporary blocks: freed by the thread that had allocated them before it
    /// allocated or freed anything else; in a ledger that samples, before it allocated anything
    /// else.
    pub temporaries: Blocks,
    /// The number of calls that returned no block although one was requested.
    pub failed: Blocks,
    /// The number of frees of blocks that are not in the ledger: allocated before it was started,
    /// or in a pause.
    pub frees_unknown: Blocks,
    /// The number of frees that were not seen: the block's address was handed out again.
    pub frees_missing: Blocks,
    /// The number of live blocks.
    pub blocks_live: Blocks,
    /// The requested bytes of the live blocks.
    pub bytes_live: Bytes,
    /// The peak: the most bytes that were live at one moment.
    pub bytes_live_max: Bytes,
    /// The most blocks that were live at one moment.
    pub blocks_live_max: Blocks,
    /// True if the ledger has sampled since its start.
    pub is_estimate: bool,
    /// The standard error of `bytes_allocated` and `allocations`.
    pub allocated_standard_error: StandardError,
    /// The standard error of `bytes_live` and `blocks_live`.
    pub live_standard_error: StandardError,
    /// The standard error of `bytes_live_max`, and of the number of blocks that were live then.
    pub peak_standard_error: StandardError,
}

impl Totals {
    pub(crate) fn now() -> Totals {
        query(|| LEDGER.totals()).map_or(Totals::default(), Totals::of)
    }

    pub(crate) fn of((counts, live, variances): (Counts, Live, Variances)) -> Totals {
        Totals {
            allocations: counts.allocations,
            bytes_allocated: counts.bytes_allocated,
            frees: counts.frees,
            reallocations: counts.reallocations,
            temporaries: counts.temporaries,
            failed: counts.failed,
            frees_unknown: counts.frees_unknown,
            frees_missing: counts.frees_missing,
            blocks_live: live.blocks_live,
            bytes_live: live.bytes_live,
            bytes_live_max: live.bytes_live_max,
            blocks_live_max: live.blocks_live_max,
            is_estimate: control::is_sample(),
            allocated_standard_error: variances.allocated.into(),
            live_standard_error: variances.live.into(),
            peak_standard_error: variances.at_peak.into(),
        }
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let amount = |bytes: Bytes, blocks: Blocks, error: StandardError| {
            (Estimated::bytes(bytes, error), Estimated::blocks(blocks, error))
        };
        let (bytes, blocks) = amount(self.bytes_live, self.blocks_live, self.live_standard_error);
        writeln!(out, "live      {bytes} bytes in {blocks} blocks")?;
        writeln!(out, "peak      {} bytes", Estimated::bytes(self.bytes_live_max, self.peak_standard_error))?;
        let (bytes, blocks) = amount(self.bytes_allocated, self.allocations, self.allocated_standard_error);
        writeln!(out, "allocated {bytes} bytes in {blocks} blocks")?;
        let about = if self.is_estimate { "about " } else { "" };
        write!(out, "freed     {about}{} blocks", self.frees.0)
    }
}
