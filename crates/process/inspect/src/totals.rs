//! What has been counted.

use std::fmt;

use heapledger_core::{Blocks, Bytes};
use heapledger_ledger::{Counts, Live, Variances};
use heapledger_resident::{LEDGER, control, query};

use crate::error::{Estimated, StandardError};

/// What has been counted since the ledger was started, and what is live. Bytes are requested bytes.
///
/// In a ledger that has sampled these are estimates of all that the program did: each block in the sample counts for as many as
/// it stands for. Only `failed`, `frees_unknown` and `frees_missing` are no estimates: they count calls that the ledger has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Totals {
    /// Calls that returned a block. A reallocation is a free and an allocation.
    pub allocations: Blocks,
    /// Bytes of these blocks.
    pub bytes_allocated: Bytes,
    /// Of these blocks, those that have been freed.
    pub frees: Blocks,
    /// How many of the allocations were reallocations.
    pub reallocations: Blocks,
    /// Blocks that were freed by the thread that had allocated them before it allocated or freed anything else: in a ledger that
    /// samples, before it allocated anything else.
    pub temporaries: Blocks,
    /// Calls that returned no block although one was asked for.
    pub failed: Blocks,
    /// Frees of blocks that are not in the ledger: allocated before it was started, or in a pause.
    pub frees_unknown: Blocks,
    /// Frees that were not seen: the block's address was handed out again.
    pub frees_missing: Blocks,
    /// Live blocks.
    pub blocks_live: Blocks,
    /// Their bytes.
    pub bytes_live: Bytes,
    /// The peak: the most bytes that were live at one moment.
    pub bytes_live_max: Bytes,
    /// The most blocks that were live at one moment.
    pub blocks_live_max: Blocks,
    /// Whether the ledger has sampled since its start.
    pub is_estimate: bool,
    /// Of `bytes_allocated` and `allocations`.
    pub allocated_standard_error: StandardError,
    /// Of `bytes_live` and `blocks_live`.
    pub live_standard_error: StandardError,
    /// Of `bytes_live_max`, and of the blocks that were live then.
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
