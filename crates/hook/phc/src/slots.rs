//! The slots: which are in use, which are free, and the pages behind them.
//!
//! All of it is behind one lock, which is held with all signals blocked: a signal handler that
//! allocates never finds the lock held by its own thread.

use core::cell::UnsafeCell;
use core::mem;
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};

use heapledger_core::arch::{self, nr};
use heapledger_core::block_sampler::{LAYOUT_PERIOD, metadata_page};
use heapledger_core::lock::Lock;
use heapledger_core::{StackId, sys};

use crate::options::{PhcOptions, PhcPlacement};
use crate::region::{self, CLASSES, PAGE, Position, RESERVE, SLOTS_MAX, SlotNumber};
use crate::{canary, countdown};

/// The end of a list of slots.
const NONE: u32 = u32::MAX;

/// The states of a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum SlotState {
    #[default]
    NeverAllocated = 0,
    InUse = 1,
    Freed = 2,
}

/// The call that allocated or freed a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PhcEvent {
    /// The stack of the call.
    pub stack: StackId,
    /// The context of the call, as far as it was declared in this loaded object; else the root.
    pub context: StackId,
    /// The kernel's id of the thread that made the call; 0 if it is not known.
    pub thread: u32,
}

/// A slot, and its latest block. Zeroed: never allocated.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Slot {
    /// The address of the block.
    pub(crate) start: usize,
    /// The size that the program asked for, which is also the usable size.
    pub(crate) size: usize,
    /// The time at which a freed slot can be used again.
    reusable_at: u64,
    pub(crate) allocated: PhcEvent,
    pub(crate) freed: PhcEvent,
    /// The number of the next slot in the list of free ones.
    next: u32,
    pub(crate) state: SlotState,
    /// True if the block lies at the beginning of the slot, also after a reallocation.
    is_at_start: bool,
    /// True if pages of the slot may hold the bytes of a former block, because the system did not
    /// take their memory back.
    is_dirty: bool,
}

/// The slots of a class: those that were used at least once are the first ones, and the free ones
/// among these are in the order of their frees.
#[derive(Clone, Copy, Debug)]
struct Class {
    used: u32,
    max: u32,
    first_free: u32,
    last_free: u32,
}

/// The state behind the lock.
#[derive(Debug)]
pub(crate) struct Slots {
    base: usize,
    table: *mut Slot,
    classes: [Class; CLASSES],
    placement: PhcPlacement,
    counts: Counts,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    in_use: u32,
    freed: u32,
    bytes_in_use: usize,
    bytes_pages_in_use: usize,
    sampled: u64,
    refused: u64,
}

/// The figures of the checker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PhcStats {
    /// The slots whose blocks are live.
    pub slots_allocated: u32,
    /// The slots whose blocks have been freed.
    pub slots_freed: u32,
    /// The slots within the limit of memory that were never used.
    pub slots_unused: u32,
    /// The bytes of the blocks that are live.
    pub bytes_allocated: usize,
    /// The bytes of pages of live blocks that are not the blocks'.
    pub bytes_fragmentation: usize,
    /// The bytes that the checker takes for its own tables. Its stacks are not counted.
    pub bytes_metadata: usize,
    /// The bytes of addresses that are reserved.
    pub bytes_reserved: usize,
    /// The blocks that were sampled in this process up to now.
    pub blocks_sampled: u64,
    /// The blocks that were due, and were not sampled because all slots were in use or kept out of
    /// reuse.
    pub blocks_refused: u64,
}

/// The bytes around a block that were written: the offsets of the first and the last from the
/// block's beginning.
pub(crate) type Overwritten = (isize, isize);

/// The lock and what it protects.
///
/// **Guarded cell**: `slots` is accessed in this module only, and only while `lock` is held.
struct Guarded {
    lock: Lock,
    slots: UnsafeCell<Slots>,
}

// SAFETY: `Sync` demands that threads which share the value make no data race: `slots` is a
// *guarded cell*. It holds plain values and a pointer to a table that is accessed with it, which
// any thread may use.
unsafe impl Sync for Guarded {}

static GUARDED: Guarded = Guarded {
    lock: Lock::new(),
    slots: UnsafeCell::new(Slots {
        base: 0,
        table: ptr::null_mut(),
        classes: [Class { used: 0, max: 0, first_free: NONE, last_free: NONE }; CLASSES],
        placement: PhcPlacement::End,
        counts: Counts { in_use: 0, freed: 0, bytes_in_use: 0, bytes_pages_in_use: 0, sampled: 0, refused: 0 },
    }),
};

