//! The ledger of one process image.

use core::fmt;

use heapledger_core::totals::{Counts, Live, Site, Time, Variances};
use heapledger_core::{Blocks, Bytes, Serial, StackId, ThreadId};

use crate::accounting::{Accounting, Freed};
use crate::live::Session;
use crate::mapped::OutOfMemory;
use crate::pools::Pools;
use crate::register::{Block, Key, KeyTaken, Register, Sampled};

#[cfg(all(test, not(loom)))]
mod tests;

/// An allocation as entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a displaced block was freed"]
pub struct Allocated {
    /// The block's serial.
    pub serial: Serial,
    /// The block that was live under the same key; it has been counted as freed.
    pub displaced: Option<Block>,
}

/// A reallocation between its call and its return: the old block is out of the register, so that
/// another thread may be given its address, but still in all totals.
#[derive(Debug)]
#[must_use = "the old block is out of the register until the reallocation is finished or cancelled"]
pub struct Pending {
    thread: ThreadId,
    key: Key,
    block: Option<Block>,
}

impl Pending {
    /// The block that the call was given; freed only if the reallocation is finished.
    #[inline]
    pub fn old(&self) -> Freed {
        Freed::new(self.block)
    }
}

/// The state of one process image, for one thread at a time: kept by the collector and the
/// analysis.
///
/// The [`Session`] given to the calls must always be the same one. An operation that fails because
/// memory is lacking is not recorded, as if its call had not happened (except that
/// [`Ledger::finish_realloc`] has freed).
#[derive(Default)]
pub struct Ledger {
    register: Register,
    accounting: Accounting,
    pools: Pools,
}

impl Ledger {
    /// Creates the ledger of an image that has just begun, by exec; for one begun by fork, see
    /// [`Ledger::fork`]. Maps no memory.
    pub const fn new() -> Ledger {
        Ledger { register: Register::new(), accounting: Accounting::new(), pools: Pools::new() }
    }

    /// Records that a call returned a block; also for `realloc` of a null pointer.
    ///
    /// A stack beyond [`StackId::MAX`] counts as [`StackId::ROOT`].
    #[inline]
    pub fn allocate(
        &mut self,
        session: &mut Session,
        time: Time,
        thread: ThreadId,
        key: Key,
        size: impl Into<Sampled>,
        stack: StackId,
    ) -> Result<Allocated, OutOfMemory> {
        let stack = stack.or_root();
        let Sampled { size, rate } = size.into().kept();
        let serial = self.accounting.enter(thread, stack, rate)?;
        let block = Block { size, stack, serial, rate, inherited: false, untracked: false };
        if key.pool() != 0 {
            self.pools.reserve(key)?;
        }
        let displaced = self.register.insert(key, block)?;
        if key.pool() != 0 {
            let is_live = |key, serial| self.register.get(key).is_some_and(|block| block.serial.0 == serial);
            self.pools.enter(key, serial.0, displaced.is_some(), is_live);
        }
        self.accounting.allocate(session, time, thread, block, displaced);
        Ok(Allocated { serial, displaced: displaced.filter(|block| !block.untracked) })
    }

    /// Records that a call released a block. Not for `free` of a null pointer, which is not an
    /// event.
    #[inline]
    pub fn free(&mut self, session: &mut Session, thread: ThreadId, key: Key) -> Freed {
        let freed = Freed::new(self.register.remove(key));
        if key.pool() != 0 && freed != Freed::Unknown {
            self.pools.freed(key);
        }
        self.accounting.free(session, thread, freed);
        freed
    }

    /// Does the same in a ledger that has only some of the blocks, a sample: the free of an unknown
    /// block is not an event.
    pub fn free_if_known(&mut self, session: &mut Session, thread: ThreadId, key: Key) -> Freed {
        match self.register.get(key) {
            Some(_) => self.free(session, thread, key),
            None => Freed::Unknown,
        }
    }

    /// Records that a block becomes backing memory of a user pool: it leaves the live totals, in
    /// which the pool's blocks take its place, and is not temporary. The later free of its memory
    /// is not an event, [`Freed::Untracked`].
    pub fn back(&mut self, session: &mut Session, thread: ThreadId, key: Key) -> Freed {
        let block = self.register.get(key);
        if let Some(block) = block {
            self.register.replace(key, Block { inherited: true, untracked: true, ..block }, ());
        }
        self.accounting.back(session, thread, Freed::new(block))
    }

