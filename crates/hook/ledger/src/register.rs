//! The block register: the table of live blocks.
//!
//! A hash table with open addressing over *chunks* of 15 entries: 24 bytes each, and what more the
//! user keeps for a block. A chunk's *header*, 16 bytes in a separate array that stays in the
//! cache, has a one-byte tag per slot, so that most events touch one header and one entry. An entry
//! is in the home chunk of its key or, if that was full, in the first chunk after it with room;
//! every full chunk that it passed counts it. A search goes on only past chunks with a count, and
//! taking an entry out reduces the counts: no tombstones, and nothing moves.
//!
//! The number of chunks is arbitrary: the hash is scaled to it, not masked. So the table can grow
//! by a quarter and stay dense. Since scaling keeps the order of the hashes, growing goes through
//! the old table and the new one from front to back, and gives the old one back on the way.
//!
//! The hash scatters neighbouring addresses. Keeping neighbours in one chunk was tried: freeing and
//! allocating runs of 64 neighbours got up to a quarter cheaper, random and sequential use no
//! cheaper; but neighbours that are all in use, as serials are, overfill their chunks, and searches
//! became hundreds of times longer.

use core::fmt;

use heapledger_core::sample::Rate;
use heapledger_core::{Blocks, Bytes, Serial, StackId};

use crate::arch::prefetch;
use crate::mapped::{OutOfMemory, PAGE, Vector, Zeroed};
use entry::{Entry, INHERITED, SERIAL_MASK};
use header::{FREE, Header, SLOTS};

mod entry;
mod header;
#[cfg(all(test, not(loom)))]
mod tests;

/// The key by which a block is found: its address, or its serial if addresses are not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Key(pub u64);

impl Key {
    /// The number of address bits in the key of a pool's block.
    const POOL_SHIFT: u32 = 47;

    /// Returns the key of a block at this address, below 2⁴⁷, in the user pool with this id, from 1
    /// to 65,535. With 0, the block is in no pool, and the key is its address.
    #[inline(always)]
    pub const fn in_pool(pool: u32, address: u64) -> Key {
        Key((pool as u64) << Key::POOL_SHIFT | address)
    }

    /// Returns the id of the user pool that the block is in; 0 for none, and for an address or a
    /// serial.
    #[inline(always)]
    pub const fn pool(self) -> u32 {
        (self.0 >> Key::POOL_SHIFT) as u32
    }

    /// Returns the address, if the key is made of one.
    #[inline(always)]
    pub const fn address(self) -> u64 {
        self.0 & ((1 << Key::POOL_SHIFT) - 1)
    }
}

impl From<Serial> for Key {
    fn from(serial: Serial) -> Key {
        Key(serial.0)
    }
}

/// A live block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Block {
    /// The requested size.
    pub size: Bytes,
    /// The site, at most [`StackId::MAX`]. For an inherited block, in the stack tree of the image
    /// that allocated it.
    pub stack: StackId,
    /// The ordinal of its allocation, at most [`SERIAL_MAX`]. For an inherited block, in the image
    /// that allocated it.
    pub serial: Serial,
    /// The rate at which it was sampled.
    pub rate: Rate,
    /// True if the block is not one of this image's own: it was allocated by another process image,
    /// before the fork that made this one. Also true for every block that is untracked.
    pub inherited: bool,
    /// True if the block is untracked, in no total at all: it is backing memory of a pool, or was
    /// allocated while its thread ignored allocations. It is kept for its key, so that its free is
    /// recognized; it has no serial.
    pub untracked: bool,
}

impl Block {
    /// See [`crate::Ledger::ignore`].
    pub(crate) const IGNORED: Block = Block {
        size: Bytes(0),
        stack: StackId::ROOT,
        serial: Serial(0),
        rate: Rate::EXACT,
        inherited: true,
        untracked: true,
    };

    /// Returns the block's weight: the number of blocks of its size and stack that it counts for.
    /// One, if it was not sampled.
    #[inline(always)]
    pub fn weight(&self) -> Blocks {
        Blocks(self.rate.weight(self.size, self.serial))
    }
}

/// The size of a block, and the rate at which it was sampled: not at all, if made from a size
/// alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sampled {
    /// The requested size.
    pub size: Bytes,
    /// The rate.
    pub rate: Rate,
}

impl From<Bytes> for Sampled {
    #[inline(always)]
    fn from(size: Bytes) -> Sampled {
        Sampled { size, rate: Rate::EXACT }
    }
}

