//! The work of a replay, as it is written.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use foldhash::fast::RandomState;
use heapledger_wire::VERSION;
use heapledger_wire::replay::{CHUNK, CHUNK_BYTES, Kind, MAGIC, Operation, SIZE_BITS};

/// The operations between two places for a sample.
const SAMPLE: u64 = 1024;
/// The operations of an epoch. Threads are at most two epochs apart.
const EPOCH: u64 = if cfg!(test) { 64 } else { 8192 };
/// The slots that stay free with several threads, so that a thread seldom waits for the free of a
/// block whose slot it takes.
const SPARE: usize = if cfg!(test) { 4 } else { 1 << 16 };
/// The shortest wait that is written, in nanoseconds.
const WAIT_MIN: u64 = 1_000_000;
/// The largest number of threads that are played at once.
const THREADS_MAX: usize = 1024;

/// The threads of a work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// One thread makes all calls, in their order.
    One,
    /// The threads of the program make their own calls. A call that is about a block waits for the
    /// call before it that was about the same block.
    Recorded,
}

/// An allocating function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the C functions")]
pub enum Call {
    Malloc,
    Calloc,
    Memalign { alignment: u64 },
    PosixMemalign { alignment: u64 },
    AlignedAlloc { alignment: u64 },
    Valloc,
}

/// The reason why a work cannot be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkError {
    /// The temporary file cannot be written.
    #[error("the temporary file of the replay cannot be written")]
    Write(#[from] io::Error),
    /// More threads than can be played at once.
    #[error("the program had more than {THREADS_MAX} threads")]
    Threads,
    /// More blocks than slots.
    #[error("more than {} blocks are live at once", u32::MAX)]
    Blocks,
}

/// The work, complete.
#[derive(Debug)]
pub struct Work {
    /// The number of calls.
    pub calls: u64,
    /// The number of threads.
    pub threads: usize,
    /// The places for samples.
    pub(crate) samples: u64,
    /// The points at which the program asked its allocator for statistics, up to
    /// [`Work::POINTS_MAX`] in order.
    pub points: Vec<Point>,
    /// The largest sum of the requested sizes of live blocks, in bytes.
    pub bytes_live_max: u64,
    /// That sum at the end.
    pub(crate) bytes_live_end: u64,
    /// Frees and reallocations of blocks that were not allocated in the work. The frees are left
    /// out; the reallocations are played as allocations.
    pub unknown: u64,
    /// Allocations of blocks that were live. The old ones stay allocated.
    pub lost: u64,
    /// True if the work says when its calls were made.
    pub has_times: bool,
}

/// A point at which the program asked its allocator for statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// The number of calls before it.
    pub calls: u64,
    /// The blocks that are live.
    pub blocks: u64,
    /// The slots that blocks have had, live or not.
    pub slots: u64,
}

impl Work {
    /// The most points that are kept; at later ones no statistics are taken.
    pub const POINTS_MAX: usize = 1000;

    /// Returns the number of calls between two places for a sample.
    pub(crate) fn calls_per_sample(&self) -> u64 {
        SAMPLE
    }
}

/// A block that is live.
#[derive(Clone, Copy, Debug)]
struct Block {
    slot: u32,
    size: u64,
}

/// A thread of the work.
#[derive(Debug)]
struct Thread {
    first: u64,
    chunk: u64,
    operations: Vec<Operation>,
    epoch: u64,
    /// The operations in this epoch.
    done: u64,
    waited: u64,
}

/// Writes a work. Blocks and threads are numbers of the caller's choice, such as addresses.
#[derive(Debug)]
pub struct WorkWriter {
    file: File,
    mode: Threads,
    threads: Vec<Thread>,
    numbers: HashMap<u64, usize, RandomState>,
    chunks: u64,
    blocks: HashMap<u64, Block, RandomState>,
    /// The generation of each slot.
    generations: Vec<u16>,
    free: VecDeque<u32>,
    /// The operations of each epoch.
    epochs: Vec<u64>,
    calls: u64,
    samples: u64,
    points: Vec<Point>,
    bytes_live: u64,
    bytes_live_max: u64,
    unknown: u64,
    lost: u64,
    has_times: bool,
}

impl WorkWriter {
    /// Begins a work in an empty file.
    pub fn new(file: File, mode: Threads) -> WorkWriter {
        WorkWriter {
            file,
            mode,
            threads: Vec::new(),
            numbers: HashMap::default(),
            // The first one is the head.
            chunks: 1,
            blocks: HashMap::default(),
            generations: Vec::new(),
            free: VecDeque::new(),
            epochs: Vec::new(),
            calls: 0,
            samples: 0,
            points: Vec::new(),
            bytes_live: 0,
            bytes_live_max: 0,
            unknown: 0,
            lost: 0,
            has_times: false,
        }
    }

