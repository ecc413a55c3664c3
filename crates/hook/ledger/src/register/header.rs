//! The header of a chunk: a tag for each of its slots.

use crate::arch::equal_bytes;
use crate::mapped::Zeroed;

/// A tag per slot, from the lowest byte, and in the top byte the number of entries that passed the
/// chunk: those that found it full and are further on. A count that reaches 255 stays there.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
pub(super) struct Header {
    pub(super) bytes: [u8; 16],
}

// SAFETY: `Zeroed` requires that every field is valid when all its bytes are zero. The field is 16
// `u8`. 0 is a valid integer.
unsafe impl Zeroed for Header {}

/// The tag of a free slot; that of a key is never zero.
pub(super) const FREE: u8 = 0;

/// The index of the count, and its largest value.
pub(super) const OVERFLOW: usize = SLOTS;
const OVERFLOW_MAX: u8 = 0xff;

impl Header {
    #[inline(always)]
    pub(super) fn find(self, tag: u8) -> Slots {
        Slots(equal_bytes(self.bytes, tag) & Slots::ALL)
    }

    #[inline(always)]
    pub(super) fn taken(self) -> Slots {
        Slots(!self.find(FREE).0 & Slots::ALL)
    }

    #[inline(always)]
    pub(super) fn set(&mut self, slot: usize, tag: u8) {
        self.bytes[slot % 16] = tag;
    }

    #[inline(always)]
    pub(super) fn has_overflowed(self) -> bool {
        self.bytes[OVERFLOW] != 0
    }

    pub(super) fn count_overflow(&mut self) {
        self.bytes[OVERFLOW] = self.bytes[OVERFLOW].saturating_add(1);
    }

    pub(super) fn uncount_overflow(&mut self) {
        if (1..OVERFLOW_MAX).contains(&self.bytes[OVERFLOW]) {
            self.bytes[OVERFLOW] -= 1;
        }
    }
}

/// A set of slots of a chunk, a bit each.
#[derive(Clone, Copy)]
pub(super) struct Slots(u32);

impl Slots {
    const ALL: u32 = (1 << SLOTS) - 1;

    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.0 == 0
    }
}

impl Iterator for Slots {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        let slot = self.0.trailing_zeros() as usize;
        self.0 &= self.0.wrapping_sub(1);
        (slot < SLOTS).then_some(slot)
    }
}

/// The number of slots in a chunk. With the count they make the 16 bytes of a header.
pub(super) const SLOTS: usize = 15;
