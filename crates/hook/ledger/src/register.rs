//! The block register: which blocks are live.
//!
//! Open addressing over *chunks* of 15 entries of 24 bytes. A chunk's *header*, 16 bytes in an array of its own that
//! stays in the cache, has a one-byte tag per slot, so that most events touch one header and one entry. An entry
//! stands in the home chunk of its key or, when that was full, in the first chunk after it with room; every full chunk
//! that it passed counts it. A search goes on only past chunks with a count, and taking an entry out reduces the
//! counts: no tombstones, and nothing moves.
//!
//! The number of chunks is arbitrary: the hash is scaled to it, not masked. So the table can grow by a quarter and
//! stay dense; and since scaling keeps the order of the hashes, growing goes through the old table and the new one
//! from front to back, and gives the old one back on the way.
//!
//! The hash scatters neighbouring addresses. Keeping neighbours in one chunk was tried: freeing and allocating runs of
//! 64 neighbours got up to a quarter cheaper, random and sequential use no cheaper; but neighbours that are all in use,
//! as serials are, overfill their chunks, and searches became hundreds of times longer.

use core::fmt;

use heapledger_core::{Bytes, Serial, StackId};

use crate::arch::{equal_bytes, prefetch};
use crate::mapped::{OutOfMemory, Vector, Zeroed};

#[cfg(test)]
mod tests;

/// What a block is found by: its address, or its serial where addresses are not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Key(pub u64);

impl Key {
    /// Bits of an address in the key of a pool's block.
    const POOL_SHIFT: u32 = 47;

    /// The key of a block at this address, below 2⁴⁷, in the user pool with this id, from 1 to 65,535.
    pub const fn in_pool(pool: u32, address: u64) -> Key {
        Key((pool as u64) << Key::POOL_SHIFT | address)
    }

    /// The id of the user pool that the block is in, 0 for none. Of an address or a serial.
    #[inline(always)]
    pub const fn pool(self) -> u32 {
        (self.0 >> Key::POOL_SHIFT) as u32
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
    /// Requested size.
    pub size: Bytes,
    /// The site, at most [`StackId::MAX`]. Of an inherited block, in the stack tree of the image that allocated it.
    pub stack: StackId,
    /// The ordinal of its allocation, at most [`SERIAL_MAX`]. Of an inherited block, in the image that allocated it.
    pub serial: Serial,
    /// Allocated by another process image, before the fork that made this one.
    pub inherited: bool,
}

/// The largest serial that a block can have: the register keeps 37 bits.
pub const SERIAL_MAX: Serial = Serial((1 << SERIAL_BITS) - 1);

const STACK_BITS: u32 = 26;
const SERIAL_BITS: u32 = 37;

/// The live blocks of one process image, by key.
#[derive(Default)]
pub struct Register {
    headers: Vector<Header>,
    /// As many as headers.
    chunks: Vector<Chunk>,
    length: usize,
    /// Entries taken out that may come back without the table growing.
    reserved: usize,
    /// How many of both the table takes before it grows; fewer than it has slots.
    length_max: usize,
}

impl Register {
    /// An empty register; it maps no memory.
    pub const fn new() -> Register {
        Register { headers: Vector::new(), chunks: Vector::new(), length: 0, reserved: 0, length_max: 0 }
    }

    /// Live blocks.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether no block is live.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// What the table has mapped, touched or not.
    pub fn bytes_mapped(&self) -> usize {
        self.headers.bytes_mapped() + self.chunks.bytes_mapped()
    }

    /// The block with this key.
    #[inline]
    pub fn get(&self, key: Key) -> Option<Block> {
        let (chunk, slot) = self.find(key, self.home(key))?;
        Some(self.chunks.get(chunk)?[slot].block())
    }

    /// Enters a block, in place of the one that had its key, if any. Size and key are kept whole, stack and serial are
    /// cut to their maxima. On error the register is unchanged.
    #[inline]
    pub fn insert(&mut self, key: Key, block: Block) -> Result<Option<Block>, OutOfMemory> {
        if self.length + self.reserved >= self.length_max {
            self.grow()?;
        }
        let home = self.home(key);
        let entry = Entry::new(key, block);
        if let Some((chunk, slot)) = self.find(key, home)
            && let Some(chunk) = self.chunks.get_mut(chunk)
        {
            let displaced = chunk[slot].block();
            chunk[slot] = entry;
            return Ok(Some(displaced));
        }
        self.put(home, entry);
        Ok(None)
    }

