//! A heap: the runs from which one thread allocates in one arena.
//!
//! Only the thread that has the heap uses it, so nothing of it is locked. Other threads that free
//! its blocks put them into the runs' lists for that, and bring notices. A heap outlives its
//! thread: the next thread that uses the arena adopts it, with its full and its empty runs. The
//! others are left to all threads.
//!
//! A thread's *home heap* is the one from which the malloc functions allocate. It has the table of
//! the thread's other heaps, by the ids of their arenas. If an arena is disposed of, the heaps that
//! threads have of it are *retired*: their memory is used again by the same thread, or by others
//! after it has ended.

use core::cell::Cell;
use core::ops::Deref;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use crate::arena::purge::decay;
use crate::arena::{MAIN, SharedArena};
use crate::bin::Bin;
use crate::block::Block;
use crate::classes::{CLASSES, DIRECT_MAX, SMALL_CLASSES, bytes_of, slices_of};
use crate::countdown::Countdown;
use crate::fatal;
use crate::geometry::{PAGE, SLICE};
use crate::keys;
use crate::membership::Membership;
use crate::notices::Notices;
use crate::relaxed::RelaxedU64;
use crate::run::{NO_RUN, Owner, RelaxedRun, Run, RunPtr};

mod at_once;
mod counts;
mod left;
mod sampled;
mod siblings;

/// The entries of the direct table: one for each 16 bytes of a request, and one for 0.
const DIRECT: usize = DIRECT_MAX / 16 + 1;
/// The pages that a heap of the main arena keeps in empty runs in any case: 1 MiB.
const EMPTY_MIN: usize = (1 << 20) / PAGE;
/// The pages that a heap keeps in empty runs beyond that, for each two slices that it has.
const EMPTY_PER_TWO_SLICES: usize = 1;
/// The part of these that heaps of other arenas keep, as of the budget for dirty pages.
const OTHERS: usize = 8;
/// The number of refills between two visits of a bin by [`HeapPtr::tick`].
const TICK: u32 = 32;

/// The checks of a heap of up to [`CACHED`] slices for double frees: the number of blocks that are
/// compared with the one that was freed last whenever a list is taken, and the number of refills, a
/// power of two, of which one checks the whole list. Each takes some instructions for a block. For
/// blocks above [`DIRECT_MAX`], sixteen times as many lists are checked as a whole.
const CHECKS: (usize, u32) = (8, 16);
/// The same for larger heaps, whose blocks are often not in a cache: following a list waits for
/// each.
const CHECKS_LARGE: (usize, u32) = (2, 64);
const _: () = assert!(TICK.is_multiple_of(CHECKS.1) && CHECKS_LARGE.1.is_multiple_of(CHECKS.1), "see `refill_at_once`");
/// The bits of the number of refills of which one at least is set if a refill may be the most
/// frequent one: see [`Heap::refill_at_once`].
const AT_ONCE: u32 = CHECKS.1 - 1;
/// The slices of a heap that the caches of a processor probably hold: 4 MiB.
const CACHED: usize = 64;
/// The number of lists in the table of a thread's heaps of arenas, a power of two.
pub(crate) const ARENA_HEAPS: usize = 32;

