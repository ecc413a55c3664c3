//! The ledger inside a program: the same rules for all its threads at once.

use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use heapledger_core::sample::Rate;
use heapledger_core::{Blocks, Bytes, Serial, StackId, ThreadId, TypeId};

use crate::arch::prefetch;
use crate::books::{Books, Counts, Freed};
use crate::defects::{Defect, DefectKind, Defects};
use crate::details::{Details, LiveBlock};
use crate::freed::FreedTable;
use crate::ledger::Allocated;
use crate::live::{Alone, Live, Time, Variances};
use crate::locked::Locked;
use crate::mapped::OutOfMemory;
use crate::marks::{Mark, Marked, Marks, Reported};
use crate::pools::Pools;
use crate::register::{Block, Key, Sampled};
use crate::shards::{LiveBlocks, SharedRegister, Suspended};
use crate::sites::Site;

#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, not(loom)))]
mod tests;

/// A call that returned a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// The address, or with [`Key::in_pool`] a pool's.
    pub key: Key,
    /// Requested size.
    pub size: Bytes,
    /// At which rate it was sampled.
    pub rate: Rate,
    /// What of the block may be used; the requested size where that is not known.
    pub usable: Bytes,
    /// The site. Beyond [`StackId::MAX`] it counts as [`StackId::ROOT`].
    pub stack: StackId,
    /// The calling thread.
    pub thread: ThreadId,
    /// When. The ledger only hands it back; blocks keep it in steps of [`LiveBlock::TIME_STEP`].
    pub time: Time,
    /// The type declared for the block.
    pub stamp: TypeId,
}

/// A reallocation between its call and its return, as [`crate::Pending`] is.
#[derive(Debug)]
#[must_use = "the old block is out of the register until the reallocation is finished or cancelled"]
pub struct SharedPending {
    thread: ThreadId,
    /// How often the ledger had been cleared when it began.
    clears: u64,
    suspended: Option<Suspended>,
}

impl SharedPending {
    /// The block that the call was given; freed only if the reallocation is finished.
    pub fn old(&self) -> Freed {
        Freed::new(self.suspended.map(|suspended| suspended.block))
    }

    /// The same with all that is known of it.
    pub fn old_block(&self) -> Option<LiveBlock> {
        self.suspended.map(|suspended| LiveBlock::new(suspended.key, suspended.block, suspended.details))
    }
}

/// The state of the process it is in, which all its threads enter: a [`crate::Ledger`] by its rules, with more known of
/// each block ([`LiveBlock`]).
///
/// `&self` throughout and `const` to make, so that it can be a static; runs inside `malloc`, like [`SharedRegister`],
/// whose promises about locks, signals and memory it shares. An event takes the lock of a shard, and inside that the one
/// of the books, each for a fraction of a microsecond. So what a query answers about one block or about the totals is
/// true of one moment; blocks and totals together only while nothing happens.
///
/// With `bytes_max` of memory mapped, allocations that would take more are refused and [counted](SharedLedger::dropped);
/// what is known stays right. The frees of refused blocks count as unknown.
pub struct SharedLedger {
    register: SharedRegister,
    books: Locked<Books>,
    /// Taken before the lock of a shard, by events of pools only.
    pools: Locked<Pools>,
    freed: Locked<FreedTable>,
    defects: Locked<Defects>,
    /// Whether reporters are being asked: between [`SharedLedger::begin_marks`] and [`SharedLedger::marks_complete`].
    is_marking: AtomicBool,
    keeps_freed: AtomicBool,
    dropped: AtomicU64,
    /// How often it was cleared: counted while all locks are held.
    clears: AtomicU64,
}

impl SharedLedger {
    /// The ledger of a process in which nothing has happened. Maps no memory.
    #[cfg(not(all(test, loom)))]
    pub const fn new() -> SharedLedger {
        SharedLedger {
            register: SharedRegister::new(),
            books: Locked::new(Books::new()),
            pools: Locked::new(Pools::new()),
            freed: Locked::new(FreedTable::new()),
            defects: Locked::new(Defects::new()),
            is_marking: AtomicBool::new(false),
            keeps_freed: AtomicBool::new(false),
            dropped: AtomicU64::new(0),
            clears: AtomicU64::new(0),
        }
    }

