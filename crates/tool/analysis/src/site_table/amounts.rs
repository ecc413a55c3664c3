//! The amounts of sites, in as few bytes as they need.

use heapledger_core::{Blocks, Bytes};

use crate::amount::{Amount, MomentAmounts};
use crate::moment::Moment;

/// The amounts of each site, by its number.
#[derive(Debug)]
pub(crate) enum Amounts {
    /// Without the figures that only samples and slop have.
    Exact(Vec<ExactAmounts>),
    /// With all figures.
    Estimated(Vec<MomentAmounts>),
}

/// The amounts of a site whose blocks were all recorded.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ExactAmounts {
    total: (Bytes, Blocks),
    temporaries: Blocks,
    peak: (Bytes, Blocks),
    live: (Bytes, Blocks),
}

impl Amounts {
    pub(crate) fn new(amounts: Vec<MomentAmounts>) -> Amounts {
        let all: Option<Vec<ExactAmounts>> = amounts.iter().map(ExactAmounts::of).collect();
        all.map_or(Amounts::Estimated(amounts), Amounts::Exact)
    }

    /// Returns this many zeroes.
    pub(crate) fn nothing(sites: usize, is_exact: bool) -> Amounts {
        if is_exact {
            Amounts::Exact(vec![ExactAmounts::default(); sites])
        } else {
            Amounts::Estimated(vec![MomentAmounts::default(); sites])
        }
    }

    /// Adds bytes and blocks, and their variance, to what a site has live, to its total, or to
    /// both.
    #[inline]
    pub(crate) fn add(&mut self, site: usize, (is_live, is_total): (bool, bool), amount: &Amount) {
        let add = |sum: &mut (Bytes, Blocks)| {
            sum.0.0 = sum.0.0.saturating_add(amount.bytes.0);
            sum.1.0 = sum.1.0.saturating_add(amount.blocks.0);
        };
        match self {
            Amounts::Exact(all) => {
                is_live.then(|| add(&mut all[site].live));
                is_total.then(|| add(&mut all[site].total));
            }
            Amounts::Estimated(all) => {
                is_live.then(|| all[site].live += *amount);
                is_total.then(|| all[site].total += *amount);
            }
        }
    }

    /// True if there are only the figures of blocks that were all recorded.
    pub(crate) fn is_exact(&self) -> bool {
        matches!(self, Amounts::Exact(_))
    }

    /// Returns the memory of the amounts of one site, in bytes.
    pub(crate) fn bytes_each(&self) -> usize {
        match self {
            Amounts::Exact(_) => size_of::<ExactAmounts>(),
            Amounts::Estimated(_) => size_of::<MomentAmounts>(),
        }
    }

    /// Returns the amounts of a site at all moments.
    pub(crate) fn moments(&self, site: usize) -> MomentAmounts {
        let [total, peak, live] = [Moment::Total, Moment::Peak, Moment::End].map(|moment| self.at(site, moment));
        MomentAmounts { total, peak, live }
    }

    #[inline]
    pub(crate) fn at(&self, site: usize, moment: Moment) -> Amount {
        match self {
            Amounts::Exact(all) => all[site].at(moment),
            Amounts::Estimated(all) => all[site].at(moment),
        }
    }
}

impl ExactAmounts {
    /// All figures.
    pub(crate) const FIGURES: [fn(&mut ExactAmounts) -> &mut u64; 7] = [
        |it| &mut it.total.0.0,
        |it| &mut it.total.1.0,
        |it| &mut it.temporaries.0,
        |it| &mut it.peak.0.0,
        |it| &mut it.peak.1.0,
        |it| &mut it.live.0.0,
        |it| &mut it.live.1.0,
    ];

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
