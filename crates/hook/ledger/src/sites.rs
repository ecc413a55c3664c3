//! Totals per site, with the exact share of each in the peaks.
//!
//! A site's share of a peak is taken in one pass without touching the other sites: raising a peak
//! only counts the raise (the *epoch*). A site that is about to change while its own epoch is old
//! has not changed since the latest raise, so its live amount then is its share; after that the
//! share only needs to be kept.

use heapledger_core::sample::Rate;
use heapledger_core::totals::{Site, SiteVariances, Variance};
use heapledger_core::{Blocks, Bytes, StackId};

use crate::arch::prefetch;
use crate::live::{LiveTotals, SessionTotals};
use crate::mapped::{OutOfMemory, Vector, Zeroed};

/// The variances as kept: shares in the peaks as they were at these epochs, as in [`Row`] and
/// [`Peaks`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct VarianceRow {
    pub(crate) allocated: Variance,
    pub(crate) live: Variance,
    image: Variance,
    session: Variance,
    image_epoch: u64,
    session_epoch: u64,
}

// SAFETY: `Zeroed` requires that every field is valid when all its bytes are zero. The fields are
// `u64`, and variances, which are two `u128` each. 0 is a valid integer.
unsafe impl Zeroed for VarianceRow {}

#[derive(Clone, Copy, Default)]
struct Amount {
    bytes: u64,
    blocks: u64,
}

/// The fields that every event of the site touches: one cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Row {
    allocations: u64,
    temporaries: u64,
    bytes_allocated: u64,
    live: Amount,
    image_epoch: u64,
    session_epoch: u64,
    stack: StackId,
}

// SAFETY: `Zeroed` requires that every field is valid when all its bytes are zero. The fields are
// `u64`, an `Amount`, which is two of them, and a `StackId`, which is a `u32`. 0 is a valid
// integer.
unsafe impl Zeroed for Row {}

/// The site's live amounts at the peaks, if they have changed since.
#[derive(Clone, Copy)]
struct Peaks {
    image: Amount,
    session: Amount,
}

// SAFETY: `Zeroed` requires that every field is valid when all its bytes are zero. Both amounts are
// two `u64`. 0 is a valid integer.
unsafe impl Zeroed for Peaks {}

/// Up to this number (256 KB) rows are in the nearer caches.
const ROWS_CACHED: usize = 1 << 12;

/// The sites of one process image.
#[derive(Default)]
pub(crate) struct Sites {
    /// By stack: one more than the number of its row, or zero. Few stack-tree nodes are sites.
    numbers: Vector<u32>,
    /// The same for the stacks from [`StackId::PROGRAM_END`] on, the last one first: the order in
    /// which they are made.
    upper_numbers: Vector<u32>,
    rows: Vector<Row>,
    peaks: Vector<Peaks>,
    /// The variances of the first sites; empty without samples.
    variances: Vector<VarianceRow>,
}

impl Sites {
    pub(crate) const fn new() -> Sites {
        Sites {
            numbers: Vector::new(),
            upper_numbers: Vector::new(),
            rows: Vector::new(),
            peaks: Vector::new(),
            variances: Vector::new(),
        }
    }

    /// Counts calls anew. Live amounts stay, and are the sites' shares of the latest peaks, which
    /// the caller restarts too.
    pub(crate) fn restart(&mut self) {
        for number in 0..self.rows.len() {
            if let Some(row) = self.rows.get_mut(number) {
                (row.allocations, row.temporaries, row.bytes_allocated) = (0, 0, 0);
            }
            if let Some(row) = self.variances.get_mut(number) {
                row.allocated = Variance::NONE;
            }
        }
    }

    /// Makes sure that the stack has a row, and, for a sampled block, a row of variances. On error
    /// nothing has changed.
    #[inline]
    pub(crate) fn enter(&mut self, stack: StackId, rate: Rate) -> Result<(), OutOfMemory> {
        if self.number(stack).is_none() {
            self.add(stack)?;
        }
        if rate != Rate::EXACT { self.variances.grow_to(self.rows.len()) } else { Ok(()) }
    }

