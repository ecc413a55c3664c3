//! The register for many threads at once: usable by itself, inside `malloc`.
//!
//! Blocks are spread over [`SHARDS`] registers, each under a lock, by the page that they start in:
//! neighbours, which one thread tends to use, meet the same lock and the same memory, and the
//! places before an address where a narrow block can start are in one shard, or two. Wide blocks
//! are also in an index ([`crate::wide`]).
//!
//! Locks are taken in one order: shards by number, then the index or any lock that the caller of an
//! operation takes within it.

use core::fmt;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use heapledger_core::{Bytes, TypeId};

use crate::budget::Budget;
use crate::details::{Details, LiveBlock};
use crate::locked::{Guard, Locked};
use crate::mapped::OutOfMemory;
use crate::marks::{Mark, Marked, Marks, Table};
use crate::register::{Block, Key, KeyTaken, Register};
use crate::wide::{WIDE, Wide};

mod live_blocks;
#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, not(loom)))]
mod tests;

pub use live_blocks::LiveBlocks;

/// The number of registers, and of their locks.
pub const SHARDS: usize = if cfg!(all(test, loom)) { 2 } else { 32 };

/// The live blocks of a process, for all its threads. Takes `&self` throughout and is `const` to
/// make, so that it can be a static.
///
/// Never allocates or panics, and calls nothing in the C library. Memory comes from the kernel,
/// between inaccessible guard pages. A signal handler must not call it while it interrupts a call
/// of it on the same thread.
///
/// An operation takes one lock of [`SHARDS`], for a fraction of a microsecond, or, when a shard's
/// table grows (by a quarter), for as long as it takes to move the table. Blocks of at least 4 KiB
/// take the lock of the index as well.
pub struct SharedRegister {
    shards: [Locked<Shard>; SHARDS],
    wide: Locked<Wide>,
    pools: Pools,
    budget: Budget,
}

impl SharedRegister {
    /// Creates an empty register; it maps no memory.
    #[cfg(not(all(test, loom)))]
    pub const fn new() -> SharedRegister {
        SharedRegister {
            shards: [const { Locked::new(Shard::new()) }; SHARDS],
            wide: Locked::new(Wide::new()),
            pools: Pools::new(),
            budget: Budget::new(),
        }
    }

    /// Enters a block, in place of the one that had its key, which is returned. If there is no room
    /// (see [`SharedRegister::set_bytes_max`]), nothing has changed.
    #[inline]
    pub fn insert(&self, block: &LiveBlock) -> Result<Option<LiveBlock>, OutOfMemory> {
        self.insert_with(block.key, block.details(), block.size, |displaced| {
            Ok((own(block), displaced.map(|(old, details)| LiveBlock::new(block.key, old, details))))
        })
    }

    /// Takes a block out. Returns `None` for a key that is not there, such as the null pointer.
    #[inline]
    pub fn remove(&self, key: Key) -> Option<LiveBlock> {
        self.remove_with(key, |_, _| {}, |taken| taken.map(|(block, details)| LiveBlock::new(key, block, details)))
    }

    /// Takes a block out if `takes`, which is called under the lock of its shard, says so. Returns
    /// the block, and true if it was taken out; `None` for a key that is not there.
    pub fn remove_if(&self, key: Key, takes: impl FnOnce(&LiveBlock) -> bool) -> Option<(LiveBlock, bool)> {
        self.resolve(key, |block| {
            let is_taken = takes(block);
            (if is_taken { Resolution::Remove } else { Resolution::Keep }, (*block, is_taken))
        })
    }

    /// Takes a block out, changes it, or leaves it as it is: as `decide` says, which is called
    /// under the lock of its shard. Returns its other result; `None` for a key that is not there.
    pub fn resolve<R>(&self, key: Key, decide: impl FnOnce(&LiveBlock) -> (Resolution, R)) -> Option<R> {
        let mut shard = self.shard(key);
        let position = shard.register.position(key);
        let (block, details) = shard.register.at_position(position)?;
        let found = LiveBlock::new(key, block, details);
        let (resolution, result) = decide(&found);
        match resolution {
            Resolution::Keep => {}
            Resolution::Change(other) => {
                // The sizes stay, by which the block is found from an address inside.
                let other = LiveBlock { key, size: found.size, rate: found.rate, usable: found.usable, ..other };
                shard.register.fill(position, key, own(&other), other.details());
            }
            Resolution::Remove => {
                shard.register.take(key);
                if details.extent(block) >= WIDE {
                    self.wide.lock().remove(key, details.extent(block));
                }
                if shard.is_watched {
                    shard.marks.take(key);
                }
            }
        }
        Some(result)
    }