/// A thread's heap.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Heap {
    /// The current run for each size of a request, in steps of 16 bytes.
    direct: [Cell<RunPtr>; DIRECT],
    /// The current run of each class.
    current: [RelaxedRun; CLASSES],
    bins: [Bin; CLASSES],
    /// The slices of all runs.
    slices: Cell<usize>,
    /// The pages that the listed runs without blocks in use may have in memory.
    pages_empty: Cell<usize>,
    refills: Cell<u32>,
    /// The allocations and frees, wrapped, if all blocks of the current runs' free lists were
    /// handed out, and if no block was freed that was not handed out again: twice what was handed
    /// out, less the blocks that runs have carved.
    operations: RelaxedU64,
    /// The number of blocks that were resized in place.
    resized: RelaxedU64,
    /// The allocations until the next one that is to be sampled.
    pub(crate) countdown: Countdown,
    /// True if fresh memory becomes blocks in random order.
    is_random: AtomicBool,
    /// The bin that the next tick visits.
    visited: Cell<usize>,
    /// True if the heap will be left to others when its thread ends.
    pub(crate) is_registered: Cell<bool>,
    /// True while it is in the list of heaps that no thread has. Accessed under the lock of that.
    pub(crate) is_unowned: Cell<bool>,
    /// The next one of the heaps that no thread has. Accessed under the lock of their list.
    pub(crate) next: Cell<Option<HeapPtr>>,
    /// The next one of all heaps of the arena. Accessed under its lock.
    pub(crate) all_next: Cell<Option<HeapPtr>>,
    arena: Cell<&'static SharedArena>,
    membership: Membership,
    /// The home heap of the thread that has this heap. Null if no thread has it.
    home: AtomicPtr<Heap>,
    /// The other heaps of the thread, if this is its home: lists by the ids of arenas, linked by
    /// [`Heap::sibling`]. The one that was used last in an operation off the fast path is the
    /// first.
    arena_heaps: [Cell<HeapPtr>; ARENA_HEAPS],
    /// The next one in a list of `arena_heaps`, or [`EMPTY`].
    pub(crate) sibling: Cell<HeapPtr>,
    shared: Shared,
}

/// The part that other threads write to, on a cache line of its own.
#[derive(Debug)]
#[repr(C, align(64))]
struct Shared {
    notices: Notices<Run>,
}

/// The address of a heap, which is never freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct HeapPtr(NonNull<Heap>);

/// A heap without runs, which every thread has until it allocates.
#[repr(transparent)]
pub(crate) struct EmptyHeap(Heap);

/// The heap without runs. Nobody writes to it.
pub(crate) static EMPTY_HEAP: EmptyHeap = EmptyHeap(Heap::new());

/// The address of [`EMPTY_HEAP`].
// SAFETY: `new_unchecked` demands an address other than 0, as that of a static is.
pub(crate) const EMPTY: HeapPtr = HeapPtr(unsafe { NonNull::new_unchecked((&raw const EMPTY_HEAP.0).cast_mut()) });

// SAFETY: `Sync` demands that threads may share it. They only read it: it has no run, from which a
// block could be popped or to which one could be given back, and `is_empty` is asked before all
// else.
unsafe impl Sync for EmptyHeap {}

impl Deref for HeapPtr {
    type Target = Heap;

    #[inline(always)]
    fn deref(&self) -> &Heap {
        // SAFETY: `as_ref` demands a valid `Heap` without unique references: the type's invariant,
        // see `HeapPtr::new`; all fields are cells and atomics.
        unsafe { self.0.as_ref() }
    }
}

impl HeapPtr {
    /// # Safety
    ///
    /// The address is that of a heap that is never freed.
    #[inline(always)]
    pub(crate) const unsafe fn new(heap: NonNull<Heap>) -> HeapPtr {
        HeapPtr(heap)
    }

    /// Begins a heap of an arena, which no thread has.
    ///
    /// # Safety
    ///
    /// The address is that of memory of a heap which has no run, and which nobody uses.
    pub(crate) unsafe fn begin(self, arena: &'static SharedArena, id: u64) {
        // A copy takes less code than the fields one by one.
        // SAFETY: `copy_nonoverlapping` demands memory of that size, aligned, to which there is no
        // other reference: this function's `# Safety`, and the type's invariant. Its source is a
        // static that nobody writes to, and another one. Its bytes are a heap of its own, because
        // no field of a heap without runs refers to the heap.
        unsafe { ptr::copy_nonoverlapping(EMPTY.as_ptr(), self.as_ptr(), 1) };
        self.arena.set(arena);
        self.membership.join(id);
        self.note_randomisation();
        self.note_sampler();
    }

    /// Notes if fresh memory of the heap becomes blocks in random order, as its arena says. For any
    /// thread: the heap's own may do some work in the order of before.
    pub(crate) fn note_randomisation(self) {
        self.is_random.store(self.arena().is_random(), Ordering::Relaxed);
    }

    /// Notes the home heap of the thread that has this heap now.
    pub(crate) fn set_home(self, home: HeapPtr) {
        self.home.store(home.as_ptr(), Ordering::Relaxed);
    }

    /// Notes that no thread has the heap.
    pub(crate) fn clear_home(self) {
        self.home.store(ptr::null_mut(), Ordering::Relaxed);
    }

