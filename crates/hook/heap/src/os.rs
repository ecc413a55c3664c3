//! The system calls that the allocator makes. None changes `errno`. A sandbox of the program may
//! refuse them: then there is no memory.

#[cfg(target_os = "linux")]
use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};

use heapledger_core::arch::{nr, syscall};
use heapledger_core::sys::{Errno, check};

use crate::fatal;
use crate::geometry::PAGE;
use crate::locked::Locked;
use crate::page::page_size;
use crate::{mapped_limit, options};

const ENOMEM: Errno = Errno(12);

const PROT_NONE: usize = 0;
const PROT_READ_WRITE: usize = 1 | 2;
const MAP_PRIVATE_ANONYMOUS: usize = 2 | 0x20;
const MAP_NORESERVE: usize = 0x4000;
const MREMAP_MAYMOVE_FIXED: usize = 1 | 2;
const MADV_DONTNEED: usize = 4;
const MADV_NOHUGEPAGE: usize = 15;
const MADV_POPULATE_WRITE: usize = 23;

/// The length of the mapping that the system refused last, and the error in its lower bits, which
/// are 0 in the length of whole pages. Another thread may be refused meanwhile; nothing depends on
/// this but how long is waited.
static LAST_REFUSAL: AtomicUsize = AtomicUsize::new(0);

/// The number of unmappings. A thread counts one before it makes the call, and reads the number
/// after a call that maps memory. So all uses of addresses by one thread happen before their uses
/// by another one that gets the same addresses later. Only the kernel knows that otherwise.
static UNMAPPINGS: AtomicUsize = AtomicUsize::new(0);

/// The ranges that could not be unmapped, each with the description of the next one at its start.
struct LeftMapped {
    first: *mut Left,
    bytes: usize,
}

/// A range that could not be unmapped, described in its first bytes.
struct Left {
    next: *mut Left,
    length: usize,
}

/// The ranges that could not be unmapped. Locked after everything else.
static LEFT_MAPPED: Locked<LeftMapped> = Locked::new(LeftMapped { first: ptr::null_mut(), bytes: 0 });

/// Returns the error and the length of the mapping that the system refused last. The length is 0 if
/// the system was not asked: with the error [`mapped_limit::EXCEEDED`], or with 0 after [`refuse`].
pub(crate) fn last_refusal() -> (Errno, usize) {
    let word = LAST_REFUSAL.load(Ordering::Relaxed);
    (Errno((word % PAGE) as i32), word - word % PAGE)
}

/// Returns the bytes of addresses that could not be unmapped.
pub(crate) fn left_mapped_bytes() -> usize {
    LEFT_MAPPED.with(|left| left.bytes)
}

/// Unmaps the ranges that could not be unmapped before, as far as that is possible now.
pub(crate) fn unmap_left() {
    let mut next = LEFT_MAPPED.with(|left| core::mem::replace(&mut left.first, ptr::null_mut()));
    while !next.is_null() {
        let start = next.cast();
        // SAFETY: `read` demands a description: `leave_mapped` has written it there, and nobody
        // else uses the range, which was taken out of the list.
        let range = unsafe { next.read() };
        next = range.next;
        LEFT_MAPPED.with(|left| left.bytes -= range.length);
        // SAFETY: `unmap_uncounted` demands memory of ours that nobody uses: that of the range.
        unsafe { unmap_uncounted(start, range.length) };
    }
}

/// Notes that memory is refused by an arena's limit, or by the program's functions for chunks: the
/// system was not asked.
pub(crate) fn refuse() {
    LAST_REFUSAL.store(0, Ordering::Relaxed);
}

/// Locks what this module locks, for a fork.
pub(crate) fn lock_for_fork() {
    LEFT_MAPPED.lock_for_fork();
}

/// Unlocks after a fork, in both processes.
///
/// # Safety
///
/// This thread, or the one that it was copied from, has called [`lock_for_fork`].
pub(crate) unsafe fn unlock_after_fork() {
    // SAFETY: `unlock_after_fork` demands what this function's `# Safety` does.
    unsafe { LEFT_MAPPED.unlock_after_fork() };
}

