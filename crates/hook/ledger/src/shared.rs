//! The ledger inside a program: follows the same rules as the other one, for all threads at once.

use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use heapledger_core::sample::Rate;
use heapledger_core::totals::{Counts, Live, Site, Time, Variances};
use heapledger_core::{Blocks, Bytes, Serial, StackId, ThreadId, TypeId};

use crate::accounting::{Accounting, Freed};
use crate::arch::prefetch;
use crate::defects::{Defect, DefectKind, Defects};
use crate::details::{Details, LiveBlock};
use crate::freed::FreedTable;
use crate::ledger::Allocated;
use crate::live::NoSession;
use crate::locked::Locked;
use crate::mapped::OutOfMemory;
use crate::marks::{Mark, Marked, Marks, Reported};
use crate::pools::Pools;
use crate::register::{Block, Key, Sampled};
use crate::shards::{LiveBlocks, SharedRegister, Suspended};

#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, not(loom)))]
mod tests;

/// A call that returned a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// The address, or the key that [`Key::in_pool`] makes of it for a pool.
    pub key: Key,
    /// The requested size.
    pub size: Bytes,
    /// The rate at which the block was sampled.
    pub rate: Rate,
    /// The usable size; the requested size if that is not known.
    pub usable: Bytes,
    /// The site. Beyond [`StackId::MAX`] it counts as [`StackId::ROOT`].
    pub stack: StackId,
    /// The calling thread.
    pub thread: ThreadId,
    /// The time of the call. The ledger only hands it back; blocks keep it in steps of
    /// [`LiveBlock::TIME_STEP`].
    pub time: Time,
    /// The type declared for the block.
    pub stamp: TypeId,
}

/// A reallocation between its call and its return, as [`crate::Pending`] is.
#[derive(Debug)]
#[must_use = "the old block is out of the register until the reallocation is finished or cancelled"]
pub struct SharedPending {
    thread: ThreadId,
    /// The number of times that the ledger had been cleared when the reallocation began.
    clears: u64,
    suspended: Option<Suspended>,
}

impl SharedPending {
    /// The block that the call was given; freed only if the reallocation is finished.
    pub fn old(&self) -> Freed {
        Freed::new(self.suspended.map(|suspended| suspended.block))
    }

    /// Returns the same block with all that is known of it.
    pub fn old_block(&self) -> Option<LiveBlock> {
        self.suspended.map(|suspended| LiveBlock::new(suspended.key, suspended.block, suspended.details))
    }
}

/// The state of the process that it is in, for all threads: follows the rules of [`crate::Ledger`],
/// and knows more about each block ([`LiveBlock`]).
///
/// Takes `&self` throughout and is `const` to make, so that it can be a static. It runs inside
/// `malloc`, like [`SharedRegister`], whose guarantees about locks, signals and memory it shares.
/// An event takes the lock of a shard, and within it the lock of the totals, each for a fraction of
/// a microsecond. So the answer to a query about one block or about the totals is true for one
/// moment; blocks and totals agree only while nothing happens.
///
/// Once `bytes_max` of memory are mapped, allocations that would take more are refused and
/// [counted](SharedLedger::dropped). What is known stays right. The frees of refused blocks count
/// as unknown.
pub struct SharedLedger {
    register: SharedRegister,
    accounting: Locked<Accounting>,
    /// Taken before the lock of a shard, by events of pools only.
    pools: Locked<Pools>,
    freed: Locked<FreedTable>,
    defects: Locked<Defects>,
    /// True while reporters are being asked: between [`SharedLedger::begin_marks`] and
    /// [`SharedLedger::marks_complete`].
    is_marking: AtomicBool,
    keeps_freed: AtomicBool,
    dropped: AtomicU64,
    /// The number of times that it was cleared: counted while all locks are held.
    clears: AtomicU64,
}

impl SharedLedger {
    /// Creates the ledger of a process in which nothing has happened. Maps no memory.
    #[cfg(not(all(test, loom)))]
    pub const fn new() -> SharedLedger {
        SharedLedger {
            register: SharedRegister::new(),
            accounting: Locked::new(Accounting::new()),
            pools: Locked::new(Pools::new()),
            freed: Locked::new(FreedTable::new()),
            defects: Locked::new(Defects::new()),
            is_marking: AtomicBool::new(false),
            keeps_freed: AtomicBool::new(false),
            dropped: AtomicU64::new(0),
            clears: AtomicU64::new(0),
        }
    }