    /// Adds an allocation.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be written, or if there are too many threads or blocks.
    pub fn allocate(&mut self, thread: u64, call: Call, block: u64, size: u64) -> Result<(), WorkError> {
        let (kind, alignment) = match call {
            Call::Malloc => (Kind::Malloc, 1),
            Call::Calloc => (Kind::Calloc, 1),
            Call::Memalign { alignment } => (Kind::Memalign, alignment),
            Call::PosixMemalign { alignment } => (Kind::PosixMemalign, alignment),
            Call::AlignedAlloc { alignment } => (Kind::AlignedAlloc, alignment),
            Call::Valloc => (Kind::Valloc, 1),
        };
        let slot = match self.free_slot() {
            Some(slot) => slot,
            None => {
                let slot = u32::try_from(self.generations.len()).map_err(|_| WorkError::Blocks)?;
                self.generations.push(0);
                slot
            }
        };
        let size = size.min((1 << SIZE_BITS) - 1);
        if let Some(lost) = self.blocks.insert(block, Block { slot, size }) {
            self.lost += 1;
            self.bytes_live -= lost.size;
        }
        self.bytes_live += size;
        self.bytes_live_max = self.bytes_live_max.max(self.bytes_live);
        let alignment = 63 - alignment.max(1).leading_zeros();
        let operation = Operation::on_block(kind, alignment, slot, self.generation(slot), size);
        self.push_call(thread, operation)
    }

    /// Adds a reallocation.
    ///
    /// # Errors
    ///
    /// As for [`WorkWriter::allocate`].
    pub fn reallocate(&mut self, thread: u64, old: u64, new: u64, size: u64) -> Result<(), WorkError> {
        let Some(block) = self.blocks.remove(&old) else {
            self.unknown += 1;
            return self.allocate(thread, Call::Malloc, new, size);
        };
        // Some allocators free the block if the size is 0. This one's did not.
        let size = size.max(1);
        let (slot, generation) = (block.slot, self.generation(block.slot));
        let size = size.min((1 << SIZE_BITS) - 1);
        if let Some(lost) = self.blocks.insert(new, Block { slot, size }) {
            self.lost += 1;
            self.bytes_live -= lost.size;
        }
        self.bytes_live = self.bytes_live - block.size + size;
        self.bytes_live_max = self.bytes_live_max.max(self.bytes_live);
        self.next_generation(slot);
        self.push_call(thread, Operation::on_block(Kind::Realloc, 0, slot, generation, size))
    }

    /// Adds a free.
    ///
    /// # Errors
    ///
    /// As for [`WorkWriter::allocate`].
    pub fn free(&mut self, thread: u64, block: u64) -> Result<(), WorkError> {
        let Some(Block { slot, size }) = self.blocks.remove(&block) else {
            self.unknown += 1;
            return Ok(());
        };
        let generation = self.generation(slot);
        self.next_generation(slot);
        self.free.push_back(slot);
        self.bytes_live -= size;
        self.push_call(thread, Operation::on_block(Kind::Free, 0, slot, generation, 0))
    }

    /// Adds a point at which statistics are taken.
    ///
    /// # Errors
    ///
    /// As for [`WorkWriter::allocate`].
    pub fn statistics(&mut self, thread: u64) -> Result<(), WorkError> {
        let thread = self.thread(thread)?;
        if self.points.len() == Work::POINTS_MAX {
            return Ok(());
        }
        let (blocks, slots) = (self.blocks.len() as u64, self.generations.len() as u64);
        self.points.push(Point { calls: self.calls, blocks, slots });
        let number = self.samples as u32;
        self.push(thread, Operation::new(Kind::Statistics, number, self.bytes_live))
    }

    /// Says that the next call of a thread was made so many nanoseconds after the beginning.
    ///
    /// # Errors
    ///
    /// As for [`WorkWriter::allocate`].
    pub fn wait(&mut self, thread: u64, nanoseconds: u64) -> Result<(), WorkError> {
        self.has_times = true;
        let thread = self.thread(thread)?;
        if nanoseconds < self.threads[thread].waited + WAIT_MIN {
            return Ok(());
        }
        self.threads[thread].waited = nanoseconds;
        // Before it sleeps, it says what it has done.
        self.begin_epoch(thread)?;
        self.push(thread, Operation::new(Kind::Wait, 0, nanoseconds))
    }

