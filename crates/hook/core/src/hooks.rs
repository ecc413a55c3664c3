//! The hook table: everything that watches or replaces the malloc family is registered here.
//!
//! Each loaded object that observes an allocator (the preload library, a program that links the
//! library, `libheapledger.so`) has a registry of its own, of two lists:
//!
//! - [`Observer`]s are notified of each call: of an allocation after it succeeded, of a free before
//!   it happens. The recorder and the ledger inside a program are observers like any other.
//! - [`Replacement`]s handle the call instead of the allocator. Each can call the next one *below*
//!   it, and the program's own allocator is below all: see [`Functions`].
//!
//! Both are tables of C functions that live for ever. [`install_observer`] and the like may be
//! called at any time, in any thread, while others allocate; not in a signal handler.
//!
//! **Order.** By [`Observer::order`] and [`Replacement::order`], ascending; if these are equal, by
//! the time of the first installation. Observers are notified in this order, both of allocations
//! and of frees. The replacement with the smallest number is nearest to the program: it gets the
//! call first. Observers see what the program sees: the result of the uppermost replacement, once,
//! and not the calls that replacements make below.
//!
//! **Concurrent calls.** A call sees a hook whole or not at all, at most once, and in order. Once
//! an install has returned, all calls that begin later enter the hook; once a removal has returned,
//! none that begin later does. A call that began earlier may still enter the hook, or be in it,
//! after the removal; so a hook's code and data stay usable for ever, and it is never unloaded.
//! There is no way to wait for such calls, because that would cost every call a store.
//!
//! **Slots.** A hook keeps the slot that it got when it was first installed, so that a call which
//! is in it, removed or not, finds its way on. A process can know at most [`OBSERVERS_MAX`] and
//! [`REPLACEMENTS_MAX`] different hooks in its life; each may be installed and removed any number
//! of times. The table of a hook is read the first time only.
//!
//! **Cost.** With nothing installed, or one observer that samples, calls do not get here
//! ([`dispatch_path`]). Otherwise each observer costs a call through a pointer. Without
//! replacements there is no further cost: the calls go to the program's own allocator as before.

#![cfg_attr(all(test, loom), allow(dead_code, reason = "only the list is tried there"))]

use core::ffi::c_void;

pub mod arena;
mod caller;
#[cfg(not(all(test, loom)))]
pub mod dispatch;
#[cfg(not(all(test, loom)))]
pub mod dispatch_path;
#[cfg(not(all(test, loom)))]
mod installed;
#[cfg(not(all(test, loom)))]
mod interface;
mod list;
#[cfg(all(test, loom))]
mod model;
#[cfg(not(all(test, loom)))]
pub mod notify;
mod observer;
#[cfg(not(all(test, loom)))]
mod registry;
mod replacement;
mod usable;

pub use arena::{Arena, Purge};
pub use caller::Caller;
#[cfg(not(all(test, loom)))]
pub use interface::Hooks;
pub use observer::{ArenaAllocated, ArenaReallocarrayEnds, Observer};
#[cfg(not(all(test, loom)))]
pub use registry::{hold, install_observer, install_replacement, release, remove_observer, remove_replacement};
pub use replacement::{Functions, Replacement};
pub use usable::{BlockAllocator, UsableSize};
#[cfg(not(all(test, loom)))]
pub use usable::{set_block_allocator, set_usable_size, usable_size};

/// The type of the pointers that the malloc family returns.
pub type Pointer = *mut c_void;

/// The number of different observers that a process can know in its life.
pub const OBSERVERS_MAX: usize = 16;
/// The number of different replacements that a process can know in its life.
pub const REPLACEMENTS_MAX: usize = 8;
/// The version of the tables.
pub const VERSION: u32 = 1;

/// The reason why a hook was not installed or removed. The numbers are those of the C interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
pub enum HookError {
    /// The table is null, of another version, too short, or without functions that it must have.
    Malformed = 1,
    /// The process has already known its maximum number of different hooks.
    Full = 2,
    /// The hook is installed already.
    AlreadyInstalled = 3,
    /// The hook is not installed.
    NotInstalled = 4,
    /// Replacements need an allocator whose blocks can be freed by their address alone, and this
    /// program's cannot.
    NoAllocator = 5,
}

impl HookError {
    /// Returns the error with this number, if this version knows it.
    pub const fn from_number(number: u8) -> Option<HookError> {
        Some(match number {
            1 => HookError::Malformed,
            2 => HookError::Full,
            3 => HookError::AlreadyInstalled,
            4 => HookError::NotInstalled,
            5 => HookError::NoAllocator,
            _ => return None,
        })
    }
}

impl core::fmt::Display for HookError {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.write_str(match self {
            HookError::Malformed => "the table is malformed, or of another version",
            HookError::Full => "as many different hooks as a process can know have been installed before",
            HookError::AlreadyInstalled => "the hook is installed already",
            HookError::NotInstalled => "the hook is not installed",
            HookError::NoAllocator => "this program's allocator cannot be replaced",
        })
    }
}

impl core::error::Error for HookError {}
