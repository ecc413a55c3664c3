//! A run: the blocks of one class in a range of slices of a chunk.
//!
//! Only the heap that owns a run changes its fields, except for the owner's word and the list of
//! blocks that other threads have freed. Other threads read some, to judge addresses
//! (`observe.rs`): those are [relaxed](crate::relaxed) cells. A run is in one of these states:
//!
//! | state | is | `used` | owner's word |
//! |---|---|---|---|
//! | current | what its heap allocates blocks of its class from | blocks in use, and 1 | heap |
//! | listed | in the list of its bin: it has free blocks | blocks in use | heap |
//! | full | in no list: a notice is asked for, or is on its way | blocks in use | heap, tagged |
//! | released | its slices are free | 0 | null |
//!
//! The 1 of the current run keeps it from looking empty, so that a program that allocates and
//! frees one block again and again never leaves the fast path. The tag makes the owner's free of a
//! block of a full run leave the fast path, without a test of its own.

use core::cell::Cell;
use core::ops::Deref;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::block::Block;
use crate::classes::{DIRECT_MAX, bytes_of, capacity_of, slices_of};
use crate::fatal;
use crate::geometry::{CHUNK, PAGE, SLICE, SLICE_SHIFT};
use crate::keys::Key;
use crate::notices::Linked;
use crate::os;
use crate::page;
use crate::random;
use crate::relaxed::{RelaxedPtr, RelaxedU8, RelaxedU16, RelaxedU32};
use crate::remote::RemoteList;

mod keyed;
mod memory;
mod observe;
mod relaxed;
mod sampled;

pub(crate) use self::observe::Observed;
pub(crate) use self::relaxed::RelaxedRun;

/// The size of a run's metadata in bytes: a cache line.
pub(crate) const RUN_SIZE: usize = 64;
/// The countdown of [`Run::pop_latest`], which takes one block less out of turn between two
/// refills.
const POPS: u8 = 64;
/// The value of [`Run::pops`] that says that free blocks are fresh. Others are less, and not 0
/// between two calls, so that a count never becomes this one.
const FRESH: u8 = 128;
/// The bytes that a run gets at once after it has used as many.
const POPULATED: usize = 16 << 10;
/// The tag in the owner's word of a full run.
const FULL: usize = 1;
/// All tags of that word.
pub(crate) const TAGS: usize = FULL;

/// The blocks that a free list got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Filled {
    pub(crate) count: u32,
    /// True if they had never been in use.
    pub(crate) is_fresh: bool,
}

/// The heap that owns a run: this module only compares its address.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Owner;

/// The metadata of a run, in the header of its chunk.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Run {
    free: RelaxedPtr<Block>,
    local_free: RelaxedPtr<Block>,
    owner: AtomicPtr<Owner>,
    used: Cell<u32>,
    size: RelaxedU32,
    remote: RemoteList,
    capacity: Cell<u16>,
    carved: RelaxedU16,
    class: RelaxedU8,
    slices: Cell<u8>,
    /// The blocks that [`Run::pop_latest`] may return until the next refill. [`FRESH`] if the
    /// blocks of `free` were never used, and are zero except for their first word. That function
    /// ends this state, because it may return another block; so both are one field, which it counts
    /// down.
    pops: RelaxedU8,
    /// The number of pages at the start of the slice that may have memory, and content, from
    /// earlier runs. In the metadata of each slice, also of those without a run.
    touched: RelaxedU8,
    /// The next run in the list of the bin, or in the list of notices.
    next: AtomicPtr<Run>,
    previous: Cell<*mut Run>,
}

const _: () = assert!(size_of::<Run>() == RUN_SIZE, "the layout of a chunk's header depends on it");

/// The address of a run's metadata in a chunk that stays mapped while the address is used, or of
/// [`EMPTY_RUN`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct RunPtr(NonNull<Run>);

/// A run that never has a block, in the place of those that heaps do not have yet.
pub(crate) static EMPTY_RUN: EmptyRun = EmptyRun(Run {
    free: RelaxedPtr::new(),
    local_free: RelaxedPtr::new(),
    owner: AtomicPtr::new(ptr::null_mut()),
    used: Cell::new(0),
    size: RelaxedU32::new(),
    remote: RemoteList::new(),
    capacity: Cell::new(0),
    carved: RelaxedU16::new(),
    class: RelaxedU8::new(),
    slices: Cell::new(0),
    pops: RelaxedU8::new(),
    touched: RelaxedU8::new(),
    next: AtomicPtr::new(ptr::null_mut()),
    previous: Cell::new(ptr::null_mut()),
});