    /// True if no thread has the heap.
    pub(crate) fn has_no_home(self) -> bool {
        self.home.load(Ordering::Relaxed).is_null()
    }

    /// True if the thread with this home heap has the heap.
    #[inline(always)]
    pub(crate) fn is_at_home(self, home: HeapPtr) -> bool {
        self.home.load(Ordering::Relaxed) == home.as_ptr()
    }

    /// Marks the heap as one whose arena was disposed of. It has no runs.
    pub(crate) fn retire(self) {
        self.membership.retire();
    }

    /// True if the heap's arena was disposed of.
    pub(crate) fn is_retired(self) -> bool {
        self.membership.is_retired()
    }

    /// Returns the heap that [`HeapPtr::as_owner`] returned. `None` for null.
    ///
    /// # Safety
    ///
    /// The address is null, or comes from that function.
    pub(crate) unsafe fn from_owner(owner: *mut Owner) -> Option<HeapPtr> {
        NonNull::new(owner.cast()).map(HeapPtr)
    }

    #[inline(always)]
    pub(crate) fn as_ptr(self) -> *mut Heap {
        self.0.as_ptr()
    }

    /// Returns the heap as runs know it.
    #[inline(always)]
    pub(crate) fn as_owner(self) -> *mut Owner {
        self.0.as_ptr().cast()
    }

    /// True for the heap of a thread that has not allocated yet.
    pub(crate) fn is_empty(self) -> bool {
        self == EMPTY
    }

    /// Returns a block of a class, with the run's lists filled up. Null if there is no memory. The
    /// current run has no block in its free list, or its countdown has ended.
    #[inline(never)]
    pub(crate) fn refill(self, class: usize) -> *mut Block {
        let (size, (_, mut check)) = (bytes_of(class), self.checks());
        let compared = self.compared(size);
        if size > DIRECT_MAX {
            // There are many blocks between two refills, in which nothing is compared.
            check /= 16;
        }
        let is_checked = self.refills.get() & (check - 1) == 0;
        self.poll_notices();
        let run = self.current[class].get();
        if run != NO_RUN && self.replenish(run, class, is_checked, compared) {
            return run.pop_any();
        }
        self.change_current(class, is_checked, compared)
    }

    /// Does the rest of [`HeapPtr::refill`], with another run unless a block of the current one has
    /// just been freed.
    #[inline(never)]
    fn change_current(self, class: usize, mut is_checked: bool, compared: usize) -> *mut Block {
        let bin = &self.bins[class];
        let mut has_trimmed = false;
        loop {
            let run = self.current[class].get();
            if run != NO_RUN {
                if self.replenish(run, class, is_checked, compared) {
                    return run.pop_any();
                }
                if !run.fill() {
                    continue;
                }
                self.set_current(class, NO_RUN);
            }
            let partial = bin.partial.pop_front().or_else(|| self.take_abandoned(class));
            let next = match partial.or_else(|| bin.empty.pop_back()).or_else(|| self.new_run(class)) {
                Some(run) => run,
                // Runs that this heap does not use count for the arena's limit.
                None if !has_trimmed && self.arena().settings().bytes_max != 0 => {
                    has_trimmed = true;
                    self.trim();
                    self.arena().sweep(usize::MAX);
                    continue;
                }
                None => return ptr::null_mut(),
            };
            if partial.is_none() {
                self.pages_empty.set(self.pages_empty.get() - pages_of(next));
                self.count(next.restart() as i64);
            }
            next.pin();
            self.set_current(class, next);
            is_checked |= bytes_of(class) > DIRECT_MAX && self.slices.get() <= CACHED;
        }
    }

    /// Fills the free list of a class's current run, and counts: see [`RunPtr::replenish`]. False
    /// if every block of the run is in use.
    #[inline(always)]
    fn replenish(self, run: RunPtr, class: usize, is_checked: bool, compared: usize) -> bool {
        let bin = &self.bins[class];
        let latest = bin.count_latest(run.countdown(class));
        let filled = run.replenish(is_checked, compared, self.is_random.load(Ordering::Relaxed));
        bin.restart(run.countdown(class));
        let (blocks, fresh) = filled.map_or((0, 0), |it| (it.count, if it.is_fresh { it.count } else { 0 }));
        bin.count(blocks);
        self.count(2 * i64::from(latest + blocks) - i64::from(fresh));
        filled.is_some()
    }