    /// Records that a call returned a block; also for `realloc` of a null pointer. Call before
    /// another thread can have the block.
    #[inline]
    pub fn allocate(&self, new: &Allocation) -> Result<Allocated, OutOfMemory> {
        self.enter(new, |_, _| {})
    }

    /// Records that a call is about to release a block. Not for `free` of a null pointer, which is
    /// not an event.
    #[inline]
    pub fn free(&self, thread: ThreadId, key: Key) -> Freed {
        self.leave(thread, key, || true)
    }

    /// Does the same in a ledger that has only some of the blocks, a sample: the free of an unknown
    /// block is not an event.
    #[inline]
    pub fn free_if_known(&self, thread: ThreadId, key: Key) -> Freed {
        self.leave(thread, key, || false)
    }

    /// Does the same; the free of an unknown block is an event if `is_event` returns true, which is
    /// called only then.
    #[inline]
    pub fn free_unknown_if(&self, thread: ThreadId, key: Key, is_event: impl FnOnce() -> bool) -> Freed {
        self.leave(thread, key, is_event)
    }

    /// Records that a call is about to reallocate the block with this key, which is not null. The
    /// key may be given to another block before the reallocation is finished, finished as a free,
    /// or cancelled.
    #[inline]
    pub fn begin_realloc(&self, thread: ThreadId, key: Key) -> SharedPending {
        let clears = self.clears.load(Ordering::Relaxed);
        SharedPending { thread, clears, suspended: self.register.suspend(key) }
    }

    /// Records that the reallocation returned a block: a free and an allocation, both by the thread
    /// that began it. On error the old block is freed all the same.
    #[inline]
    pub fn finish_realloc(&self, pending: SharedPending, new: &Allocation) -> Result<Allocated, OutOfMemory> {
        let (thread, is_event) = (pending.thread, pending.old() != Freed::Untracked);
        self.finish_as_free(pending);
        self.enter(&Allocation { thread, ..*new }, |accounting, block| {
            if is_event {
                accounting.reallocated(block.weight());
            }
        })
    }

    /// See [`crate::Ledger::reallocate_unsampled`].
    pub fn reallocate_unsampled(&self, new: &Allocation) -> Result<Allocated, OutOfMemory> {
        self.enter(new, |accounting, block| accounting.reallocated(block.weight()))
    }

    /// Records that the reallocation released its block and returned none, as glibc's
    /// `realloc(block, 0)` does: a free.
    #[inline]
    pub fn finish_as_free(&self, pending: SharedPending) {
        let free = || self.accounting.lock().free(&mut NoSession, pending.thread, pending.old());
        match &pending.suspended {
            Some(suspended) => self.register.forget(suspended, || {
                if self.is_current(&pending) {
                    free();
                    if suspended.marks[0].is_some() || self.keeps_freed.load(Ordering::Relaxed) {
                        let block = LiveBlock::new(suspended.key, suspended.block, suspended.details);
                        self.on_free(block, suspended.marks);
                    }
                }
            }),
            None => free(),
        }
    }

    /// Records that the reallocation failed: its block stays live, nothing has happened. Count the
    /// failed call with [`SharedLedger::fail`].
    ///
    /// If the key has been given to another block meanwhile, that block stays, and the old block
    /// counts as freed without a free having been seen.
    pub fn cancel_realloc(&self, pending: SharedPending) {
        if let Some(suspended) = &pending.suspended {
            let is_current = || self.is_current(&pending);
            self.register.restore(suspended, is_current, || {
                self.accounting.lock().count_missed_free(&mut NoSession, suspended.block)
            });
        }
    }

    /// True if a reallocation began since the ledger was cleared last. Exact under a lock of the
    /// register.
    fn is_current(&self, pending: &SharedPending) -> bool {
        self.clears.load(Ordering::Relaxed) == pending.clears
    }

    /// Records that a call returned no block although one was asked for.
    pub fn fail(&self) {
        self.accounting.lock().fail();
    }

