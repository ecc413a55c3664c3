//! The work of a replay, as it is written.

use std::collections::{HashMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use foldhash::fast::RandomState;
use heapledger_wire::VERSION;
use heapledger_wire::replay::{ARENAS_MAX, CHUNK, CHUNK_BYTES, Kind, LABEL_BYTES, MAGIC, Operation, SIZE_BITS, order};

/// The operations between two places for a sample.
const SAMPLE: u64 = 1024;
/// A sample is also taken where more is live than ever before, from this number of bytes on, each
/// time by this part more: so a short peak is seen, in at most some 2,500 samples.
const PEAK_MIN: u64 = 64 << 10;
const PEAK_STEP: u64 = 128;
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
    /// Its file.
    pub(crate) path: PathBuf,
    /// The number of calls.
    pub calls: u64,
    /// The number of threads.
    pub threads: usize,
    /// The places for samples.
    pub(crate) places: Vec<Place>,
    /// The number of those that are always used.
    pub(crate) always: u64,
    /// The moments of the beginning and of the end.
    pub(crate) begins: u64,
    /// See `begins`.
    pub(crate) ends: u64,
    /// The labels of the arenas.
    pub arenas: Vec<Vec<u8>>,
    /// The blocks that the process has inherited from the one that forked it.
    pub inherited: u64,
    /// The points at which the program asked its allocator for statistics, up to
    /// [`Work::POINTS_MAX`] in order.
    pub points: Vec<Point>,
    /// The largest sum of the requested sizes of live blocks, in bytes.
    pub bytes_live_max: u64,
    /// The sum at the end.
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
    /// The moment: see [`WorkWriter::set_moment`].
    pub moment: u64,
}

impl Work {
    /// The most points that are kept; at later ones no statistics are taken.
    pub const POINTS_MAX: usize = 1000;

    /// Returns the number of places for samples.
    pub(crate) fn samples(&self) -> u64 {
        self.places.len() as u64
    }

    /// Sets the moment at which the process ended, if that is later than its last call.
    pub fn set_end(&mut self, moment: u64) {
        self.ends = self.ends.max(moment);
    }
}

/// A place for a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The number of calls before it.
    pub(crate) calls: u64,
    /// Its moment: see [`WorkWriter::set_moment`].
    pub(crate) moment: u64,
}

/// A block that is live.
#[derive(Clone, Copy, Debug)]
struct Block {
    slot: u32,
    /// Its requested size; 0 for a block that was inherited.
    size: u64,
    arena: Option<ArenaNumber>,
}

/// An arena of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArenaNumber(u32);

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
    path: PathBuf,
    mode: Threads,
    /// The state of what a forked process has inherited.
    inheritance: Inheritance,
    inherited: u64,
    moment: u64,
    begins: u64,
    /// The arenas by their labels, and the number of live blocks of each.
    arenas: HashMap<Vec<u8>, u32, RandomState>,
    arena_blocks: Vec<u64>,
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
    places: Vec<Place>,
    always: u64,
    /// The requested bytes from which on a sample is taken.
    next_peak: u64,
    points: Vec<Point>,
    bytes_live: u64,
    bytes_live_max: u64,
    unknown: u64,
    lost: u64,
    has_times: bool,
}

/// The state of what a forked process has inherited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inheritance {
    /// There is none.
    None,
    /// The calls are those of the process that forked.
    Being,
    /// The next thread that calls is the first one.
    Done,
}

impl WorkWriter {
    /// Begins a work in an empty file. It is opened for each piece that is written, so that there
    /// may be more works than a process may have open files.
    pub fn new(path: PathBuf, mode: Threads) -> WorkWriter {
        WorkWriter {
            path,
            mode,
            inheritance: Inheritance::None,
            inherited: 0,
            moment: 0,
            begins: 0,
            arenas: HashMap::default(),
            arena_blocks: Vec::new(),
            threads: Vec::new(),
            numbers: HashMap::default(),
            // The first one is the head.
            chunks: 1,
            blocks: HashMap::default(),
            generations: Vec::new(),
            free: VecDeque::new(),
            epochs: vec![0],
            calls: 0,
            places: Vec::new(),
            always: 0,
            next_peak: PEAK_MIN,
            points: Vec::new(),
            bytes_live: 0,
            bytes_live_max: 0,
            unknown: 0,
            lost: 0,
            has_times: false,
        }
    }

    /// Sets the moment of the calls that follow: a number that says for all works in which order
    /// their calls were made, such as a time.
    pub fn set_moment(&mut self, moment: u64) {
        self.moment = moment;
    }

    /// Sets the moment at which the process began, from which on its waits count; otherwise that is
    /// the moment of its first call.
    pub fn set_begin(&mut self, moment: u64) {
        self.begins = moment;
    }

    /// Says that the calls up to [`WorkWriter::inherit`] are those of the process that forked. They
    /// are made, but nothing of them is measured.
    pub fn begin_inheritance(&mut self) {
        self.inheritance = Inheritance::Being;
    }

