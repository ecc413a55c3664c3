//! Containers that grow by reallocation, and copy their contents each time.

use heapledger_core::{Blocks, Bytes};

use super::{Advice, AdviceList, Finding, is_part};
use crate::error::Error;
use crate::moment::Moment;
use crate::names::Names;
use crate::profile::Profile;
use crate::progress::Progress;
use crate::rank::RankBy;
use crate::reallocations::reallocations;
use crate::selection::Selection;

pub(super) const NAME: &str = "reserve";

/// The least that may have been copied: this many bytes, and this percentage of all bytes
/// allocated.
const COPIED_MIN: Bytes = Bytes(1 << 20);
const COPIED_PERCENT: u64 = 2;
/// The least share of reallocations that made blocks larger, in percent: a container that is being
/// filled does not shrink as often.
const GROWN_PERCENT: u64 = 90;
/// The least length of the longest chain of reallocations of one block: one or two are not growth.
const CHAIN_MIN: u64 = 6;
/// The least factor by which a container grows if it grows geometrically.
const FACTOR_LEAST: f64 = 1.1;

/// Blocks that grow step by step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserve {
    /// The number of reallocations.
    pub reallocations: Blocks,
    /// The most reallocations of one block.
    pub chain_max: u64,
    /// The largest size that a block reached.
    pub size_max: Bytes,
    /// True if there are too many steps for that size to be geometric growth. The bytes copied then
    /// grow with the square of the size.
    pub is_by_small_steps: bool,
}

/// Finds owners whose blocks grow by reallocation. Bytes at stake: the most that can have been
/// copied.
pub(super) fn find(
    names: &mut Names<'_, '_>,
    selection: &Selection,
    list: &mut AdviceList,
    progress: Progress<'_>,
) -> Result<(), Error> {
    let found = reallocations(names, selection, None, progress)?;
    list.damage.extend(&found.damage);
    let allocated = Profile::load(names, &selection.with_moment(Moment::Total), progress)?.whole.bytes;
    let least = COPIED_MIN.0.max(allocated.0 / 100 * COPIED_PERCENT);
    for (rank, site) in found.grouped(names, RankBy::Owner) {
        let is_growth = is_part(site.grown.0, site.reallocations.0, GROWN_PERCENT) && site.chain_max >= CHAIN_MIN;
        if !is_growth || site.bytes_copied_max.0 < least {
            continue;
        }
        // Geometric growth from 16 bytes takes at most this many steps: Python's lists grow by an
        // eighth.
        let steps = ((site.size_max.0.max(16) as f64 / 16.0).ln() / FACTOR_LEAST.ln()).ceil() as u64;
        let reserve = Reserve {
            reallocations: site.reallocations,
            chain_max: site.chain_max,
            size_max: site.size_max,
            is_by_small_steps: site.chain_max > steps.max(CHAIN_MIN),
        };
        let owner = Some(names.owner(&found.stacks, rank.largest));
        list.advice.push(Advice { finding: Finding::Reserve(reserve), bytes: site.bytes_copied_max, owner });
    }
    Ok(())
}
