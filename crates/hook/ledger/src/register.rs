//! The block register: which blocks are live.
//!
//! Open addressing over buckets of eight entries. A bucket is three cache lines: one of keys, two of values, so that an
//! event touches two lines. An entry stands in its home bucket or, that one being full, in the first bucket after it
//! with room; taking an entry out of a full bucket moves a later one forward, so no tombstones are needed, and a
//! bucket with room always ends the search.
//!
//! The home of a key is its address's *region* scattered by golden-ratio hashing, plus its place within the region:
//! blocks that are neighbours in memory are neighbours here, and regions that follow each other are spread evenly,
//! more evenly than at random. The number of buckets is arbitrary (the hash is scaled, not masked), so the table can
//! grow by a quarter; and since scaling keeps the order of the hashes, growing reads one table and writes the other
//! from front to back.

use core::fmt;

use heapledger_core::{Bytes, Serial, StackId};

use crate::mapped::{OutOfMemory, Vector, Zeroed};

/// What a block is found by: its address, or its serial where addresses are not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Key(pub u64);

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
    /// The site: 26 bits. Of an inherited block, in the stack tree of the process that allocated it.
    pub stack: StackId,
    /// The ordinal of its allocation: 37 bits. Of an inherited block, in the process that allocated it.
    pub serial: Serial,
    /// Allocated by another process image, before the fork that made this one.
    pub inherited: bool,
}

/// The largest serial that a block can have.
pub const SERIAL_MAX: Serial = Serial((1 << 37) - 1);

const STACK_BITS: u32 = 26;
const SERIAL_BITS: u32 = 37;

#[derive(Clone, Copy)]
#[repr(C)]
struct Value {
    size: u64,
    /// The stack in the low 26 bits, above it the serial, on top whether inherited.
    rest: u64,
}

impl Value {
    fn new(block: Block) -> Value {
        let stack = u64::from(block.stack.0.min(StackId::MAX.0));
        let serial = block.serial.0.min(SERIAL_MAX.0) << STACK_BITS;
        Value { size: block.size.0, rest: stack | serial | u64::from(block.inherited) << (STACK_BITS + SERIAL_BITS) }
    }

    fn block(self) -> Block {
        Block {
            size: Bytes(self.size),
            stack: StackId(self.rest as u32 & StackId::MAX.0),
            serial: Serial(self.rest >> STACK_BITS & SERIAL_MAX.0),
            inherited: self.rest >> (STACK_BITS + SERIAL_BITS) != 0,
        }
    }
}

const SLOTS: usize = 8;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Bucket {
    /// Complemented, so that zeroed memory is a free slot and any key but `u64::MAX` can be kept.
    keys: [u64; SLOTS],
    values: [Value; SLOTS],
}

// SAFETY: the bucket is made of integers only.
unsafe impl Zeroed for Bucket {}

const FREE: u64 = 0;

impl Bucket {
    /// The slot that holds this complemented key, or that is free.
    #[inline(always)]
    fn find(&self, kept: u64) -> Option<usize> {
        let mut found = 0_u32;
        for (slot, &key) in self.keys.iter().enumerate() {
            found |= u32::from(key == kept) << slot;
        }
        (found != 0).then(|| found.trailing_zeros() as usize % SLOTS)
    }

    #[inline(always)]
    fn set(&mut self, slot: usize, kept: u64, value: Value) {
        self.keys[slot % SLOTS] = kept;
        self.values[slot % SLOTS] = value;
    }
}

/// Addresses are multiples of 16 with few exceptions; their low bits, and those of serials, move to the top.
const KEY_ROTATION: u32 = 4;
/// Rotated keys per bucket of a region, as a power of two.
const BUCKET_BITS: u32 = 2;
/// Rotated keys per region, as a power of two.
const REGION_BITS: u32 = 5;
/// Buckets that a region reaches over.
const REGION_BUCKETS: usize = 1 << (REGION_BITS - BUCKET_BITS);
/// 2⁶⁴ divided by the golden ratio: the multiplier that spreads consecutive numbers most evenly.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The home bucket of a key in a table of `buckets`, which are at least [`REGION_BUCKETS`].
#[inline(always)]
fn home(key: u64, buckets: usize) -> usize {
    let rotated = key.rotate_right(KEY_ROTATION);
    let hash = (rotated >> REGION_BITS).wrapping_mul(GOLDEN);
    let first = ((u128::from(hash) * buckets as u128) >> 64) as usize;
    let offset = (rotated >> BUCKET_BITS) as usize % REGION_BUCKETS;
    wrap(first + offset, buckets)
}

