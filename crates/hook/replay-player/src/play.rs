//! The calls of one thread.
//!
//! The word of a slot has the block in its low 48 bits, which user addresses fit in, and the
//! generation above. An operation that follows one of another thread waits until the word is what
//! that one leaves. All waits are for operations that are earlier in the work, so they end.

use core::ffi::{c_int, c_void};
use core::hint;
use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering};

use heapledger_wire::replay::{Kind, Operation, Outcome, SIZE_BITS, flag, order};

use crate::arenas::ArenaTable;
use crate::figures::Figures;
use crate::files::Files;
use crate::functions::{ALLOCATOR, Extras, Functions, NOTHING};
use crate::time::{sleep_until, thread_time};

unsafe extern "C" {
    fn sched_yield() -> c_int;
}

/// The block of a slot whose allocation failed.
const FAILED: u64 = 1;
const BLOCK: u64 = (1 << SIZE_BITS) - 1;
/// The steps in which blocks are touched. Larger pages than these are touched, too.
const PAGE: usize = 4096;
/// The number of looks at a word before the thread lets others run.
const LOOKS: u32 = 64;
/// The number of epochs that threads may be apart.
const AHEAD: usize = 2;

type Block = *mut c_void;

/// The state that all threads share.
pub(crate) struct Player {
    files: Files,
    outcome: &'static Outcome,
    functions: Functions,
    extras: Extras,
    arenas: ArenaTable,
    pub(crate) figures: Figures,
    /// The slots of the work.
    slots: *const AtomicU64,
    /// The number of operations that were done in each epoch.
    epochs: *const AtomicU64,
    /// See [`Zeroes::points`].
    points: *const [AtomicU64; 2],
    flags: u64,
    scale: u64,
    /// The operation with which the first thread begins, if it has played some already.
    resumes: *const Operation,
}

/// The zeroes that a replay needs: as many as the work has of each.
#[derive(Clone, Copy)]
pub(crate) struct Zeroes {
    pub(crate) slots: *const AtomicU64,
    pub(crate) epochs: *const AtomicU64,
    /// The number of points of [`Kind::Statistics`] that were taken, and the epoch of the latest
    /// one: all before it are over.
    pub(crate) points: *const [AtomicU64; 2],
    pub(crate) arenas: *const AtomicU64,
    /// One for each slot, with [`flag::SIZES`].
    pub(crate) sizes: *const AtomicU64,
}

impl Player {
    /// Prepares a replay.
    pub(crate) fn new(files: &Files, zeroes: &Zeroes) -> Player {
        let outcome = files.outcome();
        let flags = outcome.flags.load(Ordering::Relaxed);
        let (functions, extras) =
            if flags & flag::NULL == 0 { (ALLOCATOR, Extras::find()) } else { (NOTHING, Extras::NONE) };
        Player {
            files: *files,
            outcome,
            functions,
            extras,
            arenas: ArenaTable::new(files, extras.arenas, zeroes.arenas),
            figures: Figures::new(files, functions, extras, zeroes.sizes),
            slots: zeroes.slots,
            epochs: zeroes.epochs,
            points: zeroes.points,
            flags,
            scale: outcome.scale.load(Ordering::Relaxed),
            resumes: ptr::null(),
        }
    }

    /// True if system calls are counted.
    pub(crate) fn counts_calls(&self) -> bool {
        self.flags & flag::CALLS != 0
    }

    /// Makes what a forked process has inherited, if the work has that. Nothing is measured.
    pub(crate) fn inherit(&mut self) {
        if self.files.head.inherits == 0 {
            return;
        }
        let flags = self.flags;
        self.flags &= !(flag::SIZES | flag::TIME);
        let first = self.files.chunk(self.files.first_chunk(0));
        let resumes = Thread::<false> { player: self, waited: 0, epoch: 0 }.run(first);
        self.flags = flags;
        self.resumes = resumes;
    }

    /// Does what is asked for with each new block besides allocating it.
    #[cold]
    #[inline(never)]
    fn made(&self, block: Block, size: usize, slot: usize) {
        if block.is_null() {
            self.outcome.failed.fetch_add(1, Ordering::Relaxed);
            return;
        }
        if self.flags & flag::SIZES != 0 {
            // SAFETY: `add` requires a live block in this slot, which only this thread knows.
            unsafe { self.figures.add(block, size, slot) };
        }
        if self.flags & (flag::TOUCH | flag::NULL) == flag::TOUCH {
            for offset in (0..size).step_by(PAGE) {
                // SAFETY: a live block of at least `size` bytes, which this thread alone knows.
                unsafe { block.cast::<u8>().add(offset).write_volatile(0x5a) };
            }
        }
    }

