//! The canaries: bytes in front of and behind each block that no program has reason to write, and
//! the bytes that a freed block is filled with while it is in quarantine.
//!
//! The canary in front is also a header: it says where the allocator's own block begins, for calls
//! in which the register cannot be asked.

use core::ops::Range;
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering, fence};

use heapledger_core::{sandbox, sys};

use crate::arch::{load, prefetch};

/// The length of the canary in front: the number of bytes before the beginning in which a write is
/// found. Also the least and the usual length of the one behind.
pub const LENGTH: usize = 16;
/// The largest length of the canary behind a block.
pub const BEHIND_MAX: usize = 1 << 20;

/// The length of the canary behind each block, a constant once the checks run.
static BEHIND: AtomicUsize = AtomicUsize::new(LENGTH);

/// Sets the length of the canary behind each block: the number of bytes past the end in which a
/// write is found. At least [`LENGTH`] and at most [`BEHIND_MAX`]. Takes effect if the checks have
/// not been started yet.
pub fn set_canary(bytes: usize) {
    if !crate::is_running() {
        BEHIND.store(bytes.clamp(LENGTH, BEHIND_MAX), Ordering::Relaxed);
    }
}

/// Returns the length of the canary behind each block.
pub(crate) fn behind() -> usize {
    BEHIND.load(Ordering::Relaxed)
}
/// The byte that blocks in quarantine consist of. Eight of them are no address: a program that
/// follows a pointer from a freed block ends with SIGSEGV.
pub const FILL: u8 = 0xe5;
/// Not 0, which is what strings end with.
const BYTE: u8 = 0xc9;
const LIVE: u64 = u64::from_ne_bytes([BYTE; 8]);
const FREED: u64 = u64::from_ne_bytes([FILL; 8]);

/// The distance from the beginning of the allocator's block to that of the program's: 0 without a
/// canary in front, else a power of two of at least [`LENGTH`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Front(u8);

impl Front {
    pub(crate) const NONE: Front = Front(0);
    /// The distance for blocks of `malloc` and its relatives.
    pub(crate) const PLAIN: Front = Front(LENGTH.ilog2() as u8);
    /// The largest: with more, blocks of a large alignment would take twice the addresses.
    const MAX: usize = 1 << 20;

    /// Returns the distance that keeps an alignment. There is no canary in front of a block whose
    /// alignment is not a power of two, or above 1 MiB.
    pub(crate) fn of_alignment(alignment: usize) -> Front {
        if !alignment.is_power_of_two() || alignment > Front::MAX {
            return Front::NONE;
        }
        Front(alignment.max(LENGTH).ilog2() as u8)
    }

    /// Returns the distance with this [number](Front::number); none for numbers that are not of a
    /// distance.
    pub(crate) fn from_number(number: u8) -> Front {
        let range = Front::PLAIN.0..=Front::MAX.ilog2() as u8;
        if range.contains(&number) { Front(number) } else { Front::NONE }
    }

    pub(crate) fn number(self) -> u8 {
        self.0
    }

    pub(crate) fn bytes(self) -> usize {
        if self == Front::NONE { 0 } else { 1 << self.0 }
    }
}

/// A block with canaries around it.
///
/// The unsafe functions here have the **contract of guarded blocks**: the allocator's block, which
/// begins `front` before `address`, has at least `usable` and [`behind`] bytes from `address` on,
/// and stays allocated until they return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Guarded {
    /// The address that the program has.
    pub(crate) address: usize,
    /// The bytes that the program may use.
    pub(crate) usable: usize,
    pub(crate) front: Front,
}

/// The first bytes of a range that was found changed, as they were found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FoundBytes {
    bytes: [u8; LENGTH],
    length: u8,
}

impl FoundBytes {
    /// Returns the bytes, at most 16. There are none if no changed bytes were looked for.
    pub fn as_slice(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or(&[])
    }
}

/// Bytes that are not as they were written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Changed {
    /// From the first to behind the last, as offsets from the beginning of the block.
    pub(crate) range: Range<i64>,
    pub(crate) found: FoundBytes,
}

impl Guarded {
    /// Returns the address of the allocator's block.
    pub(crate) fn underlying(self) -> usize {
        self.address - self.front.bytes()
    }

    /// Returns the byte at `offset` of the block, at which everything may be written.
    fn at(self, offset: i64) -> *mut u8 {
        ptr::with_exposed_provenance_mut(self.address.wrapping_add_signed(offset as isize))
    }

