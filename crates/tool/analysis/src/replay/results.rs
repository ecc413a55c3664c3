//! The results of a replay.

use std::collections::HashMap;

use heapledger_core::sample::Rate;
use heapledger_core::{Blocks, Bytes, Serial, StackId};
use heapledger_ledger as ledger;
use heapledger_recording::{CountErrors, Counts, Damage, ImageId, Live, Sample, Site};

use crate::reports::Reports;

/// The results of a replay.
#[derive(Debug, Default)]
pub(crate) struct Replayed {
    /// The images, in ascending order of ids. Images that began after the span are not included.
    pub(crate) images: Vec<ReplayedImage>,
    /// The amount that was live in all images together.
    pub(crate) live: ledger::Live,
    /// The standard errors of the totals of all images, if blocks were sampled.
    pub(crate) errors: Option<CountErrors>,
    /// The amount that was live in all images together, over time.
    pub(crate) timeline: Vec<Sample>,
    /// Parts of the recording that could not be read, and are missing in all figures.
    pub(crate) damage: Vec<Damage>,
}

/// One image of a replay.
#[derive(Debug)]
pub(crate) struct ReplayedImage {
    pub(crate) image: ImageId,
    /// True if it ended within the span.
    pub(crate) ended: bool,
    pub(crate) counts: Counts,
    /// The sites, in ascending order of stacks.
    pub(crate) sites: Vec<Site>,
    /// The blocks that were live at the end, in no particular order, if they were asked for.
    pub(crate) blocks: Vec<ReplayedBlock>,
    /// The marks of reporters on these blocks, and the defects of their reports.
    pub(crate) reports: Reports,
    /// The number of blocks that were freed, by their group, requested size and recorded usable
    /// size, if they were asked for.
    pub(crate) freed: HashMap<(StackId, Bytes, Option<Bytes>), u64>,
    /// The amount that was live, over time.
    pub(crate) timeline: Vec<Sample>,
    /// The session's peak when the sites were read: they have no share in a higher one.
    pub(super) session_peak: Bytes,
}

/// A block that is live when a replay ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplayedBlock {
    pub(crate) serial: Serial,
    pub(crate) size: Bytes,
    /// The rate at which it was sampled.
    pub(crate) rate: Rate,
    /// Its weight.
    pub(crate) weight: Blocks,
    /// Its usable size, if it was recorded and [asked for](super::span::Span::wants_usable).
    pub(crate) usable: Option<Bytes>,
    /// The group that it is counted under.
    pub(crate) group: StackId,
}

impl Replayed {
    /// Removes the shares in the session's peak that images have in a lower one, from before they
    /// ended.
    pub(super) fn remove_lower_peaks(&mut self) {
        for image in &mut self.images {
            if image.session_peak != self.live.bytes_live_max {
                for site in &mut image.sites {
                    (site.live_at_session_peak, site.errors.live_at_session_peak) = (Live::default(), Live::default());
                }
            }
        }
    }
}
