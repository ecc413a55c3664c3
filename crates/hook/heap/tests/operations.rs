//! The numbers of operations, against counts of the calls. The tests run one after the other: only
//! they allocate from the allocator.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;

use heapledger_heap::arenas::{Arena, ArenaId, allocate_in, free_in, reallocate_in};
use heapledger_heap::{self as heap, BINS};

/// The number of calls of a thread. Miri takes milliseconds for each.
const CALLS: usize = if cfg!(miri) { 300 } else { 60_000 };
/// The largest block of a bin.
const BIN_MAX: usize = 64 << 10;

fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The operations that were counted, and the allocations and frees of each size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Counts {
    operations: usize,
    bins: BTreeMap<usize, (usize, usize)>,
}

impl Counts {
    fn now() -> Counts {
        let now = heap::detailed_statistics();
        let bins = now.bins.iter().zip(now.bin_operations);
        Counts {
            operations: now.operations,
            bins: bins.map(|(bin, operations)| (bin.size, (operations.allocations, operations.frees))).collect(),
        }
    }

    fn allocated(&mut self, size: usize) {
        self.operations += 1;
        if size <= BIN_MAX {
            self.bins.entry(size).or_default().0 += 1;
        }
    }

    fn freed(&mut self, size: usize) {
        self.operations += 1;
        if size <= BIN_MAX {
            self.bins.entry(size).or_default().1 += 1;
        }
    }

    fn add(&mut self, other: &Counts) {
        self.operations += other.operations;
        for (&size, &(allocations, frees)) in &other.bins {
            let bin = self.bins.entry(size).or_default();
            bin.0 += allocations;
            bin.1 += frees;
        }
    }
}

fn usable(block: *mut u8) -> usize {
    // SAFETY: tests ask for blocks of their own, in use.
    unsafe { heap::usable_size(block) }
}

/// Xorshift (Marsaglia, 2003).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % bound
    }

    /// Sizes of all kinds, most of them small.
    fn size(&mut self) -> usize {
        match self.below(100) {
            0 => (1 << 20) + self.below(3 << 20),
            1..=4 => 65_000 + self.below(900_000),
            5..=24 => 513 + self.below(20_000),
            _ => self.below(513),
        }
    }
}

/// Blocks of a thread, with the counts of its calls.
struct Caller {
    random: Random,
    arena: Option<ArenaId>,
    counts: Counts,
    blocks: Vec<*mut u8>,
}

impl Caller {
    fn new(seed: u64, arena: Option<ArenaId>) -> Caller {
        Caller { random: Random(seed | 1), arena, counts: Counts::default(), blocks: Vec::new() }
    }

    fn call(&mut self) {
        let size = self.random.size();
        match self.random.below(10) {
            0..=3 => self.allocate(size),
            4 if !self.blocks.is_empty() => self.reallocate(size),
            5 if !self.blocks.is_empty() => {
                // A little larger or smaller, so that some stay in place.
                let at = self.random.below(self.blocks.len());
                let old = usable(self.blocks[at]);
                self.blocks.swap(0, at);
                let size = (old + 70_000).saturating_sub(self.random.below(140_000)).max(1);
                self.reallocate(size);
            }
            _ => {
                if !self.blocks.is_empty() {
                    let at = self.random.below(self.blocks.len());
                    let block = self.blocks.swap_remove(at);
                    self.free(block);
                }
            }
        }
    }

    fn allocate(&mut self, size: usize) {
        let block = match (self.arena, self.random.below(10)) {
            // SAFETY: the arena stays.
            (Some(arena), _) => unsafe { allocate_in(arena, size) },
            (None, 0) => heap::allocate_zeroed(size),
            (None, 1) => heap::allocate_aligned(size, 16 << self.random.below(10)),
            _ => heap::allocate(size),
        };
        assert!(!block.is_null());
        self.counts.allocated(usable(block));
        self.blocks.push(block);
    }

    /// Reallocates the first block.
    fn reallocate(&mut self, size: usize) {
        let old = self.blocks[0];
        let before = usable(old);
        // SAFETY: a block of this thread's, which is replaced by the new one. The arena stays.
        let new = unsafe {
            match self.arena {
                Some(arena) => reallocate_in(arena, old, size),
                None => heap::reallocate(old, size),
            }
        };
        assert!(!new.is_null());
        let after = usable(new);
        if new != old || after != before {
            self.counts.allocated(after);
            self.counts.freed(before);
            self.counts.operations -= usize::from(new == old);
        }
        self.blocks[0] = new;
    }