    /// Returns the first word of the canary in front: size and distance, with a check sum.
    fn header(self) -> u64 {
        let value = self.usable as u64 & SIZE_MASK | u64::from(self.front.0) << FRONT_SHIFT;
        let sum = (value ^ self.address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
        (value | sum << SUM_SHIFT) ^ LIVE
    }

    /// Writes the canaries of a new block.
    ///
    /// # Safety
    ///
    /// The contract of guarded blocks; and nobody else uses the block.
    pub(crate) unsafe fn write(self) {
        // SAFETY: the bytes from `usable` on for `behind` are part of the allocation, by the
        // contract of guarded blocks, and nobody else uses them. `write_front` has this contract.
        unsafe {
            self.at(self.usable as i64).write_bytes(BYTE, behind());
            self.write_front(LIVE);
        }
    }

    /// Fills a block that is freed, and its canary behind; last, the canary in front says so.
    ///
    /// # Safety
    ///
    /// As for [`Guarded::write`].
    pub(crate) unsafe fn fill(self) {
        // SAFETY: as many bytes from `address` on are part of the allocation, by the contract of
        // guarded blocks, and nobody else uses them. `write_front` has this contract.
        unsafe {
            self.at(0).write_bytes(FILL, self.usable + behind());
            // For `is_being_filled`: x86-64 keeps the order of writes.
            fence(Ordering::Release);
            self.write_front(FREED);
        }
    }

    /// # Safety
    ///
    /// As for [`Guarded::write`].
    unsafe fn write_front(self, state: u64) {
        if self.front != Front::NONE {
            // SAFETY: `front` is at least `LENGTH`, which is two words, and so many bytes before
            // `address` are part of the allocation, by the contract of guarded blocks. The words
            // need not be aligned.
            unsafe { self.at(-(LENGTH as i64)).cast::<[u64; 2]>().write_unaligned([self.header(), state]) };
        }
    }

    /// Returns the changed bytes of the canary in front of a live block.
    ///
    /// # Safety
    ///
    /// The contract of guarded blocks.
    pub(crate) unsafe fn changed_in_front(self) -> Option<Changed> {
        // SAFETY: `has_front` and `changed` require that the canary is part of the allocation. It
        // is in front of the block, by the contract of guarded blocks.
        unsafe {
            if self.front == Front::NONE || self.has_front(LIVE) {
                return None;
            }
            self.changed(-(LENGTH as i64)..0, self.expected(BYTE, LIVE))
        }
    }

    /// Returns the changed bytes of the canary behind a live block.
    ///
    /// # Safety
    ///
    /// The contract of guarded blocks.
    pub(crate) unsafe fn changed_behind(self) -> Option<Changed> {
        let end = self.usable as i64;
        // SAFETY: `is_all` and `changed` require that the bytes of the range are part of the
        // allocation. The canary is behind the usable bytes, by the contract of guarded blocks.
        unsafe {
            if self.is_all(end, behind(), LIVE) {
                return None;
            }
            self.changed(end..end + behind() as i64, self.expected(BYTE, LIVE))
        }
    }

    /// Returns the changed bytes of a block that [`Guarded::fill`] has filled, and of its canaries.
    ///
    /// # Safety
    ///
    /// The contract of guarded blocks.
    pub(crate) unsafe fn changed_since_filled(self) -> Option<Changed> {
        let start = if self.front == Front::NONE { 0 } else { -(LENGTH as i64) };
        let end = self.usable + behind();
        // SAFETY: `has_front`, `is_all` and `changed` require that the bytes are part of the
        // allocation. They are the block and its canaries, by the contract of guarded blocks.
        unsafe {
            if (self.front == Front::NONE || self.has_front(FREED)) && self.is_all(0, end, FREED) {
                return None;
            }
            self.changed(start..end as i64, self.expected(FILL, FREED))
        }
    }

    /// True if another thread may have yet to fill this block, which is in quarantine: its state
    /// is not that of a filled one. A write to the state itself is found when the block leaves.
    ///
    /// # Safety
    ///
    /// The contract of guarded blocks; `front` is not [`Front::NONE`].
    pub(crate) unsafe fn is_being_filled(self) -> bool {
        // SAFETY: `load` requires readable bytes. The eight bytes in front of the block are part of
        // the allocation, by the contract of guarded blocks.
        let state = unsafe { load(self.at(-8)) };
        fence(Ordering::Acquire);
        state != FREED
    }

    /// True if the canary in front is as it was written, with this state.
    ///
    /// # Safety
    ///
    /// The contract of guarded blocks; `front` is not [`Front::NONE`].
    unsafe fn has_front(self, state: u64) -> bool {
        // SAFETY: `load` requires readable bytes. The `LENGTH` bytes in front of the block, which
        // are two words, are part of the allocation, by the contract of guarded blocks.
        unsafe { load(self.at(-(LENGTH as i64))) == self.header() && load(self.at(-8)) == state }
    }

    /// True if `length` bytes from `offset` on are eight times the same byte, as `word` is.
    ///
    /// # Safety
    ///
    /// The contract of guarded blocks; the range is within the usable bytes and the canary behind
    /// them, and has at least eight bytes.
    unsafe fn is_all(self, offset: i64, length: usize, word: u64) -> bool {
        // The last word overlaps the one before.
        let last = offset + length as i64 - 8;
        // SAFETY: `load` requires readable bytes. Each word is in the range, which is part of the
        // allocation by this function's `# Safety`.
        let differs = |at: i64| unsafe { load(self.at(at)) ^ word };
        let (words, end) = (length as i64 / 8, offset + length as i64 / 8 * 8);
        // A line at once, so that there are few branches.
        let is_line = |at: i64| (0..8).fold(0, |bits, number| bits | differs(at + number * 8)) == 0;
        let lines = offset..offset + words / 8 * 64;
        lines.clone().step_by(64).all(is_line)
            && (lines.end..end).step_by(8).fold(0, |bits, at| bits | differs(at)) == 0
            && differs(last) == 0
    }

    /// Brings the block near, which is to be searched soon.
    pub(crate) fn prefetch(self) {
        const LINE: usize = 64;
        const LINES_MAX: usize = 4;
        let start = self.at(-(LENGTH as i64));
        let lines = (self.usable + 2 * LENGTH).div_ceil(LINE).min(LINES_MAX);
        (0..lines).for_each(|line| prefetch(start.wrapping_add(line * LINE)));
    }

    /// Returns the function that says which byte is expected at an offset, in a block whose bytes
    /// and canary behind are `byte`, and whose canary in front ends with `state`.
    fn expected(self, byte: u8, state: u64) -> impl Fn(i64) -> u8 {
        let front = [self.header().to_ne_bytes(), state.to_ne_bytes()];
        move |offset| match usize::try_from(offset + LENGTH as i64) {
            Ok(at) if offset < 0 => front.as_flattened().get(at).copied().unwrap_or(byte),
            _ => byte,
        }
    }

    /// Returns the bytes of a range that are not as expected.
    ///
    /// # Safety
    ///
    /// The range, of offsets from `address`, is in the allocator's block, which stays allocated
    /// until this returns.
    unsafe fn changed(self, range: Range<i64>, expected: impl Fn(i64) -> u8) -> Option<Changed> {
        // The program may write there at this moment: hence volatile reads, byte by byte.
        // SAFETY: `read_volatile` requires that the byte is part of the allocation. This function's
        // `# Safety` requires that of all offsets in the range.
        let read = |at: i64| unsafe { self.at(at).read_volatile() };
        let is_changed = |&at: &i64| read(at) != expected(at);
        let first = range.clone().find(is_changed)?;
        let last = range.rev().find(is_changed).unwrap_or(first);
        let mut found = FoundBytes::default();
        for (byte, at) in found.bytes.iter_mut().zip(first..=last) {
            *byte = read(at);
            found.length += 1;
        }
        Some(Changed { range: first..last + 1, found })
    }
}

const SIZE_MASK: u64 = (1 << FRONT_SHIFT) - 1;
const FRONT_SHIFT: u32 = 48;
const SUM_SHIFT: u32 = 56;

/// Returns the block at an address, and true if it is in quarantine, by the canary in front of it;
/// `None` if there is none. For calls in which the register cannot be asked: it may take a system
/// call.
pub(crate) fn find(address: usize) -> Option<(Guarded, bool)> {
    const PAGE: usize = 4096;
    let start = address.checked_sub(LENGTH)?;
    // In a sandbox the kernel is not asked: a block has memory of its page in front of it, unless
    // the page begins there. Elsewhere it says so for the two pages, without reading what is there,
    // which containers may refuse (`process_vm_readv`).
    let is_there = match sandbox::is_entered() {
        true => start / PAGE == address / PAGE,
        false => sys::is_readable(start) && sys::is_readable(address - 1),
    };
    if !is_there {
        return None;
    }
    let words = ptr::with_exposed_provenance::<[u64; 2]>(start);
    // SAFETY: `read_unaligned` requires readable memory. The two words are in at most two pages,
    // those of the first and the last byte, which the kernel has just found readable; they stay,
    // since `address` is one that the program gives as a block that is its own. In a sandbox they
    // are in the page of that block.
    let [header, state] = unsafe { words.read_unaligned() };
    let value = header ^ LIVE;
    let front = Front::from_number((value >> FRONT_SHIFT) as u8);
    let guarded = Guarded { address, usable: (value & SIZE_MASK) as usize, front };
    let is_valid = front != Front::NONE && guarded.header() == header && [LIVE, FREED].contains(&state);
    is_valid.then_some((guarded, state == FREED))
}
