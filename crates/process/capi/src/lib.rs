//! `libheapledger`: gives a C or C++ program that links or preloads it a ledger of its own.
//!
//! It exports the malloc functions ([`heapledger_interpose`]), the bridge, through which the calls
//! of `heapledger.h` reach the ledger, and the hook table. Nothing is recorded until the program
//! starts the ledger, or `HEAPLEDGER_AT_EXIT` does. Under `heapledger record` this ledger stays
//! off: the program's declarations go to the recorder, and nothing is counted twice.
#![allow(unreachable_pub, reason = "exported C symbols must be `pub`, though no Rust code names them")]

#[cfg(any(feature = "page", feature = "profile"))]
mod address;
mod allocations;
mod calls;
mod collection;
mod dmd;
mod dumps;
mod environment;
mod location;
mod misuses;
#[cfg(feature = "page")]
mod page;
mod phc;
#[cfg(feature = "profile")]
mod profile;
mod reports;
mod sandbox;
mod sized;
mod status;

use heapledger_core::bridge::Bridge;
use heapledger_core::hooks::{Hooks, dispatch};

/// Version 1 of the bridge of a program with its own ledger. Its name differs from that of the
/// recorder's bridge: if this library is part of the executable, its symbols take precedence over
/// those of a preload library.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "the name is a C symbol")]
pub static heapledger_ledger_v1: Bridge =
    Bridge { ledger: (&raw const calls::CALLS).cast(), ..heapledger_inprocess::BRIDGE };

/// The hook table of this process.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "the name is a C symbol")]
pub static heapledger_hooks_v1: Hooks = Hooks::new(&heapledger_interpose::PROGRAM);

/// True if a recorder observes the program. The program's declarations then go to the recorder and
/// not to this ledger.
fn is_recorded() -> bool {
    !heapledger_core::arch::bridge().is_null()
}

/// See [`heapledger_interpose`].
#[unsafe(no_mangle)]
fn heapledger_family_starts(objects: &heapledger_interpose::next::Objects<'_>) {
    // SAFETY: `set_underlying` requires one call, with the functions of one allocator, of which
    // four are there. `heapledger_interpose` calls this once, at its start, and `next_allocator`
    // returns those of the next allocator, or ones that return no block.
    unsafe { dispatch::set_underlying(heapledger_interpose::next_allocator(objects)) };
}
