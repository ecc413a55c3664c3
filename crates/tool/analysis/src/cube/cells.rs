//! The cells of a cube.

use crate::events::EventMap;

/// The number of intervals.
pub const CUBE_INTERVALS: usize = 256;

/// A site, the interval in which blocks were allocated, those from which and until which they were
/// attributed to the site, and how that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct CellKey(u64);

/// The reason why blocks are no longer live at a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndKind {
    /// They were freed.
    Freed,
    /// They were attributed to another site.
    Reattributed,
    /// They are live, or ended with their image.
    Ended,
}

impl CellKey {
    /// `allocated` is `None` for blocks from before the recording. Blocks that are live at the end
    /// have `CUBE_INTERVALS` as `until`.
    pub(super) fn new(site: u32, allocated: Option<usize>, (from, until): (usize, usize), end: EndKind) -> CellKey {
        let allocated = allocated.unwrap_or(CUBE_INTERVALS) as u64;
        CellKey(u64::from(site) << 32 | allocated << 20 | (from as u64) << 11 | (until as u64) << 2 | end as u64)
    }

    /// Returns the key with this number, if it is one.
    pub(super) fn from_number(number: u64) -> Option<CellKey> {
        let key = CellKey(number);
        let most = CUBE_INTERVALS as u64;
        let is_there = number & 3 <= 2 && number >> 29 & 7 == 0 && (number >> 20 & 0x1ff) <= most;
        (is_there && key.from() < CUBE_INTERVALS && key.until() <= CUBE_INTERVALS && key.from() <= key.until())
            .then_some(key)
    }

    pub(super) fn number(self) -> u64 {
        self.0
    }

    #[inline]
    pub(super) fn site(self) -> u32 {
        (self.0 >> 32) as u32
    }

    pub(super) fn with_site(self, site: u32) -> CellKey {
        CellKey(self.0 & u64::from(u32::MAX) | u64::from(site) << 32)
    }

    #[inline]
    pub(super) fn allocated(self) -> Option<usize> {
        let interval = (self.0 >> 20 & 0x1ff) as usize;
        (interval < CUBE_INTERVALS).then_some(interval)
    }

    #[inline]
    pub(super) fn from(self) -> usize {
        (self.0 >> 11 & 0x1ff) as usize
    }

    #[inline]
    pub(super) fn until(self) -> usize {
        (self.0 >> 2 & 0x1ff) as usize
    }

    #[inline]
    pub(super) fn end(self) -> EndKind {
        match self.0 & 3 {
            0 => EndKind::Freed,
            1 => EndKind::Reattributed,
            _ => EndKind::Ended,
        }
    }

    /// True if the blocks are live at a boundary, which is the end of the interval before it.
    #[inline]
    pub(super) fn is_live_at(self, boundary: usize) -> bool {
        self.from() < boundary && boundary <= self.until()
    }
}

/// The contents of a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) bytes: u64,
    pub(super) blocks: u64,
}

impl Cell {
    /// Saturates: a damaged file can hold any numbers.
    #[inline]
    pub(super) fn add(&mut self, other: Cell) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.blocks = self.blocks.saturating_add(other.blocks);
    }
}

/// Cells while they are counted.
pub(super) type Cells = EventMap<CellKey, Cell>;
