//! Amounts by site, thread and size class.

use std::collections::HashMap;

use heapledger_core::{Bytes, ThreadId};
use heapledger_recording::ImageId;

use super::{Cube, CubeSite};
use crate::amount::MomentAmounts;
use crate::parts::{Part, PartBy};
use crate::site_table::amounts::Amounts;
use crate::site_table::{SiteSet, SiteTable};

/// The blocks of sites by thread and size class.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) rows: Vec<PartRow>,
    /// The amounts of the rows.
    pub(super) amounts: Amounts,
}

/// A site, a thread and a size class.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartRow {
    /// The number of the site in the cube.
    pub(super) site: u32,
    /// `None` for blocks from before the recording.
    pub(super) thread: Option<(ImageId, ThreadId)>,
    /// The largest size of the class.
    pub(super) class: Bytes,
}

impl PartRow {
    /// Returns the part of these blocks; `None` if rows do not tell it.
    fn part(&self, by: PartBy, process: ImageId) -> Option<Part> {
        Some(match by {
            PartBy::Thread => self.thread.map_or(Part::Rest, |(image, thread)| Part::Thread(image, thread)),
            PartBy::Process => Part::Process(process),
            PartBy::SizeClass => Part::SizeClass(self.class),
            PartBy::Size => return None,
        })
    }
}

impl Cube {
    /// Returns the parts of these sites, as [`parts`](crate::parts()) does, the smallest key first.
    /// `None` for [`PartBy::Size`], which a cube does not have. Takes a pass over the rows.
    pub fn parts(&self, set: &SiteSet, by: PartBy) -> Option<Vec<(Part, MomentAmounts)>> {
        if by == PartBy::Size {
            return None;
        }
        let mut sums: HashMap<Part, MomentAmounts> = HashMap::new();
        for (at, row) in self.parts.rows.iter().enumerate() {
            let CubeSite { process, site } = self.sites[row.site as usize];
            if set.has(site as usize) {
                *sums.entry(row.part(by, process)?).or_default() += self.parts.amounts.moments(at);
            }
        }
        let mut parts: Vec<(Part, MomentAmounts)> = sums.into_iter().collect();
        parts.sort_unstable_by_key(|(part, _)| *part);
        Some(parts)
    }

    /// Returns a table with the blocks of those parts alone for which `is_in` returns true: of some
    /// threads, processes or size classes. Peaks are those of all processes of the cube. `None` for
    /// [`PartBy::Size`]. Takes a pass over the rows.
    pub fn table_of_parts(&self, by: PartBy, is_in: impl Fn(Part) -> bool) -> Option<SiteTable> {
        if by == PartBy::Size {
            return None;
        }
        let mut amounts = vec![MomentAmounts::default(); self.shared.sites.len()];
        let mut left_out = MomentAmounts::default();
        for (at, row) in self.parts.rows.iter().enumerate() {
            let CubeSite { process, site } = self.sites[row.site as usize];
            if is_in(row.part(by, process)?) {
                amounts[site as usize] += self.parts.amounts.moments(at);
            } else {
                left_out += self.parts.amounts.moments(at);
            }
        }
        Some(SiteTable::of_parts(self.shared.clone(), amounts, left_out, self.damage.clone()))
    }
}
