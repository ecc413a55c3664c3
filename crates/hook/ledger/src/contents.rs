//! The contents of the blocks of a snapshot.

use heapledger_core::Bytes;

use crate::mapped::{OutOfMemory, Vector, Zeroed};
use crate::register::{Block, Key};

#[cfg(all(test, not(any(loom, miri))))]
mod tests;

/// A function that reads memory of this process that may not be there: pieces, given by addresses
/// and lengths in bytes, one after the other into a buffer. Returns the number of bytes that it
/// read before it came upon one that it could not read.
pub type Read = fn(&[[u64; 2]], &mut [u64]) -> usize;

/// The whole words of blocks. Filled while all locks are held, in memory that is there: frees of
/// these blocks wait.
pub(crate) struct Contents {
    read: Read,
    /// The blocks, and the words of each that are to be read.
    wanted: Vector<Extent>,
    /// The words that have been read, by their addresses.
    runs: Vector<Run>,
    words: Vector<u64>,
    /// The number of words that are in runs.
    used: usize,
}

/// The words of a block.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Extent {
    address: u64,
    words: u64,
}

impl Extent {
    fn end(&self) -> u64 {
        self.address + self.words * WORD
    }
}

/// Words that have been read: those of blocks that lie close to each other, and those between them.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Run {
    extent: Extent,
    /// The index of the first word.
    at: u64,
}

// SAFETY: `Zeroed` requires that every field is valid when all its bytes are zero. Both are `u64`.
// 0 is a valid integer.
unsafe impl Zeroed for Extent {}
// SAFETY: `Zeroed` requires that every field is valid when all its bytes are zero. The fields are
// an `Extent`, which is `Zeroed` itself, and a `u64`.
unsafe impl Zeroed for Run {}

const WORD: u64 = 8;
/// Blocks no further apart than this are read as one: allocators keep a few words between them.
const GAP_MAX: u64 = 64;
/// Longer runs are not extended by further blocks.
const RUN_WORDS_MAX: u64 = 1 << 17;
/// Larger blocks are left out: the kernel would read only a part.
const BLOCK_WORDS_MAX: u64 = 1 << 27;
/// The largest number of runs, and of words, that are read at a time.
const PIECES: usize = 128;
const PIECES_WORDS_MAX: u64 = 1 << 27;

impl Contents {
    /// Creates contents with room for a number of blocks and their bytes, at most `bytes_max`;
    /// somewhat more blocks may come.
    pub(crate) fn ready(blocks: u64, bytes: Bytes, bytes_max: Bytes, read: Read) -> Result<Contents, OutOfMemory> {
        let blocks = blocks.saturating_add(blocks / 8 + 1024);
        let bytes = bytes.0.saturating_add(bytes.0 / 8).saturating_add(blocks.saturating_mul(GAP_MAX)).min(bytes_max.0);
        let count = |number: u64| usize::try_from(number).map_err(|_| OutOfMemory);
        let (wanted, runs) = (Vector::ready(count(blocks)?)?, Vector::ready(count(blocks)?)?);
        let mut words = Vector::zeroed(count(bytes / WORD)?)?;
        words.touch();
        Ok(Contents { read, wanted, runs, words, used: 0 })
    }

    /// Notes that a block is to be read, if it is in the main heap.
    pub(crate) fn want(&mut self, key: Key, block: Block) -> Result<(), OutOfMemory> {
        let words = block.size.0 / WORD;
        if block.untracked || key.pool() != 0 || !(1..=BLOCK_WORDS_MAX).contains(&words) {
            return Ok(());
        }
        self.wanted.push(Extent { address: key.address(), words })
    }

    /// Reads the noted blocks, as far as there is room.
    pub(crate) fn read(&mut self) -> Result<(), OutOfMemory> {
        self.wanted.sort_unstable_by_key(|extent| extent.address);
        let mut from = 0;
        while from < self.wanted.len() {
            let Some(next) = self.read_some(from)? else { break };
            from = next;
        }
        Ok(())
    }

    /// Reads a few runs, from a block on. Returns the block to go on with; `None` if there is no
    /// room.
    fn read_some(&mut self, from: usize) -> Result<Option<usize>, OutOfMemory> {
        let mut pieces = [[0_u64; 2]; PIECES];
        // The first block of each piece, and the one behind the last.
        let mut firsts = [from; PIECES + 1];
        let (mut count, mut next, mut words) = (0, from, 0);
        let room = (self.words.len() - self.used) as u64;
        while count < PIECES {
            let words_max = room.min(PIECES_WORDS_MAX) - words;
            let Some((run, behind)) = self.run(next, words_max) else { break };
            if run.words > words_max {
                break;
            }
            pieces[count] = [run.address, run.words * WORD];
            (count, next, words) = (count + 1, behind, words + run.words);
            firsts[count] = next;
        }
        let Some(room) = self.words.get_mut(self.used..).filter(|_| count > 0) else { return Ok(None) };
        let mut read = (self.read)(&pieces[..count], room) as u64;
        for (number, &[address, bytes]) in pieces[..count].iter().enumerate() {
            let words = read.min(bytes) / WORD;
            if words > 0 {
                self.runs.push(Run { extent: Extent { address, words }, at: self.used as u64 })?;
                self.used += words as usize;
            }
            if read < bytes {
                // Some byte cannot be read: go on with the next block behind it.
                let (stopped, blocks) = (address + read, firsts[number]..firsts[number + 1]);
                let behind = self.wanted.get(blocks.clone()).unwrap_or(&[]);
                return Ok(Some(blocks.start + behind.partition_point(|block| block.address <= stopped)));
            }
            read -= bytes;
        }
        Ok(Some(next))
    }

    /// Returns the run that begins with a block, and the block behind it. It has at most
    /// `words_max` words, unless its first block alone has more.
    fn run(&self, first: usize, words_max: u64) -> Option<(Extent, usize)> {
        let mut run = *self.wanted.get(first)?;
        let mut next = first + 1;
        while let Some(block) = self.wanted.get(next) {
            let end = block.end().max(run.end());
            let words = (end - run.address) / WORD;
            let is_near = block.address <= run.end() + GAP_MAX && is_aligned(run.address ^ block.address);
            if !is_near || words > words_max.min(RUN_WORDS_MAX) {
                break;
            }
            run.words = words;
            next += 1;
        }
        Some((run, next))
    }

    /// Returns the whole words of a block; `None` if they were not read.
    pub(crate) fn get(&self, key: Key, size: Bytes) -> Option<&[u64]> {
        let (address, words) = (key.address(), size.0 / WORD);
        if key.pool() != 0 {
            return None;
        }
        if words == 0 {
            return Some(&[]);
        }
        let behind = self.runs.partition_point(|run| run.extent.address <= address);
        let Run { extent, at } = *self.runs.get(behind.checked_sub(1)?)?;
        let end = address.checked_add(words.checked_mul(WORD)?)?;
        let start = usize::try_from(at + (address - extent.address) / WORD).ok()?;
        if end > extent.end() || !is_aligned(address - extent.address) {
            return None;
        }
        self.words.get(start..start + words as usize)
    }

    pub(crate) fn bytes_mapped(&self) -> usize {
        self.wanted.bytes_mapped() + self.runs.bytes_mapped() + self.words.bytes_mapped()
    }
}

fn is_aligned(distance: u64) -> bool {
    distance.is_multiple_of(WORD)
}