    /// A call returned a block. Also for `realloc` of a null pointer. To be called before another thread can have the
    /// block.
    #[inline]
    pub fn allocate(&self, new: &Allocation) -> Result<Allocated, OutOfMemory> {
        self.enter(new, |_, _| {})
    }

    /// A call is about to release a block. Not for `free` of a null pointer, which is no event.
    #[inline]
    pub fn free(&self, thread: ThreadId, key: Key) -> Freed {
        self.leave(thread, key, || true)
    }

    /// The same in a ledger that only has some of the blocks, a sample: an unknown one is no event.
    #[inline]
    pub fn free_if_known(&self, thread: ThreadId, key: Key) -> Freed {
        self.leave(thread, key, || false)
    }

    /// The same; an unknown block is an event if `is_event`, which is asked only then.
    #[inline]
    pub fn free_unknown_if(&self, thread: ThreadId, key: Key, is_event: impl FnOnce() -> bool) -> Freed {
        self.leave(thread, key, is_event)
    }

    /// A call is about to reallocate the block with this key, which is not null. The key may be given to another block
    /// before the reallocation is finished, finished as a free, or cancelled.
    #[inline]
    pub fn begin_realloc(&self, thread: ThreadId, key: Key) -> SharedPending {
        let clears = self.clears.load(Ordering::Relaxed);
        SharedPending { thread, clears, suspended: self.register.suspend(key) }
    }

    /// The reallocation returned a block: a free and an allocation, both by the thread that began it. On error the old
    /// block is freed all the same.
    #[inline]
    pub fn finish_realloc(&self, pending: SharedPending, new: &Allocation) -> Result<Allocated, OutOfMemory> {
        let (thread, is_event) = (pending.thread, pending.old() != Freed::Backing);
        self.finish_as_free(pending);
        self.enter(&Allocation { thread, ..*new }, |books, block| {
            if is_event {
                books.reallocated(block.stands_for());
            }
        })
    }

    /// As [`crate::Ledger::reallocate_unsampled`].
    pub fn reallocate_unsampled(&self, new: &Allocation) -> Result<Allocated, OutOfMemory> {
        self.enter(new, |books, block| books.reallocated(block.stands_for()))
    }

    /// The reallocation released its block and returned none, as glibc's `realloc(block, 0)` does: a free.
    #[inline]
    pub fn finish_as_free(&self, pending: SharedPending) {
        let free = || self.books.lock().free(&mut Alone, pending.thread, pending.old());
        match &pending.suspended {
            Some(suspended) => self.register.forget(suspended, || {
                if self.is_of_now(&pending) {
                    free();
                    if suspended.marks[0].is_some() || self.keeps_freed.load(Ordering::Relaxed) {
                        let block = LiveBlock::new(suspended.key, suspended.block, suspended.details);
                        self.watch(block, suspended.marks);
                    }
                }
            }),
            None => free(),
        }
    }

    /// The reallocation failed: its block stays live, nothing has happened. Count the failed call with
    /// [`SharedLedger::fail`].
    ///
    /// Should the key have been given to another block meanwhile, that one stays, and the old block counts as freed
    /// without a free having been seen.
    pub fn cancel_realloc(&self, pending: SharedPending) {
        if let Some(suspended) = &pending.suspended {
            let is_of_now = || self.is_of_now(&pending);
            self.register.restore(suspended, is_of_now, || self.books.lock().lose(&mut Alone, suspended.block));
        }
    }

    /// Whether a reallocation began since the ledger was cleared last. Exact under a lock of the register.
    fn is_of_now(&self, pending: &SharedPending) -> bool {
        self.clears.load(Ordering::Relaxed) == pending.clears
    }

    /// A call returned no block although one was asked for.
    pub fn fail(&self) {
        self.books.lock().fail();
    }

    /// A block becomes the memory of the user pool with this id, as [`crate::Ledger::back`] says. Look-ups find the
    /// pool by it.
    pub fn back(&self, thread: ThreadId, key: Key, pool: u32) -> Freed {
        let backed = self.register.change(key, |block, details| {
            let freed = Freed::new(Some(*block));
            (block.inherited, block.set_aside, details.stamp) = (true, true, pool);
            Ok(self.books.lock().back(&mut Alone, thread, freed))
        });
        match backed {
            Ok(Some(freed)) => freed,
            _ => self.books.lock().back(&mut Alone, thread, Freed::Unknown),
        }
    }