/// Runs a function that may change `errno`, and sets it back.
#[cfg(target_os = "linux")]
pub(crate) fn with_errno_kept<R>(run: impl FnOnce() -> R) -> R {
    unsafe extern "C" {
        safe fn __errno_location() -> *mut c_int;
    }
    let errno = __errno_location();
    // SAFETY: the C library returns the address of this thread's `errno`, which only this thread
    // accesses.
    let before = unsafe { *errno };
    let result = run();
    // SAFETY: the same address in the same thread.
    unsafe { *errno = before };
    result
}

/// Runs a function. Elsewhere nothing here can fail for lack of memory that might come.
#[cfg(not(target_os = "linux"))]
pub(crate) fn with_errno_kept<R>(run: impl FnOnce() -> R) -> R {
    run()
}

/// Maps zeroed memory, at `hint` if that is free (0: anywhere). Null if there is none.
fn map_at(hint: usize, length: usize, protection: usize) -> *mut u8 {
    let flags = MAP_PRIVATE_ANONYMOUS | if protection == PROT_NONE { MAP_NORESERVE } else { 0 };
    // SAFETY: without MAP_FIXED the kernel picks unused addresses, so no memory of anybody is
    // affected. No argument is a pointer that the kernel reads or writes.
    let answer = unsafe { syscall(nr::MMAP, [hint, length, protection, flags, usize::MAX, 0]) };
    match check(answer) {
        Ok(start) => {
            UNMAPPINGS.load(Ordering::Acquire);
            ptr::with_exposed_provenance_mut(start)
        }
        Err(error) => {
            let length = length.checked_next_multiple_of(PAGE).unwrap_or(usize::MAX - (PAGE - 1));
            LAST_REFUSAL.store(length | error.0 as usize, Ordering::Relaxed);
            ptr::null_mut()
        }
    }
}

/// Maps zeroed memory of whole pages. Null if there is none.
pub(crate) fn map(length: usize) -> *mut u8 {
    counted(length, || map_at(0, length, PROT_READ_WRITE))
}

/// Counts the bytes that a function maps. Null if they are more than the limit.
fn counted(length: usize, map: impl FnOnce() -> *mut u8) -> *mut u8 {
    if !mapped_limit::take(length) {
        LAST_REFUSAL.store(mapped_limit::EXCEEDED.0 as usize, Ordering::Relaxed);
        return ptr::null_mut();
    }
    let start = map();
    if start.is_null() {
        mapped_limit::give_back(length);
    }
    start
}

/// Maps zeroed memory at an address aligned to `alignment`, a power of two of at least a page.
/// `hint` is an aligned address that is probably free, or 0. Null if there is no memory.
pub(crate) fn map_aligned(length: usize, alignment: usize, hint: usize) -> *mut u8 {
    let start = counted(length, || map_aligned_as(length, alignment, hint, PROT_READ_WRITE));
    if !start.is_null() && options::has_no_large_pages() {
        // SAFETY: MADV_NOHUGEPAGE changes no content of the range, which was mapped just now.
        unsafe { syscall(nr::MADVISE, [start.expose_provenance(), length, MADV_NOHUGEPAGE, 0, 0, 0]) };
    }
    start
}

fn map_aligned_as(length: usize, alignment: usize, hint: usize, protection: usize) -> *mut u8 {
    if hint != 0 {
        let start = map_at(hint, length, protection);
        if start.is_null() || start.addr() & (alignment - 1) == 0 {
            return start;
        }
        // SAFETY: `unmap` asks for memory of ours that nobody uses: it was mapped just now.
        unsafe { unmap_uncounted(start, length) };
    }
    let Some(reserved) = length.checked_add(alignment) else { return ptr::null_mut() };
    let base = map_at(0, reserved, protection);
    if base.is_null() {
        return base;
    }
    let front = base.addr().wrapping_neg() & (alignment - 1);
    // SAFETY: both parts lie in the mapping made above, before and behind the aligned `length`
    // bytes, of which nobody knows yet. `front` is below `alignment`, so the offsets are in bounds.
    unsafe {
        let start = base.add(front);
        if front > 0 {
            unmap_uncounted(base, front);
        }
        unmap_uncounted(start.add(length), alignment - front);
        start
    }
}

