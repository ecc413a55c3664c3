//! Converts figures of the ledger to those of a recording.

use heapledger_ledger as ledger;
use heapledger_recording::{CountErrors, Live, Site, SiteErrors};

/// Converts a site of the ledger to one of a recording.
pub(super) fn site(site: ledger::Site) -> Site {
    let live = |bytes, blocks| Live { bytes, blocks };
    Site {
        stack: site.stack,
        allocations: site.allocations,
        bytes_allocated: site.bytes_allocated,
        temporaries: site.temporaries,
        live_end: live(site.bytes_live, site.blocks_live),
        live_at_image_peak: live(site.bytes_at_peak, site.blocks_at_peak),
        live_at_session_peak: live(site.bytes_at_session_peak, site.blocks_at_session_peak),
        errors: SiteErrors {
            allocated: errors(site.variances.allocated),
            live_end: errors(site.variances.live),
            live_at_image_peak: errors(site.variances.at_peak),
            live_at_session_peak: errors(site.variances.at_session_peak),
        },
    }
}

/// Returns the standard errors of a variance.
fn errors(variance: ledger::Variance) -> Live {
    let (bytes, blocks) = variance.errors();
    Live { bytes, blocks }
}

/// Returns the standard errors of totals; `None` if all are zero, as without sampling.
pub(super) fn count_errors(variances: ledger::Variances) -> Option<CountErrors> {
    let ledger::Variances { allocated, live, at_peak } = variances;
    let all = CountErrors { allocated: errors(allocated), live_end: errors(live), live_at_peak: errors(at_peak) };
    (all != CountErrors::default()).then_some(all)
}
