//! Figures about blocks and memory, which are taken in runs of their own: asking takes time.

use core::ffi::c_void;
use core::sync::atomic::{AtomicU64, Ordering};

use heapledger_wire::replay::{Class, LAST_SAMPLE, Operation, Outcome, Sample, bin_of, bucket_of, class_of};

use crate::files::Files;
use crate::functions::{Extras, Functions};
use crate::memory::{Memory, Meter};
use crate::time::now;

type Block = *mut c_void;

/// The figures so far. All threads share them.
pub(crate) struct Figures {
    files: Files,
    outcome: &'static Outcome,
    functions: Functions,
    extras: Extras,
    /// For each slot, the requested size of its block and 1; 0 if the block is not counted.
    sizes: *const AtomicU64,
    stride: u64,
    room: u64,
    meter: Meter,
    /// The memory before the first operation.
    before: Memory,
    /// The time of the first operation.
    begins: u64,
    usable: AtomicU64,
    sloppy: AtomicU64,
    /// The usable bytes when the first table was taken.
    usable_max: AtomicU64,
    /// 1 while a thread takes the first table.
    is_busy: AtomicU64,
}

impl Figures {
    /// Prepares figures. `sizes` are as many zeroes as the work has slots.
    pub(crate) fn new(files: &Files, functions: Functions, extras: Extras, sizes: *const AtomicU64) -> Figures {
        let outcome = files.outcome();
        Figures {
            files: *files,
            outcome,
            functions,
            extras,
            sizes,
            stride: outcome.stride.load(Ordering::Relaxed).max(1),
            room: outcome.room.load(Ordering::Relaxed),
            meter: Meter::open(),
            before: Memory::default(),
            begins: 0,
            usable: AtomicU64::new(0),
            sloppy: AtomicU64::new(0),
            usable_max: AtomicU64::new(0),
            is_busy: AtomicU64::new(0),
        }
    }

    /// Sets the beginning: from here on, memory and time count.
    pub(crate) fn begin(&mut self) {
        self.before = self.meter.read();
        self.begins = now();
    }

    /// Returns the time of the beginning in nanoseconds.
    pub(crate) fn begins(&self) -> u64 {
        self.begins
    }

    /// Looks at the memory, if this is one of the places that are asked for.
    #[cold]
    pub(crate) fn sample(&self, operation: Operation) {
        let number = operation.slot() as u64;
        if operation.is_always() || number.is_multiple_of(self.stride) {
            self.take_sample(number, operation.number, false);
        }
    }

    /// Looks at the memory where the program asked for statistics. `point` is the number of the
    /// place among all such places.
    #[cold]
    pub(crate) fn statistics(&self, point: u64, requested: u64) {
        self.take_sample(point, requested, true);
        if self.room > 0 {
            self.fill_table(1 + point, true);
        }
    }

    /// Takes the sample at the end.
    pub(crate) fn end(&self) {
        self.take_sample(LAST_SAMPLE, 0, false);
    }

    fn take_sample(&self, number: u64, requested: u64, is_statistics: bool) {
        if self.room == 0 {
            return;
        }
        let at = self.outcome.samples.fetch_add(1, Ordering::Relaxed);
        if at >= self.room {
            return;
        }
        let memory = self.meter.read();
        let usable = self.usable.load(Ordering::Relaxed);
        let asks = is_statistics || number == LAST_SAMPLE;
        let sample = Sample {
            number,
            requested,
            usable,
            resident: memory.resident.saturating_sub(self.before.resident),
            mapped: memory.mapped.saturating_sub(self.before.mapped),
            is_statistics: is_statistics.into(),
            nanoseconds: now().saturating_sub(self.begins),
            sloppy: self.sloppy.load(Ordering::Relaxed),
            slop_all: if is_statistics { self.slop_all() } else { 0 },
            own: if asks { self.extras.statistics() } else { Extras::NONE.statistics() },
        };
        // SAFETY: `at` is below the room for samples, which the file has, and no other thread has
        // got the same number.
        unsafe { self.files.sample(at as usize).write(sample) };
        if usable > self.usable_max.load(Ordering::Relaxed) && self.is_busy.swap(1, Ordering::Acquire) == 0 {
            self.usable_max.store(usable, Ordering::Relaxed);
            self.fill_table(0, false);
            self.is_busy.store(0, Ordering::Release);
        }
    }

