//! The malloc family as a loaded object exports it: each call goes through the hook table, and
//! observers are notified.
//!
//! Linking this crate defines `malloc` and the others, for a whole program: it is for libraries
//! that do nothing else. Such a library defines its start-up code as a Rust function, which
//! [`initialise`] calls at the very first call:
//!
//! ```ignore
//! #[unsafe(no_mangle)]
//! fn heapledger_family_starts(objects: &heapledger_interpose::next::Objects<'_>) {
//!     // SAFETY: here, once.
//!     unsafe { dispatch::set_underlying(heapledger_interpose::next_allocator(objects)) };
//! }
//! ```
//!
//! It also has a `heapledger_family_sandbox`: see [`sandbox`].
#![no_std]
#![allow(unreachable_pub, reason = "exported C symbols must be `pub`, though no Rust code names them")]

#[cfg(not(target_arch = "x86_64"))]
compile_error!("the thunks of the malloc family are written for x86-64 only");

pub mod allocators;
mod arch;
mod arenas;
mod calls;
mod entry_points;
pub mod namespaces;
mod program;
mod purges;
pub mod sandbox;
mod thunks;
mod underlying;

use core::ffi::CStr;
use core::sync::atomic::{AtomicU32, Ordering};

use heapledger_core::hooks::{Functions, dispatch, dispatch_path};
use heapledger_core::lock::Lock;

pub use heapledger_arenas::over_malloc::watch_forks as watch_forks_of_arenas;
pub use heapledger_dynsym as next;

pub use arenas::refuse_new_arenas;
pub use entry_points::{on_request, watch_malloc};
pub use program::{GIVEN, PROGRAM};
pub use underlying::{next_allocator, set_errno};

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

// Each loaded object has its own, and a process may have two.
core::arch::global_asm!(".hidden heapledger_family_starts");

unsafe extern "Rust" {
    /// Sets the underlying allocator ([`dispatch::set_underlying`]), and does everything else that
    /// has to be done before the first call is handled. Called once; calls of the family that it
    /// makes after setting the allocator are handled.
    safe fn heapledger_family_starts(objects: &next::Objects<'_>);
}

/// Starts the loaded object, at the first call of the family or in its constructor, whichever comes
/// first. Idempotent.
#[cold]
#[inline(never)]
pub fn initialise() {
    if IS_DONE.load(Ordering::Acquire) != 0 {
        return;
    }
    let Some(_guard) = LOCK.try_lock() else {
        // Another thread, or a look-up of ours that came back: wait for the few instructions until
        // there is an allocator.
        while !dispatch::has_underlying() && IS_DONE.load(Ordering::Acquire) == 0 {
            core::hint::spin_loop();
        }
        return;
    };
    if IS_DONE.load(Ordering::Acquire) != 0 {
        return;
    }
    // SAFETY: this is the first call of the family in this object, or its constructor. A process
    // begins with one thread, and makes its second one by `pthread_create`, which calls `calloc`
    // first: so if the object is loaded from the start, that first call precedes all other threads.
    // If it is loaded later, nobody can call it before its constructor runs, with the dynamic
    // linker's lock of loading held. The look-ups below load and unload nothing.
    let objects = unsafe { next::Objects::at_start() };
    underlying::find_errno(&objects);
    sandbox::look_up(&objects);
    heapledger_family_starts(&objects);
    dispatch_path::watch(entry_points::set_dispatch_path);
    IS_DONE.store(1, Ordering::Release);
}

/// Returns the table that the malloc family calls, at the very first call.
#[cold]
#[inline(never)]
fn functions() -> &'static Functions {
    initialise();
    // SAFETY: `unwrap_unchecked` requires `Some`, which `dispatch::functions` returns from the call
    // of `set_underlying` on. `initialise` returns only after that call: it has made it by
    // `heapledger_family_starts`, or waited for `has_underlying` or for `IS_DONE`, which is set
    // later.
    unsafe { dispatch::functions().unwrap_unchecked() }
}
