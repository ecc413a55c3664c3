//! The amounts of sites, in as few bytes as they need.

use heapledger_core::{Blocks, Bytes};

use crate::amount::{Amount, MomentAmounts};
use crate::moment::Moment;

/// The amounts of each site, by its number.
#[derive(Debug)]
pub(super) enum Amounts {
    /// Without the figures that only samples and slop have.
    Exact(Vec<ExactAmounts>),
    /// With all figures.
    Estimated(Vec<MomentAmounts>),
}

/// The amounts of a site whose blocks were all recorded.
#[derive(Debug)]
pub(super) struct ExactAmounts {
    total: (Bytes, Blocks),
    temporaries: Blocks,
    peak: (Bytes, Blocks),
    live: (Bytes, Blocks),
}

impl Amounts {
    pub(super) fn new(amounts: Vec<MomentAmounts>) -> Amounts {
        let all: Option<Vec<ExactAmounts>> = amounts.iter().map(ExactAmounts::of).collect();
        all.map_or(Amounts::Estimated(amounts), Amounts::Exact)
    }

    #[inline]
    pub(super) fn at(&self, site: usize, moment: Moment) -> Amount {
        match self {
            Amounts::Exact(all) => all[site].at(moment),
            Amounts::Estimated(all) => all[site].at(moment),
        }
    }
}

impl ExactAmounts {
    /// Returns `None` if there is more than these figures.
    fn of(amounts: &MomentAmounts) -> Option<ExactAmounts> {
        let figures = |amount: &Amount| (amount.bytes, amount.blocks);
        let MomentAmounts { total, peak, live } = amounts;
        let exact = ExactAmounts {
            total: figures(total),
            temporaries: total.temporaries,
            peak: figures(peak),
            live: figures(live),
        };
        let is_all = [(Moment::Total, total), (Moment::Peak, peak), (Moment::End, live)];
        is_all.iter().all(|(moment, amount)| exact.at(*moment) == **amount).then_some(exact)
    }

    #[inline]
    fn at(&self, moment: Moment) -> Amount {
        let (bytes, blocks) = match moment {
            Moment::Total => self.total,
            Moment::Peak => self.peak,
            Moment::End | Moment::At(_) => self.live,
        };
        let temporaries = if moment == Moment::Total { self.temporaries } else { Blocks(0) };
        Amount { bytes, blocks, temporaries, ..Amount::default() }
    }
}
