//! Reads of metadata by threads that hold no lock: [`read`] keeps chunks mapped meanwhile.
//!
//! A reader counts itself, then looks a chunk up in the radix tree. A thread that unmaps a chunk
//! takes it out of the tree, then waits until no reader is counted. So a reader that has found a
//! chunk may read it until it has counted itself out. Readers never wait, not even in a signal
//! handler that interrupts a thread with a lock.

use core::sync::atomic::{AtomicUsize, Ordering, fence};

use heapledger_core::arch::{nr, syscall};

use crate::chunk::ChunkPtr;
use crate::geometry::CHUNK;
use crate::map::{self, Range};

static READERS: AtomicUsize = AtomicUsize::new(0);

/// Runs a function with the chunk that an address is in. `None` if there is no chunk. The function
/// must be short: others may wait for it.
pub(crate) fn read<R>(address: usize, read: impl FnOnce(ChunkPtr) -> R) -> Option<R> {
    READERS.fetch_add(1, Ordering::SeqCst);
    fence(Ordering::SeqCst);
    let result = (map::find(address) == Some(Range::Chunk)).then(|| {
        // SAFETY: `at` demands the address of a chunk that stays mapped: it was in the tree after
        // this reader was counted, so who takes it out waits before it is unmapped.
        read(unsafe { ChunkPtr::at(address & !(CHUNK - 1)) })
    });
    READERS.fetch_sub(1, Ordering::SeqCst);
    result
}

/// Waits until no reader uses a chunk that was taken out of the radix tree before.
pub(crate) fn wait() {
    fence(Ordering::SeqCst);
    while READERS.load(Ordering::SeqCst) != 0 {
        // SAFETY: lets another thread run; no memory is involved.
        unsafe { syscall(nr::SCHED_YIELD, [0; 6]) };
    }
}

/// Forgets the readers of the parent process: called in a child, which has one thread.
pub(crate) fn reset() {
    READERS.store(0, Ordering::SeqCst);
}
