//! Checks the lists that threads share against every interleaving that loom tries:
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p heapledger-heap --release --lib remote::model --target-dir target/loom
//! ```
//!
//! A run has two blocks, which a program has in use. An owner does what a heap does; loom's memory
//! stands for what the program wrote to a block, so that a block that arrives too early is noticed.

extern crate std;

use std::sync::Arc;
use std::vec::Vec;

use loom::cell::UnsafeCell;
use loom::sync::Mutex;
use loom::sync::atomic::{AtomicPtr, AtomicUsize};
use loom::thread;

use super::*;
use crate::notices::{Linked, Notices};

/// A block of 16 bytes, and a word that loom watches.
struct Slot {
    memory: std::cell::UnsafeCell<[usize; 2]>,
    content: UnsafeCell<u32>,
}

struct Run {
    remote: RemoteList,
    link: AtomicPtr<Run>,
    slots: [Slot; 2],
}

// SAFETY: the model's threads access a slot only while it is theirs, which is what loom checks.
unsafe impl Sync for Run {}
// SAFETY: no part of a run belongs to the thread that made it.
unsafe impl Send for Run {}

impl Linked for Run {
    fn link(&self) -> &AtomicPtr<Run> {
        &self.link
    }
}

impl Run {
    fn new() -> Arc<Run> {
        let slot = || Slot { memory: std::cell::UnsafeCell::new([0; 2]), content: UnsafeCell::new(0) };
        Arc::new(Run { remote: RemoteList::new(), link: AtomicPtr::new(ptr::null_mut()), slots: [slot(), slot()] })
    }

    /// Writes to a block as its user, and frees it in a thread that does not own the run. True if a
    /// notice is to be brought.
    fn free(&self, slot: usize) -> bool {
        let slot = &self.slots[slot];
        // SAFETY: the block is in use, by this thread.
        slot.content.with_mut(|content| unsafe { *content = 7 });
        // SAFETY: `set_next` demands a block that the caller owns, as `push` passes it.
        let link = |block, next| unsafe { Block::set_next(block, next) };
        // SAFETY: a block of the run, which this thread gives up.
        unsafe { self.remote.push(slot.memory.get().cast(), link) }
    }

    /// Takes the blocks that others have freed; reads what they wrote. Returns their number.
    fn take(&self) -> usize {
        let (mut block, mut count) = (self.remote.take(), 0);
        while !block.is_null() {
            assert_ne!(block, NOTICE);
            let slot = self.slots.iter().find(|slot| slot.memory.get().cast() == block).expect("a block of the run");
            // SAFETY: the block was taken, so nobody else writes.
            slot.content.with(|content| assert_eq!(unsafe { *content }, 7));
            // SAFETY: a block of a free list that was taken.
            block = unsafe { Block::next(block) };
            count += 1;
        }
        count
    }
}

/// The word of a heap that other threads use.
struct Heap(Notices<Run>);

impl Heap {
    fn notify(&self, run: &Run) {
        // SAFETY: the run lives as long as the model.
        unsafe { self.0.push(ptr::from_ref(run).cast_mut()) };
    }

    /// Takes the notices, of which each run has at most one. Returns the number of blocks.
    fn take(&self, run: &Run) -> usize {
        let first = self.0.take();
        if first.is_null() {
            return 0;
        }
        assert_eq!(first.cast_const(), ptr::from_ref(run));
        assert!(run.link.load(Ordering::Relaxed).is_null(), "two notices");
        let count = run.take();
        assert!(count > 0, "a notice without a block");
        count
    }
}

fn free_in_thread(run: &Arc<Run>, heap: &Arc<Heap>, slot: usize) -> thread::JoinHandle<()> {
    let (run, heap) = (run.clone(), heap.clone());
    thread::spawn(move || {
        if run.free(slot) {
            heap.notify(&run);
        }
    })
}

#[test]
fn the_owner_gets_every_block_once_and_a_notice_if_it_asked() {
    loom::model(|| {
        let (run, heap) = (Run::new(), Arc::new(Heap(Notices::new())));
        let threads: Vec<_> = (0..2).map(|slot| free_in_thread(&run, &heap, slot)).collect();
        let mut count = run.take();
        // The run is left as soon as nothing can be taken, as `Heap::refill` does.
        while count < 2 && !run.remote.ask_for_notice() {
            count += run.take();
        }
        let has_asked = count < 2;
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let noticed = heap.take(&run);
        assert_eq!(noticed > 0, has_asked);
        assert_eq!(count + noticed, 2);
    });
}