    /// Starts to fetch the memory that the next call with this key will touch. Takes the lock of
    /// its shard.
    pub fn prefetch(&self, key: Key) {
        self.shard(key).register.prefetch_as_one_of(SHARDS, key);
    }

    /// Returns the block with this key.
    pub fn get(&self, key: Key) -> Option<LiveBlock> {
        self.shard(key).register.at(key).map(|(block, details)| LiveBlock::new(key, block, details))
    }

    /// Looks at the block with this key, under the lock of its shard: until `visit` returns, the
    /// block cannot be freed. `None` if there is no such block.
    pub fn with_block<R>(&self, key: Key, visit: impl FnOnce(LiveBlock) -> R) -> Option<R> {
        let shard = self.shard(key);
        shard.register.at(key).map(|(block, details)| visit(LiveBlock::new(key, block, details)))
    }

    /// Returns the block around an address: of any pool that has one there, else of the main heap.
    /// For an address in the backing memory of a pool, that is the pool's own block, or the backing
    /// block if the pool has none there.
    pub fn block_at(&self, address: u64) -> Option<LiveBlock> {
        let mut found = self.block_in(0, address);
        if found.is_none_or(|block| block.backs.is_none()) {
            let inner = self.pools.iter().find_map(|pool| self.block_in(pool, address));
            found = inner.or(found);
        }
        // From a pool's backing memory to the pool's block, and on, as long as that block backs
        // another pool.
        for _ in 0..NESTED_MAX {
            let Some(pool) = found.and_then(|block| block.backs) else { break };
            let Some(inner) = self.block_in(pool, address) else { break };
            found = Some(inner);
        }
        found
    }

    /// Returns the block that the pool with this id, or with 0 the main heap, has around an
    /// address.
    pub fn block_in(&self, pool: u32, address: u64) -> Option<LiveBlock> {
        let key = Key::in_pool(pool, address);
        self.narrow_around(key).or_else(|| self.wide_around(key)).filter(|block| block.backs != Some(IGNORED))
    }

