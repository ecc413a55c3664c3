//! Annotations: all that a Rust program says about its blocks, to whoever observes its allocator.
//!
//! - Contexts: named scopes that the program is in. The manual is [`contexts`].
//! - [Arenas](arena): parts of the heap with labels, totals and limits.
//! - [Pools](pool): heaps of the program's own.
//! - [Stamps](mod@stamp): the types of blocks, and where the program declares them.
//! - The untracked scope: blocks of our own that no observer counts.

pub mod arena;
mod context;
#[doc(hidden)]
pub mod exclusive_call;
mod future;
mod interner;
pub mod pool;
mod scope;
mod stack;
pub mod stamp;
#[cfg(all(not(miri), target_arch = "x86_64", target_os = "linux"))]
mod storage;
#[cfg(feature = "tracing")]
pub mod tracing;
#[doc(hidden)]
pub mod untracked;
#[doc(hidden)]
#[cfg_attr(not(all(target_arch = "x86_64", target_os = "linux")), path = "untracked_thread_none.rs")]
pub mod untracked_thread;

pub use arena::Arena;
pub use context::{Context, set_context};
pub use future::{InContext, WithContext};
pub use heapledger_core::context::Category;
pub use pool::Pool;
pub use scope::{IgnoreGuard, ScopeGuard, ignore};
pub use stamp::OwnsBlocks;

#[doc = include_str!("../MANUAL.md")]
pub mod contexts {}

/// Items that the macros use.
#[doc(hidden)]
pub mod __private {
    pub use heapledger_core::context::{Category, Name, ScopeFrame};

    pub use crate::future::InScope;
    pub use crate::interner::value;
    pub use crate::scope::Entry;
    pub use crate::stamp::{Place, stamped};
}