#[test]
fn a_request_is_withdrawn_or_answered_never_both() {
    loom::model(|| {
        let (run, heap) = (Run::new(), Arc::new(Heap(Notices::new())));
        assert!(run.remote.ask_for_notice());
        let thread = free_in_thread(&run, &heap, 0);
        // The owner frees the other block itself, as `Heap::free_in_full` does.
        let is_withdrawn = run.remote.withdraw();
        thread.join().unwrap();
        let noticed = heap.take(&run);
        assert_eq!(noticed == 0, is_withdrawn);
        assert_eq!(noticed + run.take(), 1);
    });
}

#[test]
fn a_heap_that_changes_its_thread_loses_no_block() {
    loom::model(|| {
        let (run, heap) = (Run::new(), Arc::new(Heap(Notices::new())));
        let unowned = Arc::new(Mutex::new(None));
        // The first owner leaves the run, then its heap.
        let first = {
            let (run, heap, unowned) = (run.clone(), heap.clone(), unowned.clone());
            thread::spawn(move || {
                let mut count = 0;
                while !run.remote.ask_for_notice() {
                    count += run.take();
                }
                count += heap.take(&run);
                *unowned.lock().unwrap() = Some(heap);
                count
            })
        };
        let other = free_in_thread(&run, &heap, 0);
        // The second one adopts the heap, if it is there already.
        let adopted = unowned.lock().unwrap().take();
        let mut count = adopted.map_or(0, |heap: Arc<Heap>| heap.take(&run));
        count += first.join().unwrap();
        other.join().unwrap();
        count += heap.take(&run);
        assert_eq!(count, 1);
    });
}

#[test]
fn a_run_that_changes_its_heap_notifies_the_one_that_asks() {
    loom::model(|| {
        let (run, heaps) = (Run::new(), [Arc::new(Heap(Notices::new())), Arc::new(Heap(Notices::new()))]);
        // The number of the run's heap, as the word for its owner.
        let owner = Arc::new(AtomicUsize::new(0));
        // The first heap was left with the run, which has a free block. Another one takes it, and
        // fills it.
        let other = {
            let (run, heap, owner) = (run.clone(), heaps[1].clone(), owner.clone());
            thread::spawn(move || {
                owner.store(1, Ordering::Relaxed);
                let mut count = 0;
                while count == 0 && !run.remote.ask_for_notice() {
                    count += run.take();
                }
                (count, heap)
            })
        };
        // A third thread frees a block meanwhile, as `free_elsewhere` does.
        let is_noticed = run.free(0);
        if is_noticed {
            heaps[owner.load(Ordering::Relaxed)].notify(&run);
        }
        let (count, heap) = other.join().unwrap();
        let noticed = heap.take(&run);
        assert_eq!(noticed == 1, is_noticed);
        assert_eq!(count + noticed, 1);
        assert_eq!(heaps[0].take(&run), 0);
    });
}

#[test]
fn runs_of_two_threads_notices_all_arrive() {
    loom::model(|| {
        let (runs, heap) = ([Run::new(), Run::new()], Arc::new(Heap(Notices::new())));
        let threads: Vec<_> = runs
            .iter()
            .map(|run| {
                assert!(run.remote.ask_for_notice());
                free_in_thread(run, &heap, 0)
            })
            .collect();
        let mut seen = Vec::new();
        let take = |seen: &mut Vec<*mut Run>| {
            let mut run = heap.0.take();
            while !run.is_null() {
                seen.push(run);
                // SAFETY: the runs live as long as the model.
                run = unsafe { (*run).link.load(Ordering::Relaxed) };
            }
        };
        take(&mut seen);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        take(&mut seen);
        assert_eq!(seen.len(), 2);
        assert_ne!(seen[0], seen[1]);
        assert_eq!(runs.iter().map(|run| run.take()).sum::<usize>(), 2);
    });
}
