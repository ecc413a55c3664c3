//! A randomised stress of the allocator against a model: each block's content and arena are known,
//! and are checked when it is reallocated or freed, by whichever thread that is. The test's own
//! memory comes from the allocator, too.
//!
//! `HEAPLEDGER_STRESS_SECONDS=3600 cargo test -p heapledger-heap --release --test stress` runs for
//! an hour; `HEAPLEDGER_STRESS_SEED` repeats a run as far as threads allow that.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};
use std::{env, process, slice, thread};

use heapledger_heap as heap;
use heapledger_heap::arenas::{self, Arena, ArenaId};
use heapledger_heap::purges;

// Not under Miri: a `Box` that a function takes and drops may be written to by nobody else until
// the function returns, by the rules that Miri checks, not even by the allocator that gets it back.
#[cfg(not(miri))]
#[global_allocator]
static ALLOCATOR: heap::HeapAllocator = heap::HeapAllocator;

const THREADS: usize = if cfg!(miri) { 3 } else { 4 };
/// The number of blocks that a thread has at most.
const LIVE: usize = if cfg!(miri) { 60 } else { 2000 };
/// The bytes at the ends of a block that are checked, each.
const CHECKED: usize = if cfg!(miri) { 8 } else { 256 };
/// The steps between two looks at the clock. Miri's ends a thread with the first look.
const STEPS: usize = if cfg!(miri) { 100 } else { 1024 };
/// The number of times that threads begin and end under Miri.
const GENERATIONS: u64 = 2;

fn setting(name: &str) -> Option<u64> {
    env::var(name).ok().map(|value| value.parse().expect(name))
}

/// A generator of pseudo-random numbers: Marsaglia's xorshift of 64 bits.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) as usize % end
    }

    fn size(&mut self) -> usize {
        // Miri takes a microsecond and more for each byte that is looked at.
        if cfg!(miri) {
            return [40, 40, 100, 700, 700, 9000, 70_000, 1_200_000][self.below(8)];
        }
        match self.below(1000) {
            0 => self.below(8 << 20),
            1..20 => self.below(200 << 10),
            20..100 => self.below(10_000),
            _ => self.below(700),
        }
    }
}

/// A block of the model's: its content follows from its tag.
struct Entry {
    block: *mut u8,
    size: usize,
    tag: u8,
    arena: ArenaId,
}

// SAFETY: `Send` demands that another thread may use the block: its entry is its only owner.
unsafe impl Send for Entry {}

impl Entry {
    fn new(block: *mut u8, size: usize, tag: u8, arena: ArenaId) -> Entry {
        assert!(!block.is_null());
        assert_eq!(block.addr() % 16, 0);
        // SAFETY: a new block, which nobody else knows.
        let usable = unsafe { heap::usable_size(block) };
        assert!(usable >= size, "{usable} of {size}");
        let mut entry = Entry { block, size, tag, arena };
        entry.ends().into_iter().for_each(|part| part.fill(tag));
        entry
    }

    fn ends(&mut self) -> [&mut [u8]; 2] {
        let front = self.size.min(CHECKED);
        let back = (self.size - front).min(CHECKED);
        // SAFETY: the parts lie in the block, do not overlap, and nobody else uses it: the entry is
        // its only owner, and the slices are used before it is accessed again.
        unsafe {
            [
                slice::from_raw_parts_mut(self.block, front),
                slice::from_raw_parts_mut(self.block.add(self.size - back), back),
            ]
        }
    }

    fn check(&mut self) {
        let tag = self.tag;
        let is_kept = self.ends().into_iter().all(|part| part.iter().all(|&byte| byte == tag));
        assert!(is_kept, "block {:p} of {} bytes", self.block, self.size);
        // SAFETY: the block is live, and only this entry could free it.
        let arena = unsafe { arenas::arena_of(self.block) };
        assert_eq!(arena, Some(self.arena), "block {:p} of {} bytes", self.block, self.size);
    }

    fn free(mut self) {
        self.check();
        // SAFETY: the entry is the block's only owner, and ends here.
        unsafe {
            if self.tag.is_multiple_of(2) { heap::free(self.block) } else { arenas::free_in(self.arena, self.block) }
        };
    }

    fn resize(mut self, size: usize, tag: u8) -> Entry {
        self.check();
        // SAFETY: the entry is the block's only owner, and uses the result.
        let block = unsafe {
            match tag % 2 {
                0 => heap::reallocate(self.block, size),
                _ => arenas::reallocate_in(self.arena, self.block, size),
            }
        };
        let kept = self.size.min(size).min(CHECKED);
        // SAFETY: the block has `size` bytes.
        let front = unsafe { slice::from_raw_parts(block, kept) };
        assert!(front.iter().all(|&byte| byte == self.tag), "reallocated from {} to {size}", self.size);
        Entry::new(block, size, tag, self.arena)
    }
}

