//! How much memory a value owns, asked of the allocator.
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
//! [`HeapSize`] is the memory that a value owns, the value itself not included: what would be freed with it. A block around
//! the value is added by whatever holds it there, such as `Box`. What several own together is [`SharedHeapSize`]: each way
//! to it has to say whether it is the owner, or one that counts only what nobody has counted before. Containers of anything
//! are measured with a closure for each element, or without their elements: [`HeapContainer`].
//!
//! Sizes are asked of the allocator ([`Meter`]), so they have what it gave beyond what it was asked for.
//!
//! # What cannot be measured
//!
//! - Channels ([`std::sync::mpsc`]), threads and their handles, `Error`s and other things that keep their memory to
//!   themselves: the standard library shows no way in. Count what goes through them instead: [`Counter`].
//! - `LazyLock` and `LazyCell`: looking into one would compute its value.
//! - Hash tables, B-trees and lists, and what is behind a deque that has not wrapped around, are found by addresses inside
//!   their blocks. That takes the program's ledger; without one they are computed, and [counted as
//!   such](Meter::computed_bytes).
//!
//! # Locks and cells
//!
//! A `Mutex` or an `RwLock` is locked while what is in it is measured: the thread must not hold it. A `RefCell` that is
//! borrowed mutably panics, as `borrow` does.

#![warn(missing_docs)]

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
