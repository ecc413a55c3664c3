//! The ledger of one process image.

use core::fmt;

use heapledger_core::{Blocks, Bytes, Serial, StackId, ThreadId};

use crate::live::{Live, Meter, Session, Time};
use crate::mapped::{OutOfMemory, Vector};
use crate::pools::Pools;
use crate::register::{Block, Key, Register, SERIAL_MAX, Taken};
use crate::sites::{Epochs, Site, Sites};

#[cfg(test)]
mod tests;

/// What happened in an image so far; the [crate documentation](crate) has the rules. [`Live`] has the rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls that returned a block.
    pub allocations: Blocks,
    /// Requested bytes of all these blocks.
    pub bytes_allocated: Bytes,
    /// Blocks freed: `allocations - frees` are live.
    pub frees: Blocks,
    /// Successful reallocations: how many of the allocations were one.
    pub reallocations: Blocks,
    /// Temporary blocks: how many of the freed ones were.
    pub temporaries: Blocks,
    /// Calls that returned no block although one was asked for; counted nowhere else.
    pub failed: Blocks,
    /// Frees that never came: the block's address was handed out again. Counted in `frees` or `frees_inherited` too.
    pub frees_missing: Blocks,
    /// Frees of blocks inherited at the fork, not in `frees`.
    pub frees_inherited: Blocks,
    /// Frees of addresses at which nothing was live, not in `frees`.
    pub frees_unknown: Blocks,
    /// Inherited blocks that are not freed yet. Never in the live totals.
    pub blocks_inherited: Blocks,
    /// Their requested bytes.
    pub bytes_inherited: Bytes,
}

/// An allocation as entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a displaced block was freed"]
pub struct Allocated {
    /// The block's serial.
    pub serial: Serial,
    /// The block that was live under the same key; it has been counted as freed.
    pub displaced: Option<Block>,
}

/// What a call released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freed {
    /// A live block of this image.
    Known(Block),
    /// A block that was live when the image was forked.
    Inherited(Block),
    /// The memory of a user pool, which left the totals when it became that, or a block that was never in them: no event.
    /// See [`Ledger::back`] and [`Ledger::ignore`].
    Backing,
    /// Nothing that the ledger knows.
    Unknown,
}

/// A reallocation between its call and its return: the old block is out of the register, so that another thread may
/// be given its address, but still in all totals.
#[derive(Debug)]
#[must_use = "the old block is out of the register until the reallocation is finished or cancelled"]
pub struct Pending {
    thread: ThreadId,
    key: Key,
    old: Freed,
}

impl Pending {
    /// The block that the call was given; freed only if the reallocation is finished.
    pub fn old(&self) -> Freed {
        self.old
    }
}

/// The state of one process image.
///
/// The [`Session`] given to the calls must always be the same one. An operation that fails for want of memory is not
/// recorded, as if the call it stands for had not happened (except that [`Ledger::finish_realloc`] has freed).
#[derive(Default)]
pub struct Ledger {
    register: Register,
    sites: Sites,
    /// By thread: one more than the serial of the block that its latest allocator event returned; zero if that event
    /// was a free.
    latest: Vector<u64>,
    serials: u64,
    meter: Meter,
    counts: Counts,
    pools: Pools,
    /// When the image ended, in epochs of the session.
    ended: Option<u64>,
}

impl Ledger {
    /// The ledger of an image that has just begun, by exec; see [`Ledger::fork`] for the other way. Maps no memory.
    pub const fn new() -> Ledger {
        const NONE: Blocks = Blocks(0);
        Ledger {
            register: Register::new(),
            sites: Sites::new(),
            latest: Vector::new(),
            serials: 0,
            meter: Meter::new(),
            counts: Counts {
                allocations: NONE,
                bytes_allocated: Bytes(0),
                frees: NONE,
                reallocations: NONE,
                temporaries: NONE,
                failed: NONE,
                frees_missing: NONE,
                frees_inherited: NONE,
                frees_unknown: NONE,
                blocks_inherited: NONE,
                bytes_inherited: Bytes(0),
            },
            pools: Pools::new(),
            ended: None,
        }
    }

    /// A call returned a block. Also for `realloc` of a null pointer.
    ///
    /// A stack beyond [`StackId::MAX`] counts as [`StackId::ROOT`].
    #[inline]
    pub fn allocate(
        &mut self,
        session: &mut Session,
        time: Time,
        thread: ThreadId,
        key: Key,
        size: Bytes,
        stack: StackId,
    ) -> Result<Allocated, OutOfMemory> {
        let stack = if stack <= StackId::MAX { stack } else { StackId::ROOT };
        let serial = Serial(self.serials);
        if serial > SERIAL_MAX {
            return Err(OutOfMemory);
        }
        self.latest.grow_to(thread.0 as usize + 1)?;
        self.sites.enter(stack)?;
        if key.pool() != 0 {
            self.pools.reserve(key)?;
        }
        let displaced = self.register.insert(key, Block { size, stack, serial, inherited: false })?;
        if key.pool() != 0 {
            self.pools.enter(&self.register, key, serial.0, displaced.is_some());
        }
        if let Some(block) = displaced {
            self.counts.frees_missing.0 += 1;
            self.release(session, block, None);
        }

        self.serials += 1;
        if let Some(latest) = self.latest.get_mut(thread.0 as usize) {
            *latest = self.serials;
        }
        self.counts.allocations.0 += 1;
        self.counts.bytes_allocated.0 = self.counts.bytes_allocated.0.wrapping_add(size.0);
        self.sites.allocate(stack, size, &self.meter, session);
        self.meter.rise(time, size);
        if self.ended.is_none() {
            session.meter.rise(time, size);
        }
        Ok(Allocated { serial, displaced })
    }