/// A wrapper of the static run.
pub(crate) struct EmptyRun(Run);

// SAFETY: `Sync` demands that threads may share it. All of them only read it: a block of it, which
// would be a reason to write, does not exist, and `Heap` puts it into no list.
unsafe impl Sync for EmptyRun {}

/// The address of [`EMPTY_RUN`].
// SAFETY: `new_unchecked` demands an address other than 0, as that of a static is.
pub(crate) const NO_RUN: RunPtr = RunPtr(unsafe { NonNull::new_unchecked((&raw const EMPTY_RUN.0).cast_mut()) });

impl Deref for RunPtr {
    type Target = Run;

    #[inline(always)]
    fn deref(&self) -> &Run {
        // SAFETY: `as_ref` demands a valid `Run` that nobody has a unique reference to. The address
        // is that of mapped metadata, by the type's invariant; zeroed metadata is valid, and all of
        // its fields are cells or atomics, to which only shared references are made.
        unsafe { self.0.as_ref() }
    }
}

impl RunPtr {
    /// Returns the run of a block.
    ///
    /// The metadata of the slices is in one page of the first slice, in their order. Which page it
    /// is depends on the chunk's address, so that the headers of many chunks do not compete for the
    /// same sets of a cache. Bits 16 to 21 of the block's address are the slice, bits 22 to 25
    /// select the page: one shift brings both into place.
    ///
    /// # Safety
    ///
    /// `block` is a live block in a chunk, at the start of its run or in the run's first slice; or
    /// the address of a slice of a mapped chunk.
    #[inline(always)]
    pub(crate) unsafe fn of(block: *mut u8) -> RunPtr {
        const IN_HEADER: usize = 0xFFC0;
        let run = block.map_addr(|address| (address & !(CHUNK - 1)) + ((address >> (SLICE_SHIFT - 6)) & IN_HEADER));
        // SAFETY: `new_unchecked` demands an address other than 0: it is in a mapped chunk, by this
        // function's `# Safety`.
        RunPtr(unsafe { NonNull::new_unchecked(run.cast()) })
    }

    #[inline(always)]
    pub(crate) fn from(run: *mut Run) -> Option<RunPtr> {
        NonNull::new(run).map(RunPtr)
    }

    #[inline(always)]
    pub(crate) fn as_ptr(self) -> *mut Run {
        self.0.as_ptr()
    }

    /// Returns the way in which the links of the run's lists are written.
    #[inline(always)]
    pub(crate) fn key(self) -> Key {
        Key::of(self.0.as_ptr().addr())
    }

    /// Takes a block from the free list, however links are written. Null if there is none.
    #[inline(always)]
    pub(crate) fn pop_any(self) -> *mut Block {
        if self.key().is_plain() { self.pop() } else { self.pop_keyed(false) }
    }

    /// Returns the address of the run's first slice.
    pub(crate) fn start(self) -> *mut u8 {
        let slice = (self.0.as_ptr().addr() % PAGE) / RUN_SIZE;
        self.0.as_ptr().map_addr(|address| (address & !(CHUNK - 1)) + (slice << SLICE_SHIFT)).cast()
    }

    /// Begins a run of `class` that `owner` owns.
    pub(crate) fn begin(self, class: usize, owner: *mut Owner) {
        self.free.set(ptr::null_mut());
        self.local_free.set(ptr::null_mut());
        self.used.set(0);
        self.carved.set(0);
        self.pops.set(POPS);
        self.set_class(class);
        self.set_next(None);
        self.previous.set(ptr::null_mut());
        self.owner.store(owner, Ordering::Relaxed);
    }

    /// Makes the run one of another heap's. For a run that is listed: the heap that a full run's
    /// notice is for must not change.
    pub(crate) fn set_owner(self, owner: *mut Owner) {
        self.owner.store(owner, Ordering::Relaxed);
    }

    /// Returns the list of the blocks that the owner has freed, and that are not in the free list.
    /// Null if there are none.
    #[inline(always)]
    pub(crate) fn local(self) -> *mut Block {
        self.local_free.get()
    }

    /// True if a current run has a block for its heap.
    pub(crate) fn has_free(self) -> bool {
        !self.free.get().is_null() || !self.local_free.get().is_null() || self.carved.get() < self.capacity.get()
    }