    fn free(&mut self, block: *mut u8) {
        self.counts.freed(usable(block));
        // SAFETY: a block of the caller's, which is taken out of its list. The arena stays.
        unsafe {
            match self.arena {
                Some(arena) => free_in(arena, block),
                None => heap::free(block),
            }
        }
    }

    fn end(mut self) -> Counts {
        while let Some(block) = self.blocks.pop() {
            self.free(block);
        }
        self.counts
    }
}

/// Checks the statistics, and the light ones, which differ by the blocks of free lists. There are
/// at most four threads with heaps.
fn check(expected: &Counts, when: &str) {
    let now = Counts::now();
    for (size, counted) in &now.bins {
        assert_eq!(expected.bins.get(size).unwrap_or(&(0, 0)), counted, "{when}: blocks of {size} bytes");
    }
    assert_eq!(now.operations, expected.operations, "{when}");
    let all = heap::detailed_statistics();
    let free: usize = all.bins.iter().map(|bin| bin.unused / bin.size).sum();
    let sizes = all.bins.iter().filter(|bin| bin.size > 512).count() + 15;
    let known = heap::lite_statistics().operations;
    assert!(known.abs_diff(now.operations) <= free + sizes * 256 * 4, "{when}: {known}, not {}", now.operations);
}

#[test]
fn one_thread_is_counted_exactly_at_any_time() {
    let _alone = alone();
    let mut expected = Counts::now();
    let mut caller = Caller::new(7, None);
    for call in 0..CALLS {
        caller.call();
        let is_checked = call < 50 || call % (CALLS / 50) == 0;
        if is_checked {
            let mut all = expected.clone();
            all.add(&caller.counts);
            check(&all, &format!("call {call}"));
        }
        if call % (CALLS / 7) == 5 {
            heap::trim();
        }
    }
    expected.add(&caller.end());
    check(&expected, "at the end");
    heap::trim();
    check(&expected, "after a trim");
}

#[test]
fn threads_that_free_blocks_of_each_other_are_counted() {
    const THREADS: usize = 4;
    let _alone = alone();
    let mut expected = Counts::now();
    let counts: Vec<_> = thread::scope(|scope| {
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..THREADS).map(|_| mpsc::channel::<usize>()).unzip();
        let threads: Vec<_> = receivers
            .into_iter()
            .enumerate()
            .map(|(number, received)| {
                let next = senders[(number + 1) % THREADS].clone();
                scope.spawn(move || {
                    let mut caller = Caller::new(number as u64 * 77 + 1, None);
                    for call in 0..CALLS {
                        caller.call();
                        if call % 3 == 0
                            && let Some(block) = caller.blocks.pop()
                        {
                            next.send(block.expose_provenance()).unwrap();
                        }
                        if let Ok(block) = received.try_recv() {
                            caller.free(std::ptr::with_exposed_provenance_mut(block));
                        }
                    }
                    drop(next);
                    for block in received {
                        caller.free(std::ptr::with_exposed_provenance_mut(block));
                    }
                    caller.end()
                })
            })
            .collect();
        drop(senders);
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    counts.iter().for_each(|counts| expected.add(counts));
    check(&expected, "after the threads");
    heap::trim();
    check(&expected, "after a trim");
}

#[test]
fn the_light_number_follows_while_a_thread_works() {
    let _alone = alone();
    // The blocks of a page of memory for each of 41 sizes, or the pops of its thread.
    const LAG: usize = 41 * 256;
    heap::trim();
    let before = heap::detailed_statistics().operations;
    let (begun, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let caller = scope.spawn(|| {
            let mut random = Random(99);
            let mut done = 0;
            for _ in 0..CALLS {
                begun.fetch_add(2, Ordering::SeqCst);
                let block = heap::allocate(random.below(3000));
                // SAFETY: the block of above.
                unsafe { heap::free(block) };
                done += 2;
            }
            is_over.store(true, Ordering::SeqCst);
            done
        });
        while !is_over.load(Ordering::SeqCst) {
            let least = before + begun.load(Ordering::SeqCst);
            let known = heap::lite_statistics().operations;
            let most = before + begun.load(Ordering::SeqCst);
            assert!(known + LAG >= least && known <= most + LAG, "{known}, not {least} to {most}");
            thread::yield_now();
        }
        let done = caller.join().unwrap();
        let known = heap::lite_statistics().operations;
        assert!(known.abs_diff(before + done) <= LAG, "{known}, not {}", before + done);
    });
}

