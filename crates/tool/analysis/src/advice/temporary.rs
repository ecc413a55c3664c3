//! Temporary blocks: an owner's blocks that are freed by the very next allocator event of their
//! thread, over and over.

use heapledger_core::{Blocks, Bytes};

use super::{Advice, AdviceList, Finding, is_part};
use crate::amount::Metric;
use crate::error::Error;
use crate::moment::Moment;
use crate::names::Names;
use crate::profile::Profile;
use crate::progress::Progress;
use crate::rank::{RankBy, rank};
use crate::selection::Selection;

pub(super) const NAME: &str = "temporary";

/// The fewest temporary blocks that are worth a change.
const TIMES_MIN: Blocks = Blocks(10_000);
/// The least share of the owner's allocations that are temporary, in percent: most of its blocks.
const OWN_PERCENT: u64 = 50;
/// The least share of all allocations that are the owner's temporary ones, in percent.
const ALL_PERCENT: u64 = 5;

/// Blocks of one owner that live only for a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Temporary {
    /// The number of temporary blocks.
    pub temporaries: Blocks,
    /// The number of all allocations of the owner.
    pub allocations: Blocks,
}

/// Finds owners of many temporary blocks. Bytes at stake: those of the temporary blocks, at the
/// average size of the owner's allocations.
pub(super) fn find(
    names: &mut Names<'_, '_>,
    selection: &Selection,
    list: &mut AdviceList,
    progress: Progress<'_>,
) -> Result<(), Error> {
    let profile = Profile::load(names, &selection.with_moment(Moment::Total), progress)?;
    list.damage.extend(&profile.damage);
    for rank in rank(&profile, names, RankBy::Owner, Metric::Temporaries) {
        let (temporaries, allocations) = (rank.amount.temporaries, rank.amount.blocks);
        let is_much = temporaries >= TIMES_MIN
            && is_part(temporaries.0, allocations.0, OWN_PERCENT)
            && is_part(temporaries.0, profile.whole.blocks.0, ALL_PERCENT);
        if !is_much {
            continue;
        }
        let bytes = u128::from(rank.amount.bytes.0) * u128::from(temporaries.0) / u128::from(allocations.0.max(1));
        list.advice.push(Advice {
            finding: Finding::Temporary(Temporary { temporaries, allocations }),
            bytes: Bytes(bytes as u64),
            owner: Some(names.owner(&profile.stacks, rank.largest)),
        });
    }
    Ok(())
}