/// Allocates in one of the arenas, of which the first is the main one.
fn allocate(random: &mut Random, arenas: &[ArenaId]) -> Entry {
    let (size, tag) = (random.size(), random.below(256) as u8);
    // Half of the blocks are plain ones.
    let arena = arenas[random.below(2 * arenas.len()).saturating_sub(arenas.len())];
    let is_plain = arena == arenas::main_arena();
    // SAFETY: `allocate_in` and its variants demand that the arena is not disposed of meanwhile:
    // that is done after all threads have ended.
    let allocate_in = |size| unsafe { arenas::allocate_in(arena, size) };
    let block = match random.below(10) {
        0 => {
            let alignment = 1 << random.below(14);
            let block = match is_plain {
                true => heap::allocate_aligned(size, alignment),
                // SAFETY: as for `allocate_in`.
                false => unsafe { arenas::allocate_aligned_in(arena, size, alignment) },
            };
            assert_eq!(block.addr() % alignment, 0);
            block
        }
        1 | 2 => {
            let block = match is_plain {
                true => heap::allocate_zeroed(size),
                // SAFETY: as for `allocate_in`.
                false => unsafe { arenas::allocate_zeroed_in(arena, size) },
            };
            assert!(!block.is_null());
            // SAFETY: a new block of that size.
            let content = unsafe { slice::from_raw_parts(block, if cfg!(miri) { size.min(100) } else { size }) };
            assert!(content.iter().all(|&byte| byte == 0), "{size} bytes are not zero");
            block
        }
        3 => allocate_in(size),
        4 if is_plain => heap::allocate(size),
        // As `malloc` of the preload library does.
        _ if is_plain => match heap::allocate_any_at_once(size) {
            block if block.is_null() => heap::allocate_otherwise(size),
            block => block,
        },
        _ => allocate_in(size),
    };
    // The malloc functions may have been told to allocate in the thread's own arena.
    // SAFETY: a new block, or null, which is no block.
    let arena = if is_plain { unsafe { arenas::arena_of(block) }.unwrap() } else { arena };
    Entry::new(block, size, tag, arena)
}

/// Fills and empties an arena that only this thread has.
fn use_own_arena(random: &mut Random) {
    let arena = Arena::builder().label("of one thread").create().unwrap();
    let ids = [arena.id()];
    let entries: Vec<_> = (0..random.below(LIVE / 10)).map(|_| allocate(random, &ids)).collect();
    entries.into_iter().for_each(Entry::free);
}

/// Makes one of the requests for purges, or for an arena of the thread.
fn request(random: &mut Random) {
    match random.below(8) {
        0 => drop(heap::trim()),
        1 => drop(purges::purge_all()),
        2 => purges::set_dirty_modifier(random.below(5) as i32 - 2),
        3 => drop(purges::enable_deferred_purge(random.below(2) == 0)),
        4 => drop(purges::purge_excess()),
        5 => purges::set_dirty_decay(random.below(3) as u32),
        6 => arenas::use_thread_local_arena(random.below(2) == 0),
        _ => drop(purges::purge_now(false, 0, random.below(8 << 20))),
    }
}

/// Works on blocks of its own, and exchanges some with other threads, until the time is up.
fn work(mut random: Random, arenas: &[ArenaId], shared: &Mutex<Vec<Entry>>, until: Instant, steps: &AtomicUsize) {
    let mut own: Vec<Entry> = Vec::new();
    // Sometimes it grows, sometimes it shrinks.
    let mut limit = LIVE;
    for step in 1_usize.. {
        if step % STEPS == 0 {
            steps.fetch_add(STEPS, Ordering::Relaxed);
            if cfg!(miri) {
                request(&mut random);
                use_own_arena(&mut random);
                break;
            }
            if Instant::now() > until {
                break;
            }
            if random.below(20) == 0 {
                limit = random.below(LIVE) + 1;
            }
            if random.below(4) == 0 {
                request(&mut random);
                use_own_arena(&mut random);
            }
        }
        let number = random.below(own.len().max(1));
        match random.below(16) {
            0..8 if own.len() < limit => own.push(allocate(&mut random, arenas)),
            8 | 9 if !own.is_empty() => {
                let entry = own.swap_remove(number);
                let (size, tag) = (random.size(), random.below(256) as u8);
                own.push(entry.resize(size, tag));
            }
            10 if !own.is_empty() => shared.lock().unwrap().push(own.swap_remove(number)),
            11 => own.extend(shared.lock().unwrap().pop()),
            _ if !own.is_empty() => own.swap_remove(number).free(),
            _ => {}
        }
    }
    own.into_iter().for_each(Entry::free);
}

#[test]
fn blocks_keep_their_contents_whatever_threads_do() {
    let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64;
    let seed = setting("HEAPLEDGER_STRESS_SEED").unwrap_or(time ^ u64::from(process::id()));
    let seconds = setting("HEAPLEDGER_STRESS_SECONDS");
    println!("seed {seed}");
    let until = Instant::now() + seconds.map_or(Duration::from_millis(1000), Duration::from_secs);
    let (shared, steps) = (Mutex::new(Vec::new()), AtomicUsize::new(0));
    let mut generation = 0;
    // More than a thread's table has lists, so that some share one. Each chunk is slow under Miri.
    let arenas = if cfg!(miri) { 3 } else { 40 };
    let own: Vec<_> = (0..arenas).map(|_| Arena::builder().label("stress").create().unwrap()).collect();
    let ids: Vec<_> = [arenas::main_arena()].into_iter().chain(own.iter().map(Arena::id)).collect();
    // Threads end and begin, so that heaps are left and adopted.
    while cfg!(miri) || Instant::now() < until {
        let part = until.min(Instant::now() + Duration::from_millis(200));
        thread::scope(|scope| {
            for number in 0..THREADS {
                let random = Random((seed ^ (generation * 100 + number as u64) << 32) | 1);
                let (ids, shared, steps) = (&ids, &shared, &steps);
                scope.spawn(move || work(random, ids, shared, part, steps));
            }
        });
        generation += 1;
        if cfg!(miri) && generation == GENERATIONS {
            break;
        }
    }
    shared.into_inner().unwrap().into_iter().for_each(Entry::free);
    purges::enable_deferred_purge(false);
    purges::set_dirty_modifier(0);
    heap::trim();
    // Each is empty, or the program would end here.
    drop(own);
    println!("{} steps, {:?}", steps.load(Ordering::Relaxed), heap::statistics());
    assert!(steps.load(Ordering::Relaxed) > 0);
    assert_eq!(heap::statistics().huge_blocks, 0);
}
