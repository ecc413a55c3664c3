//! A ledger under many threads, and over forks.
#![cfg(not(miri))]

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use heapledger_core::sample::{Random, Rate};
use heapledger_core::{Bytes, StackId, ThreadId, TypeId};
use heapledger_ledger::{Allocation, Freed, Key, LiveBlock, SharedLedger, Time};

/// Hands out addresses: each has one holder, until it is given back.
struct Addresses {
    free: Mutex<Vec<u64>>,
}

impl Addresses {
    /// Makes this many addresses, far enough apart for blocks of `SIZE_MAX` bytes.
    fn new(count: u64) -> Addresses {
        Addresses { free: Mutex::new((1..=count).map(|n| n * SIZE_MAX).collect()) }
    }

    fn take(&self, random: &mut Random) -> Option<u64> {
        let mut free = self.free.lock().unwrap();
        let at = random.index(free.len());
        (!free.is_empty()).then(|| free.swap_remove(at))
    }

    fn give(&self, address: u64) {
        self.free.lock().unwrap().push(address);
    }
}

const SIZE_MAX: u64 = 9008;

fn new_block(random: &mut Random, thread: ThreadId, address: u64) -> Allocation {
    let size = if random.below(4) == 0 { random.below(SIZE_MAX) } else { random.below(200) };
    Allocation {
        key: Key(address),
        size: Bytes(size),
        rate: Rate::EXACT,
        usable: Bytes(size),
        stack: StackId(random.below(500) as u32),
        thread,
        time: Time(size),
        stamp: TypeId(size as u32),
    }
}

/// Runs a thread of the storm: allocates, reallocates, frees its own blocks and others'. `hands`
/// are the blocks that the program has.
fn storm(ledger: &SharedLedger, addresses: &Addresses, hands: &Mutex<Vec<u64>>, thread: u32, events: u64) -> u64 {
    let mut random = Random::new(thread.into());
    let thread = ThreadId(thread);
    let mut allocations = 0;
    for _ in 0..events {
        let any = |random: &mut Random| {
            let mut hands = hands.lock().unwrap();
            let at = random.index(hands.len());
            (!hands.is_empty()).then(|| hands.swap_remove(at))
        };
        match random.below(10) {
            0..5 => {
                let Some(address) = addresses.take(&mut random) else { continue };
                let allocated = ledger.allocate(&new_block(&mut random, thread, address)).unwrap();
                assert_eq!(allocated.displaced, None);
                allocations += 1;
                hands.lock().unwrap().push(address);
            }
            5..8 => {
                let Some(address) = any(&mut random) else { continue };
                assert!(matches!(ledger.free(thread, Key(address)), Freed::Known(_)));
                addresses.give(address);
            }
            kind => {
                let Some(address) = any(&mut random) else { continue };
                let pending = ledger.begin_realloc(thread, Key(address));
                assert!(matches!(pending.old(), Freed::Known(_)));
                let moved = addresses.take(&mut random).filter(|_| kind == 8);
                let Some(to) = moved else {
                    ledger.cancel_realloc(pending);
                    hands.lock().unwrap().push(address);
                    continue;
                };
                let allocated = ledger.finish_realloc(pending, &new_block(&mut random, thread, to)).unwrap();
                assert_eq!(allocated.displaced, None);
                allocations += 1;
                addresses.give(address);
                hands.lock().unwrap().push(to);
            }
        }
    }
    allocations
}

/// Checks all that must be true when nothing happens.
fn check(ledger: &SharedLedger, in_hands: Option<&[u64]>) {
    let (counts, live, _) = ledger.totals();
    let blocks: Vec<LiveBlock> = ledger.blocks().collect();
    let by_key: BTreeMap<Key, LiveBlock> = blocks.iter().map(|block| (block.key, *block)).collect();
    assert_eq!((by_key.len(), blocks.len() as u64), (blocks.len(), live.blocks_live.0));
    assert_eq!(blocks.iter().map(|block| block.size.0).sum::<u64>(), live.bytes_live.0);
    assert_eq!(counts.allocations.0 - counts.frees.0, live.blocks_live.0);
    assert_eq!((counts.frees_missing.0, counts.frees_unknown.0, ledger.dropped()), (0, 0, 0));
    let mut serials: Vec<u64> = blocks.iter().map(|block| block.serial.0).collect();
    serials.sort();
    serials.dedup();
    assert_eq!(serials.len(), blocks.len());
    let mut sums = [0; 6];
    for site in ledger.sites() {
        let of_site = blocks.iter().filter(|block| block.stack == site.stack);
        let held = of_site.fold((0, 0), |(bytes, blocks), block| (bytes + block.size.0, blocks + 1));
        assert_eq!((site.bytes_live.0, site.blocks_live.0), held);
        let values = [
            site.allocations.0,
            site.bytes_allocated.0,
            site.temporaries.0,
            site.bytes_live.0,
            site.bytes_at_peak.0,
            site.blocks_at_peak.0,
        ];
        sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
    }
    let expected = [
        counts.allocations.0,
        counts.bytes_allocated.0,
        counts.temporaries.0,
        live.bytes_live.0,
        live.bytes_live_max.0,
        live.blocks_at_bytes_max.0,
    ];
    assert_eq!(sums, expected);
    for address in in_hands.unwrap_or_default() {
        assert!(by_key.contains_key(&Key(*address)));
    }
    for block in blocks.iter().step_by(7) {
        let last = block.key.0 + block.size.0.max(1) - 1;
        assert_eq!((ledger.block_at(block.key.0), ledger.block_at(last)), (Some(*block), Some(*block)));
    }
}

