//! Where the memory of a process is, seen from outside.
//!
//! [`HeapMap::of_process`] reads the chunks and runs of Heapledger's allocator from the memory of a
//! process, which runs on meanwhile and does nothing for it. [`ResidentMemory::of_process`] puts
//! every resident page of a process into a part, of any process: files, stacks, the heap of glibc's
//! malloc, and so on. Everything that is read is taken for hostile: numbers are checked before they
//! are used, and the amount of memory is bounded.

mod account;
mod advice;
mod allocators;
mod error;
mod fill;
mod fold;
mod glibc;
mod heap;
mod heap_pages;
mod huge_pages;
mod idle;
mod layout;
mod memory;
mod pages;
mod process;
mod process_pages;
mod reader;
mod scan;
mod smaps;
#[cfg(test)]
mod testing;
mod threads;
mod zero_frames;
mod zeroes;

pub use self::account::{HeapOwner, HeapUse, PartGroup, PartKind, ResidentMemory, ResidentPart};
pub use self::advice::{ResidentAdvice, ResidentFinding};
pub use self::allocators::{Allocator, AllocatorHeap};
pub use self::error::{HeapMapError, ResidentError};
pub use self::fold::{BlockFold, PlacedBlock, SiteFold};
pub use self::glibc::{GlibcArena, GlibcHeap, Piece};
pub use self::heap::{Arena, BinUse, Chunk, HeapMap, HugeBlock, Run, Slice, Totals};
pub use self::heap_pages::{HeapPage, HeapPages, PageSum, PageUse};
pub use self::huge_pages::HugePages;
pub use self::idle::{IdleMapping, IdleMemory};
pub use self::process::SearchedFiles;
pub use self::process_pages::LiveRange;
pub use self::smaps::Amounts;

#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
