//! A heap, the thread that has it, and a thread that disposes of its arena, in every order.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p heapledger-heap --release --lib model` runs it.

extern crate std;

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::sync::Mutex;
use loom::thread;

use super::*;

/// A heap whose content loom watches, and the lock of its arena.
struct Heap {
    membership: Membership,
    content: UnsafeCell<u32>,
    lock: Mutex<()>,
}

// SAFETY: the model's threads access the content only while it is theirs, which is what loom
// checks.
unsafe impl Sync for Heap {}
// SAFETY: no part of the heap belongs to the thread that made it.
unsafe impl Send for Heap {}

impl Heap {
    /// Returns a heap of arena 5 that its thread has used.
    fn new() -> Arc<Heap> {
        let heap = Heap { membership: Membership::new(), content: UnsafeCell::new(0), lock: Mutex::new(()) };
        heap.membership.join(5);
        heap.touch();
        Arc::new(heap)
    }

    /// Writes to the content, as all work in a heap does.
    fn touch(&self) {
        // SAFETY: the content is this thread's at the moment, which is what loom checks.
        self.content.with_mut(|content| unsafe { *content += 1 });
    }

    /// Disposes of the arena, as `SharedArena::dispose` does.
    fn dispose(&self) {
        let _guard = self.lock.lock().unwrap();
        self.touch();
        self.membership.retire();
    }

    /// Does work in the background, as `SharedArena::trim_own` and `leave` do. True if the heap was
    /// still of its arena.
    fn visit(&self) -> bool {
        let _guard = self.lock.lock().unwrap();
        let is_live = !self.membership.is_retired();
        if is_live {
            self.touch();
        }
        is_live
    }
}

#[test]
fn a_retired_heap_is_used_again_after_the_disposal() {
    loom::model(|| {
        let heap = Heap::new();
        let disposer = {
            let heap = heap.clone();
            thread::spawn(move || heap.dispose())
        };
        // The thread needs a heap for arena 7, and takes this one if it is retired: without a lock.
        let is_taken = heap.membership.is_retired();
        if is_taken {
            heap.touch();
            heap.membership.join(7);
        }
        disposer.join().unwrap();
        assert_eq!(heap.membership.id(), if is_taken { 7 } else { 0 });
    });
}

#[test]
fn a_thread_may_visit_and_leave_its_heap_during_the_disposal() {
    loom::model(|| {
        let heap = Heap::new();
        let disposer = {
            let heap = heap.clone();
            thread::spawn(move || heap.dispose())
        };
        let first = heap.visit();
        let second = heap.visit();
        assert!(first || !second, "retired, then of the arena again");
        disposer.join().unwrap();
        assert!(!heap.visit());
    });
}