    /// Changes a stack's variances, before its row changes.
    #[cold]
    pub(crate) fn change_variance(
        &mut self,
        stack: StackId,
        image: &LiveTotals,
        session: &impl SessionTotals,
        change: impl FnOnce(&mut VarianceRow),
    ) {
        let Some(row) = self.number(stack).and_then(|number| self.variances.get_mut(number)) else { return };
        if row.image_epoch != image.epoch {
            (row.image_epoch, row.image) = (image.epoch, row.live);
        }
        if row.session_epoch != session.epoch() {
            (row.session_epoch, row.session) = (session.epoch(), row.live);
        }
        change(row);
    }

    /// Does what [`Sites::reattribute_shares`] does, for the variances, which have been settled.
    #[cold]
    pub(crate) fn reattribute_variances(
        &mut self,
        from: StackId,
        to: StackId,
        variance: Variance,
        [in_image, in_session]: [bool; 2],
    ) {
        let (Some(from), Some(to)) = (self.number(from), self.number(to)) else { return };
        type Share = fn(&mut VarianceRow) -> &mut Variance;
        let shares: [(bool, Share); 2] = [(in_image, |row| &mut row.image), (in_session, |row| &mut row.session)];
        for (_, share) in shares.into_iter().filter(|(is_in, _)| *is_in) {
            let given = self.variances.get_mut(from).map(share).filter(|given| given.bytes >= variance.bytes);
            if let Some(given) = given {
                *given = given.minus(variance);
                if let Some(taken) = self.variances.get_mut(to).map(share) {
                    *taken = taken.plus(variance);
                }
            }
        }
    }

    fn variances(&self, number: usize, epochs: Epochs) -> SiteVariances {
        let Some(row) = self.variances.get(number) else { return SiteVariances::default() };
        SiteVariances {
            allocated: row.allocated,
            live: row.live,
            at_peak: if row.image_epoch == epochs.image { row.image } else { row.live },
            at_session_peak: match epochs.session {
                None => Variance::NONE,
                Some(epoch) if row.session_epoch == epoch => row.session,
                Some(_) => row.live,
            },
        }
    }

    /// Returns how much more memory [`Sites::enter`] would have mapped in the end.
    #[inline(always)]
    pub(crate) fn bytes_to_enter(&self, stack: StackId, rate: Rate) -> usize {
        let is_new = self.number(stack).is_none();
        let rows = self.rows.len() + usize::from(is_new);
        let row = if is_new { self.bytes_to_add(stack, rows) } else { 0 };
        row + if rate == Rate::EXACT { 0 } else { self.variances.bytes_to_grow(rows) }
    }

    #[inline(never)]
    fn bytes_to_add(&self, stack: StackId, rows: usize) -> usize {
        let (numbers, at) = if stack < StackId::PROGRAM_END {
            (&self.numbers, stack.0)
        } else {
            (&self.upper_numbers, StackId::MAX.0 - stack.0)
        };
        let numbers = numbers.bytes_to_grow(at as usize + 1);
        numbers + self.rows.bytes_to_grow(rows) + self.peaks.bytes_to_grow(rows)
    }

    #[cold]
    fn add(&mut self, stack: StackId) -> Result<(), OutOfMemory> {
        let row = Row {
            allocations: 0,
            temporaries: 0,
            bytes_allocated: 0,
            live: Amount::default(),
            image_epoch: 0,
            session_epoch: 0,
            stack,
        };
        let (numbers, at) = if stack < StackId::PROGRAM_END {
            (&mut self.numbers, stack.0 as usize)
        } else {
            (&mut self.upper_numbers, (StackId::MAX.0 - stack.0) as usize)
        };
        numbers.grow_to(at + 1)?;
        self.peaks.grow_to(self.rows.len() + 1)?;
        self.rows.push(row)?;
        if let Some(number) = numbers.get_mut(at) {
            *number = self.rows.len() as u32;
        }
        Ok(())
    }

