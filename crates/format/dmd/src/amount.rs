//! How much there is of something.

use std::ops::{AddAssign, SubAssign};

use crate::log::{Group, Log};

/// How much some blocks are. Estimated, if what is known of them is known of a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Amount {
    /// How many there are.
    pub blocks: f64,
    /// The bytes that were asked for.
    pub requested: f64,
    /// The bytes that may be used: those that were asked for, and slop.
    pub usable: f64,
    /// The variance of `blocks`.
    pub blocks_variance: f64,
    /// The variance of `usable`.
    pub usable_variance: f64,
}

impl Amount {
    /// The bytes that may be used beyond those that were asked for.
    pub fn slop(&self) -> f64 {
        self.usable - self.requested
    }

    /// The standard error of `usable`, in bytes.
    pub fn usable_error(&self) -> f64 {
        self.usable_variance.max(0.0).sqrt()
    }
}

impl Log {
    /// The blocks of a group as they are in the log, whether their stacks are known or not. The sum of all groups is what
    /// there is.
    pub fn counted(&self, group: &Group) -> Amount {
        amount(group, |_| 1.0)
    }

    /// For how many blocks those of a group stand: if stacks were recorded of a sample, each stands for as many as there
    /// are for one that is chosen, and those without a stack for none.
    pub fn estimated(&self, group: &Group) -> Amount {
        match (self.about.sampling, group.alloc) {
            (None, _) => self.counted(group),
            (Some(_), None) => Amount::default(),
            // A block is chosen unless none of its bytes is.
            (Some(sampling), Some(_)) => amount(group, |usable| 1.0 - (1.0 - sampling.probability).powf(usable)),
        }
    }
}

/// The blocks of a group, of which some were chosen: with which probability, says its usable size.
fn amount(group: &Group, chosen: impl Fn(f64) -> f64) -> Amount {
    let mut all = Amount::default();
    for size in &group.sizes {
        let usable = size.requested.saturating_add(size.slop) as f64;
        let chosen = chosen(usable);
        if chosen <= 0.0 {
            continue;
        }
        let blocks = size.weight / chosen;
        let variance = size.variance + size.weight * (1.0 - chosen) / (chosen * chosen);
        all += Amount {
            blocks,
            requested: blocks * size.requested as f64,
            usable: blocks * usable,
            blocks_variance: variance,
            usable_variance: variance * usable * usable,
        };
    }
    all
}

impl AddAssign for Amount {
    fn add_assign(&mut self, other: Amount) {
        self.blocks += other.blocks;
        self.requested += other.requested;
        self.usable += other.usable;
        self.blocks_variance += other.blocks_variance;
        self.usable_variance += other.usable_variance;
    }
}

/// What is between two independent amounts: variances add up.
impl SubAssign for Amount {
    fn sub_assign(&mut self, other: Amount) {
        self.blocks -= other.blocks;
        self.requested -= other.requested;
        self.usable -= other.usable;
        self.blocks_variance += other.blocks_variance;
        self.usable_variance += other.usable_variance;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Block, Builder, Mode, Sampling};

    #[test]
    fn a_sample_stands_for_all() {
        // 1,000 blocks of 40 bytes of which one in ten was chosen, and one of 4,000 that was chosen almost surely.
        let chosen = 0.1;
        let probability = 1.0 - (1.0_f64 - chosen).powf(1.0 / 40.0);
        let mut builder = Builder::new(Mode::Live);
        builder.about().sampling = Some(Sampling { probability });
        let frame = builder.frame("f");
        let alloc = Some(builder.trace(&[frame]));
        let block = Block {
            requested: 30,
            slop: 10,
            count: 100,
            weight: 1.0,
            variance: 0.0,
            alloc,
            reports: [None; 2],
            type_name: None,
            context: None,
        };
        builder.add(&block);
        builder.add(&Block { count: 900, alloc: None, ..block });
        builder.add(&Block { requested: 4000, slop: 0, count: 1, ..block });
        let log = builder.finish();
        let mut estimated = Amount::default();
        let mut counted = Amount::default();
        for group in &log.groups {
            estimated += log.estimated(group);
            counted += log.counted(group);
        }
        assert_eq!((counted.blocks, counted.usable, counted.usable_variance), (1001.0, 44_000.0, 0.0));
        assert!((estimated.blocks - 1001.0).abs() < 0.1, "{estimated:?}");
        assert!((estimated.usable - 44_000.0).abs() < 1.0, "{estimated:?}");
        // 100 blocks of which each stands for ten: the variance of a binomial count that was scaled up.
        assert!((estimated.blocks_variance - 100.0 * 0.9 / 0.01).abs() < 0.1, "{estimated:?}");
        assert!((estimated.usable_error() - (9000.0_f64).sqrt() * 40.0).abs() < 1.0, "{estimated:?}");
        assert!((estimated.slop() - 10_000.0).abs() < 0.1);
        let mut nothing = counted;
        nothing -= counted;
        assert_eq!(nothing, Amount::default());
    }
}