    /// Takes a run of a class that an ended thread has left, if this heap would need a new one.
    fn take_abandoned(self, class: usize) -> Option<RunPtr> {
        if self.bins[class].empty.first().is_some() {
            return None;
        }
        self.arena().take_abandoned(class, self)
    }

    /// Makes a run of a class, which counts as empty.
    #[inline(never)]
    fn new_run(self, class: usize) -> Option<RunPtr> {
        let slices = slices_of(class);
        let run = self.arena().take(slices)?;
        run.begin(class, self.as_owner());
        self.slices.set(self.slices.get() + slices);
        self.pages_empty.set(self.pages_empty.get() + pages_of(run));
        Some(run)
    }

    fn set_current(self, class: usize, run: RunPtr) {
        let bin = &self.bins[class];
        self.count(2 * i64::from(bin.count_latest(self.current[class].get().countdown(class))));
        bin.restart(run.countdown(class));
        self.current[class].set(run);
        let size = bytes_of(class);
        if size <= DIRECT_MAX {
            let first = if class == 0 { 0 } else { bytes_of(class - 1) / 16 + 1 };
            for entry in self.direct.get(first..=size / 16).unwrap_or(&[]) {
                entry.set(run);
            }
        }
    }

    /// Handles the runs of which the last block in use was freed: a listed one.
    #[cold]
    #[inline(never)]
    pub(crate) fn empty(self, run: RunPtr) {
        let bin = &self.bins[run.class()];
        if self.is_current(run) {
            // Its count has 1 more than the blocks in use: see `run`.
            fatal::abort("double free in the run at", run.start());
        }
        bin.partial.unlink(run);
        self.keep_empty(run);
        self.poll_notices();
    }

    /// Lists a run that is empty, and in no list.
    fn keep_empty(self, run: RunPtr) {
        self.append_empty(run);
        self.limit_empty();
    }

    fn append_empty(self, run: RunPtr) {
        self.bins[run.class()].empty.push_back(run);
        self.pages_empty.set(self.pages_empty.get() + pages_of(run));
    }

    /// Releases empty runs if there are too many.
    fn limit_empty(self) {
        let limit = self.part_of(EMPTY_MIN) + self.slices.get() / 2 * EMPTY_PER_TWO_SLICES;
        if self.pages_empty.get() > limit {
            self.release_empty(limit / 2);
        }
    }

    /// Returns how much of an amount for the main arena is meant for the arena of this heap.
    fn part_of(self, amount: usize) -> usize {
        if self.arena().is_main() { amount } else { amount / OTHERS }
    }

    /// Lists a run that was full.
    fn list(self, run: RunPtr) {
        if run.used() == 0 { self.keep_empty(run) } else { self.bins[run.class()].partial.push_back(run) }
    }

    /// Releases empty runs until they have no more than `limit` pages.
    fn release_empty(self, limit: usize) {
        for bin in self.bins.iter().rev() {
            while self.pages_empty.get() > limit {
                let Some(run) = bin.empty.pop_front() else { break };
                self.release(run);
            }
        }
    }

    /// Gives an empty run that is in no list any more back to the arena.
    fn release(self, run: RunPtr) {
        run.check_unused();
        self.count(run.carved() as i64);
        self.pages_empty.set(self.pages_empty.get() - pages_of(run));
        self.slices.set(self.slices.get() - run.slices());
        self.arena().give_back_run(run);
    }

    /// Handles the free of a block by the heap's thread in a run that is full.
    ///
    /// # Safety
    ///
    /// This heap owns the run, which is full, and `block` is a block of it that nobody uses any
    /// more.
    #[cold]
    pub(crate) unsafe fn free_in_full(self, run: RunPtr, block: *mut Block) {
        // SAFETY: `give_back_any` demands that its caller owns the run, as this heap does, and a
        // block of it that nobody uses: both by this function's `# Safety`.
        unsafe { run.give_back_any(block) };
        if run.reopen() {
            self.list(run);
        }
        self.poll_notices();
    }

