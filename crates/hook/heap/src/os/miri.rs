//! The system's memory for Miri, which makes no system calls: blocks of the standard library's
//! allocator, one for each mapping. So Miri knows the bounds of mappings, and uses after they were
//! unmapped. No mapping is resized or moved.
#![allow(clippy::unnecessary_wraps, reason = "the signatures are those of the real system")]

use core::ptr;
use std::alloc::{GlobalAlloc, Layout, System};

use heapledger_core::sys::Errno;

use crate::geometry::PAGE;
use crate::locked::Locked;
use crate::mapped_limit;

/// The number of mappings at a time.
const MAPPINGS: usize = 256;

/// A mapping: its address and its layout.
type Mapping = Option<(*mut u8, Layout)>;

/// In an array, because a collection would come back to the allocator.
static ALL: Locked<[Mapping; MAPPINGS]> = Locked::new([None; MAPPINGS]);

fn find_free(all: &mut [Mapping; MAPPINGS]) -> Option<&mut Mapping> {
    all.iter_mut().find(|mapping| mapping.is_none())
}

pub(crate) fn last_refusal() -> (Errno, usize) {
    (Errno(12), PAGE)
}

pub(crate) fn left_mapped_bytes() -> usize {
    0
}

pub(crate) fn unmap_left() {}

pub(crate) fn refuse() {}

pub(crate) fn lock_for_fork() {}

/// # Safety
///
/// None is needed.
pub(crate) unsafe fn unlock_after_fork() {}

pub(crate) fn with_errno_kept<R>(run: impl FnOnce() -> R) -> R {
    run()
}

pub(crate) fn map(length: usize) -> *mut u8 {
    map_aligned(length, PAGE, 0)
}

pub(crate) fn map_aligned(length: usize, alignment: usize, _: usize) -> *mut u8 {
    let Ok(layout) = Layout::from_size_align(length, alignment) else { return ptr::null_mut() };
    // More than tests need; the interpreter ends if it has no memory.
    if length > 1 << 30 || length == 0 || !mapped_limit::take(length) {
        return ptr::null_mut();
    }
    // SAFETY: `alloc_zeroed` demands a layout whose size is not 0, as was just compared.
    let start = unsafe { System.alloc_zeroed(layout) };
    start.expose_provenance();
    ALL.with(|all| *find_free(all).expect("room for a mapping") = Some((start, layout)));
    start
}

/// # Safety
///
/// The range is a whole mapping, belongs to the caller, and nobody uses it any more.
pub(crate) unsafe fn unmap(start: *mut u8, length: usize) {
    let is_it = |mapping: &&mut Mapping| mapping.is_some_and(|(at, _)| at.addr() == start.addr());
    let mapping = ALL.with(|all| all.iter_mut().find(is_it).and_then(Option::take));
    let (start, layout) = mapping.expect("a mapping");
    assert_eq!(layout.size(), length);
    // SAFETY: `dealloc` demands a block with its layout: `map_aligned` has entered both, and the
    // caller gives it up.
    unsafe { System.dealloc(start, layout) };
    mapped_limit::give_back(length);
}

/// Returns the size of guard pages: there are none, because Miri checks bounds itself.
pub(crate) fn guard() -> usize {
    0
}

pub(crate) fn map_guarded(length: usize, alignment: usize, hint: usize) -> *mut u8 {
    map_aligned(length, alignment, hint)
}

/// # Safety
///
/// As for [`unmap`].
pub(crate) unsafe fn unmap_guarded(start: *mut u8, length: usize) {
    // SAFETY: `unmap` demands what this function's `# Safety` does.
    unsafe { unmap(start, length) };
}

/// # Safety
///
/// None is needed.
pub(crate) unsafe fn forbid(_: *mut u8, _: usize) {}

/// # Safety
///
/// The range is of whole pages and belongs to the caller, who does not need its content.
pub(crate) unsafe fn discard(start: *mut u8, length: usize) -> bool {
    // SAFETY: `write_bytes` demands writable memory, which the caller owns.
    unsafe { start.write_bytes(0, length) };
    true
}

/// # Safety
///
/// None is needed.
pub(crate) unsafe fn populate(_: *mut u8, _: usize) -> bool {
    false
}

/// The results of [`resize`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resized {
    #[allow(dead_code, reason = "a result of the real system")]
    Done,
    #[allow(dead_code, reason = "a result of the real system")]
    Blocked,
    Refused,
}

/// # Safety
///
/// None is needed.
pub(crate) unsafe fn resize(_: *mut u8, _: usize, _: usize) -> Resized {
    Resized::Refused
}

pub(crate) fn reserve(_: usize, _: usize) -> *mut u8 {
    ptr::null_mut()
}

/// # Safety
///
/// None is needed.
pub(crate) unsafe fn move_to(_: *mut u8, _: usize, _: *mut u8, _: usize) -> bool {
    false
}