    /// Does what [`Ledger::back`] does, for a block whose free does not come any more, as when a
    /// recording is read.
    pub fn withdraw(&mut self, session: &mut Session, thread: ThreadId, key: Key) -> Freed {
        let block = self.register.remove(key);
        self.accounting.back(session, thread, Freed::new(block))
    }

    /// Frees all blocks of a user pool, the latest first, as if by a call each. `each` is called
    /// with each block once it has been counted, and with the live totals then.
    pub fn reset_pool(
        &mut self,
        session: &mut Session,
        thread: ThreadId,
        pool: u32,
        mut each: impl FnMut(Freed, Live),
    ) {
        while let Some(key) = self.pools.pop(pool) {
            let freed = Freed::new(self.register.remove(key));
            if freed != Freed::Unknown {
                self.pools.freed(key);
                self.accounting.free(session, thread, freed);
                each(freed, self.live());
            }
        }
    }

    /// Records that a call is about to reallocate the block with this key, which is not null. The
    /// key may be given to another block before the reallocation is finished, finished as a free,
    /// or cancelled.
    #[inline]
    pub fn begin_realloc(&mut self, thread: ThreadId, key: Key) -> Pending {
        Pending { thread, key, block: self.register.suspend(key).map(|(block, ())| block) }
    }

    /// Records that the reallocation returned a block: a free and an allocation. On error the old
    /// block is freed all the same.
    #[inline]
    pub fn finish_realloc(
        &mut self,
        session: &mut Session,
        time: Time,
        pending: Pending,
        key: Key,
        size: impl Into<Sampled>,
        stack: StackId,
    ) -> Result<Allocated, OutOfMemory> {
        let (thread, is_event) = (pending.thread, pending.old() != Freed::Untracked);
        self.finish_as_free(session, pending);
        self.allocate_again(session, time, thread, key, size.into(), stack, is_event)
    }

