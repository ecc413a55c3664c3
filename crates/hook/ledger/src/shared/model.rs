//! The ledger's locks in every order of what its threads do, as far as loom tries them, with two
//! shards:
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p heapledger-ledger --release --lib shared::model --target-dir target/loom
//! ```
//!
//! Looked for: a thread that waits for ever, an event that is counted half, a look between two
//! halves.

extern crate std;

use std::sync::Arc;
use std::vec::Vec;

use loom::thread;

use super::*;

impl SharedLedger {
    pub(crate) fn new() -> SharedLedger {
        SharedLedger {
            register: SharedRegister::new(),
            accounting: Locked::new(Accounting::new()),
            pools: Locked::new(Pools::new()),
            freed: Locked::new(FreedTable::new()),
            defects: Locked::new(Defects::new()),
            is_marking: AtomicBool::new(false),
            keeps_freed: AtomicBool::new(false),
            dropped: AtomicU64::new(0),
            clears: AtomicU64::new(0),
        }
    }
}

const MAIN: ThreadId = ThreadId(0);
const OTHER: ThreadId = ThreadId(1);

fn new_block(thread: ThreadId, key: Key, size: u64) -> Allocation {
    let (size, stack) = (Bytes(size), StackId(thread.0 + 1));
    Allocation { key, size, rate: Rate::EXACT, usable: size, stack, thread, time: Time(0), stamp: TypeId::NONE }
}

/// Runs one thread's actions beside another's, in every order, and checks the result in the end.
fn orders(one: fn(&SharedLedger), other: fn(&SharedLedger), end: fn(&SharedLedger)) {
    let mut model = loom::model::Builder::new();
    // Orders in which a thread is interrupted more often find nothing more in models of this size.
    model.preemption_bound = Some(2);
    model.max_branches = 20_000;
    model.check(move || {
        let ledger = Arc::new(SharedLedger::new());
        let second = ledger.clone();
        let thread = thread::spawn(move || other(&second));
        one(&ledger);
        thread.join().unwrap();
        adds_up(&ledger);
        end(&ledger);
    });
}

fn adds_up(ledger: &SharedLedger) {
    let (counts, live, _) = ledger.totals();
    let blocks: Vec<LiveBlock> = ledger.blocks().collect();
    assert_eq!(counts.allocations.0 - counts.frees.0, live.blocks_live.0);
    assert_eq!(blocks.len() as u64, live.blocks_live.0);
    assert_eq!(blocks.iter().map(|block| block.size.0).sum::<u64>(), live.bytes_live.0);
    assert_eq!(ledger.sites().map(|site| site.bytes_live.0).sum::<u64>(), live.bytes_live.0);
}

fn allocate(ledger: &SharedLedger, thread: ThreadId, key: Key, size: u64) {
    let _ = ledger.allocate(&new_block(thread, key, size)).unwrap();
}

#[test]
fn events_of_two_threads_add_up() {
    orders(
        |ledger| {
            allocate(ledger, MAIN, Key(0x1000), 10);
            ledger.free(MAIN, Key(0x1000));
        },
        |ledger| {
            allocate(ledger, OTHER, Key(0x1010), 5000);
            allocate(ledger, OTHER, Key(0x9000), 7);
        },
        |ledger| {
            assert_eq!((ledger.counts().temporaries.0, ledger.live().bytes_live.0), (1, 5007));
            assert!(ledger.live().bytes_live_max.0 >= 5007);
        },
    );
}

/// The address is handed out again as soon as it is free.
#[test]
fn a_reallocation_gives_its_address_away() {
    orders(
        |ledger| {
            allocate(ledger, MAIN, Key(0x1000), 4096);
            let pending = ledger.begin_realloc(MAIN, Key(0x1000));
            let _ = ledger.finish_realloc(pending, &new_block(MAIN, Key(0x1000), 8192)).unwrap();
        },
        |ledger| {
            let pending = ledger.begin_realloc(OTHER, Key(0x5000));
            assert_eq!(pending.old(), Freed::Unknown);
            ledger.cancel_realloc(pending);
            allocate(ledger, OTHER, Key(0x5000), 1);
        },
        |ledger| {
            assert_eq!((ledger.counts().reallocations.0, ledger.live().bytes_live.0), (1, 8193));
            assert_eq!(ledger.block_at(0x1000 + 8191).map(|block| block.key), Some(Key(0x1000)));
        },
    );
}

