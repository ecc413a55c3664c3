//! The private mappings that this loaded object has made and not given back, and how much of them
//! is in physical memory.
//!
//! A lock-free list of pages of slots, which only grows. A mapping that finds no room in it is not
//! counted.

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use super::{MAP_ANONYMOUS, MAP_PRIVATE, PROT_READ_WRITE, call, check};
use crate::arch::nr;

const PAGE: usize = 4096;
const SLOTS: usize = PAGE / size_of::<Slot>() - 1;

#[repr(C)]
struct Slot {
    /// 0: the slot is free.
    start: AtomicUsize,
    /// The mapping's length in bytes. 0 while it is being entered or removed.
    length: AtomicUsize,
}

/// A page of slots. Zeroed, as mapped, it is empty.
#[repr(C)]
struct Page {
    next: AtomicPtr<Page>,
    reserved: usize,
    slots: [Slot; SLOTS],
}

const _: () = assert!(size_of::<Page>() == PAGE);

static FIRST: AtomicPtr<Page> = AtomicPtr::new(ptr::null_mut());

/// Returns the address of the pointer to the first page, for a tool that reads the list from
/// another process: a page has the address of the next one, a word that is not used, and 255 pairs
/// of a start and a length.
pub const fn list() -> *const () {
    (&raw const FIRST).cast()
}

/// Enters a mapping.
#[cold]
pub(super) fn enter(start: usize, length: usize) {
    let mut link = &FIRST;
    while let Some(page) = page(link).or_else(|| append(link)) {
        for slot in &page.slots {
            if slot.start.load(Ordering::Relaxed) == 0
                && slot.start.compare_exchange(0, start, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                slot.length.store(length, Ordering::Release);
                return;
            }
        }
        link = &page.next;
    }
}

/// Removes the mapping that starts there. Must be called before the mapping is given back, because
/// afterwards the kernel may reuse the address.
#[cold]
pub(super) fn remove(start: usize) {
    if let Some(slot) = slots().find(|slot| slot.start.load(Ordering::Relaxed) == start) {
        slot.length.store(0, Ordering::Relaxed);
        slot.start.store(0, Ordering::Release);
    }
}

/// Returns how many bytes of all entered mappings are in physical memory now.
pub fn bytes_resident() -> u64 {
    let ranges = slots().map(|slot| {
        // The length first: with a length that is not 0, the start is that of the same mapping, or
        // 0.
        let length = slot.length.load(Ordering::Acquire);
        (slot.start.load(Ordering::Relaxed), length)
    });
    ranges.map(|(start, length)| bytes_resident_in(start, length)).sum()
}

/// The number of pages that the kernel is asked about at once.
const ASKED: usize = 2048;

fn bytes_resident_in(start: usize, length: usize) -> u64 {
    let mut is_resident = [0_u8; ASKED];
    let mut bytes = 0;
    for from in (0..length).step_by(ASKED * PAGE) {
        let asked = (length - from).min(ASKED * PAGE);
        let pages = asked.div_ceil(PAGE);
        let arguments = [start + from, asked, is_resident.as_mut_ptr().expose_provenance(), 0, 0, 0];
        // SAFETY: mincore writes a byte for each page of the range to the vector, which has room
        // for `ASKED`; it returns an error for a range that is not mapped any more.
        if check(unsafe { call(nr::MINCORE, arguments) }).is_ok() {
            bytes += is_resident.iter().take(pages).map(|page| u64::from(page & 1)).sum::<u64>() * PAGE as u64;
        }
    }
    bytes
}

fn slots() -> impl Iterator<Item = &'static Slot> {
    core::iter::successors(page(&FIRST), |last| page(&last.next)).flat_map(|page| &page.slots)
}

fn page(link: &AtomicPtr<Page>) -> Option<&'static Page> {
    // SAFETY: null, or a mapping of a page, which is never unmapped once a link leads to it; zeroes
    // are valid atomics.
    unsafe { link.load(Ordering::Acquire).as_ref() }
}

/// Links a new page, or finds the one that another thread has linked.
fn append(link: &AtomicPtr<Page>) -> Option<&'static Page> {
    let arguments = [0, PAGE, PROT_READ_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, usize::MAX, 0];
    // SAFETY: without MAP_FIXED the kernel picks unused addresses, so no existing mapping is
    // affected.
    let new = check(unsafe { call(nr::MMAP, arguments) }).ok()?;
    let new = ptr::with_exposed_provenance_mut::<Page>(new);
    if link.compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire).is_err() {
        // SAFETY: munmap may only remove what nobody uses. This page was mapped above, and its
        // address is known here only, because the exchange that would have published it failed.
        unsafe { call(nr::MUNMAP, [new.expose_provenance(), PAGE, 0, 0, 0, 0]) };
    }
    page(link)
}

#[cfg(all(test, not(miri)))]
mod tests;
