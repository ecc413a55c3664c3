//! Events that were lost, by cause.

use std::sync::atomic::Ordering;

use heapledger_recording::Counts;
use heapledger_wire::session::ImageCounters;

/// The numbers of lost events of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lost {
    /// Events that were dropped because a ring was full.
    pub(crate) full: u64,
    /// Events of signal handlers that interrupted the recorder.
    nested: u64,
    /// Events of threads and processes without a ring.
    no_ring: u64,
    /// Events of user pools beyond the maximum number of pools, or with addresses that are too
    /// large.
    pools: u64,
    /// Events in corrupt rings, estimated.
    pub(crate) unreadable: u64,
}

impl Lost {
    /// Adds the counters of the image itself.
    pub(crate) fn with(self, counters: &ImageCounters) -> Lost {
        let [nested, no_ring, pools] = [&counters.lost_nested, &counters.lost_no_ring, &counters.lost_pools]
            .map(|counter| counter.load(Ordering::Relaxed));
        Lost { nested, no_ring, pools, ..self }
    }

    pub(crate) fn add_full(&mut self, events: u64) {
        self.full = self.full.saturating_add(events);
    }

    pub(crate) fn add_unreadable(&mut self, events: u64) {
        self.unreadable = self.unreadable.saturating_add(events);
    }

    /// Returns the losses since an earlier state.
    pub(crate) fn since(self, before: Lost) -> Lost {
        Lost {
            full: self.full.saturating_sub(before.full),
            nested: self.nested.saturating_sub(before.nested),
            no_ring: self.no_ring.saturating_sub(before.no_ring),
            pools: self.pools.saturating_sub(before.pools),
            unreadable: self.unreadable.saturating_sub(before.unreadable),
        }
    }

    /// Enters the figures in an image's totals.
    pub(crate) fn enter(self, counts: &mut Counts) {
        let Lost { full, nested, no_ring, pools, unreadable } = self;
        // Saturates, because a corrupt program can write some of these counters.
        counts.events_lost = [nested, no_ring, pools, unreadable].into_iter().fold(full, u64::saturating_add);
        counts.events_lost_full = full;
        counts.events_lost_nested = nested;
        counts.events_lost_no_ring = no_ring;
        counts.events_lost_pools = pools;
        counts.events_lost_unreadable = unreadable;
    }
}
