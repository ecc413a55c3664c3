//! The work of a replay, and its result: two files between `heapledger replay`, which writes the
//! work, and the player, a library in the process of the allocator that is tried.
//!
//! The work is read only, and the same for all allocators: a [`Work`], chunks of [`CHUNK`]
//! operations, and two tables. Each thread has a list of chunks: the last operation of one leads to
//! the next. So the work can be written as it is read, with one chunk in memory for each thread.
//!
//! A block lives in a *slot*. A slot has a *generation*, which counts up with each free and each
//! reallocation, so that an operation can wait for exactly the one that it follows, although they
//! are in different threads.

use core::sync::atomic::AtomicU64;

/// The operations of a chunk.
pub const CHUNK: usize = 4096;
/// The bytes of a chunk. The first chunk is the [`Work`].
pub const CHUNK_BYTES: usize = CHUNK * size_of::<Operation>();
/// The first word of the work.
pub const MAGIC: u64 = u64::from_le_bytes(*b"hlreplay");
/// The variable that has the path of the directory with both files.
pub const VARIABLE: &str = "HEAPLEDGER_REPLAY";
/// The name of the work in the directory.
pub const WORK: &str = "work";
/// The name of the result in the directory.
pub const RESULT: &str = "result";
/// The size from which on blocks are not told apart, as a bit number: see [`class_of`].
pub const SIZE_BITS: u32 = 48;
/// The number of size classes.
pub const CLASSES: usize = 4 * SIZE_BITS as usize;
/// The bytes of the label of an arena, padded with zeroes, of which the last is always one.
pub const LABEL_BYTES: usize = 128;
/// The largest number of arenas.
pub const ARENAS_MAX: usize = 1 << 16;
/// The usable sizes below this one have a bin for each multiple of 16: see [`bin_of`].
const FINE_BINS_END: usize = 1024;
const FINE_BINS: usize = FINE_BINS_END / 16;
/// The number of bins.
pub const BINS: usize = FINE_BINS + CLASSES - class_of(FINE_BINS_END);
/// The number of buckets of requested sizes: see [`bucket_of`].
pub const BUCKETS: usize = 16 * (SIZE_BITS as usize - 3);

/// The head of the work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Work {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`VERSION`](crate::VERSION).
    pub version: u64,
    /// The number of threads.
    pub threads: u64,
    /// The number of slots.
    pub slots: u64,
    /// The number of epochs; 0 if there is one thread.
    pub epochs: u64,
    /// The number of the file's byte at which the tables begin: the first chunk of each thread, and
    /// the number of operations of each epoch, both as 64-bit numbers; then the labels of arenas.
    pub tables: u64,
    /// The number of arenas.
    pub arenas: u64,
    /// 1 if the first thread begins with what a forked process has inherited: operations that are
    /// not measured, up to an [`order::BEGIN`].
    pub inherits: u64,
}

/// An operation of a thread: the kind, what it is about, and a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Operation {
    /// The kind in bits 0 to 3, the binary logarithm of the alignment in 4 to 9, the slot or the
    /// epoch in 32 to 63. For [`Kind::InArena`], bit 10 says that the block is zeroed, and bits 11
    /// to 31 have the number of the arena. For [`Kind::Epoch`], bits 4 to 31 have the number of
    /// points before it; for [`Kind::Sample`], bit 4 says that it is always taken.
    pub what: u64,
    /// For blocks, the size in bits 0 to 47, the generation of the slot in 48 to 63.
    pub number: u64,
}

