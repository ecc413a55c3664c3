//! Amounts: the bytes and blocks that a site, a group of sites or a call holds.

use std::cmp::Ordering;
use std::ops::AddAssign;

use heapledger_core::{Blocks, Bytes};
use heapledger_ledger::Variance;
use heapledger_recording::Live;

use crate::moment::Moment;

/// The amount that a site, a group of sites or a call holds at a moment, or has allocated in total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Requested bytes.
    pub bytes: Bytes,
    /// The number of blocks; for a total, the number of allocations.
    pub blocks: Blocks,
    /// For a total, the number of temporary allocations. Zero at a moment.
    pub temporaries: Blocks,
    /// The usable bytes beyond the requested ones. Known only if the selection
    /// [asks for it](crate::Selection::counts_slop); 0 otherwise.
    pub slop: Bytes,
    /// The variance of bytes and blocks that is due to sampling.
    pub variance: Variance,
    /// The variance of temporaries that is due to sampling: for each stack, the variance of its
    /// blocks times the share of them that is temporary.
    pub temporaries_variance: u128,
    /// The variance of the slop that is due to sampling.
    pub slop_variance: u128,
}

/// The amounts that a site or a group of blocks holds at each moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MomentAmounts {
    /// All that was ever allocated.
    pub total: Amount,
    /// The amount at the peak.
    pub peak: Amount,
    /// The amount at the end, or at the time that was asked for.
    pub live: Amount,
}

impl MomentAmounts {
    /// Returns the amount held at this moment.
    pub fn at(&self, moment: Moment) -> Amount {
        match moment {
            Moment::Peak => self.peak,
            Moment::End | Moment::At(_) => self.live,
            Moment::Total => self.total,
        }
    }

    /// Returns these amounts with this slop for each of their blocks.
    pub(crate) fn with_slop(self, slop: Bytes) -> MomentAmounts {
        let MomentAmounts { total, peak, live } = self;
        MomentAmounts { total: total.with_slop(slop), peak: peak.with_slop(slop), live: live.with_slop(slop) }
    }

    /// True if nothing is held at any moment.
    pub fn is_nothing(&self) -> bool {
        *self == MomentAmounts::default()
    }
}

impl AddAssign for MomentAmounts {
    fn add_assign(&mut self, other: MomentAmounts) {
        self.total += other.total;
        self.peak += other.peak;
        self.live += other.live;
    }
}

/// The figure by which amounts are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Metric {
    /// Requested bytes.
    #[default]
    Bytes,
    /// The number of blocks; for a total, the number of allocations.
    Blocks,
    /// Temporary allocations.
    Temporaries,
    /// Usable bytes beyond the requested ones.
    Slop,
}

impl Amount {
    /// Returns the figure for this metric.
    pub fn by(&self, metric: Metric) -> u64 {
        match metric {
            Metric::Bytes => self.bytes.0,
            Metric::Blocks => self.blocks.0,
            Metric::Temporaries => self.temporaries.0,
            Metric::Slop => self.slop.0,
        }
    }

    /// Returns the share of `whole` that this is, from 0 to 1; 0 if the whole is 0.
    pub fn share(&self, whole: &Amount, metric: Metric) -> f64 {
        match whole.by(metric) {
            0 => 0.0,
            whole => self.by(metric) as f64 / whole as f64,
        }
    }

    /// Returns the standard error of that figure; 0 if it is exact.
    pub fn error(&self, metric: Metric) -> u64 {
        let variance = match metric {
            Metric::Bytes => self.variance.bytes,
            Metric::Blocks => self.variance.blocks,
            Metric::Temporaries => self.temporaries_variance,
            Metric::Slop => self.slop_variance,
        };
        u64::try_from(variance.isqrt()).unwrap_or(u64::MAX)
    }

    /// Returns the same amount with this many of its blocks temporary.
    pub(crate) fn with_temporaries(self, temporaries: Blocks) -> Amount {
        let part = temporaries.0 as f64 / self.blocks.0.max(1) as f64;
        Amount { temporaries, temporaries_variance: (self.variance.blocks as f64 * part) as u128, ..self }
    }

    /// Returns the same amount with this slop for each of its blocks.
    pub(crate) fn with_slop(self, slop: Bytes) -> Amount {
        let square = u128::from(slop.0).saturating_mul(slop.0.into());
        let slop_variance = self.variance.blocks.saturating_mul(square);
        Amount { slop: Bytes(self.blocks.0.saturating_mul(slop.0)), slop_variance, ..self }
    }

    /// True if all figures are zero.
    pub fn is_nothing(&self) -> bool {
        *self == Amount::default()
    }
}

impl Amount {
    /// Returns this amount of live memory, with these standard errors.
    pub(crate) fn estimated(live: Live, errors: Live) -> Amount {
        let square = |error: u64| u128::from(error) * u128::from(error);
        let variance = Variance { bytes: square(errors.bytes.0), blocks: square(errors.blocks.0) };
        Amount { bytes: live.bytes, blocks: live.blocks, variance, ..Amount::default() }
    }

    /// Returns the amount that a recorded block of this size counts for, with the weight
    /// `weight`.
    pub(crate) fn of_block(size: Bytes, weight: Blocks) -> Amount {
        Amount {
            bytes: Bytes(size.0.saturating_mul(weight.0)),
            blocks: weight,
            variance: Variance::of(size, weight),
            ..Amount::default()
        }
    }
}

/// Saturates: a damaged file can hold any numbers.
impl AddAssign for Amount {
    fn add_assign(&mut self, other: Amount) {
        self.bytes.0 = self.bytes.0.saturating_add(other.bytes.0);
        self.blocks.0 = self.blocks.0.saturating_add(other.blocks.0);
        self.temporaries.0 = self.temporaries.0.saturating_add(other.temporaries.0);
        self.slop.0 = self.slop.0.saturating_add(other.slop.0);
        self.slop_variance = self.slop_variance.saturating_add(other.slop_variance);
        self.variance.bytes = self.variance.bytes.saturating_add(other.variance.bytes);
        self.variance.blocks = self.variance.blocks.saturating_add(other.variance.blocks);
        self.temporaries_variance = self.temporaries_variance.saturating_add(other.temporaries_variance);
    }
}

/// Compares amounts by the metric, then by bytes and blocks.
pub(crate) fn order(a: &Amount, b: &Amount, metric: Metric) -> Ordering {
    let key = |amount: &Amount| (amount.by(metric), amount.bytes.0, amount.blocks.0);
    key(a).cmp(&key(b))
}
