//! How much: what a site, a group of sites or a call holds.

use std::ops::AddAssign;

use heapledger_core::{Blocks, Bytes};
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

    /// Whether all figures are zero.
    pub fn is_nothing(&self) -> bool {
        *self == Amount::default()
    }
}

impl From<Live> for Amount {
    fn from(live: Live) -> Amount {
        Amount { bytes: live.bytes, blocks: live.blocks, temporaries: Blocks(0) }
    }
}

/// Saturating: a damaged file can hold any numbers.
impl AddAssign for Amount {
    fn add_assign(&mut self, other: Amount) {
        self.bytes.0 = self.bytes.0.saturating_add(other.bytes.0);
        self.blocks.0 = self.blocks.0.saturating_add(other.blocks.0);
        self.temporaries.0 = self.temporaries.0.saturating_add(other.temporaries.0);
    }
}
