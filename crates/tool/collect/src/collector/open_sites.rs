//! The sites of ended images whose shares in the session's peak may still change.

use heapledger_core::Bytes;
use heapledger_recording::{ImageId, Live, Site};

use crate::session_state::Shared;
use crate::writer::Job;

/// The sites of images that ended with a share in the session's peak. Until the session ends, that
/// peak may be surpassed.
#[derive(Debug, Default)]
pub(super) struct OpenSites(Vec<SitesOfImage>);

/// The sites of an image that ended.
#[derive(Debug)]
struct SitesOfImage {
    image: ImageId,
    sites: Vec<Site>,
    /// The session's peak when the image ended.
    peak: Bytes,
}

impl OpenSites {
    /// Adds the sites of an image that has ended now.
    pub(super) fn add(&mut self, image: ImageId, sites: Vec<Site>, shared: &Shared) {
        let peak = shared.session.live().bytes_live_max;
        self.0.push(SitesOfImage { image, sites, peak });
    }

    /// Writes the sites of ended images whose shares in the session's peak are final: because the
    /// peak was at another time, so that they have none, or because the session is over.
    pub(super) fn write_settled(&mut self, is_last: bool, shared: &Shared) {
        let peak = shared.session.live().bytes_live_max;
        let writer = &shared.writer;
        self.0.retain_mut(|open| {
            if open.peak != peak {
                for site in &mut open.sites {
                    site.live_at_session_peak = Live::default();
                    site.errors.live_at_session_peak = Live::default();
                }
            }
            let is_settled = is_last || open.sites.iter().all(|site| site.live_at_session_peak == Live::default());
            if is_settled {
                writer.send(Job::Sites(open.image, std::mem::take(&mut open.sites)));
            }
            !is_settled
        });
    }

    /// Returns a copy of the sites as they are now.
    pub(super) fn copy(&self) -> Vec<(ImageId, Vec<Site>)> {
        self.0.iter().map(|open| (open.image, open.sites.clone())).collect()
    }

    /// Returns the sites as they are now, for a file that is replaced later.
    pub(super) fn snapshot(&self) -> impl Iterator<Item = Job> {
        self.0.iter().map(|open| Job::Sites(open.image, open.sites.clone()))
    }
}