    /// Prefetches the row of a stack, if there are so many that it cannot be expected in the cache.
    #[inline(always)]
    pub(crate) fn prefetch(&self, stack: StackId) {
        if self.rows.len() > ROWS_CACHED
            && let Some(number) = self.number(stack)
            && let Some(row) = self.rows.get(number)
        {
            prefetch(row);
        }
    }

    #[inline(always)]
    fn number(&self, stack: StackId) -> Option<usize> {
        match self.numbers.get(stack.0 as usize) {
            Some(&number) => (number as usize).checked_sub(1),
            None => self.upper_number(stack),
        }
    }

    #[inline(never)]
    fn upper_number(&self, stack: StackId) -> Option<usize> {
        let at = StackId::MAX.0.checked_sub(stack.0).filter(|_| stack >= StackId::PROGRAM_END)?;
        (*self.upper_numbers.get(at as usize)? as usize).checked_sub(1)
    }

    /// Returns the row, ready to change: its shares in the latest peaks are settled.
    #[inline(always)]
    fn settled(&mut self, stack: StackId, image: &LiveTotals, session: &impl SessionTotals) -> Option<&mut Row> {
        let number = self.number(stack)?;
        let row = self.rows.get_mut(number)?;
        if row.image_epoch != image.epoch || row.session_epoch != session.epoch() {
            let peaks = self.peaks.get_mut(number)?;
            if row.image_epoch != image.epoch {
                row.image_epoch = image.epoch;
                peaks.image = row.live;
            }
            if row.session_epoch != session.epoch() {
                row.session_epoch = session.epoch();
                peaks.session = row.live;
            }
        }
        Some(row)
    }

    #[inline(always)]
    pub(crate) fn allocate(
        &mut self,
        stack: StackId,
        bytes: Bytes,
        blocks: Blocks,
        image: &LiveTotals,
        session: &impl SessionTotals,
    ) {
        if let Some(row) = self.settled(stack, image, session) {
            row.allocations = row.allocations.wrapping_add(blocks.0);
            row.bytes_allocated = row.bytes_allocated.wrapping_add(bytes.0);
            row.live.bytes = row.live.bytes.wrapping_add(bytes.0);
            row.live.blocks = row.live.blocks.wrapping_add(blocks.0);
        }
    }

    #[inline(always)]
    pub(crate) fn free(
        &mut self,
        stack: StackId,
        bytes: Bytes,
        blocks: Blocks,
        temporary: Blocks,
        image: &LiveTotals,
        session: &impl SessionTotals,
    ) {
        if let Some(row) = self.settled(stack, image, session) {
            row.temporaries = row.temporaries.wrapping_add(temporary.0);
            row.live.bytes = row.live.bytes.wrapping_sub(bytes.0);
            row.live.blocks = row.live.blocks.wrapping_sub(blocks.0);
        }
    }

    /// Reattributes a live block from `from` to `to`, as if it always had been there, except at the
    /// peaks so far. Both have rows. `is_counted` says that it is one of the allocations of `from`.
    pub(crate) fn reattribute_block(
        &mut self,
        from: StackId,
        to: StackId,
        (bytes, blocks): (Bytes, Blocks),
        is_counted: bool,
        image: &LiveTotals,
        session: &impl SessionTotals,
    ) {
        if let Some(row) = self.settled(to, image, session) {
            row.allocations = row.allocations.wrapping_add(if is_counted { blocks.0 } else { 0 });
            row.bytes_allocated = row.bytes_allocated.wrapping_add(if is_counted { bytes.0 } else { 0 });
            row.live.bytes = row.live.bytes.wrapping_add(bytes.0);
            row.live.blocks = row.live.blocks.wrapping_add(blocks.0);
        }
        if let Some(row) = self.settled(from, image, session) {
            row.allocations = row.allocations.wrapping_sub(if is_counted { blocks.0 } else { 0 });
            row.bytes_allocated = row.bytes_allocated.wrapping_sub(if is_counted { bytes.0 } else { 0 });
            row.live.bytes = row.live.bytes.wrapping_sub(bytes.0);
            row.live.blocks = row.live.blocks.wrapping_sub(blocks.0);
        }
    }