    /// Says that the process begins here, with the blocks that are live.
    ///
    /// # Errors
    ///
    /// As for [`WorkWriter::allocate`].
    pub fn inherit(&mut self) -> Result<(), WorkError> {
        let thread = self.thread(0)?;
        self.push(thread, Operation::new(Kind::Order, order::BEGIN as u32, 0))?;
        self.inheritance = Inheritance::Done;
        self.inherited = self.blocks.len() as u64;
        self.blocks.values_mut().for_each(|block| block.size = 0);
        (self.bytes_live, self.bytes_live_max, self.unknown, self.lost) = (0, 0, 0, 0);
        self.numbers.clear();
        Ok(())
    }

    /// Returns the arena of a label, of which the first 127 bytes count. `None` if there are too
    /// many.
    pub fn arena(&mut self, label: &[u8]) -> Option<ArenaNumber> {
        let label = label.split(|&byte| byte == 0).next().unwrap_or(&[]);
        let label = &label[..label.len().min(LABEL_BYTES - 1)];
        if let Some(&number) = self.arenas.get(label) {
            return Some(ArenaNumber(number));
        }
        let number = self.arena_blocks.len() as u32;
        if number as usize >= ARENAS_MAX {
            return None;
        }
        self.arenas.insert(label.to_vec(), number);
        self.arena_blocks.push(0);
        Some(ArenaNumber(number))
    }

    /// Says that the program disposed of an arena. That is done with one thread only, and if the
    /// arena has no blocks: another one may have the same label.
    ///
    /// # Errors
    ///
    /// As for [`WorkWriter::allocate`].
    pub fn dispose(&mut self, arena: ArenaNumber) -> Result<(), WorkError> {
        if self.mode == Threads::Recorded || self.arena_blocks[arena.0 as usize] > 0 {
            return Ok(());
        }
        let thread = self.thread(0)?;
        self.push(thread, Operation::new(Kind::Order, order::DISPOSE as u32, arena.0.into()))
    }

    /// Says that the program gave unused memory back: all, or what was too much.
    ///
    /// # Errors
    ///
    /// As for [`WorkWriter::allocate`].
    pub fn purge(&mut self, thread: u64, is_all: bool) -> Result<(), WorkError> {
        let thread = self.thread(thread)?;
        let order = if is_all { order::PURGE_ALL } else { order::PURGE_EXCESS };
        if self.inheritance != Inheritance::Being {
            self.count_in_epoch(thread)?;
        }
        self.push(thread, Operation::new(Kind::Order, order as u32, 0))
    }

    /// Adds an allocation.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be written, or if there are too many threads or blocks.
    pub fn allocate(&mut self, thread: u64, call: Call, block: u64, size: u64) -> Result<(), WorkError> {
        self.allocate_in(thread, None, call, block, size)
    }

    /// Adds an allocation in an arena.
    ///
    /// # Errors
    ///
    /// As for [`WorkWriter::allocate`].
    pub fn allocate_in(
        &mut self,
        thread: u64,
        arena: Option<ArenaNumber>,
        call: Call,
        block: u64,
        size: u64,
    ) -> Result<(), WorkError> {
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
        self.insert(block, Block { slot, size, arena });
        self.bytes_live = self.bytes_live.saturating_add(size);
        self.bytes_live_max = self.bytes_live_max.max(self.bytes_live);
        let alignment = 63 - alignment.max(1).leading_zeros();
        let operation = Operation::on_block(kind, alignment, slot, self.generation(slot), size);
        let operation = arena.map_or(operation, |arena| {
            self.arena_blocks[arena.0 as usize] += 1;
            operation.in_arena(arena.0, kind == Kind::Calloc)
        });
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
        self.insert(new, Block { slot, size, arena: block.arena });
        self.bytes_live = self.bytes_live.saturating_sub(block.size).saturating_add(size);
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
        let Some(Block { slot, size, arena }) = self.blocks.remove(&block) else {
            self.unknown += 1;
            return Ok(());
        };
        if let Some(arena) = arena {
            self.arena_blocks[arena.0 as usize] -= 1;
        }
        let generation = self.generation(slot);
        self.next_generation(slot);
        self.free.push_back(slot);
        self.bytes_live = self.bytes_live.saturating_sub(size);
        self.push_call(thread, Operation::on_block(Kind::Free, 0, slot, generation, 0))
    }

    /// Makes a block live. One of the same name stays allocated for ever.
    fn insert(&mut self, name: u64, block: Block) {
        if let Some(lost) = self.blocks.insert(name, block) {
            self.lost += 1;
            self.bytes_live = self.bytes_live.saturating_sub(lost.size);
        }
    }