    /// Returns the live blocks, of all pools, in no useful order. Takes one lock at a time, for a
    /// few blocks, and none between two calls of `next`, so the iteration is not a snapshot. A
    /// block that is live all the while is found exactly once; one that was allocated, freed or
    /// reallocated meanwhile, at most once, or once before and once after. Backing memory of pools
    /// is left out.
    pub fn blocks(&self) -> LiveBlocks<'_> {
        LiveBlocks::new(self)
    }

    /// Returns the number of blocks, including those that back a pool or are ignored. A sum over
    /// the shards, one after the other.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().register.len()).sum()
    }

    /// True if there is no block.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes that are mapped, touched or not. While a table grows, the one that it
    /// replaces is mapped too, but is given back as it is read, and is not counted.
    pub fn bytes_mapped(&self) -> Bytes {
        self.budget.bytes_mapped()
    }

    /// Sets the most bytes that may be mapped: an operation that would take more fails with
    /// [`OutOfMemory`]. What is mapped already stays.
    pub fn set_bytes_max(&self, bytes: Bytes) {
        self.budget.set_bytes_max(bytes);
    }

    /// Takes all blocks out and gives the memory back, all at once.
    pub fn clear(&self) {
        self.clear_with(|| {});
    }

    /// Waits until no other thread is at work here, and holds every lock, so that a forked child
    /// gets a whole register. Call before the process forks; [`SharedRegister::after_fork`] must
    /// follow.
    pub fn before_fork(&self) {
        self.shards.iter().for_each(Locked::hold);
        self.wide.hold();
    }

    /// Releases the locks after the fork, in the parent and in the child, which goes on with the
    /// same blocks in a register of its own.
    ///
    /// # Safety
    ///
    /// The calling thread is the one that called [`SharedRegister::before_fork`], or its copy in
    /// the child.
    pub unsafe fn after_fork(&self) {
        // SAFETY: `before_fork` held every lock, in this thread or the one that it is a copy of, by
        // the caller's promise.
        unsafe {
            self.wide.release();
            self.shards.iter().rev().for_each(|shard| shard.release());
        }
    }

    /// Enters a block that `make` makes from the one that it displaces, under the lock of its
    /// shard, once there is room. On error nothing has changed.
    #[inline(always)]
    pub(crate) fn insert_with<R>(
        &self,
        key: Key,
        details: Details,
        size: Bytes,
        make: impl FnOnce(Option<(Block, Details)>) -> Result<(Block, R), OutOfMemory>,
    ) -> Result<R, OutOfMemory> {
        let mut shard = self.shard(key);
        let extent = details.extent(Block { size, ..Block::IGNORED });
        if shard.register.is_full() {
            self.make_room(&mut shard.register, key)?;
        }
        if extent < WIDE
            && let Some(position) = shard.register.free_position(key)
        {
            let (block, result) = make(None)?;
            self.update_lookup_bounds(&mut shard, key, extent);
            shard.register.fill_free(position, key, block, details);
            return Ok(result);
        }
        self.insert_slowly(&mut shard, key, details, extent, make)
    }

    /// Does the same, including all that is rarely needed.
    #[inline(never)]
    fn insert_slowly<R>(
        &self,
        shard: &mut Shard,
        key: Key,
        details: Details,
        extent: u64,
        make: impl FnOnce(Option<(Block, Details)>) -> Result<(Block, R), OutOfMemory>,
    ) -> Result<R, OutOfMemory> {
        let position = shard.register.position(key);
        let displaced = shard.register.at_position(position);
        let wide_displaced = displaced.map(|(block, details)| details.extent(block)).filter(|&extent| extent >= WIDE);
        self.index_wide(key, extent, wide_displaced)?;
        match make(displaced) {
            Ok((block, result)) => {
                self.update_lookup_bounds(shard, key, extent);
                shard.register.fill(position, key, block, details);
                if displaced.is_some() {
                    shard.marks.take(key);
                }
                Ok(result)
            }
            Err(error) => {
                self.undo_index_wide(key, extent, wide_displaced);
                Err(error)
            }
        }
    }

    /// Grows a table. If that fails, there still is room for a key that is there already.
    #[cold]
    fn make_room(&self, register: &mut Register<Details>, key: Key) -> Result<(), OutOfMemory> {
        let grown = self.budget.grow(register);
        if register.position(key).is_free() { grown } else { Ok(()) }
    }

    /// Notes what look-ups need to know about a block.
    #[inline(always)]
    fn update_lookup_bounds(&self, shard: &mut Shard, key: Key, extent: u64) {
        if key.pool() == 0 {
            shard.address_bits[0] |= key.0;
        } else {
            shard.address_bits[1] |= key.0;
            self.pools.insert(key.pool());
        }
        if extent < WIDE {
            shard.extent_max = shard.extent_max.max(extent);
        }
    }

    /// Takes a block out, and calls `then` under the lock of its shard. If frees are watched, calls
    /// `on_free` before, with the block and its marks.
    #[inline(always)]
    pub(crate) fn remove_with<R>(
        &self,
        key: Key,
        on_free: impl FnOnce(LiveBlock, Marks),
        then: impl FnOnce(Option<(Block, Details)>) -> R,
    ) -> R {
        let mut shard = self.shard(key);
        let taken = shard.register.take(key);
        if let Some((block, details)) = taken
            && details.extent(block) >= WIDE
        {
            self.wide.lock().remove(key, details.extent(block));
        }
        if shard.is_watched
            && let Some((block, details)) = taken
        {
            on_free(LiveBlock::new(key, block, details), shard.marks.take(key));
        }
        then(taken)
    }

    /// Changes a block under the lock of its shard, unless there is none or `change` fails. Its
    /// extent stays.
    pub(crate) fn change<R>(
        &self,
        key: Key,
        change: impl FnOnce(&mut Block, &mut Details) -> Result<R, OutOfMemory>,
    ) -> Result<Option<R>, OutOfMemory> {
        let mut shard = self.shard(key);
        let position = shard.register.position(key);
        let Some((mut block, mut details)) = shard.register.at_position(position) else { return Ok(None) };
        let result = change(&mut block, &mut details)?;
        shard.register.fill(position, key, block, details);
        Ok(Some(result))
    }

    /// Marks a block as reported. Returns the block and the result, or `None` if there is no such
    /// block.
    pub(crate) fn mark(&self, key: Key, mark: Mark) -> Result<Option<(LiveBlock, Marked)>, OutOfMemory> {
        let mut shard = self.shard(key);
        let Some((block, details)) = shard.register.at(key).filter(|(block, _)| !block.untracked) else {
            return Ok(None);
        };
        let blocks = shard.register.len();
        let marked = shard.marks.mark(&self.budget, blocks, key, mark)?;
        shard.is_watched = true;
        Ok(Some((LiveBlock::new(key, block, details), marked)))
    }

    /// Takes a reporter's mark off a block. True if the block had one that is to be kept.
    pub(crate) fn unmark(&self, key: Key, reporter: TypeId) -> bool {
        self.shard(key).marks.unmark(key, reporter)
    }

    /// Returns the marks of a block.
    pub(crate) fn marks(&self, key: Key) -> Marks {
        self.shard(key).marks.get(key)
    }

    /// Takes all marks off blocks, except those that are to be kept.
    pub(crate) fn clear_marks(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.marks.clear(&self.budget);
            shard.is_watched = shard.keeps_freed || !shard.marks.is_empty();
        }
    }

    /// Sets whether every block that is taken out is passed to `on_free` from now on.
    pub(crate) fn keep_freed(&self, keeps_freed: bool) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.keeps_freed = keeps_freed;
            shard.is_watched = keeps_freed || !shard.marks.is_empty();
        }
    }

    /// Takes a block out that may come back.
    #[inline(always)]
    pub(crate) fn suspend(&self, key: Key) -> Option<Suspended> {
        let mut shard = self.shard(key);
        let (block, details) = shard.register.suspend(key)?;
        let extent = details.extent(block);
        let in_index = extent >= WIDE && self.wide.lock().suspend(key, extent);
        let marks = shard.marks.take(key);
        Some(Suspended { key, block, details, in_index, marks })
    }

    /// Notes that a suspended block does not come back: calls `then` under the lock of its shard.
    #[inline(always)]
    pub(crate) fn forget<R>(&self, suspended: &Suspended, then: impl FnOnce() -> R) -> R {
        let mut shard = self.shard(suspended.key);
        shard.register.forget();
        if suspended.in_index {
            self.wide.lock().starts.forget();
        }
        then()
    }

    /// Puts a suspended block back, or calls `lost` under the lock of its shard if another block is
    /// there. If `wanted`, which is called under that lock, returns false, the block is forgotten.
    pub(crate) fn restore(&self, suspended: &Suspended, wanted: impl FnOnce() -> bool, lost: impl FnOnce()) {
        let &Suspended { key, block, details, in_index, marks } = suspended;
        let mut shard = self.shard(key);
        if !wanted() {
            return;
        }
        let restored = shard.register.restore(key, block, details);
        if in_index {
            let mut wide = self.wide.lock();
            match restored {
                Ok(()) => wide.restore(key, details.extent(block)),
                Err(KeyTaken) => wide.starts.forget(),
            }
        }
        match restored {
            Ok(()) => {
                shard.marks.restore(&self.budget, 0, key, marks);
                shard.is_watched |= marks[0].is_some();
            }
            Err(KeyTaken) => lost(),
        }
    }

    /// Empties the register while no other thread is at work here or holds a lock that operations
    /// take within; calls `then` before that ends.
    pub(crate) fn clear_with(&self, then: impl FnOnce()) {
        self.before_fork();
        for shard in &self.shards {
            // SAFETY: this thread holds the lock, and the reference is gone with the statement.
            unsafe { *shard.held() = Shard::new() };
        }
        // SAFETY: this thread holds the lock of the index, and the reference is gone with the
        // statement.
        unsafe { *self.wide.held() = Wide::new() };
        self.pools.clear();
        self.budget.clear();
        then();
        // SAFETY: `after_fork` requires that this thread called `before_fork`, as it did at the
        // beginning of this function, and not yet `after_fork`. The references made meanwhile are
        // gone.
        unsafe { self.after_fork() };
    }

    /// Looks at one of the shards, under its lock.
    pub(crate) fn with_shard<R>(&self, number: usize, visit: impl FnOnce(&Shard) -> R) -> R {
        visit(&self.shards[number % SHARDS].lock())
    }

    /// Returns one of the shards, while all are held.
    ///
    /// # Safety
    ///
    /// The calling thread has called [`SharedRegister::before_fork`], and not yet
    /// [`SharedRegister::after_fork`]. The reference is dropped before it does, and before it asks
    /// for the same shard again.
    pub(crate) unsafe fn held_shard(&self, number: usize) -> &Shard {
        // SAFETY: `Locked::held` requires that this thread has called `hold`, and uses no other
        // reference to the value before the release. `before_fork` has called it, and this
        // function's `# Safety` requires the rest.
        unsafe { self.shards[number % SHARDS].held() }
    }

    pub(crate) fn budget(&self) -> &Budget {
        &self.budget
    }

    #[inline(always)]
    fn shard(&self, key: Key) -> Guard<'_, Shard> {
        self.shards[shard_of(key)].lock()
    }

    fn index_wide(&self, key: Key, extent: u64, displaced: Option<u64>) -> Result<(), OutOfMemory> {
        if extent < WIDE && displaced.is_none() {
            return Ok(());
        }
        let mut wide = self.wide.lock();
        if extent >= WIDE && wide.starts.is_full() {
            self.budget.grow(&mut wide.starts)?;
        }
        if let Some(displaced) = displaced {
            wide.remove(key, displaced);
        }
        if extent >= WIDE { wide.insert(key, extent) } else { Ok(()) }
    }

    /// Undoes [`SharedRegister::index_wide`].
    fn undo_index_wide(&self, key: Key, extent: u64, displaced: Option<u64>) {
        if extent < WIDE && displaced.is_none() {
            return;
        }
        let mut wide = self.wide.lock();
        if extent >= WIDE {
            wide.remove(key, extent);
        }
        if let Some(displaced) = displaced {
            // There is room, since it was there before.
            let _ = wide.insert(key, displaced);
        }
    }

    /// Asks the index, from the smallest class on. A shard's lock comes before that of the index,
    /// so they are taken one after the other.
    fn wide_around(&self, key: Key) -> Option<LiveBlock> {
        let mut classes = self.wide.lock().classes();
        while classes != 0 {
            let class = classes.trailing_zeros();
            classes &= classes - 1;
            let starts = self.wide.lock().around(key, class);
            let blocks = starts.into_iter().flatten().filter_map(|start| self.get(start));
            let around = |block: &LiveBlock| block.key.pool() == key.pool() && block.contains(key.address());
            if let Some(block) = { blocks }.find(around) {
                return Some(block);
            }
        }
        None
    }

    /// Tries the places where a narrow block around the key can start, from the nearest on.
    fn narrow_around(&self, key: Key) -> Option<LiveBlock> {
        let mut end = key.0;
        loop {
            // At most one page, and `TRIES_MAX` places, per lock.
            let shard = self.shard(Key(end));
            let first = end & !(PAGE - 1);
            let reach = key.0.saturating_sub(shard.extent_max.saturating_sub(1));
            let step = shard.step(key);
            let mut start = end & !(step - 1);
            for _ in 0..TRIES_MAX {
                if start < first.max(reach) {
                    break;
                }
                if let Some((block, details)) = shard.register.at(Key(start)) {
                    let block = LiveBlock::new(Key(start), block, details);
                    if block.contains(key.address()) {
                        return Some(block);
                    }
                }
                start = start.checked_sub(step)?;
            }
            // Go on from the last place before those tried, on this page or the one before, as far
            // as blocks reach.
            end = if start >= first.max(reach) { start } else { first.checked_sub(1)? };
            if end < key.0.saturating_sub(WIDE) {
                return None;
            }
        }
    }
}