    /// Records that a block becomes backing memory of the user pool with this id, as
    /// [`crate::Ledger::back`] says. Look-ups find the pool through this block.
    pub fn back(&self, thread: ThreadId, key: Key, pool: u32) -> Freed {
        let backed = self.register.change(key, |block, details| {
            let freed = Freed::new(Some(*block));
            (block.inherited, block.untracked, details.stamp) = (true, true, pool);
            Ok(self.accounting.lock().back(&mut NoSession, thread, freed))
        });
        match backed {
            Ok(Some(freed)) => freed,
            _ => self.accounting.lock().back(&mut NoSession, thread, Freed::Unknown),
        }
    }

    /// Frees all blocks of a user pool, the latest first, as if by a call each. Other events of
    /// pools wait until it is done. Returns how many there were.
    pub fn reset_pool(&self, thread: ThreadId, pool: u32) -> Blocks {
        let mut pools = self.pools.lock();
        let mut blocks = Blocks(0);
        while let Some(key) = pools.pop(pool) {
            if self.release(thread, key, || false) != Freed::Unknown {
                pools.freed(key);
                blocks.0 += 1;
            }
        }
        blocks
    }

    /// Records a block that is not to be counted: its free is not an event either,
    /// [`Freed::Untracked`]. Returns the block that was live under the same key; it has been
    /// counted as freed, though no free was seen.
    pub fn ignore(&self, key: Key) -> Result<Option<Block>, OutOfMemory> {
        let entered = self.register.insert_with(key, Details::default(), Bytes(0), |displaced| {
            let displaced = displaced.map(|(block, _)| block).filter(|block| !block.untracked);
            if let Some(block) = displaced {
                self.accounting.lock().count_missed_free(&mut NoSession, block);
            }
            Ok((Block::IGNORED, displaced))
        });
        entered.inspect_err(|_| self.drop_event())
    }

    /// Reattributes the live block with this key to another site, as if it had been allocated
    /// there: its context was declared after it. A site's share of a peak stays what it was. True
    /// if there was such a block.
    pub fn reattribute_block(&self, key: Key, to: StackId) -> Result<bool, OutOfMemory> {
        let to = to.or_root();
        let changed = self.register.change(key, |block, _| {
            let mut accounting = self.accounting.lock();
            let bytes = accounting.bytes_to_reattribute(to, block.rate);
            self.register.budget().within(bytes, || accounting.reattribute_block(&NoSession, *block, to))?;
            block.stack = to;
            Ok(())
        });
        changed.map(|changed| changed.is_some()).inspect_err(|_| self.drop_event())
    }

    /// Declares a type for the live block with this key. True if there was such a block.
    pub fn stamp(&self, key: Key, stamp: TypeId) -> bool {
        let stamped = self.register.change(key, |block, details| {
            if !block.untracked {
                details.stamp = stamp.0;
            }
            Ok(!block.untracked)
        });
        stamped == Ok(Some(true))
    }

    /// Records that a reporter has reported the live block with this key, and counts `measured`
    /// bytes of it; 0 means all usable bytes.
    pub fn mark(&self, key: Key, mark: Mark, measured: u64) -> Result<Marked, OutOfMemory> {
        let Some((block, marked)) = self.register.mark(key, mark)? else { return Ok(Marked::NoBlock) };
        if measured != 0 && measured < block.usable.0 {
            self.add_defect(DefectKind::Partly, mark, key.address(), Some(block), measured);
        }
        Ok(marked)
    }

    /// Takes a reporter's mark off the live block with this key. True if the block had one that is
    /// to be kept.
    pub fn unmark(&self, key: Key, reporter: TypeId) -> bool {
        self.register.unmark(key, reporter)
    }

    /// Returns the reports of the live block with this key.
    pub fn marks(&self, key: Key) -> Marks {
        self.register.marks(key)
    }

    /// Records that a reporter has reported an address at which no block begins: it lies inside a
    /// block, or in none that is known.
    pub fn misreport(&self, address: u64, mark: Mark, inside: Option<LiveBlock>, measured: u64) {
        let kind = if inside.is_some() { DefectKind::Interior } else { DefectKind::NoBlock };
        self.add_defect(kind, mark, address, inside, measured);
    }

    /// Returns the number of times that reporters have done something wrong: since marks were
    /// cleared, or, with marks that are to be kept, since the ledger began.
    pub fn defects_count(&self) -> u64 {
        self.defects.lock().count()
    }