/// The largest serial that a block can have: the register keeps 37 bits, and marks blocks that are
/// untracked by the value after this one.
pub const SERIAL_MAX: Serial = Serial(SERIAL_MASK - 1);

/// The live blocks of one process image, by key, each with a `D`.
pub struct Register<D: Zeroed = ()> {
    headers: Vector<Header>,
    /// Has as many elements as `headers`.
    chunks: Vector<Chunk<D>>,
    length: usize,
    /// The number of suspended entries, which may come back without the table growing.
    reserved: usize,
    /// The number of entries and suspended ones that the table takes before it grows; fewer than it
    /// has slots.
    length_max: usize,
}

impl Register {
    /// Enters a block, in place of the one that had its key, if any. The key is kept whole; stack,
    /// serial and size (63 bits, for a sampled block 57) are cut to their maxima. On error the
    /// register is unchanged.
    #[inline]
    pub fn insert(&mut self, key: Key, block: Block) -> Result<Option<Block>, OutOfMemory> {
        if self.is_full() {
            self.grow()?;
        }
        Ok(self.replace(key, block, ()).map(|(block, ())| block))
    }

    /// Takes a block out.
    #[inline]
    pub fn remove(&mut self, key: Key) -> Option<Block> {
        self.take(key).map(|(block, ())| block)
    }

    /// Returns the block with this key.
    #[inline]
    pub fn get(&self, key: Key) -> Option<Block> {
        self.at(key).map(|(block, ())| block)
    }

    /// The live blocks, in no useful order.
    pub fn iter(&self) -> impl Iterator<Item = (Key, Block)> {
        self.entries().map(|(key, block, ())| (key, block))
    }
}

impl<D: Zeroed> Register<D> {
    /// Creates an empty register; it maps no memory.
    pub const fn new() -> Register<D> {
        Register { headers: Vector::new(), chunks: Vector::new(), length: 0, reserved: 0, length_max: 0 }
    }

    /// Returns the number of live blocks.
    pub fn len(&self) -> usize {
        self.length
    }

    /// True if no block is live.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the bytes that the table has mapped, touched or not.
    pub fn bytes_mapped(&self) -> usize {
        self.headers.bytes_mapped() + self.chunks.bytes_mapped()
    }

    /// Starts to fetch the memory that the next call with this key will touch. Has no effect, and
    /// nearly no cost, while the table is small enough to be in the cache anyway.
    #[inline(always)]
    pub fn prefetch(&self, key: Key) {
        self.prefetch_if_larger(key, CHUNKS_CACHED);
    }

    /// Does the same in a table that is one of `tables`, which are used alike: so a smaller one is
    /// not in the cache.
    #[inline(always)]
    pub(crate) fn prefetch_as_one_of(&self, tables: usize, key: Key) {
        self.prefetch_if_larger(key, CHUNKS_CACHED / tables);
    }

    #[inline(always)]
    fn prefetch_if_larger(&self, key: Key, chunks_cached: usize) {
        if self.headers.len() < chunks_cached {
            return;
        }
        let home = self.home(key);
        if let Some(header) = self.headers.get(home.chunk)
            && let Some(chunk) = self.chunks.get(home.chunk)
            && let Some(slot) = header.find(home.tag).next().or(header.find(FREE).next())
        {
            // An entry may lie across two lines.
            prefetch(&raw const chunk[slot].key);
            prefetch(&raw const chunk[slot].rest);
        }
    }

    /// Returns a register of the same blocks, each marked inherited: that of a forked child.
    pub fn copy(&self) -> Result<Register<D>, OutOfMemory> {
        let mut copy = Register::new();
        if !self.is_empty() {
            copy = Register::with_chunks(chunks_for::<D>(self.length))?;
            copy.put_all(self.headers.iter().copied(), self.chunks.iter().copied(), INHERITED);
        }
        Ok(copy)
    }

    /// Returns the number of chunks.
    pub(crate) fn chunks(&self) -> usize {
        self.headers.len()
    }

    /// Creates an empty table of so many chunks whose memory has been touched.
    pub(crate) fn ready(chunks: usize) -> Result<Register<D>, OutOfMemory> {
        let mut register = Register::with_chunks(chunks)?;
        register.headers.touch();
        register.chunks.touch();
        Ok(register)
    }