#[inline(always)]
fn wrap(bucket: usize, buckets: usize) -> usize {
    if bucket >= buckets { bucket - buckets } else { bucket }
}

/// How far `to` lies after `from`, around the end.
#[inline(always)]
fn distance(from: usize, to: usize, buckets: usize) -> usize {
    if to >= from { to - from } else { to + buckets - from }
}

/// The smallest table: one page.
const BUCKETS_MIN: usize = 21;
/// Up to here a table doubles, to get to size quickly; then it grows by a quarter, to stay dense.
const BUCKETS_DOUBLING: usize = 1 << 13;
/// Entries per 64 slots at which the table grows.
const LOAD_MAX: usize = 56;

fn entries_max(buckets: usize) -> usize {
    (buckets as u128 * (SLOTS * LOAD_MAX) as u128 / 64) as usize
}

/// The live blocks of one process image, by key.
///
/// `Key(u64::MAX)` is no block's address: it is never found, and refused as [`OutOfMemory`].
#[derive(Default)]
pub struct Register {
    buckets: Vector<Bucket>,
    length: usize,
    /// Entries taken out that may come back without the table growing.
    reserved: usize,
}

impl Register {
    /// An empty register; it maps no memory.
    pub const fn new() -> Register {
        Register { buckets: Vector::new(), length: 0, reserved: 0 }
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
        self.buckets.bytes_mapped()
    }

    /// The block with this key.
    #[inline]
    pub fn get(&self, key: Key) -> Option<Block> {
        let (at, slot) = self.find(key)?;
        Some(self.buckets.get(at)?.values[slot].block())
    }

    /// Enters a block, in place of the one that had its key, if any. On error the register is unchanged.
    #[inline]
    pub fn insert(&mut self, key: Key, block: Block) -> Result<Option<Block>, OutOfMemory> {
        if self.length + self.reserved >= entries_max(self.buckets.len()) {
            self.grow()?;
        }
        self.put(key, Value::new(block))
    }

    /// Takes a block out.
    #[inline]
    pub fn remove(&mut self, key: Key) -> Option<Block> {
        let (at, slot) = self.find(key)?;
        let bucket = self.buckets.get_mut(at)?;
        let block = bucket.values[slot].block();
        let was_full = bucket.find(FREE).is_none();
        bucket.keys[slot] = FREE;
        self.length -= 1;
        if was_full {
            self.refill(at, slot);
        }
        Some(block)
    }

    /// Takes a block out that [`Register::restore`] may put back, which then cannot fail; [`Register::forget`] says
    /// that it does not.
    pub(crate) fn suspend(&mut self, key: Key) -> Option<Block> {
        let block = self.remove(key)?;
        self.reserved += 1;
        Some(block)
    }

    /// Puts a suspended block back. If its key is taken by now, the register is left as it is.
    pub(crate) fn restore(&mut self, key: Key, block: Block) -> Result<(), Taken> {
        self.forget();
        if self.find(key).is_some() {
            return Err(Taken);
        }
        self.put(key, Value::new(block)).map(drop).map_err(|OutOfMemory| Taken)
    }

    /// A suspended block does not come back.
    pub(crate) fn forget(&mut self) {
        self.reserved = self.reserved.saturating_sub(1);
    }

    /// Fetches the memory that the next call with this key will touch.
    #[inline(always)]
    pub fn prefetch(&self, key: Key) {
        let buckets = self.buckets.len();
        if let Some(bucket) = self.buckets.get(home(key.0, buckets)) {
            prefetch(&raw const bucket.keys);
            prefetch(&raw const bucket.values[0]);
            prefetch(&raw const bucket.values[SLOTS / 2]);
        }
    }

    /// The live blocks, in no useful order.
    pub fn iter(&self) -> impl Iterator<Item = (Key, Block)> {
        self.entries().map(|(kept, value)| (Key(!kept), value.block()))
    }