    /// Returns a defect by its number from 0, in the order of first occurrence. The first 64
    /// different ones are kept.
    pub fn defect_by_number(&self, number: usize) -> Option<Defect> {
        self.defects.lock().get(number)
    }

    /// Takes all marks off blocks, except those that are to be kept, and forgets the defects of the
    /// marks taken off.
    pub fn clear_marks(&self) {
        self.register.clear_marks();
        self.defects.lock().clear();
    }

    /// Does the same before reporters are asked anew: until [`SharedLedger::marks_complete`],
    /// freeing a reported block is a defect.
    pub fn begin_marks(&self) {
        self.is_marking.store(true, Ordering::Relaxed);
        self.clear_marks();
    }

    /// Notes that all reporters have been asked.
    pub fn marks_complete(&self) {
        self.is_marking.store(false, Ordering::Relaxed);
    }

    /// Sets whether blocks that are freed from now on are counted by size and site: see
    /// [`crate::Snapshot::freed`].
    pub fn keep_freed(&self, keeps_freed: bool) {
        self.keeps_freed.store(keeps_freed, Ordering::Relaxed);
        self.register.keep_freed(keeps_freed);
    }

    /// True if freed blocks are counted.
    pub fn keeps_freed(&self) -> bool {
        self.keeps_freed.load(Ordering::Relaxed)
    }

    /// Sums up the live blocks by how often they have been reported; visits them one by one, see
    /// [`SharedLedger::blocks`].
    pub fn reported(&self) -> Reported {
        let mut reported = Reported::default();
        for block in self.blocks() {
            reported.add(&block, self.marks(block.key));
        }
        reported
    }

    /// Records that the thread has allocated something that is not in the sample: the block that it
    /// had before is not temporary.
    pub fn record_unsampled_allocations(&self, thread: ThreadId) {
        self.accounting.lock().end_thread(thread);
    }

    /// Records that a thread has ended: its number may be given to another one.
    pub fn end_thread(&self, thread: ThreadId) {
        self.accounting.lock().end_thread(thread);
    }

    /// Counts calls and maxima anew from this moment on. Live blocks stay, and are the first peak;
    /// serials go on; no block from before is temporary.
    pub fn restart(&self, time: Time) {
        self.accounting.lock().restart(time);
    }

    /// Forgets everything, as if nothing had happened yet, and gives the memory back. If a
    /// reallocation is pending and finished afterwards, only the new block is entered.
    pub fn clear(&self) {
        let mut pools = self.pools.lock();
        self.register.clear_with(|| {
            *pools = Pools::new();
            *self.accounting.lock() = Accounting::new();
            *self.freed.lock() = FreedTable::new();
            *self.defects.lock() = Defects::new();
            self.is_marking.store(false, Ordering::Relaxed);
            self.keeps_freed.store(false, Ordering::Relaxed);
            self.dropped.store(0, Ordering::Relaxed);
            self.clears.fetch_add(1, Ordering::Relaxed);
        });
    }

    /// Returns what happened so far.
    pub fn counts(&self) -> Counts {
        self.accounting.lock().counts()
    }

    /// Returns the live totals, and their maxima.
    pub fn live(&self) -> Live {
        self.accounting.lock().live()
    }

    /// Returns the counts, the live totals, and their variances if blocks are sampled, all for the
    /// same moment.
    pub fn totals(&self) -> (Counts, Live, Variances) {
        self.accounting.lock().totals()
    }

    /// Returns the number of events that could not be entered because memory was lacking:
    /// allocations, and changes of blocks to a new site.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Returns the totals of one site, if it ever allocated. There is no session around this
    /// ledger: the site's shares in the session's peak are all zero.
    pub fn site(&self, stack: StackId) -> Option<Site> {
        self.accounting.lock().site(&NoSession, stack)
    }

