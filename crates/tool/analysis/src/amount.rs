//! How much: what a site, a group of sites or a call holds.

use std::ops::AddAssign;

use heapledger_core::{Blocks, Bytes};
use heapledger_ledger::Variance;
use heapledger_recording::Live;

use crate::moment::Moment;

/// What a site, a group of sites or a call holds at a moment; or, in total, what it ever allocated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Requested bytes.
    pub bytes: Bytes,
    /// Blocks; in total: allocations.
    pub blocks: Blocks,
    /// In total: how many of the allocations were temporary. At a moment: none.
    pub temporaries: Blocks,
    /// How far bytes and blocks are off where blocks were sampled.
    pub variance: Variance,
    /// The same of temporaries: the part of what blocks are off that temporaries are of the blocks, stack by stack.
    pub temporaries_variance: u128,
}

/// What a site or a group of blocks holds at each moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// All that was ever allocated.
    pub total: Amount,
    /// At the peak.
    pub peak: Amount,
    /// At the end; or at the time that was asked for.
    pub live: Amount,
}

impl Holding {
    /// What is held at this moment.
    pub fn at(&self, moment: Moment) -> Amount {
        match moment {
            Moment::Peak => self.peak,
            Moment::End | Moment::At(_) => self.live,
            Moment::Total => self.total,
        }
    }

    /// Whether nothing is held at any moment.
    pub fn is_nothing(&self) -> bool {
        *self == Holding::default()
    }
}

impl AddAssign for Holding {
    fn add_assign(&mut self, other: Holding) {
        self.total += other.total;
        self.peak += other.peak;
        self.live += other.live;
    }
}

/// What amounts are compared by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Metric {
    /// Requested bytes.
    #[default]
    Bytes,
    /// Blocks; in total: allocations.
    Blocks,
    /// Temporary allocations.
    Temporaries,
}

impl Amount {
    /// The figure that counts.
    pub fn by(&self, metric: Metric) -> u64 {
        match metric {
            Metric::Bytes => self.bytes.0,
            Metric::Blocks => self.blocks.0,
            Metric::Temporaries => self.temporaries.0,
        }
    }

    /// The part of `whole` that this is, from 0 to 1; 0 of nothing.
    pub fn share(&self, whole: &Amount, metric: Metric) -> f64 {
        match whole.by(metric) {
            0 => 0.0,
            whole => self.by(metric) as f64 / whole as f64,
        }
    }

    /// The standard error of that figure: 0 of what is exact.
    pub fn error(&self, metric: Metric) -> u64 {
        let variance = match metric {
            Metric::Bytes => self.variance.bytes,
            Metric::Blocks => self.variance.blocks,
            Metric::Temporaries => self.temporaries_variance,
        };
        u64::try_from(variance.isqrt()).unwrap_or(u64::MAX)
    }

    /// The same with so many of the blocks temporary.
    pub(crate) fn with_temporaries(self, temporaries: Blocks) -> Amount {
        let part = temporaries.0 as f64 / self.blocks.0.max(1) as f64;
        Amount { temporaries, temporaries_variance: (self.variance.blocks as f64 * part) as u128, ..self }
    }

    /// Whether all figures are zero.
    pub fn is_nothing(&self) -> bool {
        *self == Amount::default()
    }
}

impl Amount {
    /// So much, with these standard errors.
    pub(crate) fn estimated(live: Live, errors: Live) -> Amount {
        let square = |error: u64| u128::from(error) * u128::from(error);
        let variance = Variance { bytes: square(errors.bytes.0), blocks: square(errors.blocks.0) };
        Amount { bytes: live.bytes, blocks: live.blocks, variance, ..Amount::default() }
    }

    /// What a block of this size counts for that stands for so many.
    pub(crate) fn of_block(size: Bytes, stands_for: Blocks) -> Amount {
        Amount {
            bytes: Bytes(size.0.saturating_mul(stands_for.0)),
            blocks: stands_for,
            variance: Variance::of(size, stands_for),
            ..Amount::default()
        }
    }
}

/// Saturating: a damaged file can hold any numbers.
impl AddAssign for Amount {
    fn add_assign(&mut self, other: Amount) {
        self.bytes.0 = self.bytes.0.saturating_add(other.bytes.0);
        self.blocks.0 = self.blocks.0.saturating_add(other.blocks.0);
        self.temporaries.0 = self.temporaries.0.saturating_add(other.temporaries.0);
        self.variance.bytes = self.variance.bytes.saturating_add(other.variance.bytes);
        self.variance.blocks = self.variance.blocks.saturating_add(other.variance.blocks);
        self.temporaries_variance = self.temporaries_variance.saturating_add(other.temporaries_variance);
    }
}
