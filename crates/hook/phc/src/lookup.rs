//! The look-up of an address: what was there, for a report or a crash reporter.

use heapledger_core::StackId;

use crate::region::Position;
use crate::slots::{self, PhcEvent, Slot, SlotState};

/// The kinds of addresses, as Mozilla's PHC numbers them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum PhcPageKind {
    /// Not the checker's, or not known because its lock was held.
    #[default]
    Unknown = 0,
    /// A slot that was never used.
    NeverAllocatedPage = 1,
    /// The slot of a live block.
    InUsePage = 2,
    /// The slot of a block that was freed.
    FreedPage = 3,
    /// A page between two slots.
    GuardPage = 4,
}

impl PhcPageKind {
    /// Returns the name in a crash report.
    pub fn name(self) -> &'static str {
        match self {
            PhcPageKind::Unknown => "Unknown",
            PhcPageKind::NeverAllocatedPage => "NeverAllocatedPage",
            PhcPageKind::InUsePage => "InUsePage",
            PhcPageKind::FreedPage => "FreedPage",
            PhcPageKind::GuardPage => "GuardPage",
        }
    }
}

/// A block, live or freed, in the checker's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PhcBlock {
    /// The address of the block.
    pub base: usize,
    /// The size that the program asked for. The usable size is the same.
    pub size: usize,
    /// The call that allocated the block.
    pub allocated: PhcEvent,
    /// The call that freed the block. `None` if it is live.
    pub freed: Option<PhcEvent>,
}

/// The answer of a look-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PhcLookup {
    /// The kind of the address.
    pub kind: PhcPageKind,
    /// The block in the slot; for a guard page, the block that is blamed: that of the slot before
    /// in the lower half of the page, and that of the slot behind in the upper half.
    pub block: Option<PhcBlock>,
    /// True in the lower half of a guard page: an access there has overflowed the block.
    pub is_overflow: bool,
    /// True if the checker's lock was held, so that nothing is known.
    pub was_locked: bool,
}

/// Looks an address up. Never waits: in any thread, also in a signal handler.
pub fn lookup(address: usize) -> PhcLookup {
    lookup_within(address, 0)
}

/// Looks an address up, and waits about so many milliseconds for the lock if it is held.
pub(crate) fn lookup_within(address: usize, milliseconds: u32) -> PhcLookup {
    if !slots::contains(address) {
        return PhcLookup::default();
    }
    match slots::within(milliseconds, |slots| slots.find(address)) {
        Some(found) => PhcLookup::of(found),
        None => PhcLookup { was_locked: true, ..PhcLookup::default() },
    }
}

impl PhcLookup {
    pub(crate) fn of(found: Option<(Position, Option<Slot>)>) -> PhcLookup {
        let Some((position, slot)) = found else { return PhcLookup::default() };
        let block = slot.and_then(block);
        match position {
            Position::Slot(_) => {
                let kind = match slot.map_or(SlotState::NeverAllocated, |slot| slot.state) {
                    SlotState::NeverAllocated => PhcPageKind::NeverAllocatedPage,
                    SlotState::InUse => PhcPageKind::InUsePage,
                    SlotState::Freed => PhcPageKind::FreedPage,
                };
                PhcLookup { kind, block, ..PhcLookup::default() }
            }
            // The outer halves of the outermost guards.
            Position::Guard { nearest: None, .. } => PhcLookup::default(),
            Position::Guard { is_lower, .. } => {
                PhcLookup { kind: PhcPageKind::GuardPage, block, is_overflow: is_lower, ..PhcLookup::default() }
            }
        }
    }
}

fn block(slot: Slot) -> Option<PhcBlock> {
    let Slot { start: base, size, allocated, freed, state, .. } = slot;
    match state {
        SlotState::NeverAllocated => None,
        SlotState::InUse => Some(PhcBlock { base, size, allocated, freed: None }),
        SlotState::Freed => Some(PhcBlock { base, size, allocated, freed: Some(freed) }),
    }
}

/// Returns the addresses of a stack, innermost first: each in the instruction that made the call.
pub fn frames(stack: StackId) -> impl Iterator<Item = u64> {
    crate::stack::frames(stack)
}