    /// Takes a block out.
    #[inline]
    pub fn remove(&mut self, key: Key) -> Option<Block> {
        let home = self.home(key);
        let (chunk, slot) = self.find(key, home)?;
        let block = self.chunks.get(chunk)?[slot].block();
        self.headers.get_mut(chunk)?.set(slot, FREE);
        self.length -= 1;
        if chunk != home.chunk {
            self.unpass(home.chunk, chunk);
        }
        Some(block)
    }

    /// Starts to fetch the memory that the next call with this key will touch. Of no effect, and nearly no cost,
    /// while the table is small enough to be in the cache anyway.
    #[inline(always)]
    pub fn prefetch(&self, key: Key) {
        if self.headers.len() < CHUNKS_CACHED {
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

    /// The live blocks, in no useful order.
    pub fn iter(&self) -> impl Iterator<Item = (Key, Block)> {
        let entries = self.headers.iter().zip(self.chunks.iter());
        let entries = entries.flat_map(|(header, chunk)| header.taken().map(move |slot| chunk[slot]));
        entries.map(|entry| (Key(entry.key), entry.block()))
    }

    /// A register of the same blocks, each marked inherited: that of a forked child.
    pub fn copy(&self) -> Result<Register, OutOfMemory> {
        let mut copy = Register::new();
        if !self.is_empty() {
            copy = Register::with_chunks(chunks_for(self.length))?;
            copy.put_all(self.headers.iter().copied(), self.chunks.iter().copied(), INHERITED);
        }
        Ok(copy)
    }

    /// Takes all blocks out and gives the memory back.
    pub fn clear(&mut self) {
        *self = Register::new();
    }

    /// Takes a block out that [`Register::restore`] may put back, which then finds room; otherwise it must be
    /// [forgotten](Register::forget).
    pub(crate) fn suspend(&mut self, key: Key) -> Option<Block> {
        let block = self.remove(key)?;
        self.reserved += 1;
        Some(block)
    }

    /// Puts a suspended block back, unless its key is taken by now.
    pub(crate) fn restore(&mut self, key: Key, block: Block) -> Result<(), Taken> {
        self.forget();
        let home = self.home(key);
        if self.find(key, home).is_some() {
            return Err(Taken);
        }
        self.put(home, Entry::new(key, block));
        Ok(())
    }

    /// A suspended block does not come back.
    pub(crate) fn forget(&mut self) {
        self.reserved = self.reserved.saturating_sub(1);
    }

    /// Suspended blocks that have been neither restored nor forgotten.
    #[cfg(test)]
    pub(crate) fn reserved(&self) -> usize {
        self.reserved
    }

    #[inline(always)]
    fn home(&self, key: Key) -> Home {
        let hash = hash(key);
        let chunk = ((u128::from(hash) * self.headers.len() as u128) >> 64) as usize;
        Home { chunk, tag: ((hash >> 24) as u8).max(1) }
    }

    #[inline(always)]
    fn after(&self, chunk: usize) -> usize {
        if chunk + 1 == self.headers.len() { 0 } else { chunk + 1 }
    }

    /// The chunk and the slot where the key is.
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
            if !header.was_passed() {
                return None;
            }
            at = self.after(at);
            // Not reached again unless every chunk has a count; counts that were too high to keep stay.
            if at == home.chunk {
                return None;
            }
        }
    }

    /// Enters an entry whose key is not there. There is a free slot: `length < length_max`.
    #[inline(always)]
    fn put(&mut self, home: Home, entry: Entry) {
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
            header.pass();
            at = self.after(at);
        }
    }

    /// Uncounts an entry in the chunks that it had passed.
    #[cold]
    fn unpass(&mut self, home: usize, chunk: usize) {
        let mut at = home;
        while at != chunk {
            if let Some(header) = self.headers.get_mut(at) {
                header.unpass();
            }
            at = self.after(at);
        }
    }

    #[cold]
    fn grow(&mut self) -> Result<(), OutOfMemory> {
        let mut grown = Register::with_chunks(larger(self.headers.len()))?;
        grown.reserved = self.reserved;
        let old = core::mem::take(self);
        grown.put_all(old.headers.consume(), old.chunks.consume(), 0);
        *self = grown;
        Ok(())
    }

    fn with_chunks(chunks: usize) -> Result<Register, OutOfMemory> {
        let (headers, chunks) = (Vector::zeroed(chunks)?, Vector::zeroed(chunks)?);
        let length_max = length_max(headers.len());
        Ok(Register { headers, chunks, length: 0, reserved: 0, length_max })
    }

    /// Enters what another table has, with more bits set.
    fn put_all(&mut self, headers: impl Iterator<Item = Header>, chunks: impl Iterator<Item = Chunk>, more: u64) {
        for (header, chunk) in headers.zip(chunks) {
            for slot in header.taken() {
                let entry = chunk[slot];
                self.put(self.home(Key(entry.key)), Entry { rest: entry.rest | more, ..entry });
            }
        }
    }
}