    /// Records that a reallocation of a block that is not in the sample returned one that is:
    /// counts as a reallocation, and releases nothing.
    pub fn reallocate_unsampled(
        &mut self,
        session: &mut Session,
        time: Time,
        thread: ThreadId,
        key: Key,
        size: Sampled,
        stack: StackId,
    ) -> Result<Allocated, OutOfMemory> {
        self.allocate_again(session, time, thread, key, size, stack, true)
    }

    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "what the callers have")]
    fn allocate_again(
        &mut self,
        session: &mut Session,
        time: Time,
        thread: ThreadId,
        key: Key,
        size: Sampled,
        stack: StackId,
        is_event: bool,
    ) -> Result<Allocated, OutOfMemory> {
        let allocated = self.allocate(session, time, thread, key, size, stack)?;
        if is_event {
            let Sampled { size, rate } = size.kept();
            self.accounting.reallocated(Blocks(rate.weight(size, allocated.serial)));
        }
        Ok(allocated)
    }

    /// Records that the reallocation released its block and returned none, as glibc's
    /// `realloc(block, 0)` does: a free.
    #[inline]
    pub fn finish_as_free(&mut self, session: &mut Session, pending: Pending) {
        if pending.block.is_some() {
            self.register.forget();
        }
        self.accounting.free(session, pending.thread, pending.old());
    }

    /// Records that the reallocation failed: its block stays live, nothing has happened. Count the
    /// failed call with [`Ledger::fail`].
    ///
    /// If the key has been given to another block meanwhile, that block stays, and the old block
    /// counts as freed without a free having been seen.
    pub fn cancel_realloc(&mut self, session: &mut Session, pending: Pending) {
        if let Some(block) = pending.block
            && let Err(KeyTaken) = self.register.restore(pending.key, block, ())
        {
            self.accounting.count_missed_free(session, block);
        }
    }

    /// Records a block that is not to be counted: its free is not an event either,
    /// [`Freed::Untracked`]. Returns the block that was live under the same key; it has been
    /// counted as freed, though no free was seen.
    pub fn ignore(&mut self, session: &mut Session, key: Key) -> Result<Option<Block>, OutOfMemory> {
        let displaced = self.register.insert(key, Block::IGNORED)?.filter(|block| !block.untracked);
        if let Some(block) = displaced {
            self.accounting.count_missed_free(session, block);
        }
        Ok(displaced)
    }

    /// Reattributes the live block with this key to another site, as if it had been allocated
    /// there: its context was declared after it. A site's share of a peak stays what it was. True
    /// if there was such a block.
    pub fn reattribute_block(&mut self, session: &Session, key: Key, to: StackId) -> Result<bool, OutOfMemory> {
        let Some(block) = self.register.get(key) else { return Ok(false) };
        let to = to.or_root();
        self.accounting.reattribute_block(session, block, to)?;
        self.register.insert(key, Block { stack: to, ..block })?;
        Ok(true)
    }

    /// Does what [`Ledger::reattribute_block`] does, for a block that has been the other site's
    /// from the beginning, which only now is known. So its share of the peaks moves to the other
    /// site too.
    pub fn stamp_block(&mut self, session: &Session, key: Key, to: StackId) -> Result<bool, OutOfMemory> {
        let Some(block) = self.register.get(key) else { return Ok(false) };
        let to = to.or_root();
        self.accounting.stamp_block(session, block, to)?;
        self.register.insert(key, Block { stack: to, ..block })?;
        Ok(true)
    }

    /// Records that a call returned no block although one was asked for.
    pub fn fail(&mut self) {
        self.accounting.fail();
    }

    /// Creates the ledger of a child forked now: the same blocks, all inherited, and nothing
    /// counted yet. A block in a pending reallocation is not among them.
    pub fn fork(&self) -> Result<Ledger, OutOfMemory> {
        let mut child = Ledger { register: self.register.copy()?, pools: self.pools.copy()?, ..Ledger::new() };
        for (_, block) in child.register.iter() {
            child.accounting.inherit(block);
        }
        Ok(child)
    }

    /// Records that a thread has ended: its number may be given to another one.
    pub fn end_thread(&mut self, thread: ThreadId) {
        self.accounting.end_thread(thread);
    }

    /// Counts calls and maxima anew from this moment on: another recording begins here. Live blocks
    /// stay, and are the first peak; serials go on; no block from before is temporary. Restart all
    /// other ledgers of the session next, after [`Session::restart`].
    pub fn restart(&mut self, time: Time) {
        self.accounting.restart(time);
    }

    /// Records that the image has ended, by exit or exec: its live blocks leave the session. They
    /// remain here to be read. Later events still count here, but no longer in the session.
    pub fn end(&mut self, session: &mut Session) {
        self.accounting.end(session);
    }

    /// Prefetches the memory that the next event with this key will touch. Call some events ahead.
    #[inline(always)]
    pub fn prefetch(&self, key: Key) {
        self.register.prefetch(key);
    }

    /// Does the same for an allocation with this stack.
    #[inline(always)]
    pub fn prefetch_site(&self, stack: StackId) {
        self.accounting.prefetch_site(stack);
    }

    /// Sets the serial of the next allocation, as given by the recording that is read. With it, the
    /// weight of a sampled block is always the same.
    pub fn set_next_serial(&mut self, serial: Serial) {
        self.accounting.serials = serial.0;
    }

    /// Returns the serial of the next allocation.
    pub fn next_serial(&self) -> Serial {
        Serial(self.accounting.serials)
    }

    /// Returns what happened so far.
    pub fn counts(&self) -> Counts {
        self.accounting.counts()
    }

    /// Returns the live totals, and the image's own maxima.
    pub fn live(&self) -> Live {
        self.accounting.live()
    }

    /// Returns the variances of the estimates, if blocks are sampled.
    pub fn variances(&self) -> Variances {
        self.accounting.variances()
    }

    /// Returns the live block with this key, inherited or not.
    pub fn get(&self, key: Key) -> Option<Block> {
        self.register.get(key).filter(|block| !block.untracked)
    }

    /// True if a block has this key, even one that is in no total.
    #[inline(always)]
    pub fn holds(&self, key: Key) -> bool {
        self.register.get(key).is_some()
    }

    /// True if the block with this key is in no total: see [`Block::untracked`].
    pub fn is_untracked(&self, key: Key) -> bool {
        self.register.get(key).is_some_and(|block| block.untracked)
    }

    /// Returns the live blocks, including the inherited ones, in no useful order.
    pub fn blocks(&self) -> impl Iterator<Item = (Key, Block)> {
        self.register.iter().filter(|(_, block)| !block.untracked)
    }

    /// Returns the totals of one site, if it ever allocated.
    pub fn site(&self, session: &Session, stack: StackId) -> Option<Site> {
        self.accounting.site(session, stack)
    }

    /// Returns the totals of every site, in the order of their first allocations.
    pub fn sites(&self, session: &Session) -> impl Iterator<Item = Site> {
        self.accounting.sites(session)
    }

    /// Returns the bytes that the ledger has mapped, touched or not.
    pub fn bytes_mapped(&self) -> Bytes {
        Bytes((self.register.bytes_mapped() + self.accounting.bytes_mapped() + self.pools.bytes_mapped()) as u64)
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger").field("counts", &self.counts()).field("live", &self.live()).finish_non_exhaustive()
    }
}