    /// Brings a notice: another thread has freed a block of a full run of this heap's.
    pub(crate) fn notify(self, run: RunPtr) {
        // SAFETY: `push` demands a valid run: its heap does not release a full run before it has
        // taken the notice.
        unsafe { self.shared.notices.push(run.as_ptr()) };
    }

    /// Takes the notices that other threads have brought, if there are some.
    #[inline(always)]
    fn poll_notices(self) {
        if !self.shared.notices.is_empty() {
            self.take_notices();
        }
    }

    #[cold]
    fn take_notices(self) {
        let mut next = RunPtr::from(self.shared.notices.take());
        while let Some(run) = next {
            next = run.next();
            run.end_notice();
            self.list(run);
        }
    }

    /// Counts a refill, and now and then does a part of the work that keeps memory from lying
    /// around. True if all bins were visited since this was true for the last time.
    #[inline(always)]
    pub(crate) fn tick(self) -> bool {
        let refills = self.refills.get().wrapping_add(1);
        self.refills.set(refills);
        refills.is_multiple_of(TICK) && self.visit()
    }

    /// Visits the next bin: takes what other threads have freed in its runs, releases a run that
    /// stayed empty, and gives up a large current run that is not used.
    #[cold]
    #[inline(never)]
    fn visit(self) -> bool {
        decay::tick();
        let class = self.visited.get();
        self.visited.set((class + 1) % CLASSES);
        let bin = &self.bins[class];
        let current = self.current[class].get();
        let is_unused = class >= SMALL_CLASSES && current != NO_RUN && current.used() == 1;
        if is_unused && bin.is_idle.replace(true) {
            self.give_up_current(class);
        }
        self.collect(bin);
        if let Some(run) = bin.empty.pop_front() {
            self.release(run);
        }
        class == CLASSES - 1
    }

    /// Lists the current run of a bin.
    fn give_up_current(self, class: usize) {
        let run = self.current[class].get();
        self.set_current(class, NO_RUN);
        let left = run.give_back_free();
        self.bins[class].uncount(left);
        self.count(-2 * i64::from(left));
        run.unpin();
        self.list(run);
    }

    /// Takes what other threads have freed in the listed runs of a bin.
    fn collect(self, bin: &Bin) {
        let mut next = bin.partial.first();
        while let Some(run) = next {
            next = run.next();
            if run.take_remote() && run.used() == 0 {
                bin.partial.unlink(run);
                self.append_empty(run);
            }
        }
        self.limit_empty();
    }

    /// Releases everything that is not in use.
    pub(crate) fn trim(self) {
        self.release_unused(0);
    }

    #[inline(never)]
    fn release_unused(self, keep: usize) {
        self.take_notices();
        for (class, bin) in self.bins.iter().enumerate() {
            let current = self.current[class].get();
            if current != NO_RUN {
                current.take_remote();
                if current.used() == 1 {
                    self.give_up_current(class);
                }
            }
            self.collect(bin);
        }
        self.release_empty(keep);
    }

    /// Changes the class of a large run in place, to one of `class`. False if that is not possible.
    /// This heap owns the run, whose block is in use.
    pub(crate) fn resize_large(self, run: RunPtr, class: usize) -> bool {
        let (old, new) = (run.slices(), slices_of(class));
        if run.class() < SMALL_CLASSES - 1 || class < SMALL_CLASSES - 1 {
            return false;
        }
        if !run.is_full() {
            // It is the current one: it can only be that of its own class.
            if !self.is_current(run) || !run.fill() {
                return false;
            }
            self.set_current(run.class(), NO_RUN);
        }
        if new > old {
            if !self.arena().extend(run, old, new) {
                return false;
            }
        } else if new < old {
            self.arena().give_back(run, new, old - new);
        }
        self.slices.set(self.slices.get() + new - old);
        run.set_class(class);
        self.bins[class].count(1);
        self.resized.set(self.resized.get() + 1);
        self.count(1);
        true
    }
}

/// Returns the number of pages that a run without blocks in use may have in memory.
fn pages_of(run: RunPtr) -> usize {
    run.pages() + (run.slices() - 1) * (SLICE / PAGE)
}