/// The kinds of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Kind {
    /// The thread ends. The number is as that of [`Kind::Epoch`].
    End = 0,
    /// The thread goes on in the chunk of this number.
    Next = 1,
    /// `malloc(size)` into the slot.
    Malloc = 2,
    /// `calloc(1, size)` into the slot.
    Calloc = 3,
    /// `realloc(block, size)` of the slot.
    Realloc = 4,
    /// `free(block)` of the slot.
    Free = 5,
    /// `memalign(alignment, size)` into the slot.
    Memalign = 6,
    /// `posix_memalign(&block, alignment, size)` into the slot.
    PosixMemalign = 7,
    /// `aligned_alloc(alignment, size)` into the slot.
    AlignedAlloc = 8,
    /// `valloc(size)` into the slot.
    Valloc = 9,
    /// A place to look at the memory of the process: its number, in place of the slot, and the
    /// requested bytes that are live. Bit 4 says that it is always taken.
    Sample = 10,
    /// The thread waits until so many nanoseconds have passed since the beginning.
    Wait = 11,
    /// An epoch begins: its number in place of the slot, and how many points of
    /// [`Kind::Statistics`] come before it in bits 4 to 31. The number has the thread's previous
    /// epoch in bits 32 to 63, and how many operations the thread had in it in bits 0 to 31.
    Epoch = 12,
    /// As [`Kind::Sample`], which is always taken: the program asked for statistics here. The
    /// number of the point is in place of the slot. With several threads it follows a
    /// [`Kind::Epoch`]: it is taken when all earlier epochs are over, and before any other thread
    /// begins this one.
    Statistics = 13,
    /// `heapledger_arena_malloc`, `heapledger_arena_calloc` or `heapledger_arena_memalign` into the
    /// slot; the plain function if the allocator has no arenas.
    InArena = 14,
    /// An [`order`], in place of the slot, about the arena of the number.
    Order = 15,
}

/// The orders of [`Kind::Order`].
pub mod order {
    /// From here on, everything is measured.
    pub const BEGIN: usize = 0;
    /// The program gave back all memory that it did not use: `heapledger_purge_all`, or
    /// `malloc_trim(0)`.
    pub const PURGE_ALL: usize = 1;
    /// The program gave back what it had too much: `heapledger_purge_excess`, if there is one.
    pub const PURGE_EXCESS: usize = 2;
    /// The program disposed of the arena, which has no blocks.
    pub const DISPOSE: usize = 3;
}

impl Operation {
    /// Makes an operation on the block in a slot of a generation.
    pub const fn on_block(kind: Kind, alignment: u32, slot: u32, generation: u16, size: u64) -> Operation {
        let what = kind as u64 | (alignment as u64) << 4 | (slot as u64) << 32;
        Operation { what, number: (size & ((1 << SIZE_BITS) - 1)) | (generation as u64) << SIZE_BITS }
    }

    /// Makes a [`Kind::Sample`] that is taken whatever the [`Outcome::stride`] is.
    pub const fn always(self) -> Operation {
        Operation { what: self.what | 1 << 4, number: self.number }
    }

    /// Makes a [`Kind::Epoch`] that comes after so many points of [`Kind::Statistics`], fewer than
    /// 2^28.
    pub const fn after_points(self, points: u32) -> Operation {
        Operation { what: self.what | ((points & 0xFFF_FFFF) as u64) << 4, number: self.number }
    }

    /// Returns the number of points before a [`Kind::Epoch`].
    #[inline(always)]
    pub const fn points(self) -> u64 {
        self.what >> 4 & 0xFFF_FFFF
    }

    /// True for a [`Kind::Sample`] that is always taken.
    #[inline(always)]
    pub const fn is_always(self) -> bool {
        self.what >> 4 & 1 != 0
    }

    /// Makes the same operation in an arena.
    pub const fn in_arena(self, arena: u32, is_zeroed: bool) -> Operation {
        let what = self.what & !15 | Kind::InArena as u64 | (is_zeroed as u64) << 10 | (arena as u64 & 0x1F_FFFF) << 11;
        Operation { what, number: self.number }
    }

    /// Returns the number of the arena.
    #[inline(always)]
    pub const fn arena(self) -> usize {
        (self.what >> 11 & 0x1F_FFFF) as usize
    }

