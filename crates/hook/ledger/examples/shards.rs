//! The cost of the register for many threads, beside hashbrown's map behind the same locks and
//! shards: see `benches/register`, which runs this.
//!
//! ```text
//! shards time LIVE ROUNDS           CPU ns per pair of a removal and an insertion, 1 to 4 threads
//! shards play ours|hash LIVE PAIRS  plays the pairs, with one thread, for callgrind to count
//! shards look LIVE                  what a look-up of an interior address and an iteration take
//! ```

use std::cell::UnsafeCell;
use std::time::Duration;

use hashbrown::HashMap;
use heapledger_core::arch::{nr, syscall};
use heapledger_core::lock::Lock;
use heapledger_core::sample::Rate;
use heapledger_core::{Bytes, Serial, StackId, ThreadId, TypeId};
use heapledger_ledger::{Key, LiveBlock, SHARDS, SharedRegister, Time};
use multiply::Multiply;

mod multiply;

/// The number of pairs in one round, of all threads together.
const PAIRS: usize = 1_200_000;

trait Table: Sync {
    fn insert(&self, address: u64, size: u64);
    /// Removes a block. Returns a sum of size and stack, which a caller needs for its totals.
    fn remove(&self, address: u64) -> u64;
    fn bytes(&self) -> u64;
}

struct Ours(SharedRegister);

impl Table for Ours {
    #[inline(never)]
    fn insert(&self, address: u64, size: u64) {
        let block = LiveBlock {
            key: Key(address),
            size: Bytes(size),
            rate: Rate::EXACT,
            usable: Bytes(size + 8),
            stack: StackId(size as u32),
            serial: Serial(address),
            stamp: TypeId(0),
            thread: ThreadId(1),
            time: Time(address),
            backs: None,
        };
        assert!(matches!(self.0.insert(&block), Ok(None)));
    }

    #[inline(never)]
    fn remove(&self, address: u64) -> u64 {
        let block = self.0.remove(Key(address)).unwrap();
        block.size.0 + u64::from(block.stack.0)
    }

    fn bytes(&self) -> u64 {
        self.0.bytes_mapped().0
    }
}

/// The same data that an entry of ours has beside its key.
#[derive(Clone, Copy)]
struct Entry {
    size: u64,
    rest: u64,
    _details: [u64; 2],
}

#[repr(align(128))]
struct Shard {
    lock: Lock,
    map: UnsafeCell<HashMap<u64, Entry, Multiply>>,
}

// SAFETY: `Sync` demands that threads which share the value make no data race. Threads that work at
// the same time access the map in `Hash::with` only, under `lock`. The map is `Send`.
unsafe impl Sync for Shard {}

struct Hash(Vec<Shard>);

impl Hash {
    /// Runs work on the shard of an address, chosen as ours is.
    fn with<R>(&self, address: u64, work: impl FnOnce(&mut HashMap<u64, Entry, Multiply>) -> R) -> R {
        let hash = (address / 4096).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let shard = &self.0[(hash >> (64 - SHARDS.trailing_zeros())) as usize % SHARDS];
        let _held = shard.lock.lock();
        // SAFETY: no other reference to the map exists: `_held` holds the lock until `work` has
        // returned, and `bytes` runs while no other thread works.
        work(unsafe { &mut *shard.map.get() })
    }
}

impl Table for Hash {
    #[inline(never)]
    fn insert(&self, address: u64, size: u64) {
        let entry = Entry { size, rest: address << 32 | size, _details: [8, address >> 18] };
        assert!(self.with(address, |map| map.insert(address, entry)).is_none());
    }

    #[inline(never)]
    fn remove(&self, address: u64) -> u64 {
        let entry = self.with(address, |map| map.remove(&address)).unwrap();
        entry.size + (entry.rest & u64::from(u32::MAX))
    }

    fn bytes(&self) -> u64 {
        // SAFETY: nobody writes to the map meanwhile: `time` calls this, the only caller, after the
        // threads of all rounds have ended.
        self.0.iter().map(|shard| unsafe { &*shard.map.get() }.allocation_size() as u64).sum()
    }
}

fn ours() -> Box<dyn Table> {
    Box::new(Ours(SharedRegister::new()))
}

fn hash() -> Box<dyn Table> {
    let shard = || Shard { lock: Lock::new(), map: UnsafeCell::new(HashMap::with_hasher(Multiply)) };
    Box::new(Hash(std::iter::repeat_with(shard).take(SHARDS).collect()))
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)) * n as u128) >> 64) as usize
    }
}

/// The blocks of one thread: addresses in arenas of its own, as malloc has them, of which one in
/// eight is free.
struct Worker {
    random: Random,
    live: Vec<u64>,
    free: Vec<u64>,
}

/// Returns 5,000 bytes for one block in a hundred, else a size that fits between two of them.
fn size(address: u64) -> u64 {
    if address.is_multiple_of(48 * 100) { 5000 } else { 40 }
}

