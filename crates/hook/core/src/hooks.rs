//! The hook table: everything that watches or replaces the malloc family hangs on it.
//!
//! Each artefact that observes an allocator (the preload library, a program that links the library, `libheapledger.so`)
//! has a registry of its own, of two lists:
//!
//! - [`Observer`]s are told of each call: of an allocation after it succeeded, of a free before it happens. The recorder
//!   and the ledger inside a program are observers like any other.
//! - [`Replacement`]s take the call's place. Each has the next one *below* it, and the program's own allocator is below
//!   all: see [`Functions`].
//!
//! Both are tables of C functions that live for ever. [`install_observer`] and the like may be called at any time, in any
//! thread, while others allocate; not in a signal handler.
//!
//! **Order.** By [`Observer::order`] and [`Replacement::order`], ascending; where they are equal, by who was installed
//! first, the first time. Observers are told in this order, of allocations as of frees. The replacement with the
//! smallest number is nearest to the program: it gets the call, and what is below it comes after it. Observers see what
//! the program sees: the result of the uppermost replacement, once, and not the calls that replacements make below.
//!
//! **What concurrent calls see.** A call sees a hook whole or not at all, at most once, and in order. Once an install has
//! returned, all calls that begin later enter the hook; once a removal has returned, none that begin later does. A call
//! that began earlier may still enter the hook, or be in it, after it was removed; so a hook's code and data stay usable
//! for ever, and it is never unloaded. There is no way to wait for such calls: that would cost every call a store.
//!
//! **Slots.** A hook keeps the slot that it got when it was first installed, so that a call which is in it, removed or
//! not, finds its way on: a process knows at most [`OBSERVERS_MAX`] and [`REPLACEMENTS_MAX`] different hooks in its life,
//! and each may be installed and removed as often as one likes. What the table says is read the first time only.
//!
//! **Cost.** With nothing installed, or one observer that samples, calls do not get here ([`way`]). Otherwise a call through a pointer
//! per observer. With no replacement: nothing, the calls go to the program's own allocator as before.

#![cfg_attr(all(test, loom), allow(dead_code, reason = "only the list is tried there"))]

use core::ffi::c_void;

mod caller;
#[cfg(not(all(test, loom)))]
mod interface;
mod list;
#[cfg(all(test, loom))]
mod model;
mod observer;
#[cfg(not(all(test, loom)))]
mod registry;
mod replacement;
#[cfg(not(all(test, loom)))]
pub mod serve;
#[cfg(not(all(test, loom)))]
pub mod tell;
mod usable;
#[cfg(not(all(test, loom)))]
pub mod way;

pub use caller::Caller;
#[cfg(not(all(test, loom)))]
pub use interface::Hooks;
pub use observer::Observer;
#[cfg(not(all(test, loom)))]
pub use registry::{hold, install_observer, install_replacement, release, remove_observer, remove_replacement};
pub use replacement::{Functions, Replacement};
pub use usable::UsableSize;
#[cfg(not(all(test, loom)))]
pub use usable::{set_usable_size, usable_size};

/// What the malloc family hands out.
pub type Pointer = *mut c_void;

/// Different observers that a process can know in its life.
pub const OBSERVERS_MAX: usize = 16;
/// Different replacements that a process can know in its life.
pub const REPLACEMENTS_MAX: usize = 8;
/// The version of the tables.
pub const VERSION: u32 = 1;

/// Why a hook was not installed or removed. The numbers are those of the C interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
pub enum Error {
    /// The table is not one: null, of another version, too short, or without functions that it must have.
    Malformed = 1,
    /// As many different hooks as a process can know have been installed before.
    Full = 2,
    /// It is installed.
    AlreadyInstalled = 3,
    /// It is not installed.
    NotInstalled = 4,
    /// Replacements need an allocator whose blocks can be freed by their address alone, and this program's cannot.
    NoAllocator = 5,
}

impl Error {
    /// The error with this number, if this version knows it.
    pub const fn from_number(number: u8) -> Option<Error> {
        Some(match number {
            1 => Error::Malformed,
            2 => Error::Full,
            3 => Error::AlreadyInstalled,
            4 => Error::NotInstalled,
            5 => Error::NoAllocator,
            _ => return None,
        })
    }
}

impl core::fmt::Display for Error {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.write_str(match self {
            Error::Malformed => "the table is malformed, or of another version",
            Error::Full => "as many different hooks as a process can know have been installed before",
            Error::AlreadyInstalled => "the hook is installed already",
            Error::NotInstalled => "the hook is not installed",
            Error::NoAllocator => "this program's allocator cannot be replaced",
        })
    }
}

impl core::error::Error for Error {}
