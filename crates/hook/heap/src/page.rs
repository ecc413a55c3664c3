//! The page: the unit in which the system gives memory, protects it and takes it back.
//!
//! Its size is asked for when the allocator starts. The allocator divides slices and counts dirty
//! memory in units of 4 KiB ([`geometry::PAGE`](crate::geometry::PAGE)) on every machine, because
//! the place of a chunk's header follows from an address by constants on the common path. A slice
//! of 64 KiB is a multiple of every page up to that size; what is smaller than a slice and goes to
//! the system is rounded to pages by the functions of this module.

use core::sync::atomic::{AtomicUsize, Ordering};

use crate::fatal;
use crate::geometry::SLICE;

/// The size of the system's pages in bytes, and the size that the allocator uses. 0: not known yet.
static SYSTEM: AtomicUsize = AtomicUsize::new(0);
static SIZE: AtomicUsize = AtomicUsize::new(0);

/// Returns the size of a page in bytes: a power of two from 4 KiB to 64 KiB. It is that of the
/// system, or a larger one from the first allocation on, if the options say so.
#[inline]
pub fn page_size() -> usize {
    match SIZE.load(Ordering::Relaxed) {
        0 => system_size(),
        size => size,
    }
}

/// Returns the size of the system's pages in bytes.
#[cold]
pub(crate) fn system_size() -> usize {
    match SYSTEM.load(Ordering::Relaxed) {
        0 => ask(),
        size => size,
    }
}

/// Asks for the system's size, and doubles it so many times, up to that of a slice. For the start.
pub(crate) fn start(shift: u32) {
    let size = ask();
    if !size.is_power_of_two() || size > SLICE {
        fatal::abort_with(format_args!("pages of {size} bytes: at most {SLICE} are supported"));
    }
    SYSTEM.store(size, Ordering::Relaxed);
    SIZE.store((size << shift.min(SLICE.ilog2())).min(SLICE), Ordering::Relaxed);
}

#[cfg(not(miri))]
fn ask() -> usize {
    const AT_PAGESZ: usize = 6;
    unsafe extern "C" {
        // A value of the auxiliary vector, which is in memory from the start of the process.
        safe fn getauxval(name: usize) -> usize;
    }
    match getauxval(AT_PAGESZ) {
        0 => crate::geometry::PAGE,
        size => size,
    }
}

/// Miri does not know the function of the C library.
#[cfg(miri)]
fn ask() -> usize {
    crate::geometry::PAGE
}

/// Rounds a number of bytes or an offset up to whole pages. `None` if that is too large.
#[inline]
pub(crate) fn checked_up(bytes: usize) -> Option<usize> {
    bytes.checked_next_multiple_of(page_size())
}

/// Rounds a number of bytes or an offset up to whole pages, for those that are not too large.
#[inline]
pub(crate) fn up(bytes: usize) -> usize {
    bytes.next_multiple_of(page_size())
}

/// Rounds an offset down to whole pages.
pub(crate) fn down(bytes: usize) -> usize {
    bytes & !(page_size() - 1)
}