    /// Makes a listed run the current one of its bin.
    pub(crate) fn pin(self) {
        if self.used.get() > u32::from(self.carved.get()) {
            // Counted down below 0: more blocks were given back than the run has.
            fatal::abort("double free in the run at", self.start());
        }
        self.used.set(self.used.get() + 1);
    }

    /// Ends being the current one of its bin.
    pub(crate) fn unpin(self) {
        self.used.set(self.used.get() - 1);
    }

    /// Begins the countdown anew, and fills the free list if it is empty: from what was freed or
    /// from memory that was not used yet. `None` if every block of the run is in use. The run is
    /// the current one.
    /// With `is_checked`, all double frees in the lists of the owner are noticed, otherwise those
    /// of the last blocks.
    /// With `is_random`, fresh memory becomes blocks in random order.
    #[inline]
    pub(crate) fn replenish(self, is_checked: bool, compared: usize, is_random: bool) -> Option<Filled> {
        if is_checked {
            self.check_lists();
        }
        if !self.is_fresh() {
            self.pops.set(POPS);
        }
        if !self.free.get().is_null() {
            return Some(Filled { count: 0, is_fresh: false });
        }
        if self.take_local(compared) || (self.take_remote() && self.take_local(0)) {
            return Some(Filled { count: self.unused(), is_fresh: false });
        }
        self.carve(is_random)
    }

    /// Returns the number of blocks in the owner's lists. A current run counts 1 more as used.
    #[inline(always)]
    pub(crate) fn unused(self) -> u32 {
        (u32::from(self.carved.get()) + 1).saturating_sub(self.used.get())
    }

    /// Gives the blocks that were not handed out back. Returns their number. From then on, the run
    /// need not be the current one: only that one has a free list.
    pub(crate) fn give_back_free(self) -> u32 {
        if self.local_free.get().is_null() {
            // Often so, when the list was filled just now: no need to follow it.
            let count = if self.free.get().is_null() { 0 } else { self.unused() };
            self.local_free.set(self.free.get());
            self.free.set(ptr::null_mut());
            return count;
        }
        let (first, key) = (self.free.get(), self.key());
        let (mut last, mut count) = (ptr::null_mut(), 0);
        let mut block = first;
        while !block.is_null() && count <= u32::from(self.capacity.get()) {
            (last, count) = (block, count + 1);
            // SAFETY: `next` demands a block of a free list: see `check_lists`.
            block = unsafe { key.next(block) };
        }
        if !last.is_null() {
            // SAFETY: `set_next` demands a block that is ours: it is the last one of the list.
            unsafe { key.set_next(last, self.local_free.get()) };
            self.local_free.set(first);
            self.free.set(ptr::null_mut());
        }
        count
    }

    /// Aborts if the block that the owner freed last, which is `first`, is among the `compared`
    /// ones before it, too. The list would have no end, so that no later check would come.
    #[inline(always)]
    fn check_first_local(self, first: *mut Block, compared: usize) {
        let key = self.key();
        let mut block = first;
        for _ in 0..compared {
            if block.is_null() {
                return;
            }
            // SAFETY: `next` demands a block of a free list: see `check_lists`.
            block = unsafe { key.next(block) };
            if block == first {
                fatal::abort("double free", first.cast());
            }
        }
    }

    /// Makes the list of the blocks that the owner freed the free list, which is empty. False if
    /// that is empty too.
    #[inline(always)]
    fn take_local(self, compared: usize) -> bool {
        let local = self.local();
        if local.is_null() {
            return false;
        }
        self.take(local, compared);
        true
    }

    /// Does the work of `take_local` for the list that [`RunPtr::local`] has returned, not null.
    #[inline(always)]
    pub(crate) fn take(self, local: *mut Block, compared: usize) {
        self.check_first_local(local, compared);
        self.local_free.set(ptr::null_mut());
        self.pops.set(POPS);
        self.free.set(local);
    }

    /// Aborts if the owner's lists do not have as many blocks as are not in use. The run is the
    /// current one.
    #[inline(never)]
    fn check_lists(self) {
        let key = self.key();
        let mut rest = self.unused();
        for first in [self.free.get(), self.local_free.get()] {
            let mut block = first;
            while rest > 0 && !block.is_null() {
                // SAFETY: `next` demands a block of a free list, which nobody writes to: all that
                // is reached is one, unless the program has written to a block that it had freed.
                block = unsafe { key.next(block) };
                rest -= 1;
            }
            if !block.is_null() {
                fatal::abort("double free in the list of", first.cast());
            }
        }
        if rest > 0 {
            fatal::abort("double free in the run at", self.start());
        }
    }