    /// Frees all blocks of a user pool, the latest first, as if by a call each. Other events of pools wait until it is
    /// done. Returns how many there were.
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

    /// A call returned a block that is not to be counted: its free is no event either, [`Freed::Backing`]. Returns the block that was live under the same key; it has been counted as freed, though no free was seen.
    pub fn ignore(&self, key: Key) -> Result<Option<Block>, OutOfMemory> {
        let entered = self.register.insert_with(key, Details::default(), Bytes(0), |displaced| {
            let displaced = displaced.map(|(block, _)| block).filter(|block| !block.set_aside);
            if let Some(block) = displaced {
                self.books.lock().lose(&mut Alone, block);
            }
            Ok((Block::IGNORED, displaced))
        });
        entered.inspect_err(|_| self.drop_event())
    }

    /// The live block with this key is one of another site, as if it had been allocated there: what declares its
    /// context came after it. What a site had at a peak stays what it was. Whether there was such a block.
    pub fn move_block(&self, key: Key, to: StackId) -> Result<bool, OutOfMemory> {
        let to = to.or_root();
        let changed = self.register.change(key, |block, _| {
            let mut books = self.books.lock();
            let bytes = books.bytes_to_move(to, block.rate);
            self.register.budget().within(bytes, || books.move_block(&Alone, *block, to))?;
            block.stack = to;
            Ok(())
        });
        changed.map(|changed| changed.is_some()).inspect_err(|_| self.drop_event())
    }

    /// Declares a type for the live block with this key. Whether there was such a block.
    pub fn stamp(&self, key: Key, stamp: TypeId) -> bool {
        let stamped = self.register.change(key, |block, details| {
            if !block.set_aside {
                details.stamp = stamp.0;
            }
            Ok(!block.set_aside)
        });
        stamped == Ok(Some(true))
    }

    /// A reporter has reported the live block with this key, and counts so many bytes of it: 0, all that may be used.
    pub fn mark(&self, key: Key, mark: Mark, measured: u64) -> Result<Marked, OutOfMemory> {
        let Some((block, marked)) = self.register.mark(key, mark)? else { return Ok(Marked::NoBlock) };
        if measured != 0 && measured < block.usable.0 {
            self.add_defect(DefectKind::Partly, mark, key.address(), Some(block), measured);
        }
        Ok(marked)
    }

    /// A reporter takes its mark off the live block with this key. Whether it had one that is to be kept.
    pub fn unmark(&self, key: Key, reporter: TypeId) -> bool {
        self.register.unmark(key, reporter)
    }

    /// Who has reported the live block with this key.
    pub fn marks(&self, key: Key) -> Marks {
        self.register.marks(key)
    }

    /// A reporter has reported what is no block: the address is inside one, or there is none that is known.
    pub fn misreport(&self, address: u64, mark: Mark, inside: Option<LiveBlock>, measured: u64) {
        let kind = if inside.is_some() { DefectKind::Interior } else { DefectKind::NoBlock };
        self.add_defect(kind, mark, address, inside, measured);
    }

    /// How often reporters have done something wrong: since marks were cleared, and with marks that are to be kept, since the
    /// ledger began.
    pub fn defects_count(&self) -> u64 {
        self.defects.lock().count()
    }

    /// What they have done, by number from 0, in the order of the first times: the first 64 different ones.
    pub fn defect_by_number(&self, number: usize) -> Option<Defect> {
        self.defects.lock().get(number)
    }

    /// Takes all marks from blocks, but for those that are to be kept; forgets the defects of such marks.
    pub fn clear_marks(&self) {
        self.register.clear_marks();
        self.defects.lock().clear();
    }

    /// The same before reporters are asked anew: until [`SharedLedger::marks_complete`], to free what has been reported is a
    /// defect.
    pub fn begin_marks(&self) {
        self.is_marking.store(true, Ordering::Relaxed);
        self.clear_marks();
    }

    /// All reporters have been asked.
    pub fn marks_complete(&self) {
        self.is_marking.store(false, Ordering::Relaxed);
    }