impl Worker {
    fn new(thread: usize, live: usize, table: &dyn Table) -> Worker {
        let base = 0x7f00_0000_0000 + (thread as u64) * (64 << 30);
        let mut addresses: Vec<u64> = (0..(live + live / 8) as u64).map(|n| base + n * 48).collect();
        let mut random = Random(0x1234_5678_9abc_def1 + thread as u64);
        for at in (1..addresses.len()).rev() {
            addresses.swap(at, random.below(at + 1));
        }
        let free = addresses.split_off(live);
        addresses.iter().for_each(|&address| table.insert(address, size(address)));
        Worker { random, live: addresses, free }
    }

    fn play(&mut self, table: &dyn Table, pairs: usize) {
        for _ in 0..pairs {
            let (live, free) = (self.random.below(self.live.len()), self.random.below(self.free.len()));
            let (old, new) = (self.live[live], self.free[free]);
            assert_eq!(table.remove(old), 2 * size(old));
            table.insert(new, size(new));
            (self.live[live], self.free[free]) = (new, old);
        }
    }
}

/// Returns the nanoseconds of processor time per pair.
fn round(table: &dyn Table, workers: &mut [Worker]) -> f64 {
    let pairs = PAIRS / workers.len();
    let before = cpu_time();
    std::thread::scope(|scope| {
        for worker in workers {
            scope.spawn(move || worker.play(table, pairs));
        }
    });
    (cpu_time() - before).as_nanos() as f64 / PAIRS as f64
}

/// Returns the processor time of this process. On a machine with other work to do, the time of day
/// says little.
fn cpu_time() -> Duration {
    let mut time = [0_u64; 2];
    const CLOCK_PROCESS_CPUTIME_ID: usize = 2;
    // SAFETY: the kernel writes one `struct timespec`, two 64-bit words, to the second argument.
    unsafe { syscall(nr::CLOCK_GETTIME, [CLOCK_PROCESS_CPUTIME_ID, time.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    Duration::new(time[0], time[1] as u32)
}

fn time(live: usize, rounds: usize) {
    for threads in 1..=4 {
        let tables = [ours(), hash()];
        let mut workers = [0, 1].map(|which: usize| -> Vec<Worker> {
            (0..threads).map(|thread| Worker::new(thread, live / threads, &*tables[which])).collect()
        });
        let mut best = [f64::INFINITY; 2];
        let mut ratios = Vec::new();
        for _ in 0..rounds {
            let times = [0, 1].map(|which| round(&*tables[which], &mut workers[which]));
            best = [best[0].min(times[0]), best[1].min(times[1])];
            ratios.push(times[0] / times[1]);
        }
        ratios.sort_by(f64::total_cmp);
        let bytes = tables.map(|table| table.bytes() as f64 / live as f64);
        println!(
            "{live:>9} {threads:>8} {:>9.1} {:>9.1} {:>8.2} {:>9.1} {:>9.1}",
            best[0],
            best[1],
            ratios[rounds / 2],
            bytes[0],
            bytes[1],
        );
    }
}

fn measure_lookups(live: usize) {
    let register = SharedRegister::new();
    let table = Ours(register);
    let worker = Worker::new(0, live, &table);
    let register = &table.0;
    let mut random = Random(7);
    let queries = 200_000;
    let mut found = 0;
    let start = cpu_time();
    for _ in 0..queries {
        found += u64::from(register.block_at(worker.live[random.below(worker.live.len())] + 39).is_some());
    }
    let narrow = (cpu_time() - start) / queries;
    assert_eq!(found, u64::from(queries));
    let start = cpu_time();
    for _ in 0..queries {
        assert!(register.block_at(0x10_0000 + random.below(1 << 40) as u64).is_none());
    }
    let nothing = (cpu_time() - start) / queries;
    let start = cpu_time();
    assert_eq!(register.blocks().count(), live);
    let all = cpu_time() - start;
    // A step in which a lock is taken, for one piece, is much longer than the others.
    let (mut longest, mut last) = (Duration::ZERO, cpu_time());
    for _ in register.blocks() {
        let now = cpu_time();
        longest = longest.max(now - last);
        last = now;
    }
    println!("{live} blocks: block_at {narrow:?} inside a block, {nothing:?} where nothing is;");
    println!("all blocks in {all:?}, {:?} each, {longest:?} the longest step of the iteration", all / live as u32);
    let (mut longest, before) = (Duration::ZERO, register.bytes_mapped());
    let mut entered = 0_u64;
    while register.bytes_mapped() < Bytes(before.0 + before.0 / 4) {
        let start = cpu_time();
        table.insert(0x6000_0000_0000 + entered * 48, 40);
        longest = longest.max(cpu_time() - start);
        entered += 1;
    }
    println!("{entered} more: {longest:?} the longest insertion, that of a shard's growing");
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| -> usize { arguments.get(at).and_then(|text| text.parse().ok()).unwrap_or(300_000) };
    match arguments.first().map(String::as_str) {
        Some("time") => time(number(1), number(2)),
        Some("look") => measure_lookups(number(1)),
        Some("play") => {
            let table = if arguments[1] == "ours" { ours() } else { hash() };
            Worker::new(0, number(2), &*table).play(&*table, number(3));
        }
        _ => eprintln!("usage: shards time LIVE ROUNDS | play ours|hash LIVE PAIRS | look LIVE"),
    }
}