/// A block is found while it is live, and totals never show half an event.
#[test]
fn readers_see_whole_events() {
    orders(
        |ledger| {
            allocate(ledger, MAIN, Key(0x1000), 10);
            ledger.free(MAIN, Key(0x1000));
        },
        |ledger| {
            let (counts, live, _) = ledger.totals();
            assert_eq!(counts.allocations.0 - counts.frees.0, live.blocks_live.0);
            assert_eq!(live.bytes_live.0, 10 * live.blocks_live.0);
            // A block in the register is counted.
            if ledger.get(Key(0x1000)).is_some() {
                assert_eq!(ledger.counts().allocations.0, 1);
            }
        },
        |ledger| assert_eq!(ledger.counts().temporaries.0, 1),
    );
}

/// A fork finds register and accounting of the same moment, and nobody at work.
#[test]
fn a_fork_is_between_two_events() {
    orders(
        |ledger| {
            ledger.before_fork();
            // SAFETY: the lock is held by `before_fork`, and this is the only reference.
            let (counts, live) = unsafe { (ledger.accounting.held().counts(), ledger.accounting.held().live()) };
            assert_eq!(ledger.register.held_len() as u64, live.blocks_live.0);
            assert_eq!(counts.allocations.0 - counts.frees.0, live.blocks_live.0);
            // SAFETY: `after_fork` requires that this thread called `before_fork`, as it did at the
            // beginning of this closure. The references made meanwhile are gone.
            unsafe { ledger.after_fork() };
        },
        |ledger| {
            allocate(ledger, OTHER, Key(0x1000), 5000);
            allocate(ledger, OTHER, Key::in_pool(1, 0x1000), 1);
            ledger.free(OTHER, Key(0x1000));
        },
        |ledger| assert_eq!(ledger.live().blocks_live.0, 1),
    );
}

#[test]
fn a_reset_frees_what_a_pool_has() {
    orders(
        |ledger| {
            allocate(ledger, MAIN, Key::in_pool(1, 0x1000), 1);
            ledger.reset_pool(MAIN, 1);
        },
        |ledger| {
            allocate(ledger, OTHER, Key::in_pool(1, 0x9000), 1);
            ledger.free(OTHER, Key::in_pool(1, 0x9000));
        },
        // The other block may have been gone when it was freed.
        |ledger| assert_eq!(ledger.live().blocks_live.0, 0),
    );
}

#[test]
fn clearing_ends_what_was_before() {
    orders(
        |ledger| ledger.clear(),
        |ledger| {
            allocate(ledger, OTHER, Key(0x1000), 5000);
            let pending = ledger.begin_realloc(OTHER, Key(0x1000));
            let _ = ledger.finish_realloc(pending, &new_block(OTHER, Key(0x1000), 1)).unwrap();
        },
        |ledger| assert!(ledger.live().blocks_live.0 <= 1),
    );
}

#[test]
fn a_mark_is_of_the_block_that_is_live() {
    orders(
        |ledger| {
            allocate(ledger, MAIN, Key(0x1000), 10);
            ledger.free(MAIN, Key(0x1000));
            allocate(ledger, MAIN, Key(0x1000), 20);
            ledger.free(MAIN, Key(0x1000));
        },
        |ledger| {
            let mark = Mark { reporter: TypeId(1), stack: StackId(1), is_kept: false };
            let _ = ledger.mark(Key(0x1000), mark, 0).unwrap();
            ledger.clear_marks();
            let _ = ledger.mark(Key(0x1000), mark, 0).unwrap();
        },
        |ledger| assert_eq!((ledger.marks(Key(0x1000)), ledger.live().blocks_live.0), ([None; 2], 0)),
    );
}

/// A snapshot has the blocks that its totals count.
#[test]
fn a_snapshot_is_of_one_moment() {
    orders(
        |ledger| {
            let snapshot = ledger.snapshot(|| 0, None).unwrap();
            let (counts, live, _) = snapshot.totals();
            assert_eq!(snapshot.blocks().count() as u64, live.blocks_live.0);
            assert_eq!(counts.allocations.0 - counts.frees.0, live.blocks_live.0);
        },
        |ledger| {
            allocate(ledger, OTHER, Key(0x1000), 5000);
            allocate(ledger, OTHER, Key(0x9000), 1);
            ledger.free(OTHER, Key(0x1000));
        },
        |ledger| assert_eq!(ledger.live().blocks_live.0, 1),
    );
}
