//! The blocks of an image: their allocations, reallocations and frees.

use heapledger_core::sample::Rate;
use heapledger_core::{Api, Blocks, Bytes, StackId, ThreadId};
use heapledger_ledger::{self as ledger, Allocated, Block, Freed, Key, Ledger, OutOfMemory, Pending};
use heapledger_recording::{EventKind, Extras, FreedBlock, Live, Time};
use heapledger_resident::PlacedBlock;

use super::Image;
use super::threads::{EventHeader, RingOwner};
use crate::error::RecordError;
use crate::live_pages::AgedBlock;
use crate::session_state::Shared;

/// A block that a call returned.
#[derive(Clone, Copy)]
pub(super) struct NewBlock {
    pub(super) address: u64,
    pub(super) size: u64,
    pub(super) stack: StackId,
}

impl Image {
    #[inline(always)]
    pub(super) fn allocate(
        &mut self,
        shared: &mut Shared,
        header: EventHeader,
        api: Api,
        new: NewBlock,
        extras: &Extras,
    ) {
        let NewBlock { address, size, stack } = new;
        let (time, key) = (ledger::Time(header.time.0), Key(address));
        let (size, session) = (Bytes(size), &mut shared.session);
        let sampled = ledger::Sampled { size, rate: header.sampled.rate };
        match self.ledger.allocate(session, time, header.thread, key, sampled, stack) {
            Ok(Allocated { serial, displaced }) => {
                if let Some(block) = displaced {
                    self.push_displaced(shared, header, block, key);
                }
                if size >= self.address_index.indexed_from {
                    self.address_index.insert(key, size);
                }
                let kind = if api.is_realloc() {
                    EventKind::Realloc { old: FreedBlock::None, serial, size, stack }
                } else {
                    EventKind::Alloc { serial, size, stack }
                };
                self.push(shared, header.event(api, kind), extras);
            }
            Err(OutOfMemory) => shared.fail(RecordError::OutOfMemory),
        }
    }

    #[inline(always)]
    pub(super) fn free(&mut self, shared: &mut Shared, header: EventHeader, api: Api, address: u64, extras: &Extras) {
        let freed = if shared.is_sample {
            self.forget_latest(header);
            self.ledger.free_if_known(&mut shared.session, header.thread, Key(address))
        } else {
            self.ledger.free(&mut shared.session, header.thread, Key(address))
        };
        self.push_freed(shared, header, api, freed, extras);
    }

    /// Records a call that returned no block.
    pub(super) fn fail(
        &mut self,
        shared: &mut Shared,
        header: EventHeader,
        api: Api,
        kind: EventKind,
        extras: &Extras,
    ) {
        self.ledger.fail();
        self.push(shared, header.event(api, kind), extras);
    }

    /// Excludes a block that backs a pool from the totals.
    pub(super) fn back_pool(&mut self, shared: &mut Shared, header: EventHeader, key: Key, extras: &Extras) {
        let freed = match shared.is_sample {
            false => self.ledger.back(&mut shared.session, header.thread, key),
            // The later free is then one of a block that is no longer in the sample.
            true if self.ledger.get(key).is_some() => self.ledger.withdraw(&mut shared.session, header.thread, key),
            true => Freed::Unknown,
        };
        self.push_freed(shared, header, Api::PoolBack, freed, extras);
    }

    /// Resets a pool. For readers, this is recorded as a free of each block.
    pub(super) fn reset_pool(&mut self, shared: &mut Shared, header: EventHeader, pool: u32) {
        let mut all = Vec::new();
        self.ledger.reset_pool(&mut shared.session, header.thread, pool, |freed, live| all.push((freed, live)));
        for (freed, live) in all {
            let (block, freed_size) = name(freed);
            let (kind, extras) = (EventKind::Free { block }, Extras { freed_size, ..Extras::NONE });
            self.push_with(shared, header.event(Api::PoolReset, kind), &extras, live.into());
        }
    }

    /// Ignores the free of an address from now on. A block that is live there was freed before.
    pub(super) fn ignore(&mut self, shared: &mut Shared, header: EventHeader, key: Key) {
        match self.ledger.ignore(&mut shared.session, key) {
            Ok(None) => {}
            Ok(Some(block)) => {
                self.anomalies.frees_missed.0 += block.weight().0;
                self.push_freed(shared, header, Api::Free, known(block), &Extras::NONE);
            }
            Err(OutOfMemory) => shared.fail(RecordError::OutOfMemory),
        }
    }

    pub(super) fn begin_realloc(&mut self, shared: &mut Shared, header: EventHeader, address: u64) {
        self.cancel_pending(shared, header.thread);
        let pending = self.ledger.begin_realloc(header.thread, Key(address));
        self.threads.set_pending(header.thread, pending);
    }

