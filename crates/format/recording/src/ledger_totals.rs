//! Converts the totals of a ledger to those of a recording.

use heapledger_core::totals;

use crate::ids::{Live, Time};
use crate::messages::{CountErrors, Counts};
use crate::sites::{Site, SiteErrors};

/// Takes the amounts that are live now, without the maxima.
impl From<totals::Live> for Live {
    #[inline]
    fn from(live: totals::Live) -> Live {
        Live { bytes: live.bytes_live, blocks: live.blocks_live }
    }
}

impl Live {
    /// Returns the standard errors of estimates with this variance.
    pub fn errors_of(variance: totals::Variance) -> Live {
        let (bytes, blocks) = variance.errors();
        Live { bytes, blocks }
    }
}

impl CountErrors {
    /// Returns the standard errors of totals with these variances; `None` if all are zero, as
    /// without sampling.
    pub fn of(variances: totals::Variances) -> Option<CountErrors> {
        let totals::Variances { allocated, live, at_peak } = variances;
        let all = CountErrors {
            allocated: Live::errors_of(allocated),
            live_end: Live::errors_of(live),
            live_at_peak: Live::errors_of(at_peak),
        };
        (all != CountErrors::default()).then_some(all)
    }
}

impl Counts {
    /// Enters the totals of a ledger, except the counts of frees of unknown and inherited blocks.
    pub fn enter_ledger(&mut self, counts: totals::Counts, live: totals::Live, variances: totals::Variances) {
        *self = Counts {
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
            errors: CountErrors::of(variances),
            ..*self
        };
    }
}

impl From<totals::Site> for Site {
    fn from(site: totals::Site) -> Site {
        let live = |bytes, blocks| Live { bytes, blocks };
        let totals::SiteVariances { allocated, live: live_end, at_peak, at_session_peak } = site.variances;
        Site {
            stack: site.stack,
            allocations: site.allocations,
            bytes_allocated: site.bytes_allocated,
            temporaries: site.temporaries,
            live_end: live(site.bytes_live, site.blocks_live),
            live_at_image_peak: live(site.bytes_at_peak, site.blocks_at_peak),
            live_at_session_peak: live(site.bytes_at_session_peak, site.blocks_at_session_peak),
            errors: SiteErrors {
                allocated: Live::errors_of(allocated),
                live_end: Live::errors_of(live_end),
                live_at_image_peak: Live::errors_of(at_peak),
                live_at_session_peak: Live::errors_of(at_session_peak),
            },
        }
    }
}
