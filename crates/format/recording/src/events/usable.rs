//! The usable sizes of a chunk's blocks, as exceptions from a prediction.
//!
//! Allocators round a size up the same way nearly always, so the usable size of a block is
//! predicted from earlier blocks of the same size. The column has only the blocks for which the
//! prediction is wrong. The reader predicts what the writer predicted.

use heapledger_core::{Api, Bytes};

use super::{Event, EventKind};
use crate::columns;
use crate::error::Reason;
use crate::varint::{self, Varints};

/// The value for a block whose usable size is not known. Others have the usable size less the
/// requested size, plus 1.
const NOT_KNOWN: u64 = 0;

/// Returns the value for a block. `None` if the column cannot hold its usable size: one below its
/// requested size, or `u64::MAX`.
pub(super) fn value(size: Bytes, usable: Option<Bytes>) -> Option<u64> {
    match usable {
        None => Some(NOT_KNOWN),
        Some(Bytes(u64::MAX)) => None,
        Some(usable) => usable.0.checked_sub(size.0)?.checked_add(1),
    }
}

/// Returns the usable size that a value stands for.
fn usable(size: Bytes, value: u64) -> Option<Bytes> {
    value.checked_sub(1).map(|slop| Bytes(size.0.saturating_add(slop)))
}

/// Returns the requested size of the block that an event allocates from the allocator. A pool's
/// blocks have no usable sizes.
fn allocated(event: &Event) -> Option<Bytes> {
    match event.kind {
        EventKind::Alloc { size, .. } | EventKind::Realloc { size, .. } => {
            (event.call != Api::PoolAlloc.into()).then_some(size)
        }
        _ => None,
    }
}

/// The predicted value for each size: a hash table with open addressing.
#[derive(Debug, Default)]
pub(super) struct Predictions {
    /// At least half of the slots are free.
    slots: Vec<Slot>,
    length: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    is_taken: bool,
    size: u64,
    predicted: u64,
    /// The value of the last block, if the prediction was wrong.
    other: Option<u64>,
}

const SLOTS_MIN: usize = 256;

impl Predictions {
    pub(super) fn clear(&mut self) {
        if self.length > 0 {
            self.slots.fill(Slot::default());
            self.length = 0;
        }
    }

    /// Returns the slot of a size, or the free one where it belongs.
    #[inline]
    fn find(&self, size: u64) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = (size.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & mask;
        while self.slots[at].is_taken && self.slots[at].size != size {
            at = (at + 1) & mask;
        }
        at
    }

    /// Returns the slot of a size, made if it was not there.
    #[inline]
    fn slot(&mut self, size: u64) -> &mut Slot {
        if self.length >= self.slots.len() / 2 {
            self.grow();
        }
        let at = self.find(size);
        let slot = &mut self.slots[at];
        if !slot.is_taken {
            *slot = Slot { is_taken: true, size, predicted: NOT_KNOWN, other: None };
            self.length += 1;
        }
        slot
    }

    #[cold]
    fn grow(&mut self) {
        let length = (self.slots.len() * 2).max(SLOTS_MIN);
        let old = std::mem::replace(&mut self.slots, vec![Slot::default(); length]);
        for slot in old.into_iter().filter(|slot| slot.is_taken) {
            let at = self.find(slot.size);
            self.slots[at] = slot;
        }
    }
}

impl Slot {
    /// Learns the value of a block. Another one has to come twice in a row to be predicted, so that
    /// a rare one costs one exception, not two.
    #[inline]
    fn learn(&mut self, value: u64) {
        if value == self.predicted {
            self.other = None;
        } else if self.predicted == NOT_KNOWN || self.other == Some(value) {
            (self.predicted, self.other) = (value, None);
        } else {
            self.other = Some(value);
        }
    }
}

/// The column while a chunk is written.
#[derive(Debug, Default)]
pub(super) struct UsableColumn {
    predictions: Predictions,
    pub(super) bytes: Vec<u8>,
    /// The serial of the block before the first one that was not predicted yet, from the chunk's
    /// first.
    next: u64,
}

impl UsableColumn {
    pub(super) fn begin(&mut self) {
        self.predictions.clear();
        self.bytes.clear();
        self.next = 0;
    }

    /// True if blocks without a usable size must be added, too.
    #[inline]
    pub(super) fn is_any(&self) -> bool {
        !self.bytes.is_empty()
    }

    /// Adds the block with this serial, counted from the chunk's first. Events that allocate
    /// nothing are ignored.
    #[inline]
    pub(super) fn push(&mut self, event: &Event, serial: u64, value: u64) {
        let Some(size) = allocated(event) else { return };
        let slot = self.predictions.slot(size.0);
        if slot.predicted != value {
            varint::put(&mut self.bytes, serial - self.next);
            varint::put(&mut self.bytes, value);
            self.next = serial;
        }
        slot.learn(value);
    }
}

/// Appends the usable size of each block that the events allocate, in the order of serials: 0 if it
/// is not known, else the usable size plus 1, saturated.
pub(super) fn decode(
    mut column: Varints<'_>,
    events: &[Event],
    predictions: &mut Predictions,
    sizes: &mut Vec<u64>,
) -> Result<(), Reason> {
    predictions.clear();
    let mut next = |before: u64| -> Result<Option<(u64, u64)>, Reason> {
        if column.is_empty() {
            return Ok(None);
        }
        let step = column.next().ok_or(columns::TOO_SHORT)?;
        Ok(Some((before.saturating_add(step), column.next().ok_or(columns::TOO_SHORT)?)))
    };
    let mut exception = next(0)?;
    let allocations = events.iter().filter(|event| event.kind.allocates());
    for (serial, event) in (0..).zip(allocations) {
        let Some(size) = allocated(event) else {
            sizes.push(0);
            continue;
        };
        let slot = predictions.slot(size.0);
        let value = match exception {
            Some((at, value)) if at == serial => {
                exception = next(serial)?;
                value
            }
            _ => slot.predicted,
        };
        slot.learn(value);
        sizes.push(usable(size, value).map_or(0, |usable| usable.0.saturating_add(1)));
    }
    match exception {
        None => Ok(()),
        Some(_) => Err(Reason::Invalid("the usable size of a block that is not there")),
    }
}