    /// True if a block in an arena is zeroed.
    #[inline(always)]
    pub const fn is_zeroed(self) -> bool {
        self.what >> 10 & 1 != 0
    }

    /// Makes another operation.
    pub const fn new(kind: Kind, at: u32, number: u64) -> Operation {
        Operation { what: kind as u64 | (at as u64) << 32, number }
    }

    /// Returns the number of the kind.
    #[inline(always)]
    pub const fn kind(self) -> u64 {
        self.what & 15
    }

    /// Returns the alignment.
    #[inline(always)]
    pub const fn alignment(self) -> usize {
        1 << (self.what >> 4 & 63)
    }

    /// Returns the slot, or what is in its place.
    #[inline(always)]
    pub const fn slot(self) -> usize {
        (self.what >> 32) as usize
    }

    /// Returns the size.
    #[inline(always)]
    pub const fn size(self) -> usize {
        (self.number & ((1 << SIZE_BITS) - 1)) as usize
    }

    /// Returns the generation of the slot before the operation.
    #[inline(always)]
    pub const fn generation(self) -> u16 {
        (self.number >> SIZE_BITS) as u16
    }
}

/// The result of a run: the wishes of the tool, and the figures of the player. It is followed by
/// the samples, and these by [`Table`]s: one for the sample with the most usable bytes, and, with
/// [`flag::SIZES`], one for each [`Kind::Statistics`] up to [`Outcome::tables`].
#[derive(Debug)]
#[repr(C)]
pub struct Outcome {
    /// A sum of [`flag`]s.
    pub flags: AtomicU64,
    /// The number of samples of which the first is taken.
    pub stride: AtomicU64,
    /// The number of samples that there is room for.
    pub room: AtomicU64,
    /// The parts in 1,024 of its time that each wait takes.
    pub scale: AtomicU64,
    /// The number of tables that there is room for.
    pub tables: AtomicU64,
    /// One of [`state`].
    pub state: AtomicU64,
    /// The processor time of all threads, without that in which they waited for each other, in
    /// nanoseconds.
    pub cpu: AtomicU64,
    /// The time from the first operation to the last, in nanoseconds.
    pub wall: AtomicU64,
    /// Page faults that needed no device.
    pub faults_minor: AtomicU64,
    /// Page faults that did.
    pub faults_major: AtomicU64,
    /// System calls that change mappings; only with [`flag::CALLS`]. [`UNKNOWN`] if the kernel does
    /// not let them be counted.
    pub calls: [AtomicU64; SYSTEM_CALLS],
    /// Requests that were answered by null.
    pub failed: AtomicU64,
    /// The number of samples taken.
    pub samples: AtomicU64,
    /// The requests of each size class, with [`flag::SIZES`].
    pub classes: [Class; CLASSES],
    /// The live blocks of each bin, with [`flag::SIZES`].
    pub bins: [Class; BINS],
    /// The live blocks by their requested sizes, with [`flag::SIZES`]: see [`bucket_of`].
    pub requests: [AtomicU64; BUCKETS],
}

/// The live blocks at a moment.
#[derive(Debug)]
#[repr(C)]
pub struct Table {
    /// By their usable sizes: see [`bin_of`].
    pub bins: [Class; BINS],
    /// By their requested sizes: see [`bucket_of`].
    pub requests: [AtomicU64; BUCKETS],
    /// The bins by the allocator's own statistics, at a [`Kind::Statistics`]: the words of
    /// `heapledger_allocator_bin` (`heapledger/allocator.h`). Zeroes if it has none.
    pub own: [[AtomicU64; OWN_BIN]; OWN_BINS],
}

/// The number of system calls that are counted: mmap, munmap, mremap, madvise, mprotect, brk.
pub const SYSTEM_CALLS: usize = 6;

/// Blocks of one size class: all that were allocated, or those that are live.
#[derive(Debug)]
#[repr(C)]
pub struct Class {
    /// The number of blocks.
    pub blocks: AtomicU64,
    /// The bytes that were requested.
    pub requested: AtomicU64,
    /// The bytes that could be used.
    pub usable: AtomicU64,
}