    /// Carries out an [`order`] other than [`order::BEGIN`].
    #[cold]
    fn order(&self, operation: Operation) {
        match operation.slot() {
            order::PURGE_ALL => self.extras.purge_all(),
            order::PURGE_EXCESS => self.extras.purge_excess(),
            order::DISPOSE => self.arenas.dispose(operation.number as usize),
            _ => {}
        }
    }
}

/// A thread at work. With `IS_SHARED`, there are others.
pub(crate) struct Thread<'p, const IS_SHARED: bool> {
    player: &'p Player,
    /// The processor time that was spent waiting, in nanoseconds.
    waited: u64,
    /// The epoch that the thread has begun.
    epoch: usize,
}

impl<'p, const IS_SHARED: bool> Thread<'p, IS_SHARED> {
    /// Makes the calls of a thread of the work. Returns the processor time that was spent waiting,
    /// for other threads or for the time of a call, in nanoseconds.
    pub(crate) fn play(player: &'p Player, number: usize) -> u64 {
        let mut thread = Thread::<IS_SHARED> { player, waited: 0, epoch: 0 };
        let is_resumed = number == 0 && !player.resumes.is_null();
        thread.run(if is_resumed { player.resumes } else { player.files.chunk(player.files.first_chunk(number)) });
        thread.waited
    }

    /// Carries out operations to the end, or to an [`order::BEGIN`]. Returns the place behind it.
    fn run(&mut self, mut at: *const Operation) -> *const Operation {
        let player = self.player;
        let thread = self;
        loop {
            // SAFETY: a chunk ends with an operation that leads to another one, or that is the
            // last.
            let operation = unsafe { at.read() };
            at = at.wrapping_add(1);
            if !thread.call(operation) {
                match operation.kind() {
                    END => {
                        thread.end_epoch(operation.number);
                        return at;
                    }
                    NEXT => at = player.files.chunk(operation.number),
                    SAMPLE => player.figures.sample(operation),
                    STATISTICS => thread.take_statistics(operation),
                    IN_ARENA => thread.put_in_arena(operation),
                    ORDER if operation.slot() == order::BEGIN => return at,
                    ORDER => player.order(operation),
                    WAIT => thread.wait_until(operation.number),
                    EPOCH => {
                        thread.end_epoch(operation.number);
                        thread.begin_epoch(operation.slot(), operation.points());
                    }
                    _ => {}
                }
            }
        }
    }

    /// Makes a call; false if the operation is none.
    #[inline(always)]
    fn call(&mut self, operation: Operation) -> bool {
        let (size, functions) = (operation.size(), &self.player.functions);
        // SAFETY: these functions may be called with any size and alignment. Those that take a
        // block demand a live one, which nobody else uses: the one in the slot, see `take`.
        unsafe {
            match operation.kind() {
                MALLOC => {
                    let malloc = functions.malloc;
                    self.put(operation, size, || malloc(size));
                }
                FREE => {
                    let (slot, block) = self.take(operation);
                    if block as u64 != FAILED {
                        let block = ptr::with_exposed_provenance_mut(block);
                        if self.player.flags & flag::SIZES != 0 {
                            self.player.figures.remove(block, operation.slot());
                        }
                        (functions.free)(block);
                    }
                    slot.store(word(0, operation.generation().wrapping_add(1)), Ordering::Release);
                }
                CALLOC => {
                    let calloc = functions.calloc;
                    self.put(operation, size, || calloc(1, size));
                }
                REALLOC => self.reallocate(operation, size),
                MEMALIGN => {
                    let memalign = functions.memalign;
                    self.put(operation, size, || memalign(operation.alignment(), size));
                }
                POSIX_MEMALIGN => {
                    let posix_memalign = functions.posix_memalign;
                    self.put(operation, size, || {
                        let mut block = ptr::null_mut();
                        posix_memalign(&raw mut block, operation.alignment(), size);
                        block
                    });
                }
                ALIGNED_ALLOC => {
                    let aligned_alloc = functions.aligned_alloc;
                    self.put(operation, size, || aligned_alloc(operation.alignment(), size));
                }
                VALLOC => {
                    let valloc = functions.valloc;
                    self.put(operation, size, || valloc(size));
                }
                _ => return false,
            }
        }
        true
    }

