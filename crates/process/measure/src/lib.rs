//! Measures how much memory a value owns, by asking the allocator.
//!
//! ```
//! # extern crate heapledger_measure as heapledger;
//! use heapledger::{HeapSize, Meter};
//! use std::collections::HashMap;
//!
//! let mut cache: HashMap<u32, String> = HashMap::new();
//! cache.insert(1, "a page".repeat(100));
//!
//! let bytes = cache.heap_size(&mut Meter::new());
//! assert!(bytes.0 >= 600);
//! ```
//!
//! [`HeapSize`] is the memory that a value owns, without the value itself: the memory that would be
//! freed with it. The holder of the value, such as `Box`, adds the block around it. Memory with
//! several owners is [`SharedHeapSize`]: each reference has to say whether it is the owner, or
//! counts only memory that has not been counted before. Containers of any elements are measured
//! with a closure for each element, or without their elements: [`HeapContainer`].
//!
//! Sizes are those that the allocator reports ([`Meter`]), so they include slop.
//!
//! # What cannot be measured
//!
//! - Channels ([`std::sync::mpsc`]), threads and their handles, `Error`s and other types whose
//!   memory the standard library does not expose. Count the values that go through them instead:
//!   [`Counter`].
//! - `LazyLock` and `LazyCell`: measuring one would compute its value.
//! - Hash tables, B-trees and lists, and the buffer of a deque that has not wrapped around, are
//!   found by addresses inside their blocks. This needs the program's ledger; without one their
//!   sizes are computed, and [counted as such](Meter::computed_bytes).
//!
//! # Locks and cells
//!
//! A `Mutex` or an `RwLock` is locked while its value is measured: the thread must not hold it. A
//! `RefCell` that is borrowed mutably panics, as `borrow` does.

#![warn(missing_docs)]

mod allocator;
mod cells;
mod container;
mod counter;
mod crates;
mod hash;
mod heap_size;
mod meter;
mod nothing;
mod owned;
mod sequence;
mod shared;
mod sizes;
mod tree;

pub use container::HeapContainer;
pub use counter::Counter;
pub use heap_size::HeapSize;
pub use heapledger_core::Bytes;
pub use meter::{MarkCounts, Meter};
pub use shared::SharedHeapSize;
pub use sizes::Sizes;