    /// Ends the work.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be written.
    pub fn finish(mut self) -> Result<Work, WorkError> {
        if self.threads.is_empty() {
            self.thread(0)?;
        }
        self.epochs.resize((self.calls / EPOCH) as usize + 1, 0);
        for thread in 0..self.threads.len() {
            let end = Operation::new(Kind::End, 0, self.threads[thread].progress());
            self.threads[thread].operations.push(end);
            self.write(thread)?;
        }
        let tables = self.chunks * CHUNK_BYTES as u64;
        let is_alone = self.threads.len() == 1;
        let epochs = if is_alone { 0 } else { self.epochs.len() };
        let firsts = self.threads.iter().map(|thread| thread.first);
        let table: Vec<u8> =
            firsts.chain(self.epochs.iter().copied().take(epochs)).flat_map(u64::to_le_bytes).collect();
        self.file.write_all_at(&table, tables)?;
        let (threads, slots) = (self.threads.len() as u64, self.generations.len() as u64);
        let head = [MAGIC, u64::from(VERSION), threads, slots, epochs as u64, tables];
        self.file.write_all_at(&head.map(u64::to_le_bytes).concat(), 0)?;
        Ok(Work {
            calls: self.calls,
            threads: self.threads.len(),
            samples: self.samples,
            points: self.points,
            bytes_live_max: self.bytes_live_max,
            bytes_live_end: self.bytes_live,
            unknown: self.unknown,
            lost: self.lost,
            has_times: self.has_times,
        })
    }

    /// Takes a free slot: with one thread the latest, whose word is probably in a cache, otherwise
    /// the oldest, if there are enough others.
    fn free_slot(&mut self) -> Option<u32> {
        match self.mode {
            Threads::One => self.free.pop_back(),
            Threads::Recorded if self.free.len() > SPARE => self.free.pop_front(),
            Threads::Recorded => None,
        }
    }

    fn generation(&self, slot: u32) -> u16 {
        self.generations[slot as usize]
    }

    fn next_generation(&mut self, slot: u32) {
        let generation = &mut self.generations[slot as usize];
        *generation = generation.wrapping_add(1);
    }

    /// Returns the index of a thread, which is new if it has not been seen.
    fn thread(&mut self, number: u64) -> Result<usize, WorkError> {
        let number = if self.mode == Threads::One { 0 } else { number };
        if let Some(&thread) = self.numbers.get(&number) {
            return Ok(thread);
        }
        let thread = self.threads.len();
        if thread == THREADS_MAX {
            return Err(WorkError::Threads);
        }
        self.numbers.insert(number, thread);
        let chunk = self.new_chunk();
        let operations = Vec::with_capacity(CHUNK);
        self.threads.push(Thread { first: chunk, chunk, operations, epoch: 0, done: 0, waited: 0 });
        Ok(thread)
    }

    fn push_call(&mut self, thread: u64, operation: Operation) -> Result<(), WorkError> {
        let thread = self.thread(thread)?;
        if self.mode == Threads::Recorded {
            self.begin_epoch(thread)?;
            self.threads[thread].done += 1;
            if let Some(operations) = self.epochs.last_mut() {
                *operations += 1;
            }
        }
        self.push(thread, operation)?;
        self.calls += 1;
        if self.calls.is_multiple_of(SAMPLE) {
            let number = self.samples as u32;
            self.samples += 1;
            self.push(thread, Operation::new(Kind::Sample, number, self.bytes_live))?;
        }
        Ok(())
    }

    /// Makes the present epoch that of a thread.
    fn begin_epoch(&mut self, thread: usize) -> Result<(), WorkError> {
        let epoch = self.calls / EPOCH;
        self.epochs.resize(epoch as usize + 1, 0);
        if self.mode == Threads::Recorded && self.threads[thread].epoch != epoch {
            let begin = Operation::new(Kind::Epoch, epoch as u32, self.threads[thread].progress());
            self.push(thread, begin)?;
            self.threads[thread].epoch = epoch;
            self.threads[thread].done = 0;
        }
        Ok(())
    }

    fn push(&mut self, thread: usize, operation: Operation) -> Result<(), WorkError> {
        // The last place of a chunk is for what leads to the next one.
        if self.threads[thread].operations.len() == CHUNK - 1 {
            let next = self.new_chunk();
            self.threads[thread].operations.push(Operation::new(Kind::Next, 0, next));
            self.write(thread)?;
            self.threads[thread].chunk = next;
        }
        self.threads[thread].operations.push(operation);
        Ok(())
    }

    fn new_chunk(&mut self) -> u64 {
        self.chunks += 1;
        self.chunks - 1
    }

    /// Writes the chunk of a thread, and empties it.
    fn write(&mut self, thread: usize) -> Result<(), WorkError> {
        let thread = &mut self.threads[thread];
        let mut bytes: Vec<u8> = thread
            .operations
            .drain(..)
            .flat_map(|operation| [operation.what, operation.number])
            .flat_map(u64::to_le_bytes)
            .collect();
        bytes.resize(CHUNK_BYTES, 0);
        self.file.write_all_at(&bytes, thread.chunk * CHUNK_BYTES as u64)?;
        Ok(())
    }
}

impl Thread {
    /// Returns the number of an operation that ends the thread's epoch.
    fn progress(&self) -> u64 {
        self.epoch << 32 | self.done
    }
}