    /// A call released a block. Not for `free` of a null pointer, which is no event.
    #[inline]
    pub fn free(&mut self, session: &mut Session, thread: ThreadId, key: Key) -> Freed {
        let mut freed = Freed::new(self.register.remove(key));
        if freed == Freed::Unknown {
            freed = self.free_backing(key);
        } else if key.pool() != 0 {
            self.pools.freed(key);
        }
        self.freed(session, thread, freed);
        freed
    }

    /// A call returned a block that is not to be counted: its free is no event either, [`Freed::Backing`].
    pub fn ignore(&mut self, key: Key) {
        self.pools.remember(key);
    }

    /// A block becomes the memory of a user pool: it leaves the live totals, whose place the pool's blocks take, and is
    /// no temporary block. A free that is no free of memory: the one that comes later is no event, [`Freed::Backing`].
    ///
    /// Where there is no memory to remember it, that free will be one of an unknown block.
    pub fn back(&mut self, session: &mut Session, thread: ThreadId, key: Key) -> Freed {
        let freed = self.withdraw(session, thread, key);
        if freed != Freed::Unknown {
            self.pools.remember(key);
        }
        freed
    }

    /// As [`Ledger::back`], of a block whose free does not come any more: as where a recording is read.
    pub fn withdraw(&mut self, session: &mut Session, thread: ThreadId, key: Key) -> Freed {
        let freed = Freed::new(self.register.remove(key));
        if let Some(latest) = self.latest.get_mut(thread.0 as usize) {
            *latest = 0;
        }
        self.freed(session, thread, freed);
        freed
    }