/// The number of the sample that is taken when all threads have ended.
pub const LAST_SAMPLE: u64 = u64::MAX;
/// The value of [`Outcome::calls`] if they could not be counted.
pub const UNKNOWN: u64 = u64::MAX;

/// The memory of the process at an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Sample {
    /// The number of the sample among all places for one, or [`LAST_SAMPLE`]; at a
    /// [`Kind::Statistics`], the number of the point.
    pub number: u64,
    /// The requested bytes that are live, by the work; 0 in the last one.
    pub requested: u64,
    /// The usable bytes of live blocks, with [`flag::SIZES`].
    pub usable: u64,
    /// The resident anonymous memory since the beginning, in bytes.
    pub resident: u64,
    /// The mapped addresses since the beginning, in bytes.
    pub mapped: u64,
    /// 1 at a [`Kind::Statistics`].
    pub is_statistics: u64,
    /// The time since the beginning in nanoseconds.
    pub nanoseconds: u64,
    /// The live blocks that have more usable bytes than were requested, with [`flag::SIZES`].
    pub sloppy: u64,
    /// The usable bytes beyond the requested ones of all blocks so far, at a [`Kind::Statistics`].
    pub slop_all: u64,
    /// The statistics of the allocator itself at a [`Kind::Statistics`] and in the last sample, in
    /// bytes: mapped, allocated, waste, dirty, fresh, madvised, bookkeeping, unused in bins, and
    /// the largest sizes that are multiples of the quantum, small, and large. Zeroes if it has
    /// none.
    pub own: [u64; OWN_STATISTICS],
}

/// The number of statistics of an allocator.
pub const OWN_STATISTICS: usize = 11;
/// The number of bins in the statistics of an allocator, and of the words of each.
pub const OWN_BINS: usize = 68;
/// See [`OWN_BINS`].
pub const OWN_BIN: usize = 8;

/// The flags of [`Outcome::flags`].
pub mod flag {
    /// A byte of each page of a block is written when it is allocated.
    pub const TOUCH: u64 = 1;
    /// Waits are kept.
    pub const TIME: u64 = 2;
    /// No allocator is called: blocks are numbers.
    pub const NULL: u64 = 4;
    /// Usable sizes are asked for.
    pub const SIZES: u64 = 8;
    /// System calls are counted.
    pub const CALLS: u64 = 16;
}

/// The states of [`Outcome::state`].
pub mod state {
    /// The player has not begun.
    pub const NEW: u64 = 0;
    /// The player has begun.
    pub const RUNNING: u64 = 1;
    /// The figures are complete.
    pub const DONE: u64 = 2;
    /// The player could not map the work, or start its threads.
    pub const CANNOT: u64 = 3;
}

/// Returns the size class of a request: four for each power of two, numbered from 0.
pub const fn class_of(size: usize) -> usize {
    if size < 4 {
        return size;
    }
    let exponent = usize::BITS - 1 - size.leading_zeros();
    // The two bits below the first one.
    let quarter = (size >> (exponent - 2)) & 3;
    let class = (exponent as usize - 1) * 4 + quarter;
    if class < CLASSES { class } else { CLASSES - 1 }
}

/// Returns the smallest size of a class.
pub const fn class_start(class: usize) -> usize {
    if class < 4 { class } else { (4 + class % 4) << (class / 4 - 1) }
}

/// Returns the bucket of a request: one for each size below 32 bytes, then 16 for each power of
/// two.
pub const fn bucket_of(size: usize) -> usize {
    if size < 16 {
        return size;
    }
    let exponent = usize::BITS - 1 - size.leading_zeros();
    let bucket = 16 * (exponent as usize - 3) + (size >> (exponent - 4) & 15);
    if bucket < BUCKETS { bucket } else { BUCKETS - 1 }
}