    /// Aborts unless each block that was carved is in the owner's lists, once. Called before the
    /// run is released: a double free that was not noticed may have counted down `used` for a block
    /// that is in use. The run is in no list, and `used` is 0.
    ///
    /// Each block must be the next one of exactly one other, or the first of a list. Blocks are
    /// read in the order of their addresses, because following the lists would wait for memory at
    /// each.
    #[inline(never)]
    pub(crate) fn check_unused(self) {
        let (start, size, carved) = (self.start(), self.block_size(), usize::from(self.carved.get()));
        let key = self.key();
        // One bit for each 16 bytes of a slice.
        let mut seen = [0_u64; SLICE / 16 / 64];
        let mut count = 0;
        let mut note = |block: *mut Block| {
            if block.is_null() {
                return;
            }
            // An offset that is not a multiple of 16 becomes one that is out of bounds.
            let number = block.addr().wrapping_sub(start.addr()).rotate_right(4);
            match seen.get_mut(number / 64) {
                Some(word) if *word & 1 << (number % 64) == 0 => *word |= 1 << (number % 64),
                _ => fatal::abort("double free in the run at", start),
            }
            count += 1;
        };
        note(self.free.get());
        note(self.local_free.get());
        for number in 0..carved {
            // SAFETY: `next` demands a block of a free list, which nobody writes to: all blocks are
            // in one, unless the program has freed one twice. Then the word has any content.
            note(unsafe { key.next(start.wrapping_add(number * size).cast()) });
        }
        if count != carved {
            fatal::abort("double free in the run at", start);
        }
    }

    /// Puts the free blocks of a run without blocks in use into the order of their addresses, if
    /// they are in disorder: they are made anew, as in a new run. The order in which a program gets
    /// its blocks is often that in which it reads them, and processors fetch addresses in order
    /// ahead. (`logic` in `benches/allocator` takes a third less time with this.) Returns the
    /// number of blocks that are in no list any more.
    #[inline(never)]
    pub(crate) fn restart(self) -> usize {
        if self.capacity.get() == 1 || self.is_in_order() {
            return 0;
        }
        self.check_unused();
        self.set_touched(self.pages());
        let carved = self.carved();
        self.carved.set(0);
        self.free.set(ptr::null_mut());
        self.local_free.set(ptr::null_mut());
        carved
    }

    /// True if most of the blocks that the owner freed last are neighbours of the next ones.
    fn is_in_order(self) -> bool {
        const COMPARED: usize = 8;
        let key = self.key();
        let (mut block, mut neighbours) = (self.local_free.get(), 0);
        for _ in 0..COMPARED {
            if block.is_null() {
                return true;
            }
            // SAFETY: `next` demands a block of a free list: see `check_lists`.
            let next = unsafe { key.next(block) };
            neighbours += usize::from(next.addr().abs_diff(block.addr()) == self.block_size());
            block = next;
        }
        neighbours >= COMPARED * 3 / 4
    }

    /// Takes what other threads have freed, as if the owner had freed it. True if there was
    /// something. For a current run, or one that is listed and whose bin looks at `used`
    /// afterwards.
    #[inline]
    pub(crate) fn take_remote(self) -> bool {
        let first = self.remote.take();
        !first.is_null() && self.add_remote(first)
    }

    /// Adds blocks that other threads have freed to those that the owner freed. Returns true.
    #[inline(never)]
    fn add_remote(self, first: *mut Block) -> bool {
        let key = self.key();
        let (mut last, mut count) = (first, 1);
        // SAFETY: `next` demands a block of a free list: `take` gave the whole list to us, and
        // nobody else writes to it.
        while let Some(next) = NonNull::new(unsafe { key.next(last) }) {
            last = next.as_ptr();
            count += 1;
            if count > u32::from(self.capacity.get()) {
                fatal::abort("double free", last.cast());
            }
        }
        if count > self.used.get() {
            fatal::abort("double free", first.cast());
        }
        self.used.set(self.used.get() - count);
        // SAFETY: `set_next` demands a block that is ours: it is the last one of the list above.
        unsafe { key.set_next(last, self.local_free.get()) };
        self.local_free.set(first);
        true
    }

