//! The malloc family as an artefact exports it: each call goes through the hook table, and the observers are told.
//!
//! Linking this crate defines `malloc` and the others, for a whole program: it is for libraries that do nothing else. Such
//! an artefact says how it starts, by a Rust function that the first call of all makes, and [`initialise`] calls:
//!
//! ```ignore
//! #[unsafe(no_mangle)]
//! fn heapledger_family_starts(objects: &heapledger_family::next::Objects<'_>) {
//!     // SAFETY: here, once.
//!     unsafe { serve::set_bottom(heapledger_family::next_allocator(objects)) };
//! }
//! ```
//!
//! It also has a `heapledger_family_sandbox`: see [`sandbox`].
#![no_std]
#![allow(unreachable_pub, reason = "exported C symbols must be `pub`, though no Rust code names them")]

#[cfg(not(target_arch = "x86_64"))]
compile_error!("the thunks of the malloc family are written for x86-64 only");

mod arch;
mod bottom;
mod doors;
pub mod namespaces;
pub mod sandbox;
mod thunks;

use core::ffi::CStr;
use core::sync::atomic::{AtomicU32, Ordering};

use heapledger_core::hooks::{Functions, serve, way};
use heapledger_core::lock::Lock;

pub use heapledger_loader as next;

pub use bottom::{next_allocator, set_errno};
pub use doors::watch_malloc;
pub use thunks::PROGRAM;

/// The names under which this crate defines the malloc family.
pub const NAMES: [&CStr; 14] = [
    c"malloc",
    c"calloc",
    c"realloc",
    c"free",
    c"reallocarray",
    c"memalign",
    c"aligned_alloc",
    c"posix_memalign",
    c"valloc",
    c"pvalloc",
    c"cfree",
    c"free_sized",
    c"free_aligned_sized",
    c"malloc_usable_size",
];

static IS_DONE: AtomicU32 = AtomicU32::new(0);
static LOCK: Lock = Lock::new();

// Each artefact's own, though a process may have two.
core::arch::global_asm!(".hidden heapledger_family_starts");

unsafe extern "Rust" {
    /// Names the allocator below ([`serve::set_bottom`]), and does what else has to be done before the first call is
    /// served. Called once; calls of the family that it makes after naming the allocator are served.
    safe fn heapledger_family_starts(objects: &next::Objects<'_>);
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
    // SAFETY: this is the first call of the family in this artefact, or its constructor. A process begins with one thread, and
    // makes its second one by `pthread_create`, which calls `calloc` first: so where the artefact is there from the start, that
    // first call precedes all other threads. Where it is loaded later, nobody can call it before its constructor runs, with
    // the dynamic linker's lock of loading held. The look-ups below load and unload nothing.
    let objects = unsafe { next::Objects::at_start() };
    bottom::find_errno(&objects);
    sandbox::look_up(&objects);
    heapledger_family_starts(&objects);
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