    /// Puts a new block into its slot.
    #[inline(always)]
    fn put(&mut self, operation: Operation, size: usize, allocate: impl FnOnce() -> Block) {
        let slot = self.slot(operation);
        if IS_SHARED {
            let free = word(0, operation.generation());
            self.wait(slot, |word| word == free);
        }
        let block = allocate();
        if block.is_null() || self.player.flags & (flag::SIZES | flag::TOUCH) != 0 {
            self.player.made(block, size, operation.slot());
        }
        slot.store(word(address(block), operation.generation()), Ordering::Release);
    }

    /// Puts a new block of an arena into its slot.
    #[inline(never)]
    fn put_in_arena(&mut self, operation: Operation) {
        let (player, size, alignment) = (self.player, operation.size(), operation.alignment());
        let Functions { malloc, calloc, memalign, .. } = player.functions;
        self.put(operation, size, || {
            // SAFETY: these functions may be called with any size, and with a power of two as the
            // alignment. Those of arenas demand an arena, which the table returns.
            unsafe {
                match (player.arenas.get(operation.arena()), operation.is_zeroed()) {
                    (Some((arenas, arena)), true) => (arenas.calloc)(arena, 1, size),
                    (Some((arenas, arena)), false) if alignment > 1 => (arenas.memalign)(arena, alignment, size),
                    (Some((arenas, arena)), false) => (arenas.malloc)(arena, size),
                    (None, true) => calloc(1, size),
                    (None, false) if alignment > 1 => memalign(alignment, size),
                    (None, false) => malloc(size),
                }
            }
        });
    }

    /// Returns the slot of an operation, and its block.
    #[inline(always)]
    fn take(&mut self, operation: Operation) -> (&'p AtomicU64, usize) {
        let slot = self.slot(operation);
        let used = if IS_SHARED {
            let generation = u64::from(operation.generation());
            self.wait(slot, |word| word >> SIZE_BITS == generation && word & BLOCK != 0)
        } else {
            slot.load(Ordering::Relaxed)
        };
        (slot, (used & BLOCK) as usize)
    }

    /// # Safety
    ///
    /// As for `realloc`: the slot's block is live, and nobody else uses it.
    #[inline(never)]
    unsafe fn reallocate(&mut self, operation: Operation, size: usize) {
        let (player, functions) = (self.player, self.player.functions);
        let (slot, old) = self.take(operation);
        let is_block = old as u64 != FAILED;
        let old = ptr::with_exposed_provenance_mut(old);
        let counted = if is_block && player.flags & flag::SIZES != 0 {
            // SAFETY: `remove` requires a live block in this slot, by this function's `# Safety`.
            unsafe { player.figures.remove(old, operation.slot()) }
        } else {
            None
        };
        // SAFETY: by this function's `# Safety`.
        let new = unsafe { if is_block { (functions.realloc)(old, size) } else { (functions.malloc)(size) } };
        let kept = if new.is_null() && is_block { old } else { new };
        if new.is_null() || player.flags & (flag::SIZES | flag::TOUCH) != 0 {
            player.made(new, size, operation.slot());
        }
        if let Some(size) = counted.filter(|_| new.is_null()) {
            // SAFETY: `keep` requires a live block in this slot: the reallocation has failed.
            unsafe { player.figures.keep(old, size, operation.slot()) };
        }
        slot.store(word(address(kept), operation.generation().wrapping_add(1)), Ordering::Release);
    }

