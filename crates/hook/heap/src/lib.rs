//! A general-purpose allocator in the terms of mozjemalloc, whose common path takes no lock.
//!
//! - Memory comes in chunks of 4 MiB. A chunk is divided into slices of 64 KiB; its header
//!   has the metadata of all of them, so that none lies among the program's blocks.
//! - A run is a range of slices with blocks of one size class. Blocks over 64 KiB
//!   have a run each; blocks over 1 MiB are mappings of their own.
//! - A heap belongs to one thread, and a run to one heap. The thread takes blocks from a
//!   run's free list and gives them back to a second one; other threads give them back to a third,
//!   with one atomic exchange. When the first is empty, the second takes its place, then the
//!   third: everything that must be done now and then is done at that moment.
//! - The arena has the chunks, under one lock. It returns memory to the system when more
//!   than 1 MiB and a sixteenth of what is used lies free; there is no thread for that.
//! - A radix tree knows the chunks and the huge blocks: addresses that the allocator did not
//!   return are noticed by it when they are not the thread's own.
//!
//! Wrong frees abort the program with a message on standard error if they are noticed. Noticed are:
//!
//! - a block that is twice in the list of its own thread: with fewer than eight frees of its run
//!   between, when the list is taken; with more, if the list is the one in sixteen that is checked
//!   as a whole (in a heap of over 4 MiB, fewer than two frees, and one list in 64);
//! - a block that is twice in the list of other threads, when its thread takes that;
//! - a block that is twice in any of these lists, or in use, when its run is released;
//! - a block whose run was released and not used again, a huge block, and an address that the
//!   allocator does not have.
//!
//! A library that brings the allocator must not be unloaded: the C library calls it when threads
//! end and when the process forks. Link it with `-z nodelete`.
//!
//! For an address of others, the metadata that a chunk would have there is read first. If nothing
//! is mapped at that place, the program ends by SIGSEGV.
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: heapledger_heap::HeapAllocator = heapledger_heap::HeapAllocator;
//!
//! let text = String::from("on the heap");
//! // SAFETY: the buffer of a string is a block of the global allocator, and stays allocated.
//! let usable = unsafe { heapledger_heap::usable_size(text.as_ptr()) };
//! assert!(usable >= text.capacity());
//! ```
#![no_std]

#[cfg(test)]
extern crate std;

mod block;
mod notices;
mod remote;

// Loom has the lists that threads share only; its atomics cannot be in statics.
#[cfg(not(all(test, loom)))]
mod api;
#[cfg(not(all(test, loom)))]
mod arch;
#[cfg(not(all(test, loom)))]
mod arena;
#[cfg(not(all(test, loom)))]
mod bin;
#[cfg(not(all(test, loom)))]
mod chunk;
#[cfg(not(all(test, loom)))]
mod classes;
#[cfg(not(all(test, loom)))]
mod fatal;
#[cfg(not(all(test, loom)))]
mod geometry;
#[cfg(not(all(test, loom)))]
mod global;
#[cfg(not(all(test, loom)))]
mod heap;
#[cfg(not(all(test, loom)))]
mod huge;
#[cfg(not(all(test, loom)))]
mod locked;
#[cfg(not(all(test, loom)))]
mod map;
#[cfg(not(all(test, loom)))]
mod os;
#[cfg(not(all(test, loom)))]
mod run;
#[cfg(not(all(test, loom)))]
mod statistics;
#[cfg(not(all(test, loom)))]
mod threads;

#[cfg(not(all(test, loom)))]
pub use api::{
    ALIGNMENT, allocate, allocate_aligned, allocate_at_once, allocate_otherwise, allocate_zeroed, free, good_size,
    reallocate, trim, usable_size,
};
#[cfg(not(all(test, loom)))]
pub use global::HeapAllocator;
#[cfg(not(all(test, loom)))]
pub use statistics::{Statistics, statistics};

#[cfg(all(test, not(loom)))]
mod tests;
