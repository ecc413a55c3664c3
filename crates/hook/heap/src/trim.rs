//! The return of all memory that is free.

use crate::arena::purge;
use crate::{huge, os, threads};

/// Returns all memory to the system that is free in this thread's heaps, in those of ended threads,
/// and in the arenas. Returns the number of bytes that went back meanwhile, by this and other
/// threads: pages of chunks that may have had memory, and the mapping that was kept for the next
/// huge block. Those of huge blocks that other threads freed are not among them. Takes a system
/// call for each range of free pages.
///
/// For programs that are told that memory is short, and for reports: it is what a button *Minimize
/// memory usage* does.
pub fn trim() -> usize {
    let before = purge::bytes_returned();
    threads::trim();
    let kept = huge::tick(true);
    purge::all(c"trim");
    os::unmap_left();
    purge::bytes_returned().saturating_sub(before) + kept
}