    /// Cancels a pending reallocation: it failed, or another one begins, because the end of the
    /// first was lost. Its block stays.
    pub(super) fn cancel_pending(&mut self, shared: &mut Shared, thread: ThreadId) {
        if let Some(pending) = self.threads.take_pending(thread) {
            self.ledger.cancel_realloc(&mut shared.session, pending);
        }
    }

    /// Begins a reallocation before its thread comes to it, because the address is already free for
    /// others.
    pub(crate) fn suspend(&mut self, ring_owner: &mut RingOwner, time: Time, address: u64) -> Pending {
        let header = self.threads.header(ring_owner, time);
        self.ledger.begin_realloc(header.thread, Key(address))
    }

    /// Continues a suspended reallocation when its thread comes to it.
    pub(crate) fn continue_realloc(
        &mut self,
        shared: &mut Shared,
        ring_owner: &mut RingOwner,
        time: Time,
        pending: Pending,
    ) {
        let header = self.threads.header(ring_owner, time);
        self.cancel_pending(shared, header.thread);
        self.threads.set_pending(header.thread, pending);
    }

    pub(super) fn finish_realloc(
        &mut self,
        shared: &mut Shared,
        header: EventHeader,
        api: Api,
        new: NewBlock,
        extras: &Extras,
    ) {
        let pending = self.threads.take_pending(header.thread);
        // Without a beginning, this is a reallocation of the null pointer, or of a block that is
        // not in the sample.
        if pending.is_none() && !shared.is_sample {
            return self.allocate(shared, header, api, new, extras);
        }
        let freed = pending.as_ref().map_or(Freed::Unknown, Pending::old);
        if freed == Freed::Unknown && !shared.is_sample {
            self.count_unknown(shared, header);
        }
        let (old, freed_size) = name(freed);
        let NewBlock { address, size, stack } = new;
        let (time, key) = (ledger::Time(header.time.0), Key(address));
        let size = Bytes(size);
        let sampled = ledger::Sampled { size, rate: header.sampled.rate };
        let thread = header.thread;
        let is_known = freed != Freed::Unknown || !shared.is_sample;
        self.forget_latest(header);
        let session = &mut shared.session;
        let allocated = match pending.filter(|_| is_known) {
            Some(pending) => self.ledger.finish_realloc(session, time, pending, key, sampled, stack),
            None => self.ledger.reallocate_unsampled(session, time, thread, key, sampled, stack),
        };
        match allocated {
            Ok(Allocated { serial, displaced }) => {
                if let Some(block) = displaced {
                    self.push_displaced(shared, header, block, key);
                }
                if size >= self.address_index.indexed_from {
                    self.address_index.insert(key, size);
                }
                let extras = Extras { freed_size, weight: weight(freed), ..*extras };
                let kind = EventKind::Realloc { old, serial, size, stack };
                self.push(shared, header.event(api, kind), &extras);
                if let Freed::Known(block) | Freed::Inherited(block) = freed
                    && let (_, Some(stamp)) = self.tree.stamps.parts(block.stack)
                {
                    let to = self.stamped(shared, stack, stamp);
                    self.reattribute(shared, header, key, to, Ledger::stamp_block);
                }
            }
            Err(OutOfMemory) => shared.fail(RecordError::OutOfMemory),
        }
    }

    /// Finishes a reallocation that only freed its block.
    pub(super) fn finish_as_free(&mut self, shared: &mut Shared, header: EventHeader, api: Api, extras: &Extras) {
        let Some(pending) = self.threads.take_pending(header.thread) else { return };
        let freed = pending.old();
        if freed != Freed::Unknown || !shared.is_sample {
            self.forget_latest(header);
            self.ledger.finish_as_free(&mut shared.session, pending);
            self.push_freed(shared, header, api, freed, extras);
        }
    }

    /// Forgets a thread's latest allocation if others that are not in the sample came after it: the
    /// block that is about to be freed is then not temporary.
    fn forget_latest(&mut self, header: EventHeader) {
        if header.sampled.after_unsampled {
            self.ledger.end_thread(header.thread);
        }
    }

    #[inline(always)]
    fn push_freed(&mut self, shared: &mut Shared, header: EventHeader, api: Api, freed: Freed, extras: &Extras) {
        let (block, freed_size) = name(freed);
        match freed {
            Freed::Unknown if shared.is_sample => return,
            Freed::Unknown => self.count_unknown(shared, header),
            Freed::Untracked => return,
            Freed::Known(_) | Freed::Inherited(_) => {}
        }
        let kind = EventKind::Free { block };
        match freed_size {
            None => self.push(shared, header.event(api, kind), extras),
            Some(_) => {
                let extras = Extras { freed_size, weight: weight(freed), ..*extras };
                self.push(shared, header.event(api, kind), &extras);
            }
        }
    }

