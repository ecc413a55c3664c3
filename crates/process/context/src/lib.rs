//! Contexts: named scopes that a program is in, which observers of its allocator see. The manual:
//! [`contexts`].

mod context;
mod future;
mod interner;
#[doc(hidden)]
#[cfg_attr(not(all(target_arch = "x86_64", target_os = "linux")), path = "quiet_none.rs")]
pub mod quiet;
mod scope;
mod stack;
#[cfg(all(not(miri), target_arch = "x86_64", target_os = "linux"))]
mod storage;
#[cfg(feature = "tracing")]
pub mod tracing;
#[doc(hidden)]
pub mod untracked;

pub use context::{Context, set_context};
pub use future::{InContext, WithContext};
pub use heapledger_core::context::Category;
pub use scope::{IgnoreGuard, ScopeGuard, ignore};

#[doc = include_str!("../MANUAL.md")]
pub mod contexts {}

/// Items that the macros use.
#[doc(hidden)]
pub mod __private {
    pub use heapledger_core::context::{Category, Frame, Name};

    pub use crate::future::InScope;
    pub use crate::interner::value;
    pub use crate::scope::Entry;
}
