//! The totals of an image as the recording has them: as a whole, and by site.

use heapledger_core::Blocks;
use heapledger_ledger::{SiteVariances, Variance, Variances};
use heapledger_recording::{CountErrors, Counts, Live, Site, SiteErrors, Time};

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

impl Image {
    /// Returns the totals so far.
    pub(crate) fn counts(&self, external: &ExternalCounters) -> Counts {
        let external = external.since(&self.external_before);
        let (counts, live) = (self.ledger.counts(), self.ledger.live());
        let Anomalies { events_late, events_reordered, frees_paused, frees_missed, stamps_unknown } = self.anomalies;
        let mut counts = Counts {
            allocations: counts.allocations,
            reallocations: counts.reallocations,
            frees: counts.frees,
            failed: counts.failed,
            bytes_allocated: counts.bytes_allocated,
            bytes_live_max: live.bytes_live_max,
            bytes_live_max_time: Time(live.bytes_live_max_time.0),
            blocks_at_bytes_max: live.blocks_at_bytes_max,
            blocks_live_max: live.blocks_live_max,
            bytes_live_end: live.bytes_live,
            blocks_live_end: live.blocks_live,
            temporary_allocations: counts.temporaries,
            frees_unknown: Blocks(counts.frees_unknown.0.saturating_sub(frees_paused.0)),
            frees_paused,
            frees_inherited: counts.frees_inherited,
            bytes_inherited_live_end: counts.bytes_inherited,
            blocks_inherited_live_end: counts.blocks_inherited,
            frees_missed,
            events_late,
            events_reordered,
            stamps_unknown,
            threads: self.threads.seen(),
            stacks: external.stacks,
            errors: count_errors(self.ledger.variances()),
            ..Counts::default()
        };
        external.lost.enter(&mut counts);
        counts
    }

    pub(super) fn sites(&self, shared: &Shared) -> Vec<Site> {
        let live = |bytes, blocks| Live { bytes, blocks };
        let sites = self.ledger.sites(&shared.session).map(|site| Site {
            stack: site.stack,
            allocations: site.allocations,
            bytes_allocated: site.bytes_allocated,
            temporaries: site.temporaries,
            live_end: live(site.bytes_live, site.blocks_live),
            live_at_image_peak: live(site.bytes_at_peak, site.blocks_at_peak),
            live_at_session_peak: live(site.bytes_at_session_peak, site.blocks_at_session_peak),
            errors: site_errors(&site.variances),
        });
        sites.collect()
    }
}

/// Returns the standard errors of a variance.
pub(crate) fn errors(variance: Variance) -> Live {
    let (bytes, blocks) = variance.errors();
    Live { bytes, blocks }
}

/// Returns the standard errors of totals; `None` if all are zero, as without sampling.
fn count_errors(variances: Variances) -> Option<CountErrors> {
    let Variances { allocated, live, at_peak } = variances;
    let all = CountErrors { allocated: errors(allocated), live_end: errors(live), live_at_peak: errors(at_peak) };
    (all != CountErrors::default()).then_some(all)
}

fn site_errors(variances: &SiteVariances) -> SiteErrors {
    let SiteVariances { allocated, live, at_peak, at_session_peak } = *variances;
    SiteErrors {
        allocated: errors(allocated),
        live_end: errors(live),
        live_at_image_peak: errors(at_peak),
        live_at_session_peak: errors(at_session_peak),
    }
}