    /// Returns the totals of every site, in the order of their first allocations. Each is taken at
    /// a moment of its own: the lock is taken for each, and none is held in between.
    pub fn sites(&self) -> Sites<'_> {
        Sites { ledger: self, next: 0 }
    }

    /// Returns the live block with this key.
    pub fn get(&self, key: Key) -> Option<LiveBlock> {
        self.register.get(key).filter(|block| block.backs.is_none())
    }

    /// See [`SharedRegister::block_at`].
    pub fn block_at(&self, address: u64) -> Option<LiveBlock> {
        self.register.block_at(address)
    }

    /// See [`SharedRegister::block_in`].
    pub fn block_in(&self, pool: u32, address: u64) -> Option<LiveBlock> {
        self.register.block_in(pool, address)
    }

    /// See [`SharedRegister::blocks`]. A block in a pending reallocation is not found.
    pub fn blocks(&self) -> LiveBlocks<'_> {
        self.register.blocks()
    }

    /// Returns the bytes that are mapped, touched or not.
    pub fn bytes_mapped(&self) -> Bytes {
        self.register.bytes_mapped()
    }

    /// Sets the most bytes that may be mapped, see the type.
    pub fn set_bytes_max(&self, bytes: Bytes) {
        self.register.set_bytes_max(bytes);
    }

    /// Holds all locks before the process forks, see [`SharedRegister::before_fork`]. The child
    /// goes on with the same ledger, and with blocks that are as much its own as the parent's are.
    pub fn before_fork(&self) {
        self.pools.hold();
        self.register.before_fork();
        self.accounting.hold();
        self.freed.hold();
        self.defects.hold();
    }

    /// Releases the locks after the fork, in the parent and in the child.
    ///
    /// # Safety
    ///
    /// The calling thread is the one that called [`SharedLedger::before_fork`], or its copy in the
    /// child.
    pub unsafe fn after_fork(&self) {
        // SAFETY: `before_fork` held all locks, in this thread or the one that it is a copy of, by
        // the caller's promise.
        unsafe {
            self.defects.release();
            self.freed.release();
            self.accounting.release();
            self.register.after_fork();
            self.pools.release();
        }
    }

    pub(crate) fn register(&self) -> &SharedRegister {
        &self.register
    }

    /// Returns the number of chunks in the table of freed blocks.
    pub(crate) fn freed_chunks(&self) -> usize {
        self.freed.lock().chunks()
    }

    /// Returns the tables besides the register, while all locks are held.
    ///
    /// # Safety
    ///
    /// The calling thread has called [`SharedLedger::before_fork`], and not yet
    /// [`SharedLedger::after_fork`]. The references are dropped before it does, and before it asks
    /// for them again.
    pub(crate) unsafe fn held(&self) -> (&Accounting, &FreedTable, &Defects) {
        // SAFETY: `Locked::held` requires that this thread has called `hold`, and uses no other
        // reference to the value before the release. `before_fork` has called it for each of the
        // three, and this function's `# Safety` requires the rest.
        unsafe { (self.accounting.held(), self.freed.held(), self.defects.held()) }
    }

    #[inline(always)]
    fn enter(&self, new: &Allocation, then: impl FnOnce(&mut Accounting, &Block)) -> Result<Allocated, OutOfMemory> {
        let entered = if new.key.pool() == 0 { self.enter_block(new, then) } else { self.enter_in_pool(new, then) };
        entered.inspect_err(|_| self.drop_event())
    }

    #[cold]
    fn enter_in_pool(
        &self,
        new: &Allocation,
        then: impl FnOnce(&mut Accounting, &Block),
    ) -> Result<Allocated, OutOfMemory> {
        let mut pools = self.pools.lock();
        let bytes = pools.bytes_to_reserve(new.key);
        self.register.budget().within(bytes, || pools.reserve(new.key))?;
        let allocated = self.enter_block(new, then)?;
        let is_live = |key, serial| self.register.get(key).is_some_and(|block| block.serial.0 == serial);
        pools.enter(new.key, allocated.serial.0, allocated.displaced.is_some(), is_live);
        Ok(allocated)
    }

    #[inline(always)]
    fn enter_block(
        &self,
        new: &Allocation,
        then: impl FnOnce(&mut Accounting, &Block),
    ) -> Result<Allocated, OutOfMemory> {
        // For blocks that are not sampled, the compiler drops all code about weights.
        if new.rate == Rate::EXACT { self.enter_either::<true>(new, then) } else { self.enter_sampled(new, then) }
    }

    #[cold]
    #[inline(never)]
    fn enter_sampled(
        &self,
        new: &Allocation,
        then: impl FnOnce(&mut Accounting, &Block),
    ) -> Result<Allocated, OutOfMemory> {
        self.enter_either::<false>(new, then)
    }

    #[inline(always)]
    fn enter_either<const IS_EXACT: bool>(
        &self,
        new: &Allocation,
        then: impl FnOnce(&mut Accounting, &Block),
    ) -> Result<Allocated, OutOfMemory> {
        prefetch(&raw const self.accounting);
        let &Allocation { key, usable, thread, time, stamp, .. } = new;
        let stack = new.stack.or_root();
        let given = Sampled { size: new.size, rate: if IS_EXACT { Rate::EXACT } else { new.rate } };
        let Sampled { size, rate } = given.kept();
        let known = LiveBlock { key, size, rate, usable, stack, serial: Serial(0), stamp, thread, time, backs: None };
        self.register.insert_with(key, known.details(), size, |displaced| {
            let displaced = displaced.map(|(block, _)| block);
            let rate = if IS_EXACT { Rate::EXACT } else { rate };
            let mut accounting = self.accounting.lock();
            let bytes = accounting.bytes_to_enter(thread, stack, rate);
            let serial = self.register.budget().within(bytes, || accounting.enter(thread, stack, rate))?;
            let block = Block { size, stack, serial, rate, inherited: false, untracked: false };
            accounting.allocate(&mut NoSession, time, thread, block, displaced);
            then(&mut accounting, &block);
            Ok((block, Allocated { serial, displaced: displaced.filter(|block| !block.untracked) }))
        })
    }

    #[inline(always)]
    fn leave(&self, thread: ThreadId, key: Key, is_event: impl FnOnce() -> bool) -> Freed {
        if key.pool() == 0 { self.release(thread, key, is_event) } else { self.leave_pool(thread, key, is_event) }
    }

    #[cold]
    fn leave_pool(&self, thread: ThreadId, key: Key, is_event: impl FnOnce() -> bool) -> Freed {
        let mut pools = self.pools.lock();
        let freed = self.release(thread, key, is_event);
        if freed != Freed::Unknown {
            pools.freed(key);
        }
        freed
    }

    /// `is_event` says whether the free of an unknown block is an event too; it is called only for
    /// such a block.
    #[inline(always)]
    fn release(&self, thread: ThreadId, key: Key, is_event: impl FnOnce() -> bool) -> Freed {
        prefetch(&raw const self.accounting);
        let on_free = |block, marks| self.on_free(block, marks);
        self.register.remove_with(key, on_free, |taken| {
            let freed = Freed::new(taken.map(|(block, _)| block));
            if freed != Freed::Unknown || is_event() {
                self.accounting.lock().free(&mut NoSession, thread, freed);
            }
            freed
        })
    }

    /// Handles the free of a block that may have been reported, or is to be counted.
    #[inline(never)]
    fn on_free(&self, block: LiveBlock, marks: Marks) {
        for mark in marks.into_iter().flatten() {
            if mark.is_kept || self.is_marking.load(Ordering::Relaxed) {
                self.add_defect(DefectKind::FreedWhileReported, mark, block.key.address(), Some(block), 0);
            }
        }
        if self.keeps_freed.load(Ordering::Relaxed) && block.backs.is_none() {
            self.freed.lock().add(self.register.budget(), &block);
        }
    }

    fn add_defect(&self, kind: DefectKind, mark: Mark, address: u64, block: Option<LiveBlock>, measured: u64) {
        self.defects.lock().add(Defect { kind, mark, address, block, measured, count: 1 });
    }

    #[cold]
    fn drop_event(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

impl Default for SharedLedger {
    fn default() -> SharedLedger {
        SharedLedger::new()
    }
}

impl fmt::Debug for SharedLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (counts, live, _) = self.totals();
        f.debug_struct("SharedLedger").field("counts", &counts).field("live", &live).finish_non_exhaustive()
    }
}

/// The sites of a ledger, see [`SharedLedger::sites`].
#[derive(Debug)]
pub struct Sites<'l> {
    ledger: &'l SharedLedger,
    next: usize,
}

impl Iterator for Sites<'_> {
    type Item = Site;

    fn next(&mut self) -> Option<Site> {
        loop {
            let site = self.ledger.accounting.lock().site_by_number(&NoSession, self.next)?;
            self.next += 1;
            if let Some(site) = site {
                return Some(site);
            }
        }
    }
}
