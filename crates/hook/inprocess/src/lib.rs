//! The ledger inside a program: an observer of the allocator's calls that fills a [`SharedLedger`].
//!
//! There is one per loaded object, and it is an ordinary [hook](heapledger_core::hooks): nothing of
//! it runs until [`control::start`] installs it.
//!
//! - [`capture`]: stacks for other hooks of the loaded object.
//! - [`control`]: start, stop, pause, another rate or stack mode, while other threads allocate.
//! - [`events`]: allocations and frees of sampled blocks, one by one.
//! - [`overhead`]: the cost of the ledger itself.
//!
//! Stacks are ids of [`heapledger_unwind::nodes`].
#![no_std]

pub mod capture;
pub mod control;
pub mod events;
pub mod overhead;

mod block;
mod bridge;
mod fork;
#[cfg_attr(not(all(target_arch = "x86_64", target_os = "linux")), path = "library_none.rs")]
mod library;
mod losses;
mod marks;
mod mode;
mod observe;
mod pending;
mod snapshot;
mod timing;

use heapledger_core::filter;
use heapledger_ledger::SharedLedger;

pub use block::query;
pub use bridge::BRIDGE;
pub use marks::{set_context, stamp, stamp_of};
pub use snapshot::{SnapshotError, snapshot};

/// The ledger.
pub static LEDGER: SharedLedger = SharedLedger::new();
