//! Every byte of a Rust program's heap accounted for.
#![forbid(unsafe_code)]

pub use heapledger_allocator::Allocator;
pub use heapledger_core::{Blocks, Bytes, Serial, ThreadId, hooks};
pub use heapledger_inspect::*;