/// The outcome for a block that [`SharedRegister::resolve`] has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// It stays as it is.
    Keep,
    /// It is taken out.
    Remove,
    /// It becomes this block; its key, its sizes and its rate stay.
    Change(LiveBlock),
}

impl Default for SharedRegister {
    fn default() -> SharedRegister {
        SharedRegister::new()
    }
}

impl fmt::Debug for SharedRegister {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedRegister").field("bytes_mapped", &self.bytes_mapped()).finish_non_exhaustive()
    }
}

/// A block out of the register that may come back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Suspended {
    pub(crate) key: Key,
    pub(crate) block: Block,
    pub(crate) details: Details,
    in_index: bool,
    pub(crate) marks: Marks,
}

pub(crate) struct Shard {
    pub(crate) register: Register<Details>,
    pub(crate) marks: Table,
    /// The largest extent that a narrow block here ever had.
    extent_max: u64,
    /// True if there are marks, or freed blocks are kept: otherwise frees need not be watched.
    is_watched: bool,
    keeps_freed: bool,
    /// All bits that addresses ever had, in the main heap and in pools: the lowest says how they
    /// are aligned.
    address_bits: [u64; 2],
}

/// The pool id of a block that is untracked for no pool.
const IGNORED: u32 = 0;
const PAGE: u64 = 4096;
/// The number of places tried under one lock.
const TRIES_MAX: usize = 256;
/// The greatest depth to which pools may be nested.
const NESTED_MAX: usize = 16;
/// The largest step between places: no allocator aligns its blocks to more without a reason.
const STEP_MAX: u64 = 16;

