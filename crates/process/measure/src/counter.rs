//! Counters for memory that cannot be traversed.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use heapledger_core::Bytes;

use crate::Meter;

/// Counts the bytes of blocks as they come and go: for memory that cannot be traversed, such as
/// that of a C library that lets its allocations be hooked.
///
/// Prefer a traversal if there is a way: it cannot lose count, and costs nothing until it runs.
///
/// ```
/// # extern crate heapledger_measure as heapledger;
/// use heapledger::Counter;
/// use std::alloc::{Layout, alloc, dealloc};
///
/// static CODEC: Counter = Counter::new("explicit/codec");
///
/// /// What the library calls to allocate.
/// unsafe fn codec_alloc(layout: Layout) -> *mut u8 {
///     unsafe {
///         let block = alloc(layout);
///         CODEC.allocated(block, layout.size());
///         block
///     }
/// }
///
/// /// And to free.
/// unsafe fn codec_free(block: *mut u8, layout: Layout) {
///     unsafe {
///         CODEC.freeing(block, layout.size());
///         dealloc(block, layout);
///     }
/// }
///
/// let layout = Layout::new::<[u64; 100]>();
/// let block = unsafe { codec_alloc(layout) };
/// assert!(CODEC.bytes().0 >= 800);
/// unsafe { codec_free(block, layout) };
/// assert_eq!(CODEC.bytes().0, 0);
/// ```
///
/// May be used in all threads. An update costs an atomic addition, a query of the allocator and,
/// with a ledger, a mark.
pub struct Counter {
    reporter: &'static str,
    bytes: AtomicU64,
}

impl Counter {
    /// Returns a counter at zero. The name is the reporter's: blocks are marked with it as
    /// reported.
    pub const fn new(reporter: &'static str) -> Counter {
        Counter { reporter, bytes: AtomicU64::new(0) }
    }

    /// Counts a block of `requested` bytes that has been allocated. A null pointer is ignored.
    ///
    /// # Safety
    ///
    /// As [`Meter::block`].
    pub unsafe fn allocated<T: ?Sized>(&self, start: *const T, requested: usize) {
        // SAFETY: `Meter::block` requires null, or where a live block of the global allocator
        // begins. This function's `# Safety` is the same, for the same `start`.
        let bytes = unsafe { Meter::marking_and_keeping(self.reporter).block(start, requested) };
        self.bytes.fetch_add(bytes.0, Ordering::Relaxed);
    }

    /// Uncounts a block that is about to be freed.
    ///
    /// # Safety
    ///
    /// As [`Meter::block`].
    pub unsafe fn freeing<T: ?Sized>(&self, start: *const T, requested: usize) {
        // SAFETY: `Meter::block` requires null, or where a live block of the global allocator
        // begins; the block is yet to be freed. This function's `# Safety` is the same, for the
        // same `start`.
        let bytes = unsafe { Meter::unmarking(self.reporter).block(start, requested) };
        self.bytes.fetch_sub(bytes.0, Ordering::Relaxed);
    }

    /// Returns the bytes of the blocks that have been allocated and not freed.
    pub fn bytes(&self) -> Bytes {
        Bytes(self.bytes.load(Ordering::Relaxed))
    }
}

impl fmt::Debug for Counter {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Counter").field("reporter", &self.reporter).field("bytes", &self.bytes()).finish()
    }
}
