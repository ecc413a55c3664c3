//! How far estimates are off.

use heapledger_core::{Blocks, Bytes};
use heapledger_ledger::{Variance, bar_of_blocks, bar_of_bytes};

/// The standard error of an estimate: in a ledger that samples, amounts are off by so much, give or take. Zero of what
/// is exact. For an interval that has the truth 95 times in 100, see [`StandardError::bars`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StandardError {
    /// Of bytes.
    pub bytes: Bytes,
    /// Of blocks.
    pub blocks: Blocks,
}

impl From<Variance> for StandardError {
    fn from(variance: Variance) -> StandardError {
        let (bytes, blocks) = variance.errors();
        StandardError { bytes, blocks }
    }
}

impl StandardError {
    /// Returns by how much the estimates that these are the errors of may be off: of 100 estimates, 95 are no farther from the
    /// truth. About two standard errors of many blocks, more of few.
    pub fn bars(self, bytes: Bytes, blocks: Blocks) -> (Bytes, Blocks) {
        (bar_of_bytes(bytes, self.bytes), bar_of_blocks(blocks, self.blocks))
    }
}

/// `12 ± 3`: a number and its error bar; of what is exact the number alone.
pub(crate) struct Estimated(u64, u64);

impl Estimated {
    pub(crate) fn bytes(estimate: Bytes, error: StandardError) -> Estimated {
        Estimated(estimate.0, bar_of_bytes(estimate, error.bytes).0)
    }

    pub(crate) fn blocks(estimate: Blocks, error: StandardError) -> Estimated {
        Estimated(estimate.0, bar_of_blocks(estimate, error.blocks).0)
    }
}

impl std::fmt::Display for Estimated {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Estimated(number, bar) = *self;
        write!(out, "{number}")?;
        if bar == 0 { Ok(()) } else { write!(out, " ± {bar}") }
    }
}
