//! Sums of blocks and of bytes, with their variances.

use crate::analysis::{Sort, Total};
use crate::log::Size;

/// The sizes of blocks, and their weight.
pub(super) struct WeightedBlocks {
    pub(super) requested: f64,
    pub(super) slop: f64,
    pub(super) weight: f64,
    pub(super) variance: f64,
    size: Size,
}

impl WeightedBlocks {
    #[inline]
    pub(super) fn counted(size: &Size) -> WeightedBlocks {
        let Size { requested, slop, weight, variance, .. } = *size;
        let rest = if size.rest == 0 || size.count == 0 { 0.0 } else { size.rest as f64 / size.count as f64 };
        WeightedBlocks { requested: requested as f64 + rest, slop: slop as f64 - rest, weight, variance, size: *size }
    }

    /// Returns the estimate from blocks with known stacks, each of whose usable bytes had its block
    /// chosen with this probability.
    #[inline]
    pub(super) fn estimated(size: &Size, probability: Option<f64>) -> WeightedBlocks {
        let counted = WeightedBlocks::counted(size);
        let usable = counted.requested + counted.slop;
        let Some(probability) = probability.filter(|_| usable > 0.0) else { return counted };
        let chance = -(usable * (-probability).ln_1p()).exp_m1();
        let variance = (counted.variance + counted.weight * (1.0 - chance)) / (chance * chance);
        WeightedBlocks { weight: counted.weight / chance, variance, ..counted }
    }
}

/// Sums of blocks and of bytes, with their variances. They fit into one cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(super) struct Moments {
    /// The blocks that are in the log: requested, slop, blocks. More than 63 bits are shown as the
    /// largest number.
    pub(super) counted: [u64; 3],
    /// The weights of these blocks.
    requested: f64,
    slop: f64,
    blocks: f64,
    bytes_variance: f64,
    blocks_variance: f64,
}

impl Moments {
    pub(super) const ZERO: Moments =
        Moments { counted: [0; 3], requested: 0.0, slop: 0.0, blocks: 0.0, bytes_variance: 0.0, blocks_variance: 0.0 };

    pub(super) fn order(&self, sort: Sort, is_estimated: bool) -> (u64, u64, u64) {
        let [requested, slop, usable, blocks] = self.whole(is_estimated);
        order_of([usable, requested, slop, blocks], sort)
    }

    #[inline]
    pub(super) fn add_sums(&mut self, other: &Moments) {
        for (sum, more) in self.counted.iter_mut().zip(other.counted) {
            *sum = sum.saturating_add(more);
        }
        self.requested += other.requested;
        self.slop += other.slop;
        self.blocks += other.blocks;
        self.bytes_variance += other.bytes_variance;
        self.blocks_variance += other.blocks_variance;
    }

    #[inline]
    pub(super) fn add(&mut self, blocks: &WeightedBlocks) {
        let Size { requested, slop, count, rest, .. } = blocks.size;
        for (sum, each) in self.counted.iter_mut().zip([requested, slop, 1]) {
            *sum = sum.saturating_add(each.saturating_mul(count));
        }
        self.counted[0] = self.counted[0].saturating_add_signed(rest);
        self.counted[1] = self.counted[1].saturating_add_signed(rest.saturating_neg());
        self.requested += blocks.weight * blocks.requested;
        self.slop += blocks.weight * blocks.slop;
        self.blocks += blocks.weight;
        self.bytes_variance += blocks.variance * (blocks.requested + blocks.slop).powi(2);
        self.blocks_variance += blocks.variance;
    }

    /// Returns requested bytes, slop, usable bytes, and blocks. Figures that are not estimated are
    /// exact, however large.
    pub(super) fn whole(&self, is_estimated: bool) -> [i64; 4] {
        let [requested, slop, blocks] = self.counted;
        if is_estimated {
            [self.requested, self.slop, self.requested + self.slop, self.blocks].map(whole)
        } else {
            [requested, slop, requested.saturating_add(slop), blocks].map(|it| i64::try_from(it).unwrap_or(i64::MAX))
        }
    }

    pub(super) fn total(&self, is_estimated: bool) -> Total {
        let [_, _, bytes, blocks] = self.whole(is_estimated);
        Total { bytes, blocks, bytes_error: self.bytes_variance.sqrt(), blocks_error: self.blocks_variance.sqrt() }
    }
}

/// Rounds to the nearest whole number.
pub(super) fn whole(number: f64) -> i64 {
    number.round() as i64
}

/// Returns the key by which records are sorted, from usable bytes, requested bytes, slop and
/// blocks.
pub(super) fn order_of(numbers: [i64; 4], sort: Sort) -> (u64, u64, u64) {
    let [usable, requested, slop, blocks] = numbers.map(i64::unsigned_abs);
    match sort {
        Sort::Usable => (usable, requested, 0),
        Sort::Requested => (requested, 0, 0),
        Sort::Slop => (slop, 0, 0),
        Sort::Blocks => (blocks, usable, requested),
    }
}