/// Returns the size of the inaccessible page behind the memory that [`map_guarded`] maps: 0 without
/// the option `guard`.
pub(crate) fn guard() -> usize {
    if options::has_guards() { page_size() } else { 0 }
}

/// Maps zeroed memory as [`map_aligned`] does, with a guard page behind it if the options say so.
pub(crate) fn map_guarded(length: usize, alignment: usize, hint: usize) -> *mut u8 {
    let guard = guard();
    let Some(all) = length.checked_add(guard) else { return ptr::null_mut() };
    let start = map_aligned(all, alignment, if guard == 0 { hint } else { 0 });
    if !start.is_null() {
        // SAFETY: `forbid` demands whole pages of ours that nobody uses: the last one of what was
        // mapped just now, or none.
        unsafe { forbid(start.wrapping_add(length), guard) };
    }
    start
}

/// Unmaps memory, and its guard page.
///
/// # Safety
///
/// [`map_guarded`] returned it for this length, and nobody uses it any more. Without a guard page,
/// it may have been resized.
pub(crate) unsafe fn unmap_guarded(start: *mut u8, length: usize) {
    // SAFETY: `unmap` demands whole pages that belong to the caller, as those of `map_guarded` do,
    // and that nobody uses any more: this function's `# Safety`.
    unsafe { unmap(start, length + guard()) };
}

/// Unmaps memory.
///
/// A range within a larger mapping of the kernel's cannot be unmapped if the process has as many
/// mappings as it may have: two would be left. Then its memory is given back, and the addresses
/// remain. If that is refused as well, the program ends: it would lose memory with each such call.
///
/// # Safety
///
/// The range is of whole pages, belongs to the caller, and nobody uses it any more.
pub(crate) unsafe fn unmap(start: *mut u8, length: usize) {
    // SAFETY: `unmap_uncounted` demands what this function's `# Safety` does.
    unsafe { unmap_uncounted(start, length) };
    mapped_limit::give_back(length);
}

/// # Safety
///
/// As for [`unmap`].
unsafe fn unmap_uncounted(start: *mut u8, length: usize) {
    if length == 0 {
        return;
    }
    UNMAPPINGS.fetch_add(1, Ordering::Release);
    // SAFETY: the caller gives its range up, by this function's `# Safety`.
    let answer = check(unsafe { syscall(nr::MUNMAP, [start.expose_provenance(), length, 0, 0, 0, 0]) });
    if answer == Err(ENOMEM) {
        // SAFETY: `discard` demands whole pages of the caller's, without content that is needed:
        // this function's `# Safety`.
        if !unsafe { discard(start, length) } {
            fatal::abort("no memory mapping is left (see vm.max_map_count), and memory cannot be returned", start);
        }
        // SAFETY: `leave_mapped` demands what this function's `# Safety` does.
        unsafe { leave_mapped(start, length) };
    }
}

/// Keeps a range for [`unmap_left`], unless it cannot be written to, as a reservation.
///
/// # Safety
///
/// As for [`unmap`].
unsafe fn leave_mapped(start: *mut u8, length: usize) {
    // The kernel says whether a page can be written to; a write would end the program.
    // SAFETY: `populate` demands whole pages of the caller's: the range has at least one.
    let is_writable = unsafe { populate(start, page_size()) };
    LEFT_MAPPED.with(|left| {
        left.bytes += length;
        if is_writable {
            let range = start.cast::<Left>();
            // SAFETY: `write` demands memory for a description: a page that can be written to, is
            // aligned, and that nobody uses.
            unsafe { range.write(Left { next: left.first, length }) };
            left.first = range;
        }
    });
}

/// Gives the physical memory of a range back; the range reads as zero from now on. False if the
/// kernel refuses: then the content is as it was.
///
/// # Safety
///
/// The range is of whole pages and belongs to the caller, who does not need its content.
pub(crate) unsafe fn discard(start: *mut u8, length: usize) -> bool {
    // SAFETY: MADV_DONTNEED changes the content of the range only, which the caller gives up by
    // this function's `# Safety`.
    unsafe { syscall(nr::MADVISE, [start.expose_provenance(), length, MADV_DONTNEED, 0, 0, 0]) == 0 }
}

