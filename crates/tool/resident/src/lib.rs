//! Where the memory of a process is, seen from outside.
//!
//! [`HeapMap::of_process`] reads the chunks and runs of Heapledger's allocator from the memory of a
//! process, which runs on meanwhile and does nothing for it. Everything that is read is taken for
//! hostile: numbers are checked before they are used, and the amount of memory is bounded.

mod error;
mod heap;
mod layout;
mod memory;
mod process;

pub use self::error::{HeapMapError, Result};
pub use self::heap::{Arena, BinUse, Chunk, HeapMap, HugeBlock, Run, Slice, Totals};
pub use self::memory::Memory;

#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