/// The base of no reserve: no address is in it.
const NO_BASE: usize = usize::MAX - RESERVE;
/// The beginning of the reserve. Before there is one, an address near which no block is.
static BASE: AtomicUsize = AtomicUsize::new(NO_BASE);

/// Returns the beginning of the reserve.
pub(crate) fn base() -> usize {
    BASE.load(Ordering::Relaxed)
}

/// True if an address is in the reserve.
#[inline(always)]
pub(crate) fn contains(address: usize) -> bool {
    address.wrapping_sub(BASE.load(Ordering::Relaxed)) < RESERVE
}

/// The thread pointer of the thread that forks, which its copy in the child has, too; 0: no thread
/// forks. That thread holds the locks, and handlers of signals or of the fork may allocate in it.
static FORKING: AtomicUsize = AtomicUsize::new(0);

/// True in a thread that holds the locks because it forks.
pub(crate) fn is_forking() -> bool {
    FORKING.load(Ordering::Relaxed) == arch::thread_pointer()
}

/// Runs a function with the slots, while no other thread has them and no signal is delivered.
pub(crate) fn with<R>(run: impl FnOnce(&mut Slots) -> R) -> R {
    sys::without_signals(|| {
        let _guard = lock().lock();
        // SAFETY: no other reference to the *guarded cell* exists: `_guard` holds a lock until
        // `run` has returned. It is the lock of the cell, or, in a thread that has held that one
        // since before it forked, the lock which only such a thread takes.
        run(unsafe { &mut *GUARDED.slots.get() })
    })
}

/// Runs a function with the slots as [`with`] does, but waits for another thread that has them for
/// about so many milliseconds only: for a handler of a fault, which must not wait for ever.
pub(crate) fn within<R>(milliseconds: u32, run: impl FnOnce(&mut Slots) -> R) -> Option<R> {
    sys::without_signals(|| {
        let _guard = lock().lock_within(milliseconds)?;
        // SAFETY: no other reference to the *guarded cell* exists: `_guard` holds the lock until
        // `run` has returned, which is the one that `with` takes.
        Some(run(unsafe { &mut *GUARDED.slots.get() }))
    })
}

/// Returns the lock that this thread takes for the slots.
///
/// A thread that forks holds the lock of the slots; it takes another, so that a signal handler
/// which interrupts it in a sandbox, where no signal is blocked, waits.
fn lock() -> &'static Lock {
    static OF_FORKING: Lock = Lock::new();
    if is_forking() { &OF_FORKING } else { &GUARDED.lock }
}

/// Sets the figures of sampled blocks back to 0, in a forked child: they are its parent's.
pub(crate) fn forget_sampled() {
    with(|slots| (slots.counts.sampled, slots.counts.refused) = (0, 0));
}

/// Takes the lock until [`release`], around a fork. Call while no signal is delivered, and then
/// [`set_forking`].
pub(crate) fn hold() {
    mem::forget(GUARDED.lock.lock());
}

/// Notes that this thread forks, or that it has forked.
pub(crate) fn set_forking(forks: bool) {
    FORKING.store(if forks { arch::thread_pointer() } else { 0 }, Ordering::Relaxed);
}

/// # Safety
///
/// This thread called `hold`, or is a copy of the one that did.
pub(crate) unsafe fn release() {
    // SAFETY: `Lock::unlock` requires that this thread, or the one that it was copied from by a
    // fork, took the lock and forgot the guard. `hold` does both.
    unsafe { GUARDED.lock.unlock() };
}

/// Reserves the addresses. False if the system refuses. A second call, after a start that failed,
/// keeps what the first one has reserved. One thread at a time.
///
/// With `has_metadata`, the pages that the allocator reads are readable.
pub(crate) fn reserve(options: &PhcOptions, has_metadata: bool) -> bool {
    const PROT_NONE: usize = 0;
    const MAP_PRIVATE_ANONYMOUS_NORESERVE: usize = 0x2 | 0x20 | 0x4000;
    let base = BASE.load(Ordering::Acquire);
    if base != NO_BASE {
        with(|slots| {
            slots.placement = options.placement;
            slots.limit(options.bytes_max);
        });
        return !has_metadata || make_metadata_readable(base);
    }
    let length = RESERVE + LAYOUT_PERIOD;
    // SAFETY: without MAP_FIXED the kernel picks unused addresses, so no existing mapping is
    // affected. No argument is a pointer.
    let mapped = sys::check(unsafe {
        sys::call(nr::MMAP, [0, length, PROT_NONE, MAP_PRIVATE_ANONYMOUS_NORESERVE, usize::MAX, 0])
    });
    let Ok(start) = mapped else { return false };
    let base = start.next_multiple_of(LAYOUT_PERIOD);
    for (from, to) in [(start, base), (base + RESERVE, start + length)] {
        if from < to {
            // SAFETY: the addresses were mapped just now, and nobody has used them.
            unsafe { sys::call(nr::MUNMAP, [from, to - from, 0, 0, 0, 0]) };
        }
    }
    if has_metadata && !make_metadata_readable(base) {
        return false;
    }
    let Ok(table) = sys::map_private(SLOTS_MAX as usize * size_of::<Slot>()) else { return false };
    let table = table.cast::<Slot>();
    with(|slots| {
        (slots.base, slots.table, slots.placement) = (base, table, options.placement);
        slots.limit(options.bytes_max);
    });
    BASE.store(base, Ordering::Release);
    true
}