/// Returns the smallest size of a bucket.
pub const fn bucket_start(bucket: usize) -> usize {
    if bucket < 16 { bucket } else { (16 + bucket % 16) << (bucket / 16 - 1) }
}

/// Returns the bin of a block of this usable size: one for each multiple of 16 up to 1,024 bytes,
/// which it is rounded up to, then four for each power of two.
pub const fn bin_of(usable: usize) -> usize {
    if usable <= FINE_BINS_END - 16 {
        return usable.div_ceil(16);
    }
    if usable < FINE_BINS_END {
        return FINE_BINS - 1;
    }
    FINE_BINS + class_of(usable) - class_of(FINE_BINS_END)
}

/// Returns the largest usable size of the fine bins, and the smallest of the others.
pub const fn bin_size(bin: usize) -> usize {
    if bin < FINE_BINS { 16 * bin } else { class_start(bin - FINE_BINS + class_of(FINE_BINS_END)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_follow_each_other() {
        assert_eq!((bin_of(0), bin_of(1), bin_of(16), bin_of(17), bin_of(24)), (0, 1, 1, 2, 2));
        assert_eq!((bin_of(1008), bin_of(1023), bin_of(1024), bin_of(1279)), (63, 63, 64, 64));
        assert_eq!((bin_of(1280), bin_of(usize::MAX)), (65, BINS - 1));
        for bin in 0..BINS {
            assert_eq!(bin_of(bin_size(bin)), bin);
        }
    }

    #[test]
    fn buckets_follow_each_other() {
        assert_eq!([0, 15, 16, 31, 32, 33, 34, 1023].map(bucket_of), [0, 15, 16, 31, 32, 32, 33, 111]);
        for bucket in 0..BUCKETS - 1 {
            let (start, next) = (bucket_start(bucket), bucket_start(bucket + 1));
            assert_eq!((bucket_of(start), bucket_of(next - 1)), (bucket, bucket), "{bucket}: {start} to {next}");
        }
        assert_eq!((bucket_of((1 << SIZE_BITS) - 1), bucket_of(usize::MAX)), (BUCKETS - 1, BUCKETS - 1));
    }

    #[test]
    fn an_operation_in_an_arena_has_its_number() {
        let block = Operation::on_block(Kind::Memalign, 6, 7, 8, 9);
        let operation = block.in_arena(ARENAS_MAX as u32, true);
        assert_eq!((operation.arena(), operation.is_zeroed(), operation.alignment()), (ARENAS_MAX, true, 64));
        assert_eq!((operation.slot(), operation.generation(), operation.size()), (7, 8, 9));
        assert_eq!((operation.kind(), block.in_arena(1, false).is_zeroed()), (Kind::InArena as u64, false));
        let epoch = Operation::new(Kind::Epoch, u32::MAX, 1 << 32).after_points(1000);
        assert_eq!((epoch.kind(), epoch.slot(), epoch.points()), (Kind::Epoch as u64, u32::MAX as usize, 1000));
    }

    #[test]
    fn a_class_has_the_sizes_from_its_start_to_the_next() {
        for class in 0..4 * 46 {
            let (start, next) = (class_start(class), class_start(class + 1));
            assert_eq!((class_of(start), class_of(next - 1)), (class, class), "{class}: {start} to {next}");
        }
        assert_eq!(class_of(usize::MAX), CLASSES - 1);
    }

    #[test]
    fn an_operation_has_what_it_was_made_of() {
        let operation = Operation::on_block(Kind::Memalign, 12, u32::MAX, 0xABCD, (1 << SIZE_BITS) - 1);
        assert_eq!((operation.kind(), operation.alignment()), (Kind::Memalign as u64, 4096));
        assert_eq!((operation.slot(), operation.generation()), (u32::MAX as usize, 0xABCD));
        assert_eq!(operation.size(), (1 << SIZE_BITS) - 1);
    }
}
