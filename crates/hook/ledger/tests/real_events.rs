//! One state machine, on real events: this program's own, with the addresses that its allocator
//! gives.
#![cfg(not(miri))]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use heapledger_core::sample::Rate;
use heapledger_core::{Bytes, StackId, ThreadId, TypeId};
use heapledger_ledger::{Allocation, Block, Freed, Key, Ledger, Session, SharedLedger, Time};

/// The system's allocator, with a log of the calls.
struct Noting;

#[derive(Clone, Copy)]
enum Event {
    Allocated { thread: u32, address: u64, size: u64 },
    Freed { thread: u32, address: u64 },
    Reallocated { thread: u32, old: u64, address: u64, size: u64 },
}

static NOTES: Mutex<Vec<Event>> = Mutex::new(Vec::new());
static NOTING: AtomicBool = AtomicBool::new(false);
static THREADS: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static THREAD: Cell<u32> = const { Cell::new(u32::MAX) };
}

/// Notes events one after the other, each together with its call, so that the notes are in the
/// order of the events.
fn note<R>(call: impl FnOnce() -> R, event: impl FnOnce(u32, &R) -> Event) -> R {
    if !NOTING.load(Ordering::Relaxed) {
        return call();
    }
    let mut notes = NOTES.lock().unwrap();
    let thread = THREAD.get();
    let thread = if thread == u32::MAX { THREADS.fetch_add(1, Ordering::Relaxed) } else { thread };
    THREAD.set(thread);
    let result = call();
    assert!(notes.len() < notes.capacity());
    notes.push(event(thread, &result));
    result
}

// SAFETY: every call goes to `System`, which keeps the contract of `GlobalAlloc`, with the
// arguments as they came, and its result is returned.
unsafe impl GlobalAlloc for Noting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let size = layout.size() as u64;
        // SAFETY: our caller keeps the contract of `GlobalAlloc::alloc`, which `System` requires of
        // the same arguments.
        note(
            || unsafe { System.alloc(layout) },
            |thread, at| Event::Allocated { thread, address: at.addr() as u64, size },
        )
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let address = block.addr() as u64;
        // SAFETY: our caller keeps the contract of `GlobalAlloc::dealloc`, which `System` requires
        // of the same arguments.
        note(|| unsafe { System.dealloc(block, layout) }, |thread, ()| Event::Freed { thread, address });
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let (old, new) = (block.addr() as u64, size as u64);
        note(
            // SAFETY: our caller keeps the contract of `GlobalAlloc::realloc`, which `System`
            // requires of the same arguments.
            || unsafe { System.realloc(block, layout, size) },
            |thread, at| Event::Reallocated { thread, old, address: at.addr() as u64, size: new },
        )
    }
}

#[global_allocator]
static ALLOCATOR: Noting = Noting;

/// Allocates in several ways: words counted, sorted and joined by some threads.
fn work() -> usize {
    let text: String = (0..4000_u64).map(|n| format!("word{} ", n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 53)).collect();
    let threads = (0..3).map(|part| {
        let text = text.clone();
        std::thread::spawn(move || {
            let mut counts: HashMap<String, usize> = HashMap::new();
            for word in text.split(' ').skip(part) {
                *counts.entry(word.to_string()).or_default() += 1;
            }
            let sorted: BTreeMap<_, _> = counts.into_iter().collect();
            let mut large = vec![0_u8; 5000];
            for word in sorted.keys() {
                large.extend_from_slice(word.as_bytes());
            }
            (large.len(), sorted)
        })
    });
    let threads: Vec<_> = threads.collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).map(|(length, sorted)| length + sorted.len()).sum()
}

#[test]
fn a_real_program_has_the_same_outcome_in_both() {
    NOTES.lock().unwrap().reserve_exact(1 << 18);
    NOTING.store(true, Ordering::SeqCst);
    let done = work();
    NOTING.store(false, Ordering::SeqCst);
    assert!(done > 0);
    let events = std::mem::take(&mut *NOTES.lock().unwrap());
    assert!(events.len() > 20_000, "{}", events.len());

    let (mut one, mut session, shared) = (Ledger::new(), Session::new(), Box::new(SharedLedger::new()));
    let stack = |size: u64| StackId((size % 97) as u32);
    let new_block = |now: usize, thread: u32, address: u64, size: u64| Allocation {
        key: Key(address),
        size: Bytes(size),
        rate: Rate::EXACT,
        usable: Bytes(size),
        stack: stack(size),
        thread: ThreadId(thread),
        time: Time(now as u64),
        stamp: TypeId::NONE,
    };
    for (now, event) in events.iter().enumerate() {
        let time = Time(now as u64);
        match *event {
            Event::Allocated { thread, address, size } => {
                let new = new_block(now, thread, address, size);
                let expected = one.allocate(&mut session, time, new.thread, new.key, new.size, new.stack);
                assert_eq!(shared.allocate(&new), expected);
            }
            Event::Freed { thread, address } => {
                let expected = one.free(&mut session, ThreadId(thread), Key(address));
                assert_eq!(shared.free(ThreadId(thread), Key(address)), expected);
            }
            Event::Reallocated { thread, old, address, size } => {
                let new = new_block(now, thread, address, size);
                let pending = (one.begin_realloc(new.thread, Key(old)), shared.begin_realloc(new.thread, Key(old)));
                assert_eq!(pending.1.old(), pending.0.old());
                let expected = one.finish_realloc(&mut session, time, pending.0, new.key, new.size, new.stack);
                assert_eq!(shared.finish_realloc(pending.1, &new), expected);
            }
        }
    }
    assert_eq!(shared.totals(), (one.counts(), one.live(), one.variances()));
    let counts = one.counts();
    assert!(counts.temporaries.0 > 100 && counts.reallocations.0 > 10, "{counts:?}");
    assert_eq!(counts.frees_missing.0, 0);
    let (mut expected, mut found): (Vec<_>, Vec<_>) = (one.sites(&session).collect(), shared.sites().collect());
    for site in &mut expected {
        (site.bytes_at_session_peak, site.blocks_at_session_peak) = Default::default();
    }
    expected.sort_by_key(|site| site.stack);
    found.sort_by_key(|site| site.stack);
    assert_eq!(found, expected);
    let expected: BTreeMap<Key, Block> = one.blocks().collect();
    let found: BTreeMap<Key, u64> = shared.blocks().map(|block| (block.key, block.serial.0)).collect();
    assert_eq!(found, expected.iter().map(|(key, block)| (*key, block.serial.0)).collect());
    for (key, block) in expected {
        assert_eq!(shared.block_at(key.0 + block.size.0.saturating_sub(1)).map(|block| block.key), Some(key));
        assert!(matches!(shared.free(ThreadId(0), key), Freed::Known(_)));
    }
}