/// Makes the pages of the reserve readable that the allocator reads. False if the system refuses.
fn make_metadata_readable(base: usize) -> bool {
    const PROT_READ: usize = 1;
    (base..base + RESERVE).step_by(4 << 20).all(|chunk| {
        // SAFETY: the page is in the reserve, and has no block: it is one that the allocator reads.
        unsafe { sys::call(nr::MPROTECT, [metadata_page(chunk), PAGE, PROT_READ, 0, 0, 0]) == 0 }
    })
}

/// Raises the limit of the memory for blocks. A smaller one is ignored.
pub fn set_bytes_max(bytes: usize) {
    with(|slots| slots.limit(bytes));
}

/// Returns the figures of the checker. Waits for threads that allocate a sampled block.
pub fn stats() -> PhcStats {
    with(|slots| {
        let Counts { in_use, freed, bytes_in_use, bytes_pages_in_use, sampled, refused } = slots.counts;
        let max: u32 = slots.classes.iter().map(|class| class.max).sum();
        let used: u32 = slots.classes.iter().map(|class| class.used).sum();
        PhcStats {
            slots_allocated: in_use,
            slots_freed: freed,
            slots_unused: max.saturating_sub(used),
            bytes_allocated: bytes_in_use,
            bytes_fragmentation: bytes_pages_in_use - bytes_in_use,
            bytes_metadata: size_of::<Guarded>() + used as usize * size_of::<Slot>(),
            bytes_reserved: RESERVE,
            blocks_sampled: sampled,
            blocks_refused: refused,
        }
    })
}

impl Slots {
    /// Raises the number of slots of each class to what a limit of memory allows: single pages have
    /// one half of it, the other classes share the other half equally.
    fn limit(&mut self, bytes: usize) {
        for (number, class) in self.classes.iter_mut().enumerate() {
            let share = if number == 0 { bytes / 2 } else { bytes / (2 * (CLASSES - 1)) };
            let slots = u32::try_from(share / region::slot_length(number)).unwrap_or(u32::MAX);
            class.max = class.max.max(slots.min(region::slots_max(number)));
        }
    }

    /// Returns a slot's entry.
    fn entry(&mut self, number: SlotNumber) -> Option<&mut Slot> {
        if self.table.is_null() || number.0 >= SLOTS_MAX {
            return None;
        }
        // SAFETY: the table has `SLOTS_MAX` entries, for which zeroes are valid, and is never
        // unmapped. The references to it come from this function, which borrows `self`.
        Some(unsafe { &mut *self.table.add(number.0 as usize) })
    }

    /// Returns the part of the reserve that an address belongs to, with the slot that is blamed for
    /// it.
    pub(crate) fn find(&mut self, address: usize) -> Option<(Position, Option<Slot>)> {
        let position = region::position(address.wrapping_sub(self.base))?;
        let number = match position {
            Position::Slot(number) => Some(number),
            Position::Guard { nearest, .. } => nearest,
        };
        Some((position, number.and_then(|number| self.entry(number).copied())))
    }

    /// Returns the slot whose live block begins at an address. `Err`: there is none, and this is
    /// what is there.
    pub(crate) fn live(&mut self, address: usize) -> Result<SlotNumber, Option<(Position, Option<Slot>)>> {
        match self.find(address) {
            Some((Position::Slot(number), Some(slot))) if slot.state == SlotState::InUse && slot.start == address => {
                Ok(number)
            }
            found => Err(found),
        }
    }

