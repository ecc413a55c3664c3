//! The accounting of one process image: everything that is counted. The same for every ledger,
//! whatever its register.
//!
//! A ledger enters a block in this order: room in the register; [`Accounting::enter`], which may
//! fail and then has changed nothing; and [`Accounting::allocate`] with the block that the register
//! displaced, which cannot fail.

use heapledger_core::sample::Rate;
use heapledger_core::totals::{Counts, Live, Site, Time, Variance, Variances};
use heapledger_core::{Blocks, Bytes, Serial, StackId, ThreadId};

use crate::live::{LiveTotals, SessionTotals};
use crate::mapped::{OutOfMemory, Vector};
use crate::register::{Block, SERIAL_MAX};
use crate::sites::{Epochs, Sites};

/// The block that a call released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freed {
    /// A live block of this image.
    Known(Block),
    /// A block that was live when the image was forked.
    Inherited(Block),
    /// Backing memory of a user pool, which left the totals when it became that, or a block that
    /// was never in them: not an event. See [`crate::Ledger::back`] and [`crate::Ledger::ignore`].
    Untracked,
    /// An address that the ledger does not know.
    Unknown,
}

impl Freed {
    #[inline(always)]
    pub(crate) fn new(block: Option<Block>) -> Freed {
        match block {
            Some(block) if !block.inherited => Freed::Known(block),
            Some(block) if !block.untracked => Freed::Inherited(block),
            Some(_) => Freed::Untracked,
            None => Freed::Unknown,
        }
    }
}

/// Returns the bytes and blocks that a block counts for: itself, or its weight.
#[inline(always)]
fn amount(block: &Block) -> (Bytes, Blocks) {
    match block.rate {
        Rate::EXACT => (block.size, Blocks(1)),
        _ => {
            let blocks = block.weight();
            (Bytes(block.size.0.wrapping_mul(blocks.0)), blocks)
        }
    }
}

#[derive(Default)]
pub(crate) struct Accounting {
    sites: Sites,
    /// By thread: one more than the serial of the block that its latest allocator event returned;
    /// zero if that event was a free.
    latest: Vector<u64>,
    pub(crate) serials: u64,
    /// The serial that came next at the latest restart.
    restarted: u64,
    live_totals: LiveTotals,
    /// The latest peaks, the image's and the session's: for each its epoch, and the serial that
    /// came next.
    peaks: [(u64, u64); 2],
    counts: Counts,
    /// The variance of the blocks allocated.
    variance_allocated: Variance,
    /// The session's epoch at which the image ended.
    ended: Option<u64>,
}

impl Accounting {
    pub(crate) const fn new() -> Accounting {
        Accounting {
            sites: Sites::new(),
            latest: Vector::new(),
            serials: 0,
            restarted: 0,
            live_totals: LiveTotals::new(),
            peaks: [(0, 0); 2],
            counts: Counts::NONE,
            variance_allocated: Variance::NONE,
            ended: None,
        }
    }

    /// Makes sure that an allocation of this thread and stack can be counted. Returns the serial
    /// that it will have.
    #[inline(always)]
    pub(crate) fn enter(&mut self, thread: ThreadId, stack: StackId, rate: Rate) -> Result<Serial, OutOfMemory> {
        let serial = Serial(self.serials);
        if serial > SERIAL_MAX {
            return Err(OutOfMemory);
        }
        self.latest.grow_to(thread.0 as usize + 1)?;
        self.sites.enter(stack, rate)?;
        Ok(serial)
    }

    /// Returns how much more memory [`Accounting::enter`] would have mapped in the end.
    #[inline(always)]
    pub(crate) fn bytes_to_enter(&self, thread: ThreadId, stack: StackId, rate: Rate) -> usize {
        let threads = thread.0 as usize + 1;
        let thread = if threads <= self.latest.len() { 0 } else { self.latest.bytes_to_grow(threads) };
        thread + self.sites.bytes_to_enter(stack, rate)
    }

    /// Returns the same for [`Accounting::reattribute_block`].
    pub(crate) fn bytes_to_reattribute(&self, to: StackId, rate: Rate) -> usize {
        self.sites.bytes_to_enter(to, rate)
    }

    /// Counts an allocation for which there was room, with the block as the register keeps it.
    /// `displaced` is the block that was live under its key.
    #[inline(always)]
    pub(crate) fn allocate(
        &mut self,
        session: &mut impl SessionTotals,
        time: Time,
        thread: ThreadId,
        block: Block,
        displaced: Option<Block>,
    ) {
        if let Some(block) = displaced {
            self.count_missed_free(session, block);
        }
        self.record_peaks(session);
        self.serials += 1;
        if let Some(latest) = self.latest.get_mut(thread.0 as usize) {
            *latest = self.serials;
        }
        let (bytes, blocks) = amount(&block);
        self.counts.allocations.0 = self.counts.allocations.0.wrapping_add(blocks.0);
        self.counts.bytes_allocated.0 = self.counts.bytes_allocated.0.wrapping_add(bytes.0);
        if block.rate != Rate::EXACT {
            let variance = Variance::of(block.size, blocks);
            self.variance_allocated = self.variance_allocated.plus(variance);
            self.change_variance(session, |live| live.plus(variance));
            self.sites.change_variance(block.stack, &self.live_totals, session, |site| {
                site.allocated = site.allocated.plus(variance);
                site.live = site.live.plus(variance);
            });
        }
        self.sites.allocate(block.stack, bytes, blocks, &self.live_totals, session);
        self.live_totals.add(time, bytes, blocks);
        if self.ended.is_none() {
            session.add(time, bytes, blocks);
        }
    }