    /// Returns the usable bytes beyond the requested ones of all blocks so far.
    fn slop_all(&self) -> u64 {
        let slop = |class: &Class| {
            class.usable.load(Ordering::Relaxed).saturating_sub(class.requested.load(Ordering::Relaxed))
        };
        self.outcome.classes.iter().map(slop).sum()
    }

    /// Copies the counts of live blocks into a table of the result, if there is room for it.
    fn fill_table(&self, table: u64, asks: bool) {
        let Some(table) = self.files.table_of_blocks(table) else { return };
        let copy = |to: &AtomicU64, from: &AtomicU64| to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        for (to, from) in table.bins.iter().zip(&self.outcome.bins) {
            copy(&to.blocks, &from.blocks);
            copy(&to.requested, &from.requested);
            copy(&to.usable, &from.usable);
        }
        table.requests.iter().zip(&self.outcome.requests).for_each(|(to, from)| copy(to, from));
        if asks {
            self.extras.copy_bins(&table.own);
        }
    }

    /// Counts a request and its block.
    ///
    /// # Safety
    ///
    /// The block is live, and in this slot of the work; nobody else uses either.
    pub(crate) unsafe fn add(&self, block: Block, size: usize, slot: usize) {
        // SAFETY: `keep` requires what this function does.
        let usable = unsafe { self.keep(block, size, slot) };
        if let Some(class) = self.outcome.classes.get(class_of(size)) {
            change(class, size, usable, AtomicU64::fetch_add);
        }
    }

    /// Counts a live block, and returns its usable size.
    ///
    /// # Safety
    ///
    /// The block is live, and in this slot of the work; nobody else uses either.
    pub(crate) unsafe fn keep(&self, block: Block, size: usize, slot: usize) -> usize {
        // SAFETY: `usable_size` demands a live block, which this is. The work has the slot.
        let (usable, kept) = unsafe { ((self.functions.usable_size)(block), &*self.sizes.add(slot)) };
        self.usable.fetch_add(usable as u64, Ordering::Relaxed);
        self.sloppy.fetch_add(u64::from(usable > size), Ordering::Relaxed);
        if let Some(bin) = self.outcome.bins.get(bin_of(usable)) {
            change(bin, size, usable, AtomicU64::fetch_add);
        }
        if let Some(blocks) = self.outcome.requests.get(bucket_of(size)) {
            blocks.fetch_add(1, Ordering::Relaxed);
        }
        kept.store(size as u64 + 1, Ordering::Relaxed);
        usable
    }

    /// Subtracts a block that is about to be freed. Returns its requested size; `None` if it was
    /// not counted.
    ///
    /// # Safety
    ///
    /// The block is live, and in this slot of the work; nobody else uses either.
    #[cold]
    #[inline(never)]
    pub(crate) unsafe fn remove(&self, block: Block, slot: usize) -> Option<usize> {
        // SAFETY: the work has the slot.
        let kept = unsafe { &*self.sizes.add(slot) };
        let size = kept.swap(0, Ordering::Relaxed).checked_sub(1)? as usize;
        // SAFETY: `usable_size` demands a live block, which this is.
        let usable = unsafe { (self.functions.usable_size)(block) };
        self.usable.fetch_sub(usable as u64, Ordering::Relaxed);
        self.sloppy.fetch_sub(u64::from(usable > size), Ordering::Relaxed);
        if let Some(bin) = self.outcome.bins.get(bin_of(usable)) {
            change(bin, size, usable, AtomicU64::fetch_sub);
        }
        if let Some(blocks) = self.outcome.requests.get(bucket_of(size)) {
            blocks.fetch_sub(1, Ordering::Relaxed);
        }
        Some(size)
    }
}

/// Adds a block to a class, or subtracts it.
fn change(class: &Class, requested: usize, usable: usize, by: fn(&AtomicU64, u64, Ordering) -> u64) {
    by(&class.blocks, 1, Ordering::Relaxed);
    by(&class.requested, requested as u64, Ordering::Relaxed);
    by(&class.usable, usable as u64, Ordering::Relaxed);
}

// SAFETY: `Sync` demands that threads may share it: the mappings behind the pointers stay, and all
// words in them that are written to are atomic; a sample is written by the thread that has its
// number.
unsafe impl Sync for Figures {}
