//! How far estimates are off.

use heapledger_core::{Blocks, Bytes};
use heapledger_ledger::Variance;

/// The standard error of an estimate: in a ledger that samples, amounts are off by so much, give or take. Two thirds of them are
/// within one of the truth, 95 of 100 within two. Zero of what is exact.
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

/// `12 ± 3`: with two standard errors; of what is exact the number alone.
pub(crate) struct Estimated(pub(crate) u64, pub(crate) u64);

impl std::fmt::Display for Estimated {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Estimated(number, error) = *self;
        write!(out, "{number}")?;
        if error == 0 { Ok(()) } else { write!(out, " ± {}", error.saturating_mul(2)) }
    }
}
