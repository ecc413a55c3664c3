//! The quarantine: freed blocks that are kept from the allocator for a while. They are filled, so
//! that writes to them are found when they leave.
//!
//! A block in quarantine stays in the register, with a stamp that says so. So a second free of it
//! is found for certain, and one of a pointer into it too. The queue here holds addresses only,
//! oldest first.
//!
//! A thread that frees a block changes its stamp first, then fills it, then enters it in the queue.
//! The canary in front, which is written last, says that the block is filled. A thread that takes
//! an address from the queue takes the block from the register, and only then looks at its bytes
//! and gives it back: no other thread refers to it then.
//!
//! Most of the costs are those of memory that is not in the caches. Locks make them worse: the
//! release of one waits until all writes before it are done. So memory is fetched in advance,
//! locks are taken for a block that comes and one that leaves together, and the table of the blocks
//! that were freed last is written when a block leaves.

use core::cell::UnsafeCell;
use core::mem;
use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering};

use heapledger_core::lock::Lock;
use heapledger_core::sample::Rate;
use heapledger_core::{Bytes, Serial, StackId, ThreadId, TypeId, sys};
use heapledger_ledger::{Key, LiveBlock, Resolution, Time};

use crate::call::Call;
use crate::canary::{Changed, Front, Guarded, LENGTH, behind};
use crate::freed::{FREED, FreedBlock};
use crate::register::REGISTER;
use crate::report::{self, Kind, Report};
use crate::stamp::{Stamp, freed_at, guarded};

/// The bytes that a block in quarantine takes in the register and in the queue.
const BOOKKEEPING: u64 = 64;
/// The bytes that the smallest block takes: two canaries, and the bookkeeping.
const COST_MIN: u64 = 2 * LENGTH as u64 + BOOKKEEPING;
/// The number of blocks that leave the quarantine before the one whose memory is fetched.
const AHEAD: usize = 8;
/// The largest number of blocks in quarantine, whatever its size.
const BLOCKS_MAX: u64 = 1 << 24;

/// The size of the quarantine in bytes: of its blocks, their canaries and their bookkeeping. 0
/// switches it off.
static BYTES_MAX: AtomicU64 = AtomicU64::new(0);

/// Sets the size of the quarantine in bytes. Takes effect if the checks have not been started yet.
pub fn set_quarantine(bytes_max: u64) {
    if !crate::is_running() {
        BYTES_MAX.store(bytes_max, Ordering::Relaxed);
    }
}

