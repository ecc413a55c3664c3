//! The sandbox that a program puts itself in: `seccomp`, by filter or in strict mode.
//!
//! From then on the kernel may answer a system call by killing the process, and it cannot be asked which ones. So from
//! then on nothing here makes any: see [`sys::call`](crate::sys::call). A filter that was in force before the program
//! began (a container's, a service manager's) does not count: it lets programs start, so it lets us.
//!
//! It holds for the process as a whole, and for the children that it forks: the kernel has filters by thread, and those of
//! the others are not worth a look at each of our calls.

use core::sync::atomic::{AtomicU32, Ordering};

/// The attempts to enter one that have not failed.
static ENTERED: AtomicU32 = AtomicU32::new(0);

/// True once the program has entered a sandbox.
#[inline(always)]
pub fn is_entered() -> bool {
    ENTERED.load(Ordering::Relaxed) != 0
}

/// Says that the program is about to enter one: before any filter can be in force.
pub fn enter() {
    ENTERED.fetch_add(1, Ordering::SeqCst);
}

/// Takes back one [`enter`], which the kernel has refused.
pub fn refused() {
    ENTERED.fetch_sub(1, Ordering::SeqCst);
}