    /// Notes that the live totals are about to change by a sampled block.
    #[cold]
    fn change_variance(&mut self, session: &mut impl SessionTotals, change: impl Fn(Variance) -> Variance) {
        self.live_totals.change_variance(&change);
        if self.ended.is_none() {
            session.change_variance(change);
        }
    }

    /// Counts the latest allocation, of this weight, as the end of a reallocation. If the old block
    /// was not counted, neither is the reallocation.
    #[inline(always)]
    pub(crate) fn reallocated(&mut self, blocks: Blocks) {
        self.counts.reallocations.0 = self.counts.reallocations.0.wrapping_add(blocks.0);
    }

    /// Counts the block that a call of this thread released.
    #[inline(always)]
    pub(crate) fn free(&mut self, session: &mut impl SessionTotals, thread: ThreadId, freed: Freed) {
        let mut latest = || self.latest.get_mut(thread.0 as usize).map_or(0, core::mem::take);
        match freed {
            Freed::Known(block) | Freed::Inherited(block) => {
                let latest = latest();
                self.release(session, block, Some(latest));
            }
            Freed::Untracked => {}
            Freed::Unknown => {
                latest();
                self.counts.frees_unknown.0 += 1;
            }
        }
    }

    /// Counts a block whose free was not seen: another block has its key.
    #[inline(always)]
    pub(crate) fn count_missed_free(&mut self, session: &mut impl SessionTotals, block: Block) {
        if !block.untracked {
            self.counts.frees_missing.0 = self.counts.frees_missing.0.wrapping_add(block.weight().0);
            self.release(session, block, None);
        }
    }

    /// Takes a block that has become backing memory of a pool out of the totals. Counts as a free,
    /// but never of a temporary block.
    pub(crate) fn back(&mut self, session: &mut impl SessionTotals, thread: ThreadId, freed: Freed) -> Freed {
        self.end_thread(thread);
        self.free(session, thread, freed);
        freed
    }

    /// Reattributes a live block to another site, as if it had been allocated there. A site's share
    /// of a peak stays what it was. On error nothing has changed.
    pub(crate) fn reattribute_block(
        &mut self,
        session: &impl SessionTotals,
        block: Block,
        to: StackId,
    ) -> Result<(), OutOfMemory> {
        if !block.untracked && !block.inherited {
            self.sites.enter(to, block.rate)?;
            // A block from before a restart is not counted as an allocation of any site.
            let is_counted = block.serial.0 >= self.restarted;
            self.sites.reattribute_block(block.stack, to, amount(&block), is_counted, &self.live_totals, session);
            if block.rate != Rate::EXACT {
                let variance = Variance::of(block.size, block.weight());
                let counted = if is_counted { variance } else { Variance::NONE };
                self.sites.change_variance(to, &self.live_totals, session, |site| {
                    (site.allocated, site.live) = (site.allocated.plus(counted), site.live.plus(variance));
                });
                self.sites.change_variance(block.stack, &self.live_totals, session, |site| {
                    (site.allocated, site.live) = (site.allocated.minus(counted), site.live.minus(variance));
                });
            }
        }
        Ok(())
    }

    /// Reattributes a live block to another site, at the peaks too: it always was that site's. On
    /// error nothing has changed.
    pub(crate) fn stamp_block(
        &mut self,
        session: &impl SessionTotals,
        block: Block,
        to: StackId,
    ) -> Result<(), OutOfMemory> {
        self.reattribute_block(session, block, to)?;
        if !block.untracked && !block.inherited {
            self.record_peaks(session);
            // A block that is live now was live at every peak after its allocation.
            let was_live = self.peaks.map(|(_, next)| block.serial.0 < next);
            let shares = [was_live[0], was_live[1] && self.ended.is_none()];
            self.sites.reattribute_shares(block.stack, to, amount(&block), shares, &self.live_totals, session);
            if block.rate != Rate::EXACT {
                self.sites.reattribute_variances(block.stack, to, Variance::of(block.size, block.weight()), shares);
            }
        }
        Ok(())
    }

    /// Notes peaks that were reached since the latest allocation, or by it.
    #[inline(always)]
    fn record_peaks(&mut self, session: &impl SessionTotals) {
        for ((seen, next), epoch) in self.peaks.iter_mut().zip([self.live_totals.epoch, session.epoch()]) {
            if *seen != epoch {
                (*seen, *next) = (epoch, self.serials);
            }
        }
    }

