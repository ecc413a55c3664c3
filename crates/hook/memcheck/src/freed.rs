//! The blocks that were freed last.

use core::sync::atomic::{AtomicPtr, Ordering};
use core::{mem, ptr};

use heapledger_core::lock::Lock;
use heapledger_core::{StackId, ThreadId, sys};
use heapledger_ledger::LiveBlock;

use crate::arch::prefetch;
use crate::call::Call;
use crate::canary::Guarded;
use crate::stamp::{Stamp, freed_at};

/// The largest number of freed blocks that are remembered: each takes the place of one that was
/// freed earlier.
pub const FREED_MAX: usize = 1 << 16;

/// The blocks that were freed last.
pub(crate) static FREED: Table = Table::new();

/// A block that was freed.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct FreedBlock {
    /// The address of the block; 0 in a free slot.
    pub(crate) address: u64,
    pub(crate) size: u64,
    pub(crate) usable: u64,
    /// The number of the block's `Stamp` in the register.
    pub(crate) stamp: u32,
    /// The number of the `Call` that freed the block.
    pub(crate) freed_by: u8,
    pub(crate) allocated_at: StackId,
    pub(crate) freed_at: StackId,
    /// The thread that freed the block.
    pub(crate) freed_in: ThreadId,
}

impl FreedBlock {
    /// Returns a block that is in quarantine, as the register has it.
    pub(crate) fn of_quarantined(block: &LiveBlock) -> FreedBlock {
        let stamp = Stamp::of(block);
        FreedBlock {
            address: block.key.0,
            size: block.size.0,
            usable: block.usable.0,
            stamp: stamp.0,
            freed_by: stamp.freed_by().unwrap_or(Call::Free) as u8,
            allocated_at: block.stack,
            freed_at: freed_at(block),
            freed_in: block.thread,
        }
    }

    /// Returns the place of the block in that of the allocator.
    pub(crate) fn place(&self) -> Guarded {
        let front = Stamp(self.stamp).front();
        Guarded { address: self.address as usize, usable: self.usable as usize, front }
    }
}

pub(crate) struct Table {
    lock: Lock,
    slots: AtomicPtr<[FreedBlock; FREED_MAX]>,
}

impl Table {
    pub(crate) const fn new() -> Table {
        Table { lock: Lock::new(), slots: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Maps the table's memory. Idempotent.
    pub(crate) fn prepare(&self) -> bool {
        let _guard = self.lock.lock();
        if self.slots.load(Ordering::Relaxed).is_null() {
            let length = size_of::<[FreedBlock; FREED_MAX]>();
            let Ok(memory) = sys::map_private(length) else { return false };
            sys::dont_dump(memory, length);
            self.slots.store(memory.cast(), Ordering::Release);
        }
        true
    }

    /// Begins to bring the memory near that [`Table::put`] will write for this address: the lock's
    /// release waits for the write.
    pub(crate) fn prefetch(&self, address: u64) {
        let slot = self.slots.load(Ordering::Acquire).cast::<FreedBlock>().wrapping_add(slot_of(address));
        // A slot may lie across two lines.
        prefetch(slot.cast());
        prefetch(slot.wrapping_add(1).cast::<u8>().wrapping_sub(1));
    }

    pub(crate) fn put(&self, block: FreedBlock) {
        self.with(block.address, |slot| *slot = block);
    }

    pub(crate) fn get(&self, address: u64) -> Option<FreedBlock> {
        self.with(address, |slot| *slot).filter(|block| block.address == address)
    }

    /// Takes a block out that is live after all.
    pub(crate) fn take(&self, address: u64) -> Option<FreedBlock> {
        let taken = self.with(address, |slot| match slot.address == address {
            true => Some(mem::replace(&mut slot.address, 0)).map(|address| FreedBlock { address, ..*slot }),
            false => None,
        });
        taken.flatten()
    }

    fn with<R>(&self, address: u64, run: impl FnOnce(&mut FreedBlock) -> R) -> Option<R> {
        let _guard = self.lock.lock();
        // SAFETY: null, or a mapping of this type, which stays, and is reached under the lock only;
        // zeroes are valid integers.
        let slots = unsafe { self.slots.load(Ordering::Acquire).as_mut() }?;
        slots.get_mut(slot_of(address)).map(run)
    }

    /// For a fork: see `SharedRegister::before_fork`.
    pub(crate) fn hold(&self) {
        mem::forget(self.lock.lock());
    }

    /// # Safety
    ///
    /// This thread called `hold`, or is a copy of the one that did.
    pub(crate) unsafe fn release(&self) {
        // SAFETY: `Lock::unlock` requires that this thread, or the one that it was copied from by a
        // fork, took the lock and forgot the guard. `hold` does both, and this function's
        // `# Safety` requires that call.
        unsafe { self.lock.unlock() };
    }
}

/// Returns the index of the slot for an address.
fn slot_of(address: u64) -> usize {
    // Addresses are multiples of 16.
    (address >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize >> (64 - FREED_MAX.ilog2())
}
