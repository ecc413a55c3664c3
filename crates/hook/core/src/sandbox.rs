//! The sandbox that a program puts itself in: `seccomp`, by filter or in strict mode.
//!
//! From then on the kernel may kill the process for a system call, and it cannot be asked for which
//! ones. So from then on nothing here makes any: see [`sys::call`](crate::sys::call). A filter that
//! was in force before the program began (a container's, a service manager's) does not count: it
//! lets programs start, so it allows our system calls.
//!
//! The state applies to the process as a whole, and to the children that it forks: the kernel has
//! filters per thread, but checking which threads have one is not worth the cost at each of our
//! system calls.

use core::sync::atomic::{AtomicU32, Ordering};

/// The number of attempts to enter a sandbox that have not failed.
static ENTERED: AtomicU32 = AtomicU32::new(0);

/// True once the program has entered a sandbox.
#[inline(always)]
pub fn is_entered() -> bool {
    ENTERED.load(Ordering::Relaxed) != 0
}

/// Declares that the program is about to enter a sandbox. Called before any filter can be in force.
pub fn enter() {
    ENTERED.fetch_add(1, Ordering::SeqCst);
}

/// Reverts one [`enter`], which the kernel has refused.
pub fn refused() {
    ENTERED.fetch_sub(1, Ordering::SeqCst);
}
