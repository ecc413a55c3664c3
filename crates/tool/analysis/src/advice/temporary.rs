//! Blocks that are freed before their thread allocates again, over and over.

use heapledger_core::{Blocks, Bytes};

use super::{Advice, AdviceList, Finding, is_part};
use crate::amount::Metric;
use crate::error::Error;
use crate::moment::{Moment, Selection};
use crate::names::Names;
use crate::profile::Profile;
use crate::rank::{RankBy, rank};
use crate::replay::Progress;

pub(super) const NAME: &str = "temporary";

/// How often: fewer are not worth a change.
const TIMES_MIN: Blocks = Blocks(10_000);
/// Of what the owner allocates, in percent: of most of its blocks.
const OWN_PERCENT: u64 = 50;
/// Of all allocations, in percent.
const ALL_PERCENT: u64 = 5;

/// Blocks that live for a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Temporary {
    /// How many were freed at once.
    pub temporaries: Blocks,
    /// Of how many.
    pub allocations: Blocks,
}

/// At stake: what passed through the allocator for that.
pub(super) fn find(
    names: &mut Names<'_, '_>,
    selection: &Selection,
    list: &mut AdviceList,
    progress: Progress<'_>,
) -> Result<(), Error> {
    let profile = Profile::load(names, &selection.moved(Moment::Total), progress)?;
    list.damage.extend(&profile.damage);
    for rank in rank(&profile, names, RankBy::Owner, Metric::Temporaries) {
        let (temporaries, allocations) = (rank.amount.temporaries, rank.amount.blocks);
        let is_much = temporaries >= TIMES_MIN
            && is_part(temporaries, allocations, OWN_PERCENT)
            && is_part(temporaries, profile.whole.blocks, ALL_PERCENT);
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
