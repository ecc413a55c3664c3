//! Standard errors of estimates.

use heapledger_core::{Blocks, Bytes};
use heapledger_ledger::{Variance, bar_of_blocks, bar_of_bytes};

/// The standard error of an estimate in a ledger that samples. Zero for exact amounts. For an
/// interval that contains the true value in 95 of 100 cases, see [`StandardError::error_bars`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StandardError {
    /// The standard error of the number of bytes.
    pub bytes: Bytes,
    /// The standard error of the number of blocks.
    pub blocks: Blocks,
}

impl From<Variance> for StandardError {
    fn from(variance: Variance) -> StandardError {
        let (bytes, blocks) = variance.errors();
        StandardError { bytes, blocks }
    }
}

impl StandardError {
    /// Returns the error bars of the estimates with these errors: the true value is within the bars
    /// for 95 of 100 estimates. These are about two standard errors if there are many blocks, more
    /// if there are few.
    pub fn error_bars(self, bytes: Bytes, blocks: Blocks) -> (Bytes, Blocks) {
        (bar_of_bytes(bytes, self.bytes), bar_of_blocks(blocks, self.blocks))
    }
}

/// A number with its error bar, `12 ± 3`; an exact number is printed alone.
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