    /// Takes a slot for a block, whose bytes are zero. `None` if there is none for its size, or all
    /// are in use or kept out of reuse. `alignment` is a power of two.
    pub(crate) fn allocate(&mut self, size: usize, alignment: usize, allocated: PhcEvent) -> Option<usize> {
        let class = region::class_for(size, alignment)?;
        let Some((number, is_new)) = self.next(class) else {
            self.counts.refused += 1;
            return None;
        };
        let (from, length) = (self.base + region::offset_of(number), region::slot_length(class));
        let is_at_start = self.placement.is_at_start();
        let start = place(is_at_start, from, length, size, alignment);
        let pages = Pages::of(start, size);
        if !pages.protect(true) {
            self.counts.refused += 1;
            return None;
        }
        self.remove_next(class, number, is_new);
        let slot = self.entry(number)?;
        let is_dirty = slot.is_dirty;
        let (state, next) = (SlotState::InUse, NONE);
        *slot = Slot { start, size, allocated, state, next, is_at_start, is_dirty, ..Slot::default() };
        // SAFETY: the pages have been made accessible, and nobody else uses them.
        unsafe {
            if is_dirty {
                ptr::with_exposed_provenance_mut::<u8>(start).write_bytes(0, size);
            }
            pages.fill(start, size);
        }
        self.counts.in_use += 1;
        self.counts.sampled += 1;
        self.counts.bytes_in_use += size;
        self.counts.bytes_pages_in_use += pages.length();
        Some(start)
    }

    /// Returns a slot that was never used, or else the one that was freed first, if its time has
    /// come; and true if it was never used.
    fn next(&mut self, class: usize) -> Option<(SlotNumber, bool)> {
        let mut own = *self.classes.get(class)?;
        while own.used < own.max && !region::is_usable(region::number(class, own.used)) {
            own.used += 1;
        }
        self.classes.get_mut(class)?.used = own.used;
        if own.used < own.max {
            return Some((region::number(class, own.used), true));
        }
        let number = SlotNumber(own.first_free);
        self.entry(number).filter(|slot| slot.reusable_at <= countdown::now())?;
        Some((number, false))
    }

    /// Removes the slot that [`Slots::next`] has returned from those that it may return.
    fn remove_next(&mut self, class: usize, number: SlotNumber, is_new: bool) {
        let after = self.entry(number).map_or(NONE, |slot| slot.next);
        let Some(own) = self.classes.get_mut(class) else { return };
        if is_new {
            own.used += 1;
            return;
        }
        own.first_free = after;
        if after == NONE {
            own.last_free = NONE;
        }
        self.counts.freed -= 1;
    }

    /// Frees the block of a slot that is in use: its pages become inaccessible, and their memory is
    /// given back. Returns the bytes around the block that were written.
    pub(crate) fn free(&mut self, number: SlotNumber, freed: PhcEvent) -> Option<Overwritten> {
        let class = region::class_of(number);
        let slot = self.entry(number)?;
        let (start, size) = (slot.start, slot.size);
        let pages = Pages::of(start, size);
        // SAFETY: the slot is in use, by the caller, so the pages of its block are accessible.
        let overwritten = unsafe { pages.overwritten(start, size) };
        slot.state = SlotState::Freed;
        slot.freed = freed;
        slot.reusable_at = countdown::now() + countdown::reuse_delay();
        slot.next = NONE;
        self.counts.in_use -= 1;
        self.counts.freed += 1;
        self.counts.bytes_in_use -= size;
        self.counts.bytes_pages_in_use -= pages.length();
        // A slot that stays accessible, because the system refuses, is not used again.
        if !pages.protect(false) {
            return overwritten;
        }
        let is_clean = pages.discard();
        if let Some(slot) = self.entry(number) {
            slot.is_dirty |= !is_clean;
        }
        let last = self.classes.get(class).map_or(NONE, |own| own.last_free);
        if let Some(last) = self.entry(SlotNumber(last)) {
            last.next = number.0;
        }
        if let Some(own) = self.classes.get_mut(class) {
            own.last_free = number.0;
            if last == NONE {
                own.first_free = number.0;
            }
        }
        overwritten
    }