    /// Frees all blocks of a user pool, the latest first, as if by a call each. `each` is told of a block when that has
    /// been counted, with what is live then.
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
                self.freed(session, thread, freed);
                each(freed, self.meter.live);
            }
        }
    }

    /// Whether a block of which the register knows nothing is the memory of a pool; it is no longer.
    #[cold]
    fn free_backing(&mut self, key: Key) -> Freed {
        if self.pools.forget(key) { Freed::Backing } else { Freed::Unknown }
    }

    /// A call is about to reallocate the block with this key, which is not null. The key may be given to another block
    /// before the reallocation is finished, finished as a free, or cancelled.
    #[inline]
    pub fn begin_realloc(&mut self, thread: ThreadId, key: Key) -> Pending {
        let mut old = Freed::new(self.register.suspend(key));
        if old == Freed::Unknown {
            old = self.free_backing(key);
        }
        Pending { thread, key, old }
    }

    /// The reallocation returned a block: a free and an allocation. On error the old block is freed all the same.
    #[inline]
    pub fn finish_realloc(
        &mut self,
        session: &mut Session,
        time: Time,
        pending: Pending,
        key: Key,
        size: Bytes,
        stack: StackId,
    ) -> Result<Allocated, OutOfMemory> {
        let (thread, is_event) = (pending.thread, pending.old != Freed::Backing);
        self.finish_as_free(session, pending);
        let allocated = self.allocate(session, time, thread, key, size, stack)?;
        self.counts.reallocations.0 += u64::from(is_event);
        Ok(allocated)
    }

    /// The reallocation released its block and returned none, as glibc's `realloc(block, 0)` does: a free.
    #[inline]
    pub fn finish_as_free(&mut self, session: &mut Session, pending: Pending) {
        if !matches!(pending.old, Freed::Unknown | Freed::Backing) {
            self.register.forget();
        }
        self.freed(session, pending.thread, pending.old);
    }

    /// The reallocation failed: its block stays live, nothing has happened. Count the failed call with
    /// [`Ledger::fail`].
    ///
    /// Should the key have been given to another block meanwhile, that one stays, and the old block counts as freed
    /// without a free having been seen.
    pub fn cancel_realloc(&mut self, session: &mut Session, pending: Pending) {
        if pending.old == Freed::Backing {
            self.pools.remember(pending.key);
        }
        if let Freed::Known(block) | Freed::Inherited(block) = pending.old
            && let Err(Taken) = self.register.restore(pending.key, block)
        {
            self.counts.frees_missing.0 += 1;
            self.release(session, block, None);
        }
    }

    /// A call returned no block although one was asked for.
    pub fn fail(&mut self) {
        self.counts.failed.0 += 1;
    }

    /// The ledger of a child forked now: the same blocks, all inherited, and nothing counted yet. A block in a pending
    /// reallocation is not among them.
    pub fn fork(&self) -> Result<Ledger, OutOfMemory> {
        let mut child = Ledger { register: self.register.copy()?, pools: self.pools.copy()?, ..Ledger::new() };
        for (_, block) in child.register.iter() {
            child.counts.blocks_inherited.0 += 1;
            child.counts.bytes_inherited.0 = child.counts.bytes_inherited.0.wrapping_add(block.size.0);
        }
        Ok(child)
    }

    /// A thread is over: its number may be given to another one.
    pub fn end_thread(&mut self, thread: ThreadId) {
        if let Some(latest) = self.latest.get_mut(thread.0 as usize) {
            *latest = 0;
        }
    }

    /// Counts calls and maxima anew from this moment on: another recording begins here. What is live stays, and is the
    /// first peak; serials go on; no block from before is a temporary one. To be followed by that of all other ledgers
    /// of the session, after [`Session::restart`].
    pub fn restart(&mut self, time: Time) {
        let Counts { blocks_inherited, bytes_inherited, .. } = self.counts;
        self.counts = Counts { blocks_inherited, bytes_inherited, ..Counts::default() };
        for thread in 0..self.latest.len() {
            self.end_thread(ThreadId(thread as u32));
        }
        self.meter.restart(time);
        self.sites.restart();
    }

    /// The image is over, by exit or exec: its live blocks leave the session. They remain here to be read. Events
    /// that come later still count here, no longer in the session.
    pub fn end(&mut self, session: &mut Session) {
        if self.ended.is_none() {
            self.ended = Some(session.meter.epoch);
            session.meter.fall(self.meter.live.bytes_live, self.meter.live.blocks_live);
        }
    }

    /// Fetches the memory that the next event with this key will touch: to be called some events ahead.
    #[inline(always)]
    pub fn prefetch(&self, key: Key) {
        self.register.prefetch(key);
    }

    /// The same for an allocation with this stack.
    #[inline(always)]
    pub fn prefetch_site(&self, stack: StackId) {
        self.sites.prefetch(stack);
    }

    /// What happened so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// What is live, and the image's own maxima.
    pub fn live(&self) -> Live {
        self.meter.live
    }

    /// The live block with this key, inherited or not.
    pub fn get(&self, key: Key) -> Option<Block> {
        self.register.get(key)
    }

    /// The live blocks, the inherited ones too, in no useful order.
    pub fn blocks(&self) -> impl Iterator<Item = (Key, Block)> {
        self.register.iter()
    }

    /// The totals of one site, if it ever allocated.
    pub fn site(&self, session: &Session, stack: StackId) -> Option<Site> {
        self.sites.get(stack, self.epochs(session))
    }

    /// The totals of every site, in the order of their first allocations.
    pub fn sites(&self, session: &Session) -> impl Iterator<Item = Site> {
        self.sites.iter(self.epochs(session))
    }

    /// What the ledger has mapped, touched or not.
    pub fn bytes_mapped(&self) -> Bytes {
        let tables = self.register.bytes_mapped() + self.sites.bytes_mapped() + self.latest.bytes_mapped();
        Bytes((tables + self.pools.bytes_mapped()) as u64)
    }

    fn epochs(&self, session: &Session) -> Epochs {
        let epoch = session.meter.epoch;
        Epochs { image: self.meter.epoch, session: self.ended.is_none_or(|ended| ended == epoch).then_some(epoch) }
    }

    /// Counts what a call of this thread released.
    #[inline(always)]
    fn freed(&mut self, session: &mut Session, thread: ThreadId, freed: Freed) {
        if freed == Freed::Backing {
            return;
        }
        let latest = self.latest.get_mut(thread.0 as usize).map_or(0, core::mem::take);
        match freed {
            Freed::Known(block) | Freed::Inherited(block) => self.release(session, block, Some(latest)),
            Freed::Backing | Freed::Unknown => self.counts.frees_unknown.0 += 1,
        }
    }

    /// Takes a block, which is out of the register, out of the totals. `latest`: as in the field, of the freeing
    /// thread, if a call freed the block.
    #[inline(always)]
    fn release(&mut self, session: &mut Session, block: Block, latest: Option<u64>) {
        if block.inherited {
            self.counts.frees_inherited.0 += 1;
            self.counts.blocks_inherited.0 = self.counts.blocks_inherited.0.wrapping_sub(1);
            self.counts.bytes_inherited.0 = self.counts.bytes_inherited.0.wrapping_sub(block.size.0);
            return;
        }
        let temporary = latest == Some(block.serial.0 + 1);
        self.counts.frees.0 += 1;
        self.counts.temporaries.0 += u64::from(temporary);
        self.sites.free(block.stack, block.size, temporary, &self.meter, session);
        self.meter.fall(block.size, Blocks(1));
        if self.ended.is_none() {
            session.meter.fall(block.size, Blocks(1));
        }
    }
}

impl Freed {
    fn new(block: Option<Block>) -> Freed {
        match block {
            Some(block) if block.inherited => Freed::Inherited(block),
            Some(block) => Freed::Known(block),
            None => Freed::Unknown,
        }
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger").field("counts", &self.counts).field("live", &self.meter.live).finish_non_exhaustive()
    }
}
