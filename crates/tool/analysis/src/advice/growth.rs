//! Leaks: owners whose memory certainly grows at a constant rate to the end.

use heapledger_core::Bytes;
use heapledger_recording::Time;

use super::{Advice, AdviceList, Finding};
use crate::error::Error;
use crate::growth::Growth;
use crate::names::Names;
use crate::progress::Progress;
use crate::rank::RankBy;
use crate::selection::Selection;
use crate::shares::{ShareGroup, SharesBy};
use crate::trend::TrendKind;

pub(super) const NAME: &str = "leak";

/// The shortest recording that is judged: in a shorter run, what a program builds when it starts
/// looks like a leak.
const LENGTH_MIN: Time = Time(10_000_000_000);

/// A constant leak.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grows {
    /// The rate.
    pub bytes_per_second: f64,
    /// The time when it begins.
    pub since: Time,
    /// Bytes live at the end of the time examined.
    pub live: Bytes,
}

/// Finds leaks. Bytes at stake: those gained since the growth began.
pub(super) fn find(
    names: &mut Names<'_, '_>,
    selection: &Selection,
    list: &mut AdviceList,
    progress: Progress<'_>,
) -> Result<(), Error> {
    let growth = Growth::load(names, selection, SharesBy::Rank(RankBy::Owner), (None, None), progress)?;
    list.damage.extend(&growth.damage);
    if growth.to.0 - growth.from.0 < LENGTH_MIN.0 {
        list.skip(NAME, "the recording is shorter than 10 s");
        return Ok(());
    }
    let window = growth.seconds_of_window();
    for grown in &growth.grown {
        let ShareGroup::Rank(rank) = &grown.group else { continue };
        if grown.trend.kind != TrendKind::Steady || !grown.trend.is_certain {
            continue;
        }
        let (bytes_per_second, since, live) = (grown.trend.slope / window, grown.since, grown.live);
        list.advice.push(Advice {
            finding: Finding::Grows(Grows { bytes_per_second, since, live }),
            bytes: Bytes(grown.trend.gained),
            owner: Some(names.owner(&growth.stacks, rank.largest)),
        });
    }
    Ok(())
}