impl fmt::Debug for Register {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// The key of a suspended block has another block by now.
pub(crate) struct Taken;

/// The smallest table: one page of entries.
const CHUNKS_MIN: usize = 11;
/// Up to here (61 k slots, 1.5 MB) a table doubles, to get to size quickly; then it grows by a quarter.
const CHUNKS_DOUBLING: usize = 1 << 12;
/// From here on (0.8 MB) a table is not in the nearer caches as a matter of course.
const CHUNKS_CACHED: usize = 1 << 11;

/// The next size of table.
fn larger(chunks: usize) -> usize {
    let more = if chunks < CHUNKS_DOUBLING { chunks } else { chunks / 4 };
    (chunks + more).max(CHUNKS_MIN)
}

/// How many entries a table takes before it grows: seven of eight slots.
fn length_max(chunks: usize) -> usize {
    chunks * SLOTS / 8 * 7
}

/// The size of table for so many entries.
fn chunks_for(length: usize) -> usize {
    let mut chunks = CHUNKS_MIN;
    while length_max(chunks) <= length {
        chunks = larger(chunks);
    }
    chunks
}

/// Where a key belongs.
#[derive(Clone, Copy)]
struct Home {
    chunk: usize,
    tag: u8,
}

/// Scatters keys: every bit of the key reaches the top of the hash, and no distance between keys survives (with one
/// multiplication some would: those of blocks of some unlucky size).
#[inline(always)]
fn hash(key: Key) -> u64 {
    let mixed = key.0.rotate_right(4).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

/// An entry as kept.
#[derive(Clone, Copy)]
#[repr(C)]
struct Entry {
    key: u64,
    size: u64,
    /// The stack in the low 26 bits, above it the serial, on top whether inherited.
    rest: u64,
}

const INHERITED: u64 = 1 << (STACK_BITS + SERIAL_BITS);

impl Entry {
    #[inline(always)]
    fn new(key: Key, block: Block) -> Entry {
        let stack = u64::from(block.stack.min(StackId::MAX).0);
        let serial = block.serial.min(SERIAL_MAX).0 << STACK_BITS;
        Entry { key: key.0, size: block.size.0, rest: stack | serial | if block.inherited { INHERITED } else { 0 } }
    }

    #[inline(always)]
    fn block(self) -> Block {
        Block {
            size: Bytes(self.size),
            stack: StackId(self.rest as u32 & StackId::MAX.0),
            serial: Serial(self.rest >> STACK_BITS & SERIAL_MAX.0),
            inherited: self.rest & INHERITED != 0,
        }
    }
}

/// Slots of a chunk. With the count they make the 16 bytes of a header.
const SLOTS: usize = 15;

type Chunk = [Entry; SLOTS];

// SAFETY: the chunk is made of integers only.
unsafe impl Zeroed for Chunk {}

/// A tag per slot, from the lowest byte, and in the top byte the number of entries that passed the chunk: that found
/// it full and stand further on. A count that reaches 255 stays there.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
struct Header {
    words: [u64; 2],
}

// SAFETY: the header is made of integers only.
unsafe impl Zeroed for Header {}

/// The tag of a free slot; that of a key is never zero.
const FREE: u8 = 0;

const ONE_PASSED: u64 = 1 << 56;
const MANY_PASSED: u64 = 0xff << 56;

impl Header {
    #[inline(always)]
    fn find(self, tag: u8) -> Slots {
        Slots(equal_bytes(self.words, tag) & Slots::ALL)
    }

    #[inline(always)]
    fn taken(self) -> Slots {
        Slots(!self.find(FREE).0 & Slots::ALL)
    }

    #[inline(always)]
    fn set(&mut self, slot: usize, tag: u8) {
        let word = &mut self.words[slot / 8 % 2];
        let shift = slot % 8 * 8;
        *word = *word & !(0xff << shift) | u64::from(tag) << shift;
    }

    #[inline(always)]
    fn was_passed(self) -> bool {
        self.words[1] >= ONE_PASSED
    }

    fn pass(&mut self) {
        if self.words[1] < MANY_PASSED {
            self.words[1] += ONE_PASSED;
        }
    }

    fn unpass(&mut self) {
        if (ONE_PASSED..MANY_PASSED).contains(&self.words[1]) {
            self.words[1] -= ONE_PASSED;
        }
    }
}

/// Some slots of a chunk, a bit each.
#[derive(Clone, Copy)]
struct Slots(u32);

impl Slots {
    const ALL: u32 = (1 << SLOTS) - 1;
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