    /// Makes an empty table one of the same blocks at the same places. Asks for no memory if the
    /// table has enough chunks.
    pub(crate) fn copy_from(&mut self, other: &Register<D>) -> Result<(), OutOfMemory> {
        self.headers.copy_from(&other.headers)?;
        self.chunks.copy_from(&other.chunks)?;
        (self.length, self.reserved, self.length_max) = (other.length, 0, other.length_max);
        Ok(())
    }

    /// Takes all blocks out and gives the memory back.
    pub fn clear(&mut self) {
        *self = Register::new();
    }

    /// True if there may be no room for another block, so that the table has to
    /// [grow](Register::grow) first.
    #[inline(always)]
    pub(crate) fn is_full(&self) -> bool {
        self.length + self.reserved >= self.length_max
    }

    /// Returns the block with this key.
    #[inline(always)]
    pub(crate) fn at(&self, key: Key) -> Option<(Block, D)> {
        let (chunk, slot) = self.find(key, self.home(key))?;
        Some(self.chunks.get(chunk)?[slot].contents())
    }

    /// Enters a block, in place of the one that had its key, if any; if none had, the register is
    /// not full.
    #[inline(always)]
    pub(crate) fn replace(&mut self, key: Key, block: Block, more: D) -> Option<(Block, D)> {
        let home = self.home(key);
        let entry = Entry::new(key, block, more);
        if let Some((chunk, slot)) = self.find(key, home)
            && let Some(chunk) = self.chunks.get_mut(chunk)
        {
            return Some(core::mem::replace(&mut chunk[slot], entry).contents());
        }
        self.put(home, entry);
        None
    }

    /// Finds the position of a key, where it is or would be until the register changes: enters a
    /// block in two steps, with [`Register::at_position`] and [`Register::fill`].
    #[inline(always)]
    pub(crate) fn position(&self, key: Key) -> Position {
        let home = self.home(key);
        Position { home, found: self.find(key, home) }
    }

    /// Returns a free position, if one is found at once: for most keys that are not there.
    #[inline(always)]
    pub(crate) fn free_position(&self, key: Key) -> Option<FreePosition> {
        let home = self.home(key);
        let header = self.headers.get(home.chunk)?;
        if !header.find(home.tag).is_empty() || header.has_overflowed() {
            return None;
        }
        Some(FreePosition { home, slot: header.find(FREE).next()? })
    }

    /// Enters a block at a free position.
    #[inline(always)]
    pub(crate) fn fill_free(&mut self, position: FreePosition, key: Key, block: Block, more: D) {
        if let Some(header) = self.headers.get_mut(position.home.chunk)
            && let Some(chunk) = self.chunks.get_mut(position.home.chunk)
        {
            header.set(position.slot, position.home.tag);
            chunk[position.slot % SLOTS] = Entry::new(key, block, more);
            self.length += 1;
        }
    }

    /// Returns the block that is at a position now.
    #[inline(always)]
    pub(crate) fn at_position(&self, position: Position) -> Option<(Block, D)> {
        let (chunk, slot) = position.found?;
        Some(self.chunks.get(chunk)?[slot].contents())
    }

    /// Enters a block at a position.
    pub(crate) fn fill(&mut self, position: Position, key: Key, block: Block, more: D) {
        let entry = Entry::new(key, block, more);
        match position.found {
            None => self.put(position.home, entry),
            Some((chunk, slot)) => {
                if let Some(chunk) = self.chunks.get_mut(chunk) {
                    chunk[slot] = entry;
                }
            }
        }
    }

    /// Takes a block out.
    #[inline(always)]
    pub(crate) fn take(&mut self, key: Key) -> Option<(Block, D)> {
        let home = self.home(key);
        let (chunk, slot) = self.find(key, home)?;
        let contents = self.chunks.get(chunk)?[slot].contents();
        self.headers.get_mut(chunk)?.set(slot, FREE);
        self.length -= 1;
        if chunk != home.chunk {
            self.uncount_overflow(home.chunk, chunk);
        }
        Some(contents)
    }

    /// Takes a block out that [`Register::restore`] may put back, which then finds room; otherwise
    /// it must be [forgotten](Register::forget).
    pub(crate) fn suspend(&mut self, key: Key) -> Option<(Block, D)> {
        let taken = self.take(key)?;
        self.reserved += 1;
        Some(taken)
    }