    #[inline(always)]
    fn slot(&self, operation: Operation) -> &'p AtomicU64 {
        // SAFETY: the work has no operation on a slot beyond its number of slots, and the mapping
        // of the slots stays.
        unsafe { &*self.player.slots.add(operation.slot()) }
    }

    /// Waits until a word is ready, and returns it.
    #[inline(always)]
    fn wait(&mut self, at: &AtomicU64, is_ready: impl Fn(u64) -> bool) -> u64 {
        let word = at.load(Ordering::Acquire);
        if is_ready(word) { word } else { self.wait_longer(at, is_ready) }
    }

    #[cold]
    #[inline(never)]
    fn wait_longer(&mut self, at: &AtomicU64, is_ready: impl Fn(u64) -> bool) -> u64 {
        let before = thread_time();
        let mut looks = 0;
        loop {
            let word = at.load(Ordering::Acquire);
            if is_ready(word) {
                self.waited += thread_time() - before;
                return word;
            }
            looks += 1;
            if looks < LOOKS {
                hint::spin_loop();
            } else {
                // SAFETY: lets others run; no memory is involved.
                unsafe { sched_yield() };
            }
        }
    }

    /// Adds what was done in the thread's previous epoch. `number` is that of [`Kind::Epoch`].
    fn end_epoch(&self, number: u64) {
        if IS_SHARED {
            self.epoch((number >> 32) as usize).fetch_add(number & u64::from(u32::MAX), Ordering::Release);
        }
    }

    /// Waits until the other threads are not far behind, and all points before this epoch were
    /// taken.
    fn begin_epoch(&mut self, epoch: usize, points: u64) {
        self.epoch = epoch;
        if !IS_SHARED {
            return;
        }
        if let Some(earlier) = epoch.checked_sub(AHEAD) {
            self.wait_for_epoch(earlier);
        }
        let [taken, _] = self.points();
        self.wait(taken, |taken| taken >= points);
    }

    /// Waits until all operations of an epoch were done.
    fn wait_for_epoch(&mut self, epoch: usize) {
        let all = self.player.files.operations(epoch);
        self.wait(self.epoch(epoch), |done| done >= all);
    }

    /// Takes the figures of a point when all operations before it were done, by whichever thread.
    /// The epoch that the thread has just begun is the first one after it, and other threads begin
    /// that one when the point was taken.
    #[cold]
    #[inline(never)]
    fn take_statistics(&mut self, operation: Operation) {
        let point = operation.slot() as u64;
        if !IS_SHARED {
            return self.player.figures.statistics(point, operation.number);
        }
        let [taken, latest] = self.points();
        self.wait(taken, |taken| taken >= point);
        for epoch in latest.load(Ordering::Relaxed) as usize..self.epoch {
            self.wait_for_epoch(epoch);
        }
        self.player.figures.statistics(point, operation.number);
        latest.store(self.epoch as u64, Ordering::Relaxed);
        taken.store(point + 1, Ordering::Release);
    }

    fn points(&self) -> &'p [AtomicU64; 2] {
        // SAFETY: the mapping has both words, and stays.
        unsafe { &*self.player.points }
    }

    fn epoch(&self, number: usize) -> &'p AtomicU64 {
        // SAFETY: the work names no epoch beyond its number of epochs, and the mapping stays.
        unsafe { &*self.player.epochs.add(number) }
    }

    /// Waits until it is as long after the beginning as in the recorded program.
    #[cold]
    fn wait_until(&mut self, nanoseconds: u64) {
        if self.player.flags & flag::TIME != 0 {
            let before = thread_time();
            let scaled = u128::from(nanoseconds) * u128::from(self.player.scale) / 1024;
            sleep_until(self.player.figures.begins().saturating_add(scaled as u64));
            self.waited += thread_time() - before;
        }
    }
}

// SAFETY: `Sync` demands that threads may share it: the mappings behind the pointers stay, and all
// words in them that are written to are atomic; the work is only read.
unsafe impl Sync for Player {}

/// Returns the word of a slot. A block that could not be allocated is `FAILED`.
#[inline(always)]
fn word(block: u64, generation: u16) -> u64 {
    block | u64::from(generation) << SIZE_BITS
}

#[inline(always)]
fn address(block: Block) -> u64 {
    let address = block.expose_provenance() as u64;
    if address == 0 { FAILED } else { address }
}

const END: u64 = Kind::End as u64;
const NEXT: u64 = Kind::Next as u64;
const MALLOC: u64 = Kind::Malloc as u64;
const CALLOC: u64 = Kind::Calloc as u64;
const REALLOC: u64 = Kind::Realloc as u64;
const FREE: u64 = Kind::Free as u64;
const MEMALIGN: u64 = Kind::Memalign as u64;
const POSIX_MEMALIGN: u64 = Kind::PosixMemalign as u64;
const ALIGNED_ALLOC: u64 = Kind::AlignedAlloc as u64;
const VALLOC: u64 = Kind::Valloc as u64;
const SAMPLE: u64 = Kind::Sample as u64;
const STATISTICS: u64 = Kind::Statistics as u64;
const WAIT: u64 = Kind::Wait as u64;
const EPOCH: u64 = Kind::Epoch as u64;
const IN_ARENA: u64 = Kind::InArena as u64;
const ORDER: u64 = Kind::Order as u64;