impl Shard {
    const fn new() -> Shard {
        Shard {
            register: Register::new(),
            marks: Table::new(),
            extent_max: 0,
            is_watched: false,
            keeps_freed: false,
            address_bits: [0; 2],
        }
    }

    /// Returns the distance between two places where blocks of the key's pool can start.
    fn step(&self, key: Key) -> u64 {
        let is_pool = usize::from(key.pool() != 0);
        1 << (self.address_bits[is_pool] | STEP_MAX).trailing_zeros()
    }
}

#[inline(always)]
fn shard_of(key: Key) -> usize {
    // The top bits of a product depend on all bits of the page's number.
    let hash = (key.0 / PAGE).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (hash >> (64 - SHARDS.trailing_zeros())) as usize % SHARDS
}

/// Converts a block as its user describes it.
#[inline(always)]
fn own(block: &LiveBlock) -> Block {
    let &LiveBlock { size, rate, stack, serial, backs, .. } = block;
    Block { size, stack, serial, rate, inherited: backs.is_some(), untracked: backs.is_some() }
}

/// The set of pools that ever had a block.
struct Pools {
    words: [AtomicU64; Pools::WORDS],
    /// One more than the largest id.
    end: AtomicU32,
}

impl Pools {
    const WORDS: usize = 1 << (16 - 6);

    const fn new() -> Pools {
        Pools { words: [const { AtomicU64::new(0) }; Pools::WORDS], end: AtomicU32::new(0) }
    }

    #[inline]
    fn insert(&self, pool: u32) {
        if let Some(word) = self.words.get(pool as usize / 64) {
            let bit = 1 << (pool % 64);
            if word.load(Ordering::Relaxed) & bit == 0 {
                word.fetch_or(bit, Ordering::Relaxed);
                self.end.fetch_max(pool + 1, Ordering::Relaxed);
            }
        }
    }

    fn iter(&self) -> impl Iterator<Item = u32> {
        let used = self.end.load(Ordering::Relaxed).div_ceil(64) as usize;
        self.words.iter().take(used).zip(0_u32..).flat_map(|(word, number)| {
            let word = word.load(Ordering::Relaxed);
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| number * 64 + bit)
        })
    }

    fn clear(&self) {
        self.words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        self.end.store(0, Ordering::Relaxed);
    }
}