    /// Whether blocks that are freed from now on are counted by size and site: see [`crate::Snapshot::freed`].
    pub fn keep_freed(&self, keeps_freed: bool) {
        self.keeps_freed.store(keeps_freed, Ordering::Relaxed);
        self.register.keep_freed(keeps_freed);
    }

    /// Whether they are.
    pub fn keeps_freed(&self) -> bool {
        self.keeps_freed.load(Ordering::Relaxed)
    }

    /// What is live, by how often it has been reported; block by block, see [`SharedLedger::blocks`].
    pub fn reported(&self) -> Reported {
        let mut reported = Reported::default();
        for block in self.blocks() {
            reported.add(&block, self.marks(block.key));
        }
        reported
    }

    /// The thread has allocated something that is not in the sample: the block that it had before is no temporary one.
    pub fn tell_of_others(&self, thread: ThreadId) {
        self.books.lock().end_thread(thread);
    }

    /// A thread is over: its number may be given to another one.
    pub fn end_thread(&self, thread: ThreadId) {
        self.books.lock().end_thread(thread);
    }

    /// Counts calls and maxima anew from this moment on. What is live stays, and is the first peak; serials go on; no
    /// block from before is a temporary one.
    pub fn restart(&self, time: Time) {
        self.books.lock().restart(time);
    }

    /// Forgets everything, as if nothing had happened yet, and gives the memory back. Of a reallocation that is pending
    /// and finished after it, only the new block is entered.
    pub fn clear(&self) {
        let mut pools = self.pools.lock();
        self.register.clear_with(|| {
            *pools = Pools::new();
            *self.books.lock() = Books::new();
            *self.freed.lock() = FreedTable::new();
            *self.defects.lock() = Defects::new();
            self.is_marking.store(false, Ordering::Relaxed);
            self.keeps_freed.store(false, Ordering::Relaxed);
            self.dropped.store(0, Ordering::Relaxed);
            self.clears.fetch_add(1, Ordering::Relaxed);
        });
    }

    /// What happened so far.
    pub fn counts(&self) -> Counts {
        self.books.lock().counts()
    }

    /// What is live, and the maxima.
    pub fn live(&self) -> Live {
        self.books.lock().live()
    }

    /// Counts and what is live, and how far they are off where blocks are sampled, of the same moment.
    pub fn totals(&self) -> (Counts, Live, Variances) {
        self.books.lock().totals()
    }

    /// Events that could not be entered for want of memory: allocations, and changes of blocks to a new site.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// The totals of one site, if it ever allocated. There is no session around this ledger: the shares in its peak are
    /// all zero.
    pub fn site(&self, stack: StackId) -> Option<Site> {
        self.books.lock().site(&Alone, stack)
    }

