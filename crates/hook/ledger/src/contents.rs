//! What was in the blocks of a snapshot.

use heapledger_core::Bytes;

use crate::mapped::{OutOfMemory, Vector, Zeroed};
use crate::register::{Block, Key};

#[cfg(all(test, not(any(loom, miri))))]
mod tests;

/// Reads memory of this process that may not be there: pieces, by their addresses and lengths in bytes, one after the other
/// to where it is told. Returns how many bytes it could read before it came upon one that it could not.
pub type Read = fn(&[[u64; 2]], &mut [u64]) -> usize;

/// The whole words of blocks. Filled while all locks are held, in memory that is there: whoever frees a block waits.
pub(crate) struct Contents {
    read: Read,
    /// Blocks, and what of them is to be read.
    wanted: Vector<Extent>,
    /// What has been read, by its addresses.
    runs: Vector<Run>,
    words: Vector<u64>,
    /// How many of the words are in runs.
    used: usize,
}

/// Words of a block.
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

/// Words that have been read: of blocks that lie close to each other, and what is between them.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Run {
    extent: Extent,
    /// Where they are.
    at: u64,
}

// SAFETY: integers only.
unsafe impl Zeroed for Extent {}
// SAFETY: integers only.
unsafe impl Zeroed for Run {}

const WORD: u64 = 8;
/// Blocks no further apart than this are read as one: allocators keep a few words between them.
const GAP_MAX: u64 = 64;
/// Longer ones are read one by one.
const RUN_WORDS_MAX: u64 = 1 << 17;
/// Larger blocks are left out: the kernel would read only a part.
const BLOCK_WORDS_MAX: u64 = 1 << 27;
/// What is read at a time.
const PIECES: usize = 128;
const PIECES_WORDS_MAX: u64 = 1 << 27;

impl Contents {
    /// With room for so many blocks of so many bytes together, at most `bytes_max`; somewhat more may come.
    pub(crate) fn ready(blocks: u64, bytes: Bytes, bytes_max: Bytes, read: Read) -> Result<Contents, OutOfMemory> {
        let blocks = blocks.saturating_add(blocks / 8 + 1024);
        let bytes = bytes.0.saturating_add(bytes.0 / 8).saturating_add(blocks.saturating_mul(GAP_MAX)).min(bytes_max.0);
        let count = |number: u64| usize::try_from(number).map_err(|_| OutOfMemory);
        let (wanted, runs) = (Vector::ready(count(blocks)?)?, Vector::ready(count(blocks)?)?);
        let mut words = Vector::zeroed(count(bytes / WORD)?)?;
        words.touch();
        Ok(Contents { read, wanted, runs, words, used: 0 })
    }

    /// A block is to be read, if it is one of the main heap.
    pub(crate) fn want(&mut self, key: Key, block: Block) -> Result<(), OutOfMemory> {
        let words = block.size.0 / WORD;
        if block.set_aside || key.pool() != 0 || !(1..=BLOCK_WORDS_MAX).contains(&words) {
            return Ok(());
        }
        self.wanted.push(Extent { address: key.address(), words })
    }

    /// Reads them all, as far as there is room.
    pub(crate) fn read(&mut self) -> Result<(), OutOfMemory> {
        self.wanted.sort_unstable_by_key(|extent| extent.address);
        let mut from = 0;
        while from < self.wanted.len() {
            let Some(next) = self.read_some(from)? else { break };
            from = next;
        }
        Ok(())
    }

    /// Reads a few runs, from a block on. Returns the block to go on with; `None`: there is no room.
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
                // Something cannot be read: on with the next block behind that.
                let (stopped, blocks) = (address + read, firsts[number]..firsts[number + 1]);
                let behind = self.wanted.get(blocks.clone()).unwrap_or(&[]);
                return Ok(Some(blocks.start + behind.partition_point(|block| block.address <= stopped)));
            }
            read -= bytes;
        }
        Ok(Some(next))
    }

    /// The run that begins with a block, and the block behind it: of so many words, unless the block has more by itself.
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

    /// What was in a block, as far as whole words go; `None`: it was not read.
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
