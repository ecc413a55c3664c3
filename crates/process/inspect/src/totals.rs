//! What has been counted.

use std::fmt;

use heapledger_core::{Blocks, Bytes};
use heapledger_ledger::{Counts, Live};
use heapledger_resident::estimate::{self, Beyond};
use heapledger_resident::{LEDGER, control, query};

/// What has been counted since the ledger was started, and what is live. Bytes are requested bytes.
///
/// In a ledger that has sampled, `allocations`, `frees`, what is live and the peak are estimates of all that the program
/// did; the others count what is in the sample.
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
    /// Blocks that were freed by the thread that had allocated them before it allocated or freed anything else.
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
}

impl Totals {
    pub(crate) fn now() -> Totals {
        query(|| LEDGER.totals())
            .map_or(Totals::default(), |(counts, live)| Totals::of(counts, live, estimate::beyond()))
    }

    pub(crate) fn of(counts: Counts, live: Live, beyond: Beyond) -> Totals {
        Totals {
            allocations: Blocks(counts.allocations.0 + beyond.allocations.0),
            bytes_allocated: Bytes(counts.bytes_allocated.0 + beyond.bytes_allocated.0),
            frees: Blocks(counts.frees.0 + beyond.frees.0),
            reallocations: counts.reallocations,
            temporaries: counts.temporaries,
            failed: counts.failed,
            frees_unknown: counts.frees_unknown,
            frees_missing: counts.frees_missing,
            blocks_live: Blocks(live.blocks_live.0 + beyond.blocks_live.0),
            bytes_live: Bytes(live.bytes_live.0 + beyond.bytes_live.0),
            bytes_live_max: live.bytes_live_max.max(beyond.bytes_live_max),
            blocks_live_max: live.blocks_live_max,
            is_estimate: control::is_sample(),
        }
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let about = if self.is_estimate { "about " } else { "" };
        writeln!(out, "live      {about}{} bytes in {about}{} blocks", self.bytes_live.0, self.blocks_live.0)?;
        writeln!(out, "peak      {about}{} bytes", self.bytes_live_max.0)?;
        writeln!(out, "allocated {about}{} bytes in {about}{} blocks", self.bytes_allocated.0, self.allocations.0)?;
        write!(out, "freed     {about}{} blocks", self.frees.0)
    }
}