    /// Puts a suspended block back, unless its key is taken by now.
    pub(crate) fn restore(&mut self, key: Key, block: Block, more: D) -> Result<(), KeyTaken> {
        self.forget();
        let position = self.position(key);
        if position.found.is_some() {
            return Err(KeyTaken);
        }
        self.fill(position, key, block, more);
        Ok(())
    }

    /// Notes that a suspended block does not come back.
    pub(crate) fn forget(&mut self) {
        self.reserved = self.reserved.saturating_sub(1);
    }

    /// Returns the number of suspended blocks that have been neither restored nor forgotten.
    #[cfg(test)]
    pub(crate) fn reserved(&self) -> usize {
        self.reserved
    }

    /// Returns the bytes that the table would have mapped after growing to room for `length`
    /// blocks, at least for more than now.
    pub(crate) fn bytes_grown(&self, length: usize) -> usize {
        let chunks = self.chunks_grown(length);
        Vector::<Header>::bytes_for(chunks) + Vector::<Chunk<D>>::bytes_for(chunks)
    }

    fn chunks_grown(&self, length: usize) -> usize {
        let least = larger::<D>(self.headers.len());
        if length <= length_max(least) { least } else { chunks_for::<D>(length) }
    }

    /// Makes room for more blocks. On error the register is unchanged.
    #[cold]
    pub(crate) fn grow(&mut self) -> Result<(), OutOfMemory> {
        self.grow_to(0)
    }

    /// Makes room for `length` blocks, at least for more than now.
    #[cold]
    pub(crate) fn grow_to(&mut self, length: usize) -> Result<(), OutOfMemory> {
        let mut grown = Register::with_chunks(self.chunks_grown(length))?;
        grown.reserved = self.reserved;
        let old = core::mem::take(self);
        grown.put_all(old.headers.consume(), old.chunks.consume(), 0);
        *self = grown;
        Ok(())
    }

    /// Visits the blocks whose hashes are in a range; to the end if there is no `until`. An
    /// iteration in the order of hashes can go on where it stopped, whatever has changed in
    /// between.
    pub(crate) fn visit(&self, from: u64, until: Option<u64>, mut visit: impl FnMut(Key, Block, D)) {
        let all = self.headers.len();
        let first = self.scale(from);
        let end = until.map_or(all, |until| self.scale(until.saturating_sub(1)) + 1);
        let mut at = first;
        for number in first..first + all {
            let Some(header) = self.headers.get(at) else { break };
            if let Some(chunk) = self.chunks.get(at) {
                for slot in header.taken() {
                    let entry = chunk[slot];
                    let hash = hash(Key(entry.key));
                    if hash >= from && until.is_none_or(|until| hash < until) {
                        visit(Key(entry.key), entry.block(), entry.more);
                    }
                }
            }
            // Entries that found their home full are after it, as far as the counts lead.
            if number + 1 >= end && !header.has_overflowed() {
                break;
            }
            at = self.after(at);
        }
    }