    /// Makes free blocks of the next page of memory that was not used yet. `None` if there is none.
    #[inline(never)]
    fn carve(self, is_random: bool) -> Option<Filled> {
        let (carved, capacity) = (usize::from(self.carved.get()), usize::from(self.capacity.get()));
        if carved == capacity {
            return None;
        }
        let size = self.size.get() as usize;
        let (offset, mut bytes) = (carved * size, PAGE);
        if offset >= POPULATED && size <= POPULATED && offset >= self.touched() * PAGE {
            // A run that is used up to here will probably be used up. The pages from here on, the
            // first of which an earlier block may have touched:
            bytes = POPULATED;
            let (from, to) = (page::up(offset), page::up(offset + bytes).min(SLICE));
            if from < to {
                // SAFETY: `populate` demands whole pages of ours: they are the run's.
                unsafe { os::populate(self.start().wrapping_add(from), to - from) };
            }
        }
        let count = (bytes / size).clamp(1, capacity - carved);
        let first = self.start().wrapping_add(offset);
        let key = self.key();
        if is_random {
            // SAFETY: `link` demands blocks that the caller owns, of 16 bytes and aligned to 16:
            // the run has them, and those from `carved` on have never been in a list.
            let linked = unsafe { random::link(key, first, count, size) };
            return self.carved_now(carved, count, linked);
        }
        for block in 0..count {
            let next = if block + 1 < count { first.wrapping_add((block + 1) * size) } else { ptr::null_mut() };
            // SAFETY: `set_next` demands memory of ours: the run has `capacity` blocks of `size`
            // bytes, and those from `carved` on have never been in a list.
            unsafe { key.set_next(first.wrapping_add(block * size).cast(), next.cast()) };
        }
        self.carved_now(carved, count, first.cast())
    }

    /// Makes a list of `count` blocks behind the first `carved` ones the free list.
    fn carved_now(self, carved: usize, count: usize, list: *mut Block) -> Option<Filled> {
        self.carved.set((carved + count) as u16);
        self.free.set(list);
        let is_fresh = carved * self.block_size() >= self.touched() * PAGE;
        self.pops.set(if is_fresh { FRESH } else { POPS });
        Some(Filled { count: count as u32, is_fresh: true })
    }

    /// Marks the run as full. False if another thread has just freed a block of it. The run is the
    /// current one, and is so no more if this returns true.
    pub(crate) fn fill(self) -> bool {
        if !self.remote.ask_for_notice() {
            return false;
        }
        self.unpin();
        self.owner.store(self.owner().map_addr(|heap| heap | FULL), Ordering::Relaxed);
        true
    }

    /// Makes a full run one that may be listed. False if another thread is about to notify the
    /// heap, which then does this by [`RunPtr::end_notice`].
    pub(crate) fn reopen(self) -> bool {
        let is_ours = self.remote.withdraw();
        if is_ours {
            self.owner.store(self.owner(), Ordering::Relaxed);
        }
        is_ours
    }

    /// Makes a full run whose notice has arrived one that may be listed, with the blocks that other
    /// threads have freed.
    pub(crate) fn end_notice(self) {
        self.owner.store(self.owner(), Ordering::Relaxed);
        self.take_remote();
    }
}

impl Run {
    /// Takes a block from the free list. Null if there is none.
    #[inline(always)]
    pub(crate) fn pop(&self) -> *mut Block {
        let block = self.free.get();
        if !block.is_null() {
            // SAFETY: `next` demands a block of a free list, which nobody writes to: the list is
            // the owner's, the program has given the block up.
            self.free.set(unsafe { Block::next(block) });
            self.used.set(self.used.get().wrapping_add(1));
        }
        block
    }

    /// Counts a block that is taken out of turn. False if it is time for a refill.
    #[inline(always)]
    fn count_down(&self) -> bool {
        let pops = self.pops.get().wrapping_sub(1);
        self.pops.set(pops);
        if pops == 0 {
            // So it is again if this is called before the refill: the count must not become
            // `FRESH`.
            self.pops.set(1);
        }
        pops != 0
    }

    /// Returns the rest of the countdown of a run of the class if [`Run::pop_latest`] takes its
    /// blocks, otherwise 0. For any thread.
    #[inline(always)]
    pub(crate) fn countdown(&self, class: usize) -> u8 {
        if bytes_of(class) > DIRECT_MAX { self.pops.get() } else { 0 }
    }