    /// Adds a point at which statistics are taken: when all calls before it were made, in whichever
    /// thread, and before any later one. None is added among inherited calls, nor beyond
    /// [`Work::POINTS_MAX`].
    ///
    /// # Errors
    ///
    /// As for [`WorkWriter::allocate`].
    pub fn statistics(&mut self, thread: u64) -> Result<(), WorkError> {
        let thread = self.thread(thread)?;
        if self.points.len() == Work::POINTS_MAX || self.inheritance == Inheritance::Being {
            return Ok(());
        }
        if self.mode == Threads::Recorded {
            // Nothing before the point is in the same epoch as what follows it.
            self.epochs.push(0);
            self.begin_epoch(thread)?;
        }
        let (blocks, slots) = (self.blocks.len() as u64, self.generations.len() as u64);
        let number = self.points.len() as u32;
        self.points.push(Point { calls: self.calls, blocks, slots, moment: self.moment });
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
        let mut labels = vec![Vec::new(); self.arenas.len()];
        for (label, number) in std::mem::take(&mut self.arenas) {
            labels[number as usize] = label;
        }
        let mut table = table;
        for label in &labels {
            let end = table.len() + LABEL_BYTES;
            table.extend_from_slice(label);
            table.resize(end, 0);
        }
        let file = self.file()?;
        file.write_all_at(&table, tables)?;
        let (threads, slots) = (self.threads.len() as u64, self.generations.len() as u64);
        let inherits = u64::from(self.inheritance != Inheritance::None);
        let head = [MAGIC, u64::from(VERSION), threads, slots, epochs as u64, tables, labels.len() as u64, inherits];
        file.write_all_at(&head.map(u64::to_le_bytes).concat(), 0)?;
        Ok(Work {
            path: self.path,
            places: self.places,
            always: self.always,
            begins: self.begins,
            ends: self.moment,
            arenas: labels,
            inherited: self.inherited,
            calls: self.calls,
            threads: self.threads.len(),
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
        let is_first = self.inheritance == Inheritance::Being;
        let number = if self.mode == Threads::One || is_first { 0 } else { number };
        if self.inheritance == Inheritance::Done && self.numbers.is_empty() {
            self.numbers.insert(number, 0);
        }
        if let Some(&thread) = self.numbers.get(&number) {
            return Ok(thread);
        }
        let thread = self.threads.len();
        if thread == THREADS_MAX {
            return Err(WorkError::Threads);
        }
        self.numbers.insert(number, thread);
        let chunk = self.new_chunk();
        let operations = Vec::new();
        self.threads.push(Thread { first: chunk, chunk, operations, epoch: 0, done: 0, waited: 0 });
        Ok(thread)
    }

    fn push_call(&mut self, thread: u64, operation: Operation) -> Result<(), WorkError> {
        let thread = self.thread(thread)?;
        if self.inheritance == Inheritance::Being {
            return self.push(thread, operation);
        }
        if self.calls == 0 && self.begins == 0 {
            self.begins = self.moment;
        }
        self.count_in_epoch(thread)?;
        self.push(thread, operation)?;
        self.calls += 1;
        let is_peak = self.bytes_live >= self.next_peak;
        if is_peak || self.calls.is_multiple_of(SAMPLE) {
            let number = self.places.len() as u32;
            self.places.push(Place { calls: self.calls, moment: self.moment });
            let sample = Operation::new(Kind::Sample, number, self.bytes_live);
            if is_peak {
                self.always += 1;
                self.next_peak = self.bytes_live.saturating_add(self.bytes_live / PEAK_STEP);
            }
            self.push(thread, if is_peak { sample.always() } else { sample })?;
        }
        Ok(())
    }

    /// Counts the next operation of a thread in the present epoch, or in a new one if that is full.
    fn count_in_epoch(&mut self, thread: usize) -> Result<(), WorkError> {
        if self.mode == Threads::One {
            return Ok(());
        }
        self.begin_epoch(thread)?;
        self.threads[thread].done += 1;
        if let Some(operations) = self.epochs.last_mut() {
            *operations += 1;
        }
        Ok(())
    }

    /// Makes the present epoch that of a thread. With one thread, there is only one epoch.
    fn begin_epoch(&mut self, thread: usize) -> Result<(), WorkError> {
        if self.mode == Threads::One {
            return Ok(());
        }
        if self.epochs.last().is_some_and(|operations| *operations >= EPOCH) {
            self.epochs.push(0);
        }
        let epoch = self.epochs.len() as u64 - 1;
        if self.threads[thread].epoch != epoch {
            let begin = Operation::new(Kind::Epoch, epoch as u32, self.threads[thread].progress());
            self.push(thread, begin.after_points(self.points.len() as u32))?;
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

    fn file(&self) -> io::Result<File> {
        OpenOptions::new().write(true).open(&self.path)
    }

    /// Writes the chunk of a thread, and empties it.
    fn write(&mut self, thread: usize) -> Result<(), WorkError> {
        let file = self.file()?;
        let thread = &mut self.threads[thread];
        let mut bytes: Vec<u8> = thread
            .operations
            .drain(..)
            .flat_map(|operation| [operation.what, operation.number])
            .flat_map(u64::to_le_bytes)
            .collect();
        bytes.resize(CHUNK_BYTES, 0);
        file.write_all_at(&bytes, thread.chunk * CHUNK_BYTES as u64)?;
        Ok(())
    }
}

impl Thread {
    /// Returns the number of an operation that ends the thread's epoch.
    fn progress(&self) -> u64 {
        self.epoch << 32 | self.done
    }
}