    /// A register of the same blocks, each marked inherited: that of a forked child.
    pub fn copy(&self) -> Result<Register, OutOfMemory> {
        let mut buckets = BUCKETS_MIN;
        while entries_max(buckets) <= self.length {
            buckets = larger(buckets);
        }
        self.rebuilt(buckets, |value| Value::new(Block { inherited: true, ..value.block() }))
    }

    /// Takes all blocks out and gives the memory back.
    pub fn clear(&mut self) {
        *self = Register::new();
    }

    fn entries(&self) -> impl Iterator<Item = (u64, Value)> {
        self.buckets
            .iter()
            .flat_map(|bucket| bucket.keys.into_iter().zip(bucket.values))
            .filter(|entry| entry.0 != FREE)
    }

    /// Where the key is: the bucket and the slot.
    #[inline(always)]
    fn find(&self, key: Key) -> Option<(usize, usize)> {
        let kept = !key.0;
        let buckets = self.buckets.len();
        let mut at = home(key.0, buckets);
        loop {
            let bucket = self.buckets.get(at)?;
            if let Some(slot) = bucket.find(kept) {
                return (kept != FREE).then_some((at, slot));
            }
            if bucket.find(FREE).is_some() {
                return None;
            }
            at = wrap(at + 1, buckets);
        }
    }

    /// Enters a value where there is room; some bucket has a free slot.
    #[inline(always)]
    fn put(&mut self, key: Key, value: Value) -> Result<Option<Block>, OutOfMemory> {
        let kept = !key.0;
        if kept == FREE {
            return Err(OutOfMemory);
        }
        let buckets = self.buckets.len();
        let mut at = home(key.0, buckets);
        loop {
            let bucket = self.buckets.get_mut(at).ok_or(OutOfMemory)?;
            if let Some(slot) = bucket.find(kept) {
                let displaced = bucket.values[slot].block();
                bucket.set(slot, kept, value);
                return Ok(Some(displaced));
            }
            if let Some(slot) = bucket.find(FREE) {
                bucket.set(slot, kept, value);
                self.length += 1;
                return Ok(None);
            }
            at = wrap(at + 1, buckets);
        }
    }

    /// Fills the slot that became free in a bucket that was full, if an entry further on could not find room there.
    #[cold]
    fn refill(&mut self, mut hole_at: usize, mut hole_slot: usize) {
        let buckets = self.buckets.len();
        let mut at = hole_at;
        loop {
            at = wrap(at + 1, buckets);
            let reach = distance(hole_at, at, buckets);
            let Some(bucket) = self.buckets.get_mut(at) else { return };
            let full = bucket.find(FREE).is_none();
            let passed = |&kept: &u64| kept != FREE && distance(home(!kept, buckets), at, buckets) >= reach;
            if let Some(slot) = bucket.keys.iter().position(passed) {
                let (kept, value) = (bucket.keys[slot], bucket.values[slot]);
                bucket.keys[slot] = FREE;
                if let Some(hole) = self.buckets.get_mut(hole_at) {
                    hole.set(hole_slot, kept, value);
                }
                (hole_at, hole_slot) = (at, slot);
            }
            if !full {
                return;
            }
        }
    }

    #[cold]
    fn grow(&mut self) -> Result<(), OutOfMemory> {
        let reserved = self.reserved;
        *self = self.rebuilt(larger(self.buckets.len()), |value| value)?;
        self.reserved = reserved;
        Ok(())
    }

    fn rebuilt(&self, buckets: usize, change: impl Fn(Value) -> Value) -> Result<Register, OutOfMemory> {
        let mut register = Register { buckets: Vector::zeroed(buckets)?, length: 0, reserved: 0 };
        for (kept, value) in self.entries() {
            register.put(Key(!kept), change(value))?;
        }
        Ok(register)
    }
}

/// The next size of table.
fn larger(buckets: usize) -> usize {
    let more = if buckets < BUCKETS_DOUBLING { buckets } else { buckets / 4 };
    (buckets + more).max(BUCKETS_MIN)
}

/// The key of a suspended block has another block by now.
pub(crate) struct Taken;

impl fmt::Debug for Register {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[inline(always)]
fn prefetch<T>(at: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch is a hint: it reads nothing that the program can see, and never faults.
        unsafe { _mm_prefetch(at.cast(), _MM_HINT_T0) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = at;
}