    /// Takes the block that the owner freed last, otherwise one from the free list. Null if there
    /// is none, if the block was freed twice with at most one other between, and if it is time for
    /// [`RunPtr::replenish`]: the lists of these runs might never become empty, and other work
    /// waits for that.
    #[inline(always)]
    pub(crate) fn pop_latest(&self) -> *mut Block {
        let block = self.local_free.get();
        if block.is_null() {
            return self.pop();
        }
        if !self.count_down() {
            return ptr::null_mut();
        }
        // SAFETY: `next` demands a block of a free list: see `pop`.
        let next = unsafe { Block::next(block) };
        // This is so, too, if `next` is the block itself.
        // SAFETY: `next` demands a block of a free list, as one that follows in it is. The load
        // brings the line into the cache that the next call needs.
        if !next.is_null() && unsafe { Block::next(next) } == block {
            return ptr::null_mut();
        }
        self.local_free.set(next);
        self.used.set(self.used.get().wrapping_add(1));
        block
    }

    /// Gives a block back. Returns the value that `used` has then.
    ///
    /// # Safety
    ///
    /// The caller is the owner, and `block` a block of this run that nobody uses any more.
    #[inline(always)]
    pub(crate) unsafe fn give_back(&self, block: *mut Block) -> u32 {
        // SAFETY: `set_next` demands a block that the caller owns: see this function's `# Safety`.
        unsafe { Block::set_next(block, self.local_free.get()) };
        self.local_free.set(block);
        let used = self.used.get().wrapping_sub(1);
        self.used.set(used);
        used
    }

    /// True if `heap` owns the run and the run is not full.
    #[inline(always)]
    pub(crate) fn is_open_for(&self, heap: *mut Owner) -> bool {
        self.owner.load(Ordering::Relaxed) == heap
    }

    /// Returns the heap that owns the run, null if it was released.
    pub(crate) fn owner(&self) -> *mut Owner {
        self.owner.load(Ordering::Relaxed).map_addr(|heap| heap & !FULL)
    }

    pub(crate) fn is_full(&self) -> bool {
        self.owner.load(Ordering::Relaxed).addr() & FULL != 0
    }

    /// Marks the run as released.
    pub(crate) fn end(&self) {
        self.owner.store(ptr::null_mut(), Ordering::Relaxed);
    }

    /// Makes it a run of another class; its blocks are those of before. For large classes, whose
    /// runs have one block.
    pub(crate) fn set_class(&self, class: usize) {
        self.class.set(class as u8);
        self.size.set(bytes_of(class) as u32);
        self.capacity.set(capacity_of(class) as u16);
        self.slices.set(slices_of(class) as u8);
    }

    pub(crate) fn class(&self) -> usize {
        usize::from(self.class.get())
    }

    /// Returns the size of a block in bytes.
    #[inline(always)]
    pub(crate) fn block_size(&self) -> usize {
        self.size.get() as usize
    }

    pub(crate) fn slices(&self) -> usize {
        usize::from(self.slices.get())
    }

    /// Returns the number of blocks that have been in a list or in use.
    pub(crate) fn carved(&self) -> usize {
        usize::from(self.carved.get())
    }

    pub(crate) fn used(&self) -> u32 {
        self.used.get()
    }

    /// True if the block that was popped last is zero except for its first word.
    #[inline(always)]
    pub(crate) fn is_fresh(&self) -> bool {
        self.pops.get() == FRESH
    }

    pub(crate) fn next(&self) -> Option<RunPtr> {
        RunPtr::from(self.next.load(Ordering::Relaxed))
    }

    pub(crate) fn set_next(&self, run: Option<RunPtr>) {
        self.next.store(run.map_or(ptr::null_mut(), RunPtr::as_ptr), Ordering::Relaxed);
    }

    pub(crate) fn previous(&self) -> Option<RunPtr> {
        RunPtr::from(self.previous.get())
    }

    pub(crate) fn set_previous(&self, run: Option<RunPtr>) {
        self.previous.set(run.map_or(ptr::null_mut(), RunPtr::as_ptr));
    }
}

impl Linked for Run {
    fn link(&self) -> &AtomicPtr<Run> {
        // A full run is in no list of its bin, so the link is free.
        &self.next
    }
}