/// Makes pages inaccessible. If the kernel refuses, they stay as they are.
///
/// # Safety
///
/// The range is of whole pages and belongs to the caller, and nobody uses it.
pub(crate) unsafe fn forbid(start: *mut u8, length: usize) {
    if length > 0 {
        // SAFETY: nobody uses the range, which is the caller's: this function's `# Safety`.
        unsafe { syscall(nr::MPROTECT, [start.expose_provenance(), length, PROT_NONE, 0, 0, 0]) };
    }
}

/// Makes the system give a range its memory now, which takes less than a fault for each page.
/// False if nothing happens: before Linux 5.14, if there is no memory, and if the range cannot be
/// written to.
///
/// # Safety
///
/// The range is of whole pages and belongs to the caller.
pub(crate) unsafe fn populate(start: *mut u8, length: usize) -> bool {
    // SAFETY: MADV_POPULATE_WRITE changes no content of the range, which is the caller's.
    unsafe { syscall(nr::MADVISE, [start.expose_provenance(), length, MADV_POPULATE_WRITE, 0, 0, 0]) == 0 }
}

/// The results of [`resize`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resized {
    /// The mapping has the new length.
    Done,
    /// The addresses behind the mapping are taken, or there is no memory.
    Blocked,
    /// The kernel does not change this range. For example, the program has split the mapping by
    /// mprotect(2), mlock(2) or madvise(2), or a sandbox refuses the call.
    Refused,
}

/// Changes the length of a mapping without moving it. If that fails, it is as it was.
///
/// # Safety
///
/// The range belongs to the caller, who does not use the part behind `new` bytes.
pub(crate) unsafe fn resize(start: *mut u8, old: usize, new: usize) -> Resized {
    let more = new.saturating_sub(old);
    if !mapped_limit::take(more) {
        return Resized::Refused;
    }
    UNMAPPINGS.fetch_add(1, Ordering::Release);
    // SAFETY: without MREMAP_MAYMOVE the range stays where it is, and the kernel refuses to grow it
    // over others. What is cut off is not used, by this function's `# Safety`.
    let resized = match check(unsafe { syscall(nr::MREMAP, [start.expose_provenance(), old, new, 0, 0, 0]) }) {
        Ok(_) => {
            UNMAPPINGS.load(Ordering::Acquire);
            Resized::Done
        }
        Err(ENOMEM) => Resized::Blocked,
        Err(_) => Resized::Refused,
    };
    mapped_limit::give_back(if resized == Resized::Done { old.saturating_sub(new) } else { more });
    resized
}

/// Reserves addresses, aligned to `alignment`, as the destination of [`move_to`]. Null if there are
/// none.
pub(crate) fn reserve(length: usize, alignment: usize) -> *mut u8 {
    counted(length, || map_aligned_as(length, alignment, 0, PROT_NONE))
}

/// Moves the pages of a mapping to reserved addresses, and grows it to the `new` bytes that were
/// reserved. False if the kernel refuses: then the mapping is as it was, and the reservation is
/// given up.
///
/// # Safety
///
/// The range belongs to the caller, who knows that it moves. [`reserve`] returned `to` for `new`
/// bytes, which are at least `old`, and nobody uses it.
pub(crate) unsafe fn move_to(start: *mut u8, old: usize, to: *mut u8, new: usize) -> bool {
    let arguments = [start.expose_provenance(), old, new, MREMAP_MAYMOVE_FIXED, to.expose_provenance(), 0];
    UNMAPPINGS.fetch_add(1, Ordering::Release);
    // SAFETY: MREMAP_FIXED replaces what is mapped in the `new` bytes at `to`: the reservation,
    // which nobody uses. The old range is the caller's. Both by this function's `# Safety`.
    //
    // After a failure the reservation must not be unmapped: the kernel removes it before most
    // checks, so another thread may have mapped something there. If the kernel has kept it, these
    // addresses, which have no memory, are never used again.
    let is_moved = check(unsafe { syscall(nr::MREMAP, arguments) }).is_ok();
    mapped_limit::give_back(if is_moved { old } else { new });
    is_moved
}