#[test]
fn an_arena_is_counted_alone_and_after_its_end() {
    let _alone = alone();
    let mut expected = Counts::now();
    let arena = Arena::builder().label("counted").create().unwrap();
    let mut caller = Caller::new(3, Some(arena.id()));
    (0..CALLS / 4).for_each(|_| caller.call());
    let now = heap::detailed_arena_statistics(arena.id()).unwrap();
    assert_eq!(now.operations, caller.counts.operations);
    for (bin, operations) in now.bins.iter().zip(now.bin_operations) {
        let expected = caller.counts.bins.get(&bin.size).copied().unwrap_or_default();
        assert_eq!((operations.allocations, operations.frees), expected, "blocks of {} bytes", bin.size);
    }
    assert_eq!(now.bin_operations.len(), BINS);
    expected.add(&caller.end());
    check(&expected, "before the arena ends");
    drop(arena);
    check(&expected, "after the arena has ended");
}

#[cfg(not(miri))]
#[test]
fn a_child_goes_on_from_the_numbers_of_its_parent() {
    unsafe extern "C" {
        fn fork() -> i32;
        fn waitpid(process: i32, status: *mut i32, options: i32) -> i32;
        fn _exit(status: i32) -> !;
    }
    let _alone = alone();
    let (ready, is_ready) = mpsc::channel();
    let (end, is_over) = mpsc::channel::<()>();
    // The child does not have this thread, nor its heap.
    let other = thread::spawn(move || {
        let mut caller = Caller::new(5, None);
        (0..2000).for_each(|_| caller.call());
        ready.send(()).unwrap();
        is_over.recv().unwrap_err();
        caller.end();
    });
    is_ready.recv().unwrap();
    let before = heap::detailed_statistics();
    // SAFETY: the child calls functions of the allocator only, and `_exit`.
    let child = unsafe { fork() };
    if child == 0 {
        let now = heap::detailed_statistics();
        let is_same = now.operations == before.operations && now.bin_operations == before.bin_operations;
        free_in_child(heap::allocate(100));
        let is_counted = heap::detailed_statistics().operations == before.operations + 2;
        // SAFETY: ends this process.
        unsafe { _exit(i32::from(!is_same) | i32::from(!is_counted) << 1) };
    }
    let mut status = 0;
    // SAFETY: waits for the child of above.
    assert_eq!(unsafe { waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "1: other numbers, 2: not counted");
    drop(end);
    other.join().unwrap();
}

#[cfg(not(miri))]
fn free_in_child(block: *mut u8) {
    // SAFETY: a block of the caller's.
    unsafe { heap::free(block) };
}

/// The current run of a thread may be released, and its chunk unmapped, while another one asks.
#[test]
fn statistics_can_be_asked_while_runs_come_and_go() {
    const ROUNDS: usize = if cfg!(miri) { 3 } else { 300 };
    let _alone = alone();
    thread::scope(|scope| {
        // So many rounds, whatever the other thread sees: this one ends if that fails.
        let caller = scope.spawn(|| {
            for _ in 0..ROUNDS {
                // More than a chunk, and all of it is free again: chunks are unmapped by the trim.
                let blocks: Vec<*mut u8> = (0..120).map(|each| heap::allocate(60_000 + each)).collect();
                // SAFETY: blocks of this allocator, which nobody else has.
                blocks.into_iter().for_each(|block| unsafe { heap::free(block) });
                heap::trim();
            }
        });
        while !caller.is_finished() {
            let now = heap::detailed_statistics();
            let parts =
                now.allocated + now.waste + now.dirty + now.bookkeeping + now.bin_unused + now.fresh + now.madvised;
            assert_eq!(now.mapped, parts);
            thread::yield_now();
        }
    });
}