impl Heap {
    /// The offset of the current runs in bytes.
    pub(crate) const CURRENT_OFFSET: u32 = core::mem::offset_of!(Heap, current) as u32;

    const fn new() -> Heap {
        Heap {
            direct: [const { Cell::new(NO_RUN) }; DIRECT],
            current: [const { RelaxedRun::new(NO_RUN) }; CLASSES],
            bins: [const { Bin::new() }; CLASSES],
            slices: Cell::new(0),
            pages_empty: Cell::new(0),
            refills: Cell::new(0),
            countdown: Countdown::new(),
            is_random: AtomicBool::new(false),
            operations: RelaxedU64::new(),
            resized: RelaxedU64::new(),
            visited: Cell::new(0),
            is_registered: Cell::new(false),
            is_unowned: Cell::new(false),
            next: Cell::new(None),
            all_next: Cell::new(None),
            arena: Cell::new(&MAIN),
            membership: Membership::new(),
            home: AtomicPtr::new(ptr::null_mut()),
            arena_heaps: [const { Cell::new(EMPTY) }; ARENA_HEAPS],
            sibling: Cell::new(EMPTY),
            shared: Shared { notices: Notices::new() },
        }
    }

    /// Returns the number of slices that the heap's runs have.
    pub(crate) fn slices(&self) -> usize {
        self.slices.get()
    }

    /// Returns the number of pages that the listed runs without blocks in use may have in memory.
    pub(crate) fn pages_empty(&self) -> usize {
        self.pages_empty.get()
    }

    /// Returns the arena of the heap.
    pub(crate) fn arena(&self) -> &'static SharedArena {
        self.arena.get()
    }

    /// True if this is a heap of the arena with an id other than 0.
    #[inline(always)]
    pub(crate) fn is_of(&self, id: u64) -> bool {
        self.membership.id() == id
    }

    /// True if the heap allocates blocks of the run's class from it.
    pub(crate) fn is_current(&self, run: RunPtr) -> bool {
        self.current[run.class()].get() == run
    }

    /// Returns the run from which a request of up to [`DIRECT_MAX`] bytes is answered.
    #[inline(always)]
    pub(crate) fn direct(&self, size: usize) -> RunPtr {
        debug_assert!(size <= DIRECT_MAX);
        // SAFETY: `get_unchecked` demands an index in bounds: the largest is that of `DIRECT_MAX`,
        // which is `DIRECT - 1`.
        unsafe { self.direct.get_unchecked((size + 15) >> 4) }.get()
    }

    /// Returns a block of a class from the current run: the one that was freed last, which is
    /// probably in a cache. Null if the run has none, or if it is time for a refill: see
    /// [`Run::pop_latest`](crate::run::Run::pop_latest).
    #[inline(always)]
    pub(crate) fn pop(&self, class: usize) -> *mut Block {
        debug_assert!(class < CLASSES && bytes_of(class) > DIRECT_MAX);
        // SAFETY: `get_unchecked` demands an index in bounds: callers have it from `class_of` or
        // `aligned_class_of`, which return one of `CLASSES`.
        unsafe { self.current.get_unchecked(class) }.get().pop_latest()
    }

    /// Returns a block of a class as [`Heap::pop`] does, or for the smaller ones, from the free
    /// list of the current run, as the common path does: so the blocks that were handed out can be
    /// told from what is left there.
    pub(crate) fn pop_any(&self, class: usize) -> *mut Block {
        if keys::are_on() {
            return self.pop_keyed(class);
        }
        if bytes_of(class) > DIRECT_MAX { self.pop(class) } else { self.current[class].get().pop() }
    }

    /// Does the work of [`Heap::pop_any`] for keyed links.
    #[cold]
    fn pop_keyed(&self, class: usize) -> *mut Block {
        self.current[class].get().pop_keyed(bytes_of(class) > DIRECT_MAX)
    }

    /// Returns the checks for double frees that are made.
    #[inline(always)]
    fn checks(&self) -> (usize, u32) {
        if self.slices.get() <= CACHED { CHECKS } else { CHECKS_LARGE }
    }

    /// Notes that a block of a class was asked for.
    pub(crate) fn note_use(&self, class: usize) {
        self.bins[class].is_idle.set(false);
    }
}
