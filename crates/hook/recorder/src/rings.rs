//! The rings that this process has mapped, so that a forked child can leave them to its parent.
//!
//! A child inherits the mappings, but not the blocks of threads by which rings are found. It cannot
//! unmap the rings: a signal handler that has interrupted the recorder may fork, and the child then
//! goes on in the middle of an event. So it maps private memory in their place, which takes no
//! memory as long as nobody touches it. From then on such an event is written to nowhere, and the
//! memory of a ring is free once the parent and the recorder have unmapped it.

use core::sync::atomic::{AtomicUsize, Ordering};

use heapledger_core::sys;
use heapledger_wire::ring::{HEADER_LENGTH, Ring};
use heapledger_wire::session::ImageCounters;

/// The most rings that are known. A child leaves others mapped.
const RINGS_MAX: usize = 4096;

/// The addresses of the mappings, with the logarithm of the number of words in the low bits; 0 for
/// none. Most of the pages here are never touched.
static RINGS: [AtomicUsize; RINGS_MAX] = [const { AtomicUsize::new(0) }; RINGS_MAX];
/// The number of entries that have ever been used.
static USED: AtomicUsize = AtomicUsize::new(0);

const _: () = assert!(HEADER_LENGTH > usize::BITS as usize);

/// Enters a ring that has been mapped.
pub(crate) fn enter(ring: &Ring) {
    let word = ring.mapping().as_ptr().expose_provenance() | ring.capacity().trailing_zeros() as usize;
    let take = |entry: &AtomicUsize| entry.compare_exchange(0, word, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    if let Some(at) = RINGS.iter().position(take) {
        USED.fetch_max(at + 1, Ordering::Release);
    }
}

/// Removes a ring. To be called before it is unmapped: the address may be anybody's afterwards.
pub(crate) fn remove(ring: &Ring) {
    let start = ring.mapping().as_ptr().expose_provenance();
    let entries = RINGS.iter().take(USED.load(Ordering::Acquire));
    let is_it = |entry: &&AtomicUsize| entry.load(Ordering::Relaxed) & !(HEADER_LENGTH - 1) == start;
    for entry in entries.filter(is_it) {
        entry.store(0, Ordering::Release);
    }
}

/// Leaves all rings to the parent. Of its common ring the header stays, if `counters` is in it.
/// Call in a forked child that has no ring of its own.
pub(crate) fn leave_to_parent(counters: *const ImageCounters) {
    let header = counters.expose_provenance() & !(HEADER_LENGTH - 1);
    for entry in RINGS.iter().take(USED.load(Ordering::Acquire)) {
        let word = entry.swap(0, Ordering::AcqRel);
        if word == 0 {
            continue;
        }
        let (start, logarithm) = (word & !(HEADER_LENGTH - 1), word & (HEADER_LENGTH - 1));
        let length = Ring::mapping_length(size_of::<u64>() << logarithm);
        let kept = if start == header { HEADER_LENGTH } else { 0 };
        replace(start + kept, length - kept);
    }
}

/// Leaves the header of a common ring to the parent, in which these counters are.
pub(crate) fn leave_header(counters: *const ImageCounters) {
    replace(counters.expose_provenance() & !(HEADER_LENGTH - 1), HEADER_LENGTH);
}

/// Maps private memory in the place of a part of a ring.
fn replace(start: usize, length: usize) {
    let start = core::ptr::with_exposed_provenance_mut(start);
    // SAFETY: `replace_private` requires a part of a mapping of `map_shared` whose users cope with
    // other content: rings are mapped by it, and are known here only while they are mapped. All of
    // a ring is atomic. In this process only an event that a fork has interrupted may still use it,
    // and a thread that counts in the header; neither needs what it has written.
    let replaced = unsafe { sys::replace_private(start, length) };
    // Otherwise it stays as it was.
    let _ = replaced;
}
