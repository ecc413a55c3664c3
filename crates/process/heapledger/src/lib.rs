//! Every byte of a Rust program's heap accounted for.
#![forbid(unsafe_code)]

pub use heapledger_allocator::Allocator;
#[doc(inline)]
pub use heapledger_context::contexts;
#[cfg(feature = "tracing")]
pub use heapledger_context::tracing;
#[doc(hidden)]
pub use heapledger_context::{__entry, __private};
pub use heapledger_context::{Category, Context, IgnoreGuard, InContext, ScopeGuard, WithContext};
pub use heapledger_context::{category, context, ignore, set_context};
pub use heapledger_core::{Blocks, Bytes, Serial, ThreadId, hooks};
pub use heapledger_derive::in_context;
pub use heapledger_inspect::*;
pub use heapledger_pool::Pool;