    #[cold]
    fn count_unknown(&mut self, shared: &Shared, header: EventHeader) {
        let is_paused = shared.paused_from.is_some_and(|from| header.time >= from);
        self.anomalies.frees_paused.0 += u64::from(is_paused);
    }

    /// Records the free of a live block whose address was handed out again: the free was not seen,
    /// but must have come before.
    #[cold]
    fn push_displaced(&mut self, shared: &mut Shared, header: EventHeader, block: Block, new: Key) {
        self.anomalies.frees_missed.0 += block.weight().0;
        let (block, freed_size) = name(known(block));
        // The ledger already has the new block.
        let Live { bytes, blocks } = self.live();
        let new = self.ledger.get(new).map_or((0, 0), |new| (new.size.0, new.weight().0));
        let live = Live {
            bytes: Bytes(bytes.0.wrapping_sub(new.0.wrapping_mul(new.1))),
            blocks: Blocks(blocks.0.wrapping_sub(new.1)),
        };
        let extras = Extras { freed_size, ..Extras::NONE };
        self.push_with(shared, header.event(Api::Free, EventKind::Free { block }), &extras, live);
    }
}

/// The most blocks that are copied at once: 1.5 GiB.
const PLACED_BLOCKS_MAX: usize = 1 << 26;

impl Image {
    /// Returns all live blocks: those of pools, and inherited ones, too. `None` if there are more
    /// than [`PLACED_BLOCKS_MAX`], or if there is no memory for so many: recording goes on.
    pub(crate) fn placed_blocks(&self) -> Option<Vec<PlacedBlock>> {
        let has_slop = self.usable_sizes.is_any();
        self.copied_blocks(|key, block| {
            let usable = if has_slop && key.pool() == 0 && !block.inherited {
                self.usable_sizes.get(block.serial, block.size)
            } else {
                None
            };
            let slop = usable.map_or(0, |usable| usable.0.saturating_sub(block.size.0));
            PlacedBlock {
                address: key.address(),
                size: block.size.0,
                site: block.stack.0,
                slop: u32::try_from(slop).unwrap_or(u32::MAX),
            }
        })
    }

    /// Returns all live blocks with their ages. `None` if there are more than
    /// [`PLACED_BLOCKS_MAX`], or if there is no memory for so many: recording goes on.
    pub(crate) fn aged_blocks(&self, now: Time) -> Option<Vec<AgedBlock>> {
        let next = self.ledger.next_serial().0;
        self.copied_blocks(|key, block| AgedBlock {
            address: key.address(),
            size: block.size.0,
            site: block.stack.0,
            age_ms: match block.inherited {
                true => AgedBlock::UNKNOWN_AGE,
                false => self.serial_times.age_ms(block.serial.0, next, now),
            },
        })
    }

    /// Returns something about each live block. `None` if there are more than
    /// [`PLACED_BLOCKS_MAX`], or if there is no memory for so many.
    fn copied_blocks<T>(&self, copy: impl Fn(Key, Block) -> T) -> Option<Vec<T>> {
        // The ledger knows their number only roughly, since untracked blocks are left out.
        let count = usize::try_from(self.ledger.live().blocks_live.0).ok()?;
        let mut blocks = Vec::new();
        if count > PLACED_BLOCKS_MAX || blocks.try_reserve_exact(count).is_err() {
            return None;
        }
        for (key, block) in self.ledger.blocks() {
            if blocks.len() == blocks.capacity() && blocks.try_reserve(1).is_err() {
                return None;
            }
            blocks.push(copy(key, block));
        }
        Some(blocks)
    }
}

/// Returns the release of a known block whose free was not seen.
fn known(block: Block) -> Freed {
    if block.inherited { Freed::Inherited(block) } else { Freed::Known(block) }
}

/// Returns how the recording names a released block, and its size if the recording does not have
/// it.
#[inline(always)]
fn name(freed: Freed) -> (FreedBlock, Option<Bytes>) {
    match freed {
        Freed::Known(block) => (FreedBlock::Known(block.serial), None),
        Freed::Inherited(block) => (FreedBlock::Inherited, Some(block.size)),
        Freed::Untracked => (FreedBlock::None, None),
        Freed::Unknown => (FreedBlock::Unknown, None),
    }
}

/// Returns the weight of a sampled inherited block, which the recording does not have otherwise.
fn weight(freed: Freed) -> Option<Blocks> {
    match freed {
        Freed::Inherited(block) if block.rate != Rate::EXACT => Some(block.weight()),
        _ => None,
    }
}
