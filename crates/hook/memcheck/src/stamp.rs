//! The stamp of a block in the register: the call that allocated it, and its canaries.

use heapledger_core::{StackId, TypeId};
use heapledger_ledger::LiveBlock;

use crate::call::Call;
use crate::canary::{Front, Guarded};

/// A number: the call in bits 0 to 7, then the two flags, from bit 16 on the number of the `Front`,
/// and from bit 24 on, in quarantine, the call that freed the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp(pub(crate) u32);

const IS_GUARDED: u32 = 1 << 8;
const IS_QUARANTINED: u32 = 1 << 9;
const FRONT_SHIFT: u32 = 16;
const FREED_BY_SHIFT: u32 = 24;

impl Stamp {
    /// Returns the stamp of a live block; `is_guarded` says if its canaries can be inspected.
    pub(crate) fn new(call: Call, front: Front, is_guarded: bool) -> Stamp {
        let flag = if is_guarded { IS_GUARDED } else { 0 };
        Stamp(call as u32 | flag | u32::from(front.number()) << FRONT_SHIFT)
    }

    /// Returns the stamp of the same block in quarantine.
    pub(crate) fn quarantined(self, freed_by: u8) -> Stamp {
        Stamp(self.0 | IS_QUARANTINED | u32::from(freed_by) << FREED_BY_SHIFT)
    }

    pub(crate) fn of(block: &LiveBlock) -> Stamp {
        let TypeId(number) = block.stamp;
        Stamp(number)
    }

    pub(crate) fn allocated_by(self) -> Option<Call> {
        Call::from_number(self.0 as u8)
    }

    /// Returns the call that freed the block, which is in quarantine.
    pub(crate) fn freed_by(self) -> Option<Call> {
        Call::from_number((self.0 >> FREED_BY_SHIFT) as u8)
    }

    pub(crate) fn front(self) -> Front {
        Front::from_number((self.0 >> FRONT_SHIFT) as u8)
    }

    pub(crate) fn is_guarded(self) -> bool {
        self.0 & IS_GUARDED != 0
    }

    pub(crate) fn is_quarantined(self) -> bool {
        self.0 & IS_QUARANTINED != 0
    }
}

/// Returns the stack that freed a block in quarantine.
pub(crate) fn freed_at(block: &LiveBlock) -> StackId {
    StackId(block.serial.0 as u32)
}

/// Returns a block of the register with its canaries, if these can be inspected.
pub(crate) fn guarded(block: &LiveBlock) -> Option<Guarded> {
    let stamp = Stamp::of(block);
    let guarded = Guarded { address: block.key.0 as usize, usable: block.usable.0 as usize, front: stamp.front() };
    stamp.is_guarded().then_some(guarded)
}
