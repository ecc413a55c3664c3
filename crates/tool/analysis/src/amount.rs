//! How much: what a site, a group of sites or a call holds.

use std::ops::AddAssign;

use heapledger_core::{Blocks, Bytes};
use heapledger_recording::Live;

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
