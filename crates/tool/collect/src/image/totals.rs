//! The totals of an image as the recording has them: as a whole, and by site.

use std::cell::Cell;

use heapledger_core::Blocks;
use heapledger_recording::{Counts, Site, StackCounts};

use super::Image;
use crate::external_counters::ExternalCounters;
use crate::session_state::Shared;

/// The numbers of events of this segment that were late, missed, or about unknown blocks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Anomalies {
    pub(crate) events_late: u64,
    /// The number of frees that were pulled forward, before an allocation of their address.
    pub(crate) events_reordered: u64,
    pub(super) frees_paused: Blocks,
    /// The number of blocks whose address was handed out again although their free was not seen.
    pub(super) frees_missed: Blocks,
    /// The number of stamps that were not on a live block.
    pub(super) stamps_unknown: u64,
}

/// The allocations whose stacks are not proven, as they were counted last. To count them is to go
/// through all sites, so that is done again when there are more allocations than there were sites:
/// a few instructions for each allocation, however often the totals are asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unproven {
    allocations: Cell<u64>,
    /// The number of all allocations from which on they are counted again.
    recount_at: Cell<u64>,
}

impl Unproven {
    /// Returns the number; `count` returns it together with the number of sites.
    fn get(&self, allocations: u64, count: impl FnOnce() -> (u64, u64)) -> u64 {
        if allocations >= self.recount_at.get() {
            let (unproven, sites) = count();
            self.allocations.set(unproven);
            self.recount_at.set(allocations.saturating_add(sites));
        }
        self.allocations.get()
    }

    /// Has the next question count again.
    pub(super) fn outdate(&self) {
        self.recount_at.set(0);
    }
}

impl Image {
    /// Returns the totals so far. Those of unproven stacks may be a little behind.
    pub(crate) fn counts(&self, external: &ExternalCounters) -> Counts {
        let external = external.since(&self.external_before);
        let counted = self.ledger.counts();
        let Anomalies { events_late, events_reordered, frees_paused, frees_missed, stamps_unknown } = self.anomalies;
        // Amounts at peaks, which depend on the session, are not used.
        let session = heapledger_ledger::Session::new();
        let count = || {
            let mut sites = 0;
            let of = self.ledger.sites(&session).inspect(|_| sites += 1);
            (self.tree.allocations_unproven(of), sites)
        };
        let unproven = self.unproven.get(counted.allocations.0, count);
        let stacks = StackCounts { unproven, ..external.stacks };
        let mut counts = Counts {
            frees_unknown: Blocks(counted.frees_unknown.0.saturating_sub(frees_paused.0)),
            frees_paused,
            frees_inherited: counted.frees_inherited,
            bytes_inherited_live_end: counted.bytes_inherited,
            blocks_inherited_live_end: counted.blocks_inherited,
            frees_missed,
            events_late,
            events_reordered,
            stamps_unknown,
            threads: self.threads.seen(),
            stacks,
            ..Counts::default()
        };
        counts.enter_ledger(counted, self.ledger.live(), self.ledger.variances());
        external.lost.enter(&mut counts);
        counts
    }

    pub(super) fn sites(&self, shared: &Shared) -> Vec<Site> {
        self.ledger.sites(&shared.session).map(Site::from).collect()
    }
}

#[cfg(test)]
mod tests;