    /// Returns the hash at which a chunk begins: the one `chunks` after the chunk of `from`. `None`
    /// beyond the last.
    pub(crate) fn hash_after(&self, from: u64, chunks: usize) -> Option<u64> {
        let (all, end) = (self.headers.len(), self.scale(from) + chunks);
        (end < all).then(|| ((end as u128) << 64).div_ceil(all as u128) as u64)
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = (Key, Block, D)> {
        let entries = self.headers.iter().zip(self.chunks.iter());
        let entries = entries.flat_map(|(header, chunk)| header.taken().map(move |slot| chunk[slot]));
        entries.map(|entry| (Key(entry.key), entry.block(), entry.more))
    }

    #[inline(always)]
    fn home(&self, key: Key) -> Home {
        let hash = hash(key);
        Home { chunk: self.scale(hash), tag: ((hash >> 24) as u8).max(1) }
    }

    /// Returns the chunk for a hash.
    #[inline(always)]
    fn scale(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.headers.len() as u128) >> 64) as usize
    }

    #[inline(always)]
    fn after(&self, chunk: usize) -> usize {
        if chunk + 1 == self.headers.len() { 0 } else { chunk + 1 }
    }

    /// Returns the chunk and the slot of the key.
    #[inline(always)]
    fn find(&self, key: Key, home: Home) -> Option<(usize, usize)> {
        let mut at = home.chunk;
        loop {
            let header = self.headers.get(at)?;
            let chunk = self.chunks.get(at)?;
            for slot in header.find(home.tag) {
                if chunk[slot].key == key.0 {
                    return Some((at, slot));
                }
            }
            if !header.has_overflowed() {
                return None;
            }
            at = self.after(at);
            // Reached again only if every chunk has a count; counts that were too high to keep
            // stay.
            if at == home.chunk {
                return None;
            }
        }
    }

    /// Enters an entry whose key is not there. There is a free slot: `length < length_max`.
    #[inline(always)]
    fn put(&mut self, home: Home, entry: Entry<D>) {
        let mut at = home.chunk;
        while let Some(header) = self.headers.get_mut(at) {
            if let Some(slot) = header.find(FREE).next() {
                header.set(slot, home.tag);
                if let Some(chunk) = self.chunks.get_mut(at) {
                    chunk[slot] = entry;
                }
                self.length += 1;
                return;
            }
            header.count_overflow();
            at = self.after(at);
        }
    }

    /// Uncounts an entry in the chunks that it had passed.
    #[cold]
    fn uncount_overflow(&mut self, home: usize, chunk: usize) {
        let mut at = home;
        while at != chunk {
            if let Some(header) = self.headers.get_mut(at) {
                header.uncount_overflow();
            }
            at = self.after(at);
        }
    }

    fn with_chunks(chunks: usize) -> Result<Register<D>, OutOfMemory> {
        let (headers, chunks) = (Vector::zeroed(chunks)?, Vector::zeroed(chunks)?);
        let length_max = length_max(headers.len());
        Ok(Register { headers, chunks, length: 0, reserved: 0, length_max })
    }

    /// Enters all entries of another table, with more bits set.
    fn put_all(&mut self, headers: impl Iterator<Item = Header>, chunks: impl Iterator<Item = Chunk<D>>, bits: u64) {
        for (header, chunk) in headers.zip(chunks) {
            for slot in header.taken() {
                let entry = chunk[slot];
                self.put(self.home(Key(entry.key)), Entry { rest: entry.rest | bits, ..entry });
            }
        }
    }
}

impl<D: Zeroed> Default for Register<D> {
    fn default() -> Register<D> {
        Register::new()
    }
}

impl<D: Zeroed> fmt::Debug for Register<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.entries().map(|(key, block, _)| (key, block))).finish()
    }
}

/// See [`Register::position`].
#[derive(Clone, Copy)]
pub(crate) struct Position {
    home: Home,
    /// Chunk and slot.
    found: Option<(usize, usize)>,
}

/// See [`Register::free_position`].
#[derive(Clone, Copy)]
pub(crate) struct FreePosition {
    home: Home,
    slot: usize,
}

impl Position {
    #[inline(always)]
    pub(crate) fn is_free(&self) -> bool {
        self.found.is_none()
    }
}

/// The key of a suspended block has another block by now.
pub(crate) struct KeyTaken;

/// Up to this number of chunks (61 k slots, 1.5 MB) a table doubles, to get to size quickly; then
/// it grows by a quarter.
const CHUNKS_DOUBLING: usize = 1 << 12;
/// From this number of chunks on (0.8 MB) a table cannot be expected to be in the nearer caches.
const CHUNKS_CACHED: usize = 1 << 11;

/// Returns the next size of table; the smallest is one page of entries.
fn larger<D: Zeroed>(chunks: usize) -> usize {
    let more = if chunks < CHUNKS_DOUBLING { chunks } else { chunks / 4 };
    (chunks + more).max(PAGE / size_of::<Chunk<D>>())
}

/// Returns the number of entries that a table takes before it grows: seven of eight slots.
fn length_max(chunks: usize) -> usize {
    chunks * SLOTS / 8 * 7
}

/// Returns the size of table for this many entries.
fn chunks_for<D: Zeroed>(length: usize) -> usize {
    let mut chunks = larger::<D>(0);
    while length_max(chunks) <= length {
        chunks = larger::<D>(chunks);
    }
    chunks
}

/// The home of a key: its chunk and its tag.
#[derive(Clone, Copy)]
struct Home {
    chunk: usize,
    tag: u8,
}

/// Mixes a key: every bit of the key reaches the top of the hash, and no distance between keys
/// survives (with one multiplication some would: those of blocks of some unlucky size).
#[inline(always)]
fn hash(key: Key) -> u64 {
    let mixed = key.0.rotate_right(4).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

type Chunk<D> = [Entry<D>; SLOTS];

// SAFETY: the chunk is made of integers, and of a type that is valid when zero itself.
unsafe impl<D: Zeroed> Zeroed for Chunk<D> {}