    /// The totals of every site, in the order of their first allocations. Each is of a moment of its own: takes the lock
    /// for each, and holds none in between.
    pub fn sites(&self) -> Sites<'_> {
        Sites { ledger: self, next: 0 }
    }

    /// The live block with this key.
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

    /// What is mapped, touched or not.
    pub fn bytes_mapped(&self) -> Bytes {
        self.register.bytes_mapped()
    }

    /// The most that may be mapped, see the type.
    pub fn set_bytes_max(&self, bytes: Bytes) {
        self.register.set_bytes_max(bytes);
    }

    /// To be called before the process forks, see [`SharedRegister::before_fork`]. The child goes on with the same
    /// ledger, and with blocks that are as much its own as the parent's are.
    pub fn before_fork(&self) {
        self.pools.hold();
        self.register.before_fork();
        self.books.hold();
        self.freed.hold();
        self.defects.hold();
    }

    /// To be called after the fork, in the parent and in the child.
    ///
    /// # Safety
    ///
    /// The calling thread is the one that called [`SharedLedger::before_fork`], or its copy in the child.
    pub unsafe fn after_fork(&self) {
        // SAFETY: all were held by `before_fork`; by whom is the caller's promise.
        unsafe {
            self.defects.release();
            self.freed.release();
            self.books.release();
            self.register.after_fork();
            self.pools.release();
        }
    }

    pub(crate) fn register(&self) -> &SharedRegister {
        &self.register
    }

    /// How large the table of freed blocks is, in chunks.
    pub(crate) fn freed_chunks(&self) -> usize {
        self.freed.lock().chunks()
    }

    /// What there is besides the register, while all locks are held.
    ///
    /// # Safety
    ///
    /// The calling thread has called [`SharedLedger::before_fork`], and not yet [`SharedLedger::after_fork`], before which
    /// the references go.
    pub(crate) unsafe fn held(&self) -> (&Books, &FreedTable, &Defects) {
        // SAFETY: the locks are held, by the caller's promise; nobody has a reference that is not shared.
        unsafe { (self.books.held(), self.freed.held(), self.defects.held()) }
    }

    #[inline(always)]
    fn enter(&self, new: &Allocation, then: impl FnOnce(&mut Books, &Block)) -> Result<Allocated, OutOfMemory> {
        let entered = if new.key.pool() == 0 { self.enter_block(new, then) } else { self.enter_in_pool(new, then) };
        entered.inspect_err(|_| self.drop_event())
    }

    #[cold]
    fn enter_in_pool(&self, new: &Allocation, then: impl FnOnce(&mut Books, &Block)) -> Result<Allocated, OutOfMemory> {
        let mut pools = self.pools.lock();
        let bytes = pools.bytes_to_reserve(new.key);
        self.register.budget().within(bytes, || pools.reserve(new.key))?;
        let allocated = self.enter_block(new, then)?;
        let is_live = |key, serial| self.register.get(key).is_some_and(|block| block.serial.0 == serial);
        pools.enter(new.key, allocated.serial.0, allocated.displaced.is_some(), is_live);
        Ok(allocated)
    }

    #[inline(always)]
    fn enter_block(&self, new: &Allocation, then: impl FnOnce(&mut Books, &Block)) -> Result<Allocated, OutOfMemory> {
        // Where all blocks are recorded, nothing of weights is left.
        if new.rate == Rate::EXACT { self.enter_either::<true>(new, then) } else { self.enter_sampled(new, then) }
    }

    #[cold]
    #[inline(never)]
    fn enter_sampled(&self, new: &Allocation, then: impl FnOnce(&mut Books, &Block)) -> Result<Allocated, OutOfMemory> {
        self.enter_either::<false>(new, then)
    }

    #[inline(always)]
    fn enter_either<const IS_EXACT: bool>(
        &self,
        new: &Allocation,
        then: impl FnOnce(&mut Books, &Block),
    ) -> Result<Allocated, OutOfMemory> {
        prefetch(&raw const self.books);
        let &Allocation { key, usable, thread, time, stamp, .. } = new;
        let stack = new.stack.or_root();
        let given = Sampled { size: new.size, rate: if IS_EXACT { Rate::EXACT } else { new.rate } };
        let Sampled { size, rate } = given.kept();
        let known = LiveBlock { key, size, rate, usable, stack, serial: Serial(0), stamp, thread, time, backs: None };
        self.register.insert_with(key, known.details(), size, |displaced| {
            let displaced = displaced.map(|(block, _)| block);
            let rate = if IS_EXACT { Rate::EXACT } else { rate };
            let mut books = self.books.lock();
            let bytes = books.bytes_to_enter(thread, stack, rate);
            let serial = self.register.budget().within(bytes, || books.enter(thread, stack, rate))?;
            let block = Block { size, stack, serial, rate, inherited: false, set_aside: false };
            books.allocate(&mut Alone, time, thread, block, displaced);
            then(&mut books, &block);
            Ok((block, Allocated { serial, displaced: displaced.filter(|block| !block.set_aside) }))
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

    /// `is_event`: even if the block is unknown; asked only then.
    #[inline(always)]
    fn release(&self, thread: ThreadId, key: Key, is_event: impl FnOnce() -> bool) -> Freed {
        prefetch(&raw const self.books);
        let watch = |block, marks| self.watch(block, marks);
        self.register.remove_with(key, watch, |taken| {
            let freed = Freed::new(taken.map(|(block, _)| block));
            if freed != Freed::Unknown || is_event() {
                self.books.lock().free(&mut Alone, thread, freed);
            }
            freed
        })
    }

    /// A block is freed that may have been reported, or is to be counted.
    #[inline(never)]
    fn watch(&self, block: LiveBlock, marks: Marks) {
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
            let site = self.ledger.books.lock().site_by_number(&Alone, self.next)?;
            self.next += 1;
            if let Some(site) = site {
                return Some(site);
            }
        }
    }
}
