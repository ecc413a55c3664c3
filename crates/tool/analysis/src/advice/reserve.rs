//! Containers that grow by reallocation, and copy what they have each time.

use heapledger_core::{Blocks, Bytes};

use super::{Advice, AdviceList, Finding, is_part};
use crate::error::Error;
use crate::moment::{Moment, Selection};
use crate::names::Names;
use crate::profile::Profile;
use crate::rank::RankBy;
use crate::reallocations::reallocations;
use crate::replay::Progress;

pub(super) const NAME: &str = "reserve";

/// What may have been copied: at least this, and a part of all bytes that were allocated, in percent.
const COPIED_MIN: Bytes = Bytes(1 << 20);
const COPIED_PERCENT: u64 = 2;
/// Reallocations that made blocks larger, of all, in percent: what shrinks as often is no container that fills.
const GROWN_PERCENT: u64 = 90;
/// The longest chain of reallocations of one block: one or two are no growth.
const CHAIN_MIN: u64 = 6;
/// The least factor by which a container grows that does so by a factor.
const FACTOR_LEAST: f64 = 1.1;

/// Blocks that grow step by step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserve {
    /// How often.
    pub reallocations: Blocks,
    /// The most steps of one block.
    pub chain_max: u64,
    /// The largest size that came of it.
    pub size_max: Bytes,
    /// Whether the steps are so many for that size that they cannot be by a factor: then what is copied grows with the
    /// square of the size.
    pub is_by_small_steps: bool,
}

/// At stake: what was copied at most.
pub(super) fn find(
    names: &mut Names<'_, '_>,
    selection: &Selection,
    list: &mut AdviceList,
    progress: Progress<'_>,
) -> Result<(), Error> {
    let found = reallocations(names, selection, None, progress)?;
    list.damage.extend(&found.damage);
    let allocated = Profile::load(names, &selection.moved(Moment::Total), progress)?.whole.bytes;
    let least = COPIED_MIN.0.max(allocated.0 / 100 * COPIED_PERCENT);
    for (rank, site) in found.grouped(names, RankBy::Owner) {
        let is_growth = is_part(site.grown, site.reallocations, GROWN_PERCENT) && site.chain_max >= CHAIN_MIN;
        if !is_growth || site.bytes_copied_max.0 < least {
            continue;
        }
        // What grows by a factor, from 16 bytes on, takes no more: Python's lists grow by an eighth.
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
