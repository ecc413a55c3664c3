//! Forks while other threads allocate, begin and end: the child can allocate and free.
//!
//! `HEAPLEDGER_FORKS=10000 cargo test -p heapledger-heap --release --test fork` makes as many.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{env, thread};

use heapledger_heap as heap;
use heapledger_heap::arenas::{self, Arena};

#[global_allocator]
static ALLOCATOR: heap::HeapAllocator = heap::HeapAllocator;

/// The number of forks without the environment variable.
const FORKS: usize = 100;
const SIGALRM: c_int = 14;

unsafe extern "C" {
    fn fork() -> c_int;
    fn waitpid(process: c_int, status: *mut c_int, options: c_int) -> c_int;
    fn alarm(seconds: u32) -> u32;
    fn _exit(status: c_int) -> !;
}

/// Allocates and frees blocks of all kinds, also in an arena that others use, and in one of its
/// own.
fn work(seed: usize, shared: &Arena) {
    let own = Arena::builder().label("own").create().unwrap();
    for number in 0..50 {
        let arena = if number % 2 == 0 { shared } else { &own };
        // SAFETY: `allocate_in` demands that the arena stays: both outlive this function. The block
        // is new, and nobody else knows it.
        unsafe {
            let block = arenas::allocate_in(arena.id(), number * 3000);
            assert!(!block.is_null());
            arenas::free_in(arena.id(), block);
        }
    }
    drop(own);
    let sizes = (0..200).map(|each| (each * 97_003 + seed) % if each % 20 == 0 { 2_000_000 } else { 3000 });
    let blocks: Vec<*mut u8> = sizes.map(heap::allocate).collect();
    for block in blocks {
        assert!(!block.is_null());
        // SAFETY: a block of at least 16 bytes, of which nobody else knows.
        unsafe {
            block.write_bytes(1, 16);
            heap::free(block);
        }
    }
}

#[test]
fn a_child_can_allocate_whatever_other_threads_do() {
    let forks = env::var("HEAPLEDGER_FORKS").map_or(FORKS, |number| number.parse().expect("HEAPLEDGER_FORKS"));
    let is_over = AtomicBool::new(false);
    let shared = Arena::builder().label("shared").create().unwrap();
    let shared = &shared;
    thread::scope(|scope| {
        for number in 0..3 {
            let is_over = &is_over;
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    work(number, shared);
                }
            });
        }
        // Threads that begin adopt the heaps of those that have ended.
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                thread::scope(|scope| scope.spawn(|| work(3, shared)).join().unwrap());
            }
        });
        let mut failures = Vec::new();
        for number in 0..forks {
            // SAFETY: the child has no other thread, and calls functions of the allocator only,
            // which are ready after a fork, and leaves by `_exit`. A child that hangs is ended by
            // its alarm.
            let status = unsafe {
                let child = fork();
                if child == 0 {
                    alarm(10);
                    (0..5).for_each(|seed| work(seed, shared));
                    // Blocks that other threads of the parent have in it do not matter.
                    arenas::dispose(shared.id());
                    _exit(0);
                }
                let mut status = 0;
                let is_waited_for = child > 0 && waitpid(child, &raw mut status, 0) == child;
                if is_waited_for { status } else { -1 }
            };
            if status != 0 {
                failures.push((number, status));
                break;
            }
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(failures.is_empty(), "number and status of the child: {failures:?} ({SIGALRM}: it hung)");
    });
}
