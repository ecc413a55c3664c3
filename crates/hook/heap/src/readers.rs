//! Reads of metadata by threads that hold no lock: [`read`] keeps chunks mapped meanwhile, and the
//! runs that it finds committed.
//!
//! A reader counts itself, then looks a chunk up in the radix tree. A thread that unmaps a chunk
//! takes it out of the tree, then waits until no reader is counted who may have found it. Readers
//! never wait, not even in a signal handler that interrupts a thread with a lock.
//!
//! There are two counters. A thread that waits for one sends new readers to the other, so that it
//! does not wait for those: as in userspace RCU.
//!
//! A reader that a signal handler leaves by longjmp(3) is counted for ever. So nobody waits for
//! long: the chunk then stays mapped, without its memory.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, fence};

use heapledger_core::arch::{nr, syscall};
use heapledger_core::sys;

use crate::chunk::ChunkPtr;
use crate::geometry::CHUNK;
use crate::map::{self, Range};

/// The readers of something.
struct Readers {
    counters: [AtomicUsize; 2],
    /// The counter of new readers.
    current: AtomicUsize,
    /// True if a reader was counted for longer than anybody waits.
    is_stuck: AtomicBool,
}

/// The readers of chunks.
static READERS: Readers = Readers::new();

/// The number of times that a waiting thread lets others run before it sleeps. A reader takes some
/// microseconds, unless it does not run.
const YIELDS: u32 = 100;
/// The number of milliseconds that a waiting thread sleeps.
const MILLISECONDS: u32 = 500;

/// Runs a function with the chunk that an address is in. `None` if there is no chunk. The function
/// must be short: others may wait for it.
pub(crate) fn read<R>(address: usize, read: impl FnOnce(ChunkPtr) -> R) -> Option<R> {
    let counter = READERS.begin();
    let result = (map::find(address) == Some(Range::Chunk)).then(|| {
        // SAFETY: `at` demands the address of a chunk that stays mapped: it was in the tree after
        // this reader was counted, so who takes it out waits before it is unmapped.
        read(unsafe { ChunkPtr::at(address & !(CHUNK - 1)) })
    });
    counter.fetch_sub(1, Ordering::SeqCst);
    result
}

/// Waits until no reader uses a chunk that was taken out of the radix tree before, or a run that
/// was released before. False if one does for over [`MILLISECONDS`], or at once if that was so the
/// last time.
pub(crate) fn wait() -> bool {
    READERS.wait()
}

/// Forgets the readers of the parent process: called in a child, which has one thread.
pub(crate) fn reset() {
    READERS.counters.iter().for_each(|counter| counter.store(0, Ordering::SeqCst));
}

impl Readers {
    const fn new() -> Readers {
        let counters = [const { AtomicUsize::new(0) }; 2];
        Readers { counters, current: AtomicUsize::new(0), is_stuck: AtomicBool::new(false) }
    }

    /// Counts a reader. Returns its counter, which it counts down at its end.
    fn begin(&self) -> &AtomicUsize {
        let [first, second] = &self.counters;
        let counter = if self.current.load(Ordering::Relaxed) == 0 { first } else { second };
        counter.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        counter
    }

    fn wait(&self) -> bool {
        fence(Ordering::SeqCst);
        let mut rest = if self.is_stuck.load(Ordering::Relaxed) { 0 } else { YIELDS + MILLISECONDS };
        // Each counter has to be seen at 0 once: a reader who is counted later does not find the
        // chunk.
        for (number, counter) in self.counters.iter().enumerate() {
            if counter.load(Ordering::SeqCst) == 0 {
                continue;
            }
            self.current.store(1 - number, Ordering::Relaxed);
            while counter.load(Ordering::SeqCst) != 0 {
                if rest == 0 {
                    self.is_stuck.store(true, Ordering::Relaxed);
                    return false;
                }
                rest -= 1;
                if rest >= MILLISECONDS {
                    // SAFETY: lets another thread run; no memory is involved.
                    unsafe { syscall(nr::SCHED_YIELD, [0; 6]) };
                } else {
                    sys::futex_wait(&AtomicU32::new(0), 0, Some(1));
                }
            }
        }
        self.is_stuck.store(false, Ordering::Relaxed);
        true
    }
}

#[cfg(test)]
mod tests;
