//! The malloc family as an artefact exports it: each call goes through the hook table, and the observers are told.
//!
//! Linking this crate defines `malloc` and the others, for a whole program: it is for libraries that do nothing else. Such
//! an artefact says how it starts, by a Rust function that the first call of all makes, and [`initialise`] calls:
//!
//! ```ignore
//! #[unsafe(no_mangle)]
//! fn heapledger_family_starts() {
//!     // SAFETY: here, once.
//!     unsafe { serve::set_bottom(heapledger_family::next_allocator()) };
//! }
//! ```
#![no_std]
#![allow(unreachable_pub, reason = "exported C symbols must be `pub`, though no Rust code names them")]

#[cfg(not(target_arch = "x86_64"))]
compile_error!("the thunks of the malloc family are written for x86-64 only");

mod arch;
mod bottom;
mod doors;
mod thunks;

use core::sync::atomic::{AtomicU32, Ordering};

use heapledger_core::hooks::{Functions, serve, way};
use heapledger_core::lock::Lock;

pub use heapledger_loader as next;

pub use bottom::{next_allocator, set_errno};
pub use thunks::PROGRAM;

static IS_DONE: AtomicU32 = AtomicU32::new(0);
static LOCK: Lock = Lock::new();

// Each artefact's own, though a process may have two.
core::arch::global_asm!(".hidden heapledger_family_starts");

unsafe extern "Rust" {
    /// Names the allocator below ([`serve::set_bottom`]), and does what else has to be done before the first call is
    /// served. Called once; calls of the family that it makes after naming the allocator are served.
    safe fn heapledger_family_starts();
}

/// Starts the artefact, at the first call of the family or in its constructor, whichever comes first. Idempotent.
#[cold]
#[inline(never)]
pub fn initialise() {
    if IS_DONE.load(Ordering::Acquire) != 0 {
        return;
    }
    let Some(_guard) = LOCK.try_lock() else {
        // Another thread, or a look-up of ours that came back: the few instructions until there is an allocator are
        // waited for.
        while !serve::has_bottom() && IS_DONE.load(Ordering::Acquire) == 0 {
            core::hint::spin_loop();
        }
        return;
    };
    if IS_DONE.load(Ordering::Acquire) != 0 {
        return;
    }
    bottom::find_errno();
    heapledger_family_starts();
    way::watch(doors::open);
    IS_DONE.store(1, Ordering::Release);
}

/// What the malloc family calls, at its first call of all.
#[cold]
#[inline(never)]
fn functions() -> &'static Functions {
    initialise();
    // SAFETY: it returns only when there is an allocator.
    unsafe { serve::functions().unwrap_unchecked() }
}
