//! The memory of a run's slices: how much of it earlier runs have touched, or the system has back.

use super::Run;
use crate::geometry::{PAGE, SLICE};
use crate::page;

/// The tag in [`Run::touched`] of a free slice whose memory was returned to the system.
const RETURNED: u8 = 0x40;
/// The tag in [`Run::touched`] of a free slice that was decommitted.
const DECOMMITTED: u8 = 0x80;

impl Run {
    /// Returns the number of pages of the slice that may have memory, from earlier runs or this
    /// one, in units of [`PAGE`].
    pub(crate) fn pages(&self) -> usize {
        let own = page::up(usize::from(self.carved.get()) * self.block_size()) / PAGE;
        own.max(self.touched()).min(SLICE / PAGE)
    }

    /// Returns the number of pages of the slice that may have memory from earlier runs.
    pub(crate) fn touched(&self) -> usize {
        usize::from(self.touched.get() & !(RETURNED | DECOMMITTED))
    }

    /// Marks a free slice as one whose memory was returned to the system.
    pub(crate) fn set_returned(&self) {
        self.touched.set(RETURNED);
    }

    /// True if the slice had memory that was returned to the system.
    pub(crate) fn is_returned(&self) -> bool {
        self.touched.get() & (RETURNED | DECOMMITTED) != 0
    }

    /// True if the slice has to be committed before it is used.
    pub(crate) fn is_decommitted(&self) -> bool {
        self.touched.get() & DECOMMITTED != 0
    }

    /// Marks a free slice as decommitted. Nothing is known about its content afterwards.
    pub(crate) fn set_decommitted(&self) {
        self.touched.set((SLICE / PAGE) as u8 | DECOMMITTED);
    }

    /// Notes how many pages of the slice may have memory: at most those of a slice.
    pub(crate) fn set_touched(&self, pages: usize) {
        self.touched.set(pages as u8);
    }
}