    /// Moves a block's share in the peaks from `from` to `to`. Both have rows.
    pub(crate) fn reattribute_shares(
        &mut self,
        from: StackId,
        to: StackId,
        (bytes, blocks): (Bytes, Blocks),
        [in_image, in_session]: [bool; 2],
        image: &LiveTotals,
        session: &impl SessionTotals,
    ) {
        // Once settled, the shares are those in `peaks`.
        let _ = (self.settled(from, image, session).is_some(), self.settled(to, image, session).is_some());
        let (Some(from), Some(to)) = (self.number(from), self.number(to)) else { return };
        type Share = fn(&mut Peaks) -> &mut Amount;
        let shares: [(bool, Share); 2] =
            [(in_image, |peaks| &mut peaks.image), (in_session, |peaks| &mut peaks.session)];
        for (_, share) in shares.into_iter().filter(|(is_in, _)| *is_in) {
            // A block that came to `from` after the peak has its share elsewhere.
            let given =
                self.peaks.get_mut(from).map(share).filter(|from| from.blocks >= blocks.0 && from.bytes >= bytes.0);
            if let Some(from) = given {
                (from.blocks, from.bytes) = (from.blocks - blocks.0, from.bytes - bytes.0);
                if let Some(to) = self.peaks.get_mut(to).map(share) {
                    (to.blocks, to.bytes) = (to.blocks.wrapping_add(blocks.0), to.bytes.wrapping_add(bytes.0));
                }
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn get(&self, stack: StackId, epochs: Epochs) -> Option<Site> {
        self.by_number(self.number(stack)?, epochs)
    }

    pub(crate) fn iter(&self, epochs: Epochs) -> impl Iterator<Item = Site> {
        (0..self.rows.len()).filter_map(move |number| self.by_number(number, epochs))
    }

    pub(crate) fn by_number(&self, number: usize, epochs: Epochs) -> Option<Site> {
        let row = self.rows.get(number)?;
        let peaks = self.peaks.get(number)?;
        let image = if row.image_epoch == epochs.image { peaks.image } else { row.live };
        let session = match epochs.session {
            None => Amount::default(),
            Some(epoch) if row.session_epoch == epoch => peaks.session,
            Some(_) => row.live,
        };
        // An empty row is left from an allocation that could not be recorded, or from before a
        // restart.
        if [row.allocations, row.live.blocks, image.blocks, session.blocks] == [0; 4] {
            return None;
        }
        Some(Site {
            stack: row.stack,
            allocations: Blocks(row.allocations),
            frees: Blocks(row.allocations.wrapping_sub(row.live.blocks)),
            temporaries: Blocks(row.temporaries),
            bytes_allocated: Bytes(row.bytes_allocated),
            bytes_live: Bytes(row.live.bytes),
            blocks_live: Blocks(row.live.blocks),
            bytes_at_peak: Bytes(image.bytes),
            blocks_at_peak: Blocks(image.blocks),
            bytes_at_session_peak: Bytes(session.bytes),
            blocks_at_session_peak: Blocks(session.blocks),
            variances: self.variances(number, epochs),
        })
    }

    pub(crate) fn bytes_mapped(&self) -> usize {
        self.numbers.bytes_mapped()
            + self.upper_numbers.bytes_mapped()
            + self.rows.bytes_mapped()
            + self.peaks.bytes_mapped()
            + self.variances.bytes_mapped()
    }
}

/// The epochs of the peaks whose shares are asked for.
#[derive(Clone, Copy)]
pub(crate) struct Epochs {
    pub(crate) image: u64,
    /// `None` if the image had no part in the session's peak, because it was over by then.
    pub(crate) session: Option<u64>,
}
