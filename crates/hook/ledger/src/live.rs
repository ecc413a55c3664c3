//! The live totals, and their maxima: for one process image, and for the session over all of them.

use heapledger_core::totals::{Live, Time, Variance, Variances};
use heapledger_core::{Blocks, Bytes};

/// Live totals, and the number of times that the peak was raised. Sums wrap around rather than
/// panic; real ones never get there.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LiveTotals {
    pub(crate) live: Live,
    pub(crate) epoch: u64,
    /// The variance of the live totals. The next two fields are what it was at the peak, if it has
    /// changed since, and the epoch of that peak.
    variance: Variance,
    variance_at_max: Variance,
    variance_epoch: u64,
}

impl LiveTotals {
    pub(crate) const fn new() -> LiveTotals {
        let live = Live {
            bytes_live: Bytes(0),
            blocks_live: Blocks(0),
            bytes_live_max: Bytes(0),
            bytes_live_max_time: Time(0),
            blocks_at_bytes_max: Blocks(0),
            blocks_live_max: Blocks(0),
        };
        let (variance, variance_at_max) = (Variance::NONE, Variance::NONE);
        LiveTotals { live, epoch: 0, variance, variance_at_max, variance_epoch: 0 }
    }

    /// Changes the variance of the live totals: a sampled block is about to be allocated or freed.
    #[cold]
    pub(crate) fn change_variance(&mut self, change: impl FnOnce(Variance) -> Variance) {
        if self.variance_epoch != self.epoch {
            (self.variance_at_max, self.variance_epoch) = (self.variance, self.epoch);
        }
        self.variance = change(self.variance);
    }

    /// Returns the variances of the live totals, and of the peak.
    pub(crate) fn variances(&self) -> [Variance; 2] {
        let is_settled = self.variance_epoch == self.epoch;
        [self.variance, if is_settled { self.variance_at_max } else { self.variance }]
    }

    #[inline(always)]
    pub(crate) fn add(&mut self, time: Time, bytes: Bytes, blocks: Blocks) {
        let live = &mut self.live;
        live.bytes_live.0 = live.bytes_live.0.wrapping_add(bytes.0);
        live.blocks_live.0 = live.blocks_live.0.wrapping_add(blocks.0);
        live.blocks_live_max = live.blocks_live_max.max(live.blocks_live);
        if live.bytes_live > live.bytes_live_max {
            live.bytes_live_max = live.bytes_live;
            live.bytes_live_max_time = time;
            live.blocks_at_bytes_max = live.blocks_live;
            self.epoch += 1;
        }
    }

    /// Counts maxima anew, from what is live.
    pub(crate) fn restart(&mut self, time: Time) {
        let live = &mut self.live;
        live.bytes_live_max = live.bytes_live;
        live.bytes_live_max_time = time;
        live.blocks_at_bytes_max = live.blocks_live;
        live.blocks_live_max = live.blocks_live;
        self.epoch += 1;
    }

    #[inline(always)]
    pub(crate) fn subtract(&mut self, bytes: Bytes, blocks: Blocks) {
        let live = &mut self.live;
        live.bytes_live.0 = live.bytes_live.0.wrapping_sub(bytes.0);
        live.blocks_live.0 = live.blocks_live.0.wrapping_sub(blocks.0);
    }
}

/// The totals over all process images, to which every [`crate::Ledger`] of one recording adds, and
/// from which it takes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Session {
    pub(crate) live_totals: LiveTotals,
}

impl Session {
    /// Creates a session in which nothing has happened.
    pub const fn new() -> Session {
        Session { live_totals: LiveTotals::new() }
    }

    /// Counts the maxima anew from this moment on, with the live totals as the first: see
    /// [`crate::Ledger::restart`].
    pub fn restart(&mut self, time: Time) {
        self.live_totals.restart(time);
    }

    /// Returns the totals over all images that have not ended, and their maxima.
    pub fn live(&self) -> Live {
        self.live_totals.live
    }

    /// Returns the variances of these totals, if blocks are sampled. The session has no sum of all
    /// allocations.
    pub fn variances(&self) -> Variances {
        let [live, at_peak] = self.live_totals.variances();
        Variances { allocated: Variance::NONE, live, at_peak }
    }
}

/// The totals that an image's totals are part of.
pub(crate) trait SessionTotals {
    fn epoch(&self) -> u64;
    fn add(&mut self, time: Time, bytes: Bytes, blocks: Blocks);
    fn subtract(&mut self, bytes: Bytes, blocks: Blocks);
    /// See [`LiveTotals::change_variance`].
    fn change_variance(&mut self, change: impl FnOnce(Variance) -> Variance);
}

impl SessionTotals for Session {
    #[inline(always)]
    fn epoch(&self) -> u64 {
        self.live_totals.epoch
    }

    #[inline(always)]
    fn add(&mut self, time: Time, bytes: Bytes, blocks: Blocks) {
        self.live_totals.add(time, bytes, blocks);
    }

    #[inline(always)]
    fn subtract(&mut self, bytes: Bytes, blocks: Blocks) {
        self.live_totals.subtract(bytes, blocks);
    }

    fn change_variance(&mut self, change: impl FnOnce(Variance) -> Variance) {
        self.live_totals.change_variance(change);
    }
}

/// No session: the image is alone.
pub(crate) struct NoSession;

impl SessionTotals for NoSession {
    #[inline(always)]
    fn epoch(&self) -> u64 {
        0
    }

    #[inline(always)]
    fn add(&mut self, _: Time, _: Bytes, _: Blocks) {}

    #[inline(always)]
    fn subtract(&mut self, _: Bytes, _: Blocks) {}

    fn change_variance(&mut self, _: impl FnOnce(Variance) -> Variance) {}
}
