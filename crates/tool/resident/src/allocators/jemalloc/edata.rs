//! The description of an extent: `edata_t`.

use std::ops::Range;

use super::super::CachedReader;
use super::sizes;
use crate::glibc::Piece;
use crate::pages::PAGE;

/// The size of a description, to which it is aligned.
const SIZE: u64 = 128;
/// The words of it: flags, address, size, and so on, and from the 8th on the bitmap of a slab.
const WORDS: usize = (SIZE / 8) as usize;
const BITMAP: usize = 8;
/// The most blocks of a slab.
const BLOCKS_MAX: u64 = 512;
const ADDRESS_MAX: u64 = 1 << 47;

/// An extent: some pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Edata {
    /// The addresses, by whole pages.
    pub(super) range: Range<u64>,
    pub(super) state: State,
    pub(super) arena: u32,
    /// The address of the only block, if this is no slab.
    address: u64,
    /// The size of its block or blocks; 0 if it is free.
    block_size: u64,
    /// The bits of the blocks of a slab that are free.
    free: Option<[u64; 8]>,
}

/// The use of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// An extent with blocks.
    Active,
    /// A free extent.
    Dirty,
    /// A free extent whose pages the system may take.
    Muzzy,
    /// A free extent whose pages were given back.
    Retained,
    /// A free extent that is just being changed.
    Changing,
}

impl Edata {
    /// Reads a description. `None` if it makes no sense.
    pub(super) fn read(reader: &mut CachedReader<'_>, at: u64) -> Option<Edata> {
        if at == 0 || !at.is_multiple_of(SIZE) {
            return None;
        }
        Edata::parse(&reader.words::<WORDS>(at)?)
    }

    fn parse(words: &[u64; WORDS]) -> Option<Edata> {
        let field = |shift: u32, width: u32| words[0] >> shift & ((1 << width) - 1);
        let (arena, is_slab) = (field(0, 12) as u32, field(12, 1) == 1);
        let (class, free_count) = (field(20, 8) as u32, field(28, 10));
        let state = match field(17, 3) {
            0 => State::Active,
            1 => State::Dirty,
            2 => State::Muzzy,
            3 => State::Retained,
            4 | 5 => State::Changing,
            _ => return None,
        };
        let (address, size) = (words[1], words[2] / PAGE * PAGE);
        let start = address / PAGE * PAGE;
        let end = start.checked_add(size)?;
        // The bits above the fields are zeroes.
        if start == 0 || size == 0 || end > ADDRESS_MAX || words[0] >> 45 != 0 {
            return None;
        }
        let mut edata = Edata { range: start..end, state, arena, address, block_size: 0, free: None };
        if state != State::Active {
            return Some(edata);
        }
        edata.block_size = sizes::size_of(class)?;
        if !is_slab {
            let block_end = address.checked_add(edata.block_size)?;
            return (block_end <= end).then_some(edata);
        }
        let blocks = size / edata.block_size;
        let is_whole = size.is_multiple_of(edata.block_size) && (1..=BLOCKS_MAX).contains(&blocks) && address == start;
        // The words behind those that the slab needs are of a former use.
        let mut free: [u64; 8] = words[BITMAP..BITMAP + 8].try_into().ok()?;
        for (first, word) in (0..).step_by(64).zip(&mut free) {
            let count: u64 = blocks.saturating_sub(first).min(64);
            *word &= u64::MAX.checked_shr(64 - count as u32).unwrap_or(0);
        }
        let bits: u32 = free.iter().map(|word| word.count_ones()).sum();
        edata.free = Some(free);
        // The bitmap is written before the number of free blocks, so that they may differ by the
        // blocks that are just taken.
        let is_near = u64::from(bits).abs_diff(free_count) <= BLOCKS_MAX / 2 && u64::from(bits) <= blocks;
        (is_whole && is_near).then_some(edata)
    }

    /// Calls a function with the addresses of each block in use.
    pub(super) fn for_each_used(&self, mut visit: impl FnMut(Range<u64>)) {
        let size = self.block_size;
        match &self.free {
            None if size == 0 => {}
            None => visit(self.address..self.address + size),
            Some(free) => {
                let blocks = (self.range.end - self.range.start) / size;
                for block in (0..blocks).filter(|block| free[(block / 64) as usize] >> (block % 64) & 1 == 0) {
                    let start = self.range.start + block * size;
                    visit(start..start + size);
                }
            }
        }
    }

    /// Returns the blocks in use. `resident` are the resident bytes of the extent; those of a range
    /// are asked for if only a part of it is resident.
    pub(super) fn used(&self, resident: u64, resident_within: impl Fn(Range<u64>) -> u64) -> Piece {
        let size = self.block_size;
        let is_resident = resident == self.range.end - self.range.start;
        let Some(free) = &self.free else {
            let resident = if is_resident { size } else { resident_within(self.address..self.address + size) };
            return Piece { chunks: 1, bytes: size, resident };
        };
        let blocks = (self.range.end - self.range.start) / size;
        let used = (0..blocks).filter(|block| free[(block / 64) as usize] >> (block % 64) & 1 == 0);
        if is_resident {
            let count = used.count() as u64;
            return Piece { chunks: count, bytes: count * size, resident: count * size };
        }
        let mut piece = Piece::default();
        for block in used {
            let start = self.range.start + block * size;
            piece.add(size, resident_within(start..start + size));
        }
        piece
    }
}