#[test]
fn a_storm_adds_up() {
    static LEDGER: SharedLedger = SharedLedger::new();
    const THREADS: u32 = 4;
    const EVENTS: u64 = 60_000;
    let (addresses, hands) = (Addresses::new(20_000), Mutex::new(Vec::new()));
    // A block that is live all the while, and must always be found.
    let stays = Allocation { thread: ThreadId(THREADS), ..new_block(&mut Random::new(1), ThreadId(0), 1 << 40) };
    let stays = Allocation { size: Bytes(1 << 30), usable: Bytes(1 << 30), ..stays };
    let _ = LEDGER.allocate(&stays).unwrap();
    let (running, looks) = (AtomicBool::new(true), AtomicU64::new(0));
    let allocations: u64 = std::thread::scope(|scope| {
        let storms: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn({
                    let (addresses, hands) = (&addresses, &hands);
                    move || storm(&LEDGER, addresses, hands, thread, EVENTS)
                })
            })
            .collect();
        // A thread that only looks, meanwhile.
        scope.spawn(|| {
            while running.load(Ordering::Relaxed) {
                let keys: Vec<Key> = LEDGER.blocks().map(|block| block.key).collect();
                let count = keys.len();
                let once: std::collections::BTreeSet<Key> = keys.into_iter().collect();
                assert!(once.len() == count && once.contains(&stays.key));
                assert_eq!(LEDGER.block_at(stays.key.0 + 12_345_678).map(|block| block.key), Some(stays.key));
                for site in LEDGER.sites() {
                    assert!(site.allocations.0 >= site.blocks_live.0);
                }
                let (counts, live, _) = LEDGER.totals();
                assert_eq!(counts.allocations.0 - counts.frees.0, live.blocks_live.0);
                let at = once.iter().nth(count / 2).unwrap().0;
                assert!(LEDGER.block_at(at).is_none_or(|block| block.contains(at)));
                assert_eq!(
                    LEDGER.reattribute_block(stays.key, StackId(looks.load(Ordering::Relaxed) as u32 % 500)),
                    Ok(true)
                );
                looks.fetch_add(1, Ordering::Relaxed);
            }
        });
        let allocations = storms.into_iter().map(|storm| storm.join().unwrap()).sum();
        running.store(false, Ordering::Relaxed);
        allocations
    });
    assert!(looks.load(Ordering::Relaxed) > 3);
    assert_eq!(LEDGER.counts().allocations.0, allocations + 1);
    let hands = hands.into_inner().unwrap();
    assert_eq!(LEDGER.live().blocks_live.0, hands.len() as u64 + 1);
    check(&LEDGER, Some(&hands));
    for address in hands {
        assert!(matches!(LEDGER.free(ThreadId(0), Key(address)), Freed::Known(_)));
    }
    assert_eq!(LEDGER.live().blocks_live.0, 1);
}

unsafe extern "C" {
    fn fork() -> i32;
    fn _exit(status: i32) -> !;
    fn waitpid(process: i32, status: *mut i32, options: i32) -> i32;
}

#[test]
fn a_child_goes_on() {
    static LEDGER: SharedLedger = SharedLedger::new();
    let (addresses, hands) = (Addresses::new(5_000), Mutex::new(Vec::new()));
    let mine = Allocation { size: Bytes(777), ..new_block(&mut Random::new(1), ThreadId(9), 1 << 40) };
    let _ = LEDGER.allocate(&mine).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (addresses, hands) = (&addresses, &hands);
            scope.spawn(move || storm(&LEDGER, addresses, hands, thread, 300_000));
        }
        for _ in 0..50 {
            LEDGER.before_fork();
            // SAFETY: the child calls nothing but the ledger, which does not allocate, and `_exit`.
            let child = unsafe { fork() };
            // SAFETY: `after_fork` requires that this thread called `before_fork`, or is the copy
            // in the child of the one that did. Both that return from `fork` are.
            unsafe { LEDGER.after_fork() };
            if child == 0 {
                // No panics here: they would allocate, and another thread may have held the
                // allocator's lock.
                let (counts, live, _) = LEDGER.totals();
                let pending = u64::from(LEDGER.blocks().count() as u64 > live.blocks_live.0);
                let consistent = counts.allocations.0 - counts.frees.0 == live.blocks_live.0 && pending == 0;
                let freed = matches!(LEDGER.free(ThreadId(9), mine.key), Freed::Known(block) if block.size.0 == 777);
                let mut entered = true;
                for n in 0..1000 {
                    entered &= LEDGER.allocate(&Allocation { key: Key((2 << 40) + n * 64), ..mine }).is_ok();
                }
                let added = LEDGER.live().blocks_live.0 == live.blocks_live.0 + 999;
                let found = LEDGER.block_at((2 << 40) + 64 * 999).is_some();
                let status = [consistent, freed, entered, added, found].iter().position(|ok| !ok);
                // SAFETY: ends the child, without what a C program does at its end.
                unsafe { _exit(status.map_or(0, |at| at as i32 + 1)) };
            }
            let mut status = 0;
            // SAFETY: waits for our own child, with a live status.
            assert_eq!(unsafe { waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0);
        }
    });
    assert_eq!(LEDGER.get(mine.key).map(|block| block.size), Some(Bytes(777)));
    check(&LEDGER, None);
}
