//! The bytes that the allocator has mapped, and their limit.

use core::sync::atomic::{AtomicUsize, Ordering};

use heapledger_core::sys::Errno;

use crate::options;

/// The error of a request that is over the limit: `ENOMEM`.
pub(crate) const EXCEEDED: Errno = Errno(12);

static MAPPED: AtomicUsize = AtomicUsize::new(0);

/// Counts bytes that are about to be mapped. False if that would be more than the limit: then they
/// are not counted.
pub(crate) fn take(bytes: usize) -> bool {
    let sum = |mapped: usize| mapped.checked_add(bytes).filter(|&sum| sum <= options::limit());
    MAPPED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum).is_ok()
}

/// Uncounts bytes that were unmapped, or that could not be mapped.
pub(crate) fn give_back(bytes: usize) {
    MAPPED.fetch_sub(bytes, Ordering::Relaxed);
}

/// Returns the bytes that are mapped.
pub(crate) fn mapped() -> usize {
    MAPPED.load(Ordering::Relaxed)
}