    /// Counts a call that returned no block although one was asked for.
    pub(crate) fn fail(&mut self) {
        self.counts.failed.0 += 1;
    }

    /// Counts a block of the image that this one was forked from.
    pub(crate) fn inherit(&mut self, block: Block) {
        if !block.untracked {
            let (bytes, blocks) = amount(&block);
            self.counts.blocks_inherited.0 = self.counts.blocks_inherited.0.wrapping_add(blocks.0);
            self.counts.bytes_inherited.0 = self.counts.bytes_inherited.0.wrapping_add(bytes.0);
        }
    }

    pub(crate) fn end_thread(&mut self, thread: ThreadId) {
        if let Some(latest) = self.latest.get_mut(thread.0 as usize) {
            *latest = 0;
        }
    }

    pub(crate) fn restart(&mut self, time: Time) {
        let Counts { blocks_inherited, bytes_inherited, .. } = self.counts;
        self.counts = Counts { blocks_inherited, bytes_inherited, ..Counts::NONE };
        self.variance_allocated = Variance::NONE;
        for thread in 0..self.latest.len() {
            self.end_thread(ThreadId(thread as u32));
        }
        self.live_totals.restart(time);
        self.sites.restart();
        self.restarted = self.serials;
    }

    pub(crate) fn end(&mut self, session: &mut impl SessionTotals) {
        if self.ended.is_none() {
            self.ended = Some(session.epoch());
            let [live, _] = self.live_totals.variances();
            if live != Variance::NONE {
                session.change_variance(|all| all.minus(live));
            }
            session.subtract(self.live_totals.live.bytes_live, self.live_totals.live.blocks_live);
        }
    }

    /// Prefetches the memory that an allocation with this stack touches.
    #[inline(always)]
    pub(crate) fn prefetch_site(&self, stack: StackId) {
        self.sites.prefetch(stack);
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    pub(crate) fn live(&self) -> Live {
        self.live_totals.live
    }

    pub(crate) fn totals(&self) -> (Counts, Live, Variances) {
        (self.counts(), self.live(), self.variances())
    }

    pub(crate) fn variances(&self) -> Variances {
        let [live, at_peak] = self.live_totals.variances();
        Variances { allocated: self.variance_allocated, live, at_peak }
    }

    pub(crate) fn site(&self, session: &impl SessionTotals, stack: StackId) -> Option<Site> {
        self.sites.get(stack, self.epochs(session))
    }

    pub(crate) fn sites(&self, session: &impl SessionTotals) -> impl Iterator<Item = Site> {
        self.sites.iter(self.epochs(session))
    }

    /// Returns the totals of a site by its number, from 0 in the order of first allocations. The
    /// inner `None` means that the site has nothing to report.
    pub(crate) fn site_by_number(&self, session: &impl SessionTotals, number: usize) -> Option<Option<Site>> {
        (number < self.sites.len()).then(|| self.sites.by_number(number, self.epochs(session)))
    }

    pub(crate) fn bytes_mapped(&self) -> usize {
        self.sites.bytes_mapped() + self.latest.bytes_mapped()
    }

    fn epochs(&self, session: &impl SessionTotals) -> Epochs {
        let epoch = session.epoch();
        Epochs {
            image: self.live_totals.epoch,
            session: self.ended.is_none_or(|ended| ended == epoch).then_some(epoch),
        }
    }

    /// Takes a block, which is out of the register, out of the totals. `latest` is the field's
    /// value for the freeing thread, if a call freed the block.
    #[inline(always)]
    fn release(&mut self, session: &mut impl SessionTotals, block: Block, latest: Option<u64>) {
        let (bytes, blocks) = amount(&block);
        if block.inherited {
            self.counts.frees_inherited.0 = self.counts.frees_inherited.0.wrapping_add(blocks.0);
            self.counts.blocks_inherited.0 = self.counts.blocks_inherited.0.wrapping_sub(blocks.0);
            self.counts.bytes_inherited.0 = self.counts.bytes_inherited.0.wrapping_sub(bytes.0);
            return;
        }
        let temporary = if latest == Some(block.serial.0 + 1) { blocks } else { Blocks(0) };
        self.counts.frees.0 = self.counts.frees.0.wrapping_add(blocks.0);
        self.counts.temporaries.0 = self.counts.temporaries.0.wrapping_add(temporary.0);
        if block.rate != Rate::EXACT {
            let variance = Variance::of(block.size, blocks);
            self.change_variance(session, |live| live.minus(variance));
            self.sites
                .change_variance(block.stack, &self.live_totals, session, |site| site.live = site.live.minus(variance));
        }
        self.sites.free(block.stack, bytes, blocks, temporary, &self.live_totals, session);
        self.live_totals.subtract(bytes, blocks);
        if self.ended.is_none() {
            session.subtract(bytes, blocks);
        }
    }
}