    /// Moves the block of a slot in use within the slot, for another size. `None` if it does not
    /// fit, and stays as it is.
    pub(crate) fn resize(
        &mut self,
        number: SlotNumber,
        size: usize,
        alignment: usize,
        allocated: PhcEvent,
    ) -> Option<(usize, Option<Overwritten>)> {
        let length = region::slot_length(region::class_of(number));
        let from = self.base + region::offset_of(number);
        if size > length {
            return None;
        }
        let slot = self.entry(number)?;
        let (start_before, size_before) = (slot.start, slot.size);
        let before = Pages::of(start_before, size_before);
        let start = place(slot.is_at_start, from, length, size, alignment);
        let pages = Pages::of(start, size);
        if !pages.protect(true) {
            return None;
        }
        (slot.start, slot.size, slot.allocated) = (start, size, allocated);
        // SAFETY: both pages are accessible: those of the old block because the slot is in use, the
        // others since the call above. `copy` lets the ranges overlap. The program does not access
        // the block while it reallocates it.
        let overwritten = unsafe {
            let overwritten = before.overwritten(start_before, size_before);
            ptr::copy(
                ptr::with_exposed_provenance::<u8>(start_before),
                ptr::with_exposed_provenance_mut::<u8>(start),
                size_before.min(size),
            );
            pages.fill(start, size);
            overwritten
        };
        for rest in before.without(pages) {
            // If the system refuses, these pages stay accessible until the block is freed.
            slot.is_dirty |= !(rest.protect(false) && rest.discard());
        }
        self.counts.bytes_in_use = self.counts.bytes_in_use - size_before + size;
        self.counts.bytes_pages_in_use = self.counts.bytes_pages_in_use - before.length() + pages.length();
        Some((start, overwritten))
    }
}

impl PhcPlacement {
    /// True if the next block lies at the beginning of its slot.
    fn is_at_start(self) -> bool {
        match self {
            PhcPlacement::End => false,
            PhcPlacement::Start => true,
            PhcPlacement::Drawn => countdown::random() & 1 == 0,
        }
    }
}

/// Returns the address of a block in its slot.
fn place(is_at_start: bool, from: usize, length: usize, size: usize, alignment: usize) -> usize {
    if is_at_start {
        return from.next_multiple_of(alignment);
    }
    // A block of no bytes has an address of its own, too.
    (from + length - size.max(1)) & !(alignment - 1)
}

/// The pages of a block. The others of its slot stay inaccessible.
#[derive(Clone, Copy, Debug)]
struct Pages {
    from: usize,
    to: usize,
}

impl Pages {
    fn of(start: usize, size: usize) -> Pages {
        Pages { from: start & !(PAGE - 1), to: (start + size.max(1)).next_multiple_of(PAGE) }
    }

    fn length(self) -> usize {
        self.to - self.from
    }

    /// Returns the pages that are not among others: some before them, and some behind them.
    fn without(self, others: Pages) -> impl Iterator<Item = Pages> {
        let before = Pages { from: self.from, to: self.to.min(others.from) };
        let behind = Pages { from: self.from.max(others.to), to: self.to };
        [before, behind].into_iter().filter(|pages| pages.from < pages.to)
    }

    /// Makes the pages accessible, or inaccessible. False if the system refuses.
    fn protect(self, is_accessible: bool) -> bool {
        const PROT_READ_WRITE: usize = 1 | 2;
        let protection = if is_accessible { PROT_READ_WRITE } else { 0 };
        // SAFETY: `sys::call` requires that no assumption of other code breaks: the pages are a
        // slot's, and this module alone knows when its block is live.
        unsafe { sys::call(nr::MPROTECT, [self.from, self.length(), protection, 0, 0, 0]) == 0 }
    }

    /// Gives the memory of pages that hold no block back to the system. False if it refuses.
    fn discard(self) -> bool {
        // SAFETY: the pages are aligned, a slot's own, and their content is not needed.
        unsafe { sys::discard(ptr::with_exposed_provenance_mut(self.from), self.length()) }
    }

    /// Fills the pages around the block.
    ///
    /// # Safety
    ///
    /// The pages are accessible, the block lies in them, and nobody accesses the rest of them.
    unsafe fn fill(self, start: usize, size: usize) {
        let end = start + size;
        // SAFETY: both ranges are within the pages, which may be written by this function's
        // `# Safety`.
        unsafe {
            canary::fill(self.from, start);
            canary::fill(end, self.to);
        }
    }

    /// Returns the bytes around the block that are not as [`Pages::fill`] has left them.
    ///
    /// # Safety
    ///
    /// The pages are accessible, and the block lies in them.
    unsafe fn overwritten(self, start: usize, size: usize) -> Option<Overwritten> {
        let end = start + size;
        // SAFETY: both ranges are in the pages, which are accessible by this function's `# Safety`.
        let (before, behind) = unsafe { (canary::changed(self.from, start), canary::changed(end, self.to)) };
        let (first, _) = before.or(behind)?;
        let (_, last) = behind.or(before)?;
        Some((first.wrapping_sub(start) as isize, last.wrapping_sub(start) as isize))
    }
}

/// The size of a page, as the system has it, must be ours.
const _: () = assert!(PAGE == 4096);