pub(crate) fn is_on() -> bool {
    BYTES_MAX.load(Ordering::Relaxed) != 0
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Entry {
    address: u64,
    cost: u64,
}

/// The queue, a ring.
///
/// **Guarded cell**: `ring` is accessed in this module only, and only while `lock` is held.
struct Queue {
    lock: Lock,
    ring: UnsafeCell<Ring>,
}

struct Ring {
    /// A mapping of `capacity` entries, which stays; null if there is none.
    entries: *mut Entry,
    capacity: usize,
    first: usize,
    length: usize,
    bytes: u64,
}

// SAFETY: `Sync` demands that threads which share the value make no data race. `ring` is a *guarded
// cell*; the mapping that it points to is reached through it alone.
unsafe impl Sync for Queue {}

static QUEUE: Queue = Queue {
    lock: Lock::new(),
    ring: UnsafeCell::new(Ring { entries: ptr::null_mut(), capacity: 0, first: 0, length: 0, bytes: 0 }),
};

impl Queue {
    fn with<R>(&self, run: impl FnOnce(&mut Ring) -> R) -> R {
        let _guard = self.lock.lock();
        // SAFETY: no other reference to the *guarded cell* exists: `_guard` holds the lock until
        // this function returns.
        run(unsafe { &mut *self.ring.get() })
    }
}

impl Ring {
    fn slot(&self, at: usize) -> *mut Entry {
        let sum = self.first + at;
        let index = if sum >= self.capacity { sum - self.capacity } else { sum };
        self.entries.wrapping_add(index)
    }

    fn push(&mut self, entry: Entry) -> bool {
        if self.length == self.capacity {
            return false;
        }
        // SAFETY: `write` requires that the slot is valid. `slot` returns one of the `capacity`
        // entries of the mapping, since `first` and `length` are below `capacity`.
        unsafe { self.slot(self.length).write(entry) };
        self.length += 1;
        self.bytes += entry.cost;
        true
    }

    /// Takes the oldest address out if the quarantine is too large, or has no room for another.
    fn pop_excess(&mut self, bytes_max: u64) -> Option<Leaving> {
        if self.length == 0 || (self.bytes <= bytes_max && self.length < self.capacity) {
            return None;
        }
        // SAFETY: `read` requires a valid, initialised entry. `slot` returns one of the mapping's,
        // and `push` has written the first `length` of them.
        let entry = unsafe { self.slot(0).read() };
        self.first = if self.first + 1 == self.capacity { 0 } else { self.first + 1 };
        self.length -= 1;
        self.bytes -= entry.cost;
        // SAFETY: as above: one of the first `length` entries.
        let ahead = (self.length > AHEAD).then(|| unsafe { self.slot(AHEAD).read() });
        Some(Leaving { address: entry.address, ahead })
    }
}

/// An address that has left the queue.
struct Leaving {
    address: u64,
    /// The one that will leave soon.
    ahead: Option<Entry>,
}

/// Maps the memory of the queue, if there is a quarantine. Idempotent. False if the system gives no
/// memory.
pub(crate) fn prepare() -> bool {
    let bytes_max = BYTES_MAX.load(Ordering::Relaxed);
    if bytes_max == 0 {
        return true;
    }
    // One is free when a block is entered, and the one that is about to be entered may be too much.
    let capacity = (bytes_max / COST_MIN).min(BLOCKS_MAX) as usize + 2;
    let length = (capacity * size_of::<Entry>()).next_multiple_of(4096);
    QUEUE.with(|ring| {
        if ring.entries.is_null() {
            let Ok(memory) = sys::map_private(length) else { return false };
            sys::dont_dump(memory, length);
            (ring.entries, ring.capacity) = (memory.cast(), capacity);
        }
        true
    })
}

/// Returns the block of the register as it is in quarantine after this free; `None` if it is not to
/// be kept.
pub(crate) fn quarantined(block: &LiveBlock, call: Call, stack: StackId, thread: ThreadId) -> Option<LiveBlock> {
    let bytes_max = BYTES_MAX.load(Ordering::Relaxed);
    // Without a canary in front, a free that the register is not asked about could not be told from
    // that of a live block.
    let guarded = guarded(block).filter(|guarded| guarded.front != Front::NONE)?;
    if cost(guarded) > bytes_max || report::is_stopped() {
        return None;
    }
    Some(LiveBlock {
        // A block of this register has no ordinal: the field holds the stack of the free.
        serial: Serial(u64::from(stack.0)),
        stamp: TypeId(Stamp::of(block).quarantined(call as u8).0),
        thread,
        ..*block
    })
}

/// Returns the bytes of the quarantine that a block takes.
fn cost(block: Guarded) -> u64 {
    (block.front.bytes() + block.usable + behind()) as u64 + BOOKKEEPING
}

/// The outcome of [`keep`].
pub(crate) struct Kept {
    /// True if the block is in quarantine now; otherwise it is to be freed.
    pub(crate) is_kept: bool,
    /// The address of the allocator's block for which there is no room any more, which is to be
    /// freed. Then there may be [another](evict).
    pub(crate) evicted: Option<usize>,
}

/// Puts a block in quarantine. If its stamp does not say so yet, it has left the register.
///
/// # Safety
///
/// The block has come from the allocator with the canaries that its stamp says, and nobody else
/// uses it.
pub(crate) unsafe fn keep(block: &FreedBlock) -> Kept {
    let (place, key) = (block.place(), Key(block.address));
    if !Stamp(block.stamp).is_quarantined() && !enter(block) {
        return Kept { is_kept: false, evicted: evict() };
    }
    // SAFETY: `fill` requires the contract of guarded blocks, and that nobody else uses the block.
    // This function's `# Safety` requires the same, and the stamp has the canaries: without any in
    // front, a block does not come here.
    unsafe { place.fill() };
    let bytes_max = BYTES_MAX.load(Ordering::Relaxed);
    let (is_kept, leaving) = QUEUE.with(|ring| {
        let is_kept = ring.push(Entry { address: block.address, cost: cost(place) });
        (is_kept, ring.pop_excess(bytes_max))
    });
    if !is_kept {
        FREED.put(*block);
        REGISTER.remove(key);
    }
    Kept { is_kept, evicted: leaving.and_then(leave) }
}

/// Enters a block that has left the register there again, if it is to be kept.
fn enter(block: &FreedBlock) -> bool {
    let Some(call) = Call::from_number(block.freed_by) else { return false };
    let live = LiveBlock {
        key: Key(block.address),
        size: Bytes(block.size),
        rate: Rate::EXACT,
        usable: Bytes(block.usable),
        stack: block.allocated_at,
        serial: Serial(0),
        stamp: TypeId(block.stamp),
        thread: block.freed_in,
        time: Time(0),
        backs: None,
    };
    let quarantined = quarantined(&live, call, block.freed_at, block.freed_in);
    quarantined.is_some_and(|quarantined| REGISTER.insert(&quarantined).is_ok())
}

/// Takes a block out that there is no room for any more, reports what was written into it, and
/// returns the address of the allocator's block, which is to be freed. `None` if there is room.
pub(crate) fn evict() -> Option<usize> {
    let bytes_max = BYTES_MAX.load(Ordering::Relaxed);
    loop {
        let leaving = QUEUE.with(|ring| ring.pop_excess(bytes_max))?;
        if let Some(address) = leave(leaving) {
            return Some(address);
        }
    }
}

/// Takes a block from the register that has left the queue, and reports what was written into it.
/// Returns the address of the allocator's block.
fn leave(leaving: Leaving) -> Option<usize> {
    let Leaving { address, ahead } = leaving;
    if let Some(Entry { address, cost }) = ahead {
        Guarded { address: address as usize, usable: cost as usize, front: Front::PLAIN }.prefetch();
        REGISTER.prefetch(Key(address));
        FREED.prefetch(address);
    }
    let block = REGISTER.resolve(Key(address), |block| {
        if !Stamp::of(block).is_quarantined() {
            return (Resolution::Keep, None);
        }
        // Under the lock: a second free finds the block in the one table or in the other.
        FREED.put(FreedBlock::of_quarantined(block));
        (Resolution::Remove, Some(*block))
    })??;
    let guarded = guarded(&block)?;
    // SAFETY: the block has left the queue and the register, so nobody else frees it. It has the
    // canaries that its stamp says.
    if let Some(changed) = unsafe { guarded.changed_since_filled() } {
        report_write(&block, changed);
    }
    Some(guarded.underlying())
}

/// Reports that a block in quarantine was written to.
pub(crate) fn report_write(block: &LiveBlock, changed: Changed) {
    let stamp = Stamp::of(block);
    report::note(Report {
        kind: Kind::WriteAfterFree { bytes: changed.range },
        address: block.key.0,
        size: block.size.0,
        allocated: stamp.allocated_by(),
        allocated_at: block.stack,
        freed: stamp.freed_by(),
        freed_at: freed_at(block),
        before: None,
        thread: block.thread,
        found: changed.found,
    });
}

/// For a fork: see `SharedRegister::before_fork`.
pub(crate) fn hold() {
    mem::forget(QUEUE.lock.lock());
}

/// # Safety
///
/// This thread called `hold`, or is a copy of the one that did.
pub(crate) unsafe fn release() {
    // SAFETY: `Lock::unlock` requires that this thread, or the one that it was copied from by a
    // fork, took the lock and forgot the guard. `hold` does both, and this function's `# Safety`
    // requires that call.
    unsafe { QUEUE.lock.unlock() };
}
