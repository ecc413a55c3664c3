//! `record --verify-stacks`: compares every captured stack with what glibc's `backtrace` finds at
//! the same place.
//!
//! The captured stack is taken as the recording will have it: the nodes that have been announced,
//! from the stack's id to the root. `backtrace` runs on a stack of ours, since the program's may be
//! too small for it, and finds its way back to the program's by the unwind information of
//! [`arch::call_on`].
//!
//! `backtrace` is loaded early, when nobody can hold the dynamic linker's lock. From then on it
//! takes no lock and allocates nothing, unless the program registers unwind information of its own.
//! An allocation that it then makes is recorded as the program's. Since its lock may be held by the
//! very frames that we come from, it is never asked about a stack that goes through libgcc_s.

use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use heapledger_core::arch::ticks;
use heapledger_core::{NodeKind, StackId, sandbox, sys};
use heapledger_unwind::{executable_range, nodes, rules};
use heapledger_wire::event::{Extended, code};
use heapledger_wire::publish::WriteError;
use heapledger_wire::session::{SessionPage, mode};

use crate::block::ThreadBlock;
use crate::process::{self, Process};
use crate::{arch, session};
use workspace::{DESCRIBED_FRAMES, LENGTH, Workspace};

pub(crate) mod workspace;

/// glibc's `backtrace`.
pub type Backtrace = unsafe extern "C" fn(*mut *mut c_void, i32) -> i32;

/// The largest number of the recorder's frames between the program and `backtrace`.
const OWN_MAX: usize = 16;
/// The number of stacks with a mismatch that an image describes.
const DESCRIBED_MAX: usize = 8;
/// The number of frames of a described stack that precede the one that differs.
const DESCRIBED_BEFORE: usize = 8;

static BACKTRACE: AtomicUsize = AtomicUsize::new(0);
/// The code of libgcc_s.
static UNWINDER_START: AtomicU64 = AtomicU64::new(0);
static UNWINDER_END: AtomicU64 = AtomicU64::new(0);
/// The ids of the described stacks; 0 if there is none.
static DESCRIBED: [AtomicU32; DESCRIBED_MAX] = [const { AtomicU32::new(0) }; DESCRIBED_MAX];

/// True if this session verifies stacks. False while the process is not introduced.
pub fn is_wanted() -> bool {
    let is_asked = |page: &SessionPage| page.mode() & mode::VERIFIES_STACKS != 0;
    process::session_is_live() && session::known_page().is_some_and(is_asked)
}

/// Makes `backtrace` known. `unwinder` is an address in the library that does its work.
///
/// # Safety
///
/// `backtrace` is glibc's, and has been called once, so that it has loaded what it needs.
pub unsafe fn start(backtrace: Backtrace, unwinder: u64) {
    // From the kernel: the C library may not be able to tell.
    let Some((start, end)) = executable_range(unwinder) else { return };
    UNWINDER_START.store(start, Ordering::Relaxed);
    UNWINDER_END.store(end, Ordering::Relaxed);
    BACKTRACE.store(backtrace as usize, Ordering::Release);
}

/// Compares a stack that was captured just now, for a call that returns to `return_address`.
#[cold]
#[inline(never)]
pub(crate) fn check(block: &mut ThreadBlock, return_address: u64, id: StackId) {
    let Some(counters) = Process::get().and_then(Process::counters) else { return };
    let counter = match both_stacks(block, return_address, id) {
        None => &counters.stacks_unasked,
        Some(Stacks { ours, is_truncated, theirs }) => {
            let both = ours.len().min(theirs.len());
            match (0..both).find(|&index| !is_same(ours, theirs, index)) {
                None if ours.len() == theirs.len() || is_truncated && both == ours.len() => &counters.stacks_verified,
                None if both == theirs.len() && both > 0 => &counters.stacks_outlasting,
                difference => {
                    describe(block, id, difference.unwrap_or(both), ours, theirs);
                    &counters.stacks_mismatched
                }
            }
        }
    };
    counter.fetch_add(1, Ordering::Relaxed);
}

/// A stack as it was captured, and as `backtrace` finds it.
struct Stacks {
    /// Addresses to look up.
    ours: &'static [u64],
    /// True if its outer frames were cut off.
    is_truncated: bool,
    /// Return addresses.
    theirs: &'static [u64],
}

/// Returns both stacks, or `None` if `backtrace` cannot be asked.
fn both_stacks(block: &mut ThreadBlock, return_address: u64, id: StackId) -> Option<Stacks> {
    let backtrace = BACKTRACE.load(Ordering::Acquire);
    // In a sandbox, a system call that `backtrace` makes could kill the process.
    if backtrace == 0 || sandbox::is_entered() {
        return None;
    }
    if block.workspace.is_null() {
        let memory = sys::map_private(size_of::<Workspace>()).ok()?;
        sys::dont_dump(memory, size_of::<Workspace>());
        block.workspace = memory.cast();
    }
    let space = block.workspace;
    // SAFETY: the workspace is this thread's, mapped above or earlier, and never unmapped; its
    // parts are lent once at a time, here and in `describe`.
    let (ours, is_truncated) = read_back(id, unsafe { &mut (*space).ours })?;
    let unwinder = UNWINDER_START.load(Ordering::Relaxed)..UNWINDER_END.load(Ordering::Relaxed);
    if ours.iter().any(|address| unwinder.contains(address)) {
        return None;
    }
    // SAFETY: `call_on` requires `backtrace`, its array, and the aligned end of a stack that nobody
    // else uses. `start` has stored `backtrace`, which writes no more than `LENGTH` entries. Array
    // and stack are parts of this thread's workspace, which is aligned to 16 and has a length in
    // multiples of 16.
    let (theirs, count) = unsafe {
        let count = arch::call_on(backtrace, (&raw mut (*space).theirs).cast(), LENGTH as i32, space.add(1).cast());
        (&(*space).theirs, count)
    };
    let all = theirs.get(..count.max(0) as usize).unwrap_or(&[]);
    // The recorder's frames precede the program's.
    let first = all.iter().take(OWN_MAX).position(|&address| address == return_address);
    Some(Stacks { ours, is_truncated, theirs: first.and_then(|first| all.get(first..)).unwrap_or(&[]) })
}

/// Returns the frames that lead from a node to the root, innermost first, as addresses to look up,
/// and whether outer ones were cut off. `None` if a node is missing, or there are too many frames.
fn read_back(id: StackId, room: &'static mut [u64; LENGTH]) -> Option<(&'static [u64], bool)> {
    let (mut at, mut length, mut is_truncated) = (id, 0, false);
    while at != StackId::ROOT {
        let node = nodes::get(at)?;
        is_truncated |= node.is(NodeKind::Truncated);
        if node.is_frame() {
            *room.get_mut(length)? = node.address;
            length += 1;
        }
        at = node.parent;
    }
    Some((room.get(..length)?, is_truncated))
}

/// True if both stacks have the same frame at this index. A frame that a signal interrupted goes on
/// at the very address, all others behind a call.
fn is_same(ours: &[u64], theirs: &[u64], index: usize) -> bool {
    let (Some(&our), Some(&their)) = (ours.get(index), theirs.get(index)) else { return false };
    let inner = index.checked_sub(1).and_then(|inner| ours.get(inner));
    // A rule that has been displaced from the cache may have been that of a signal frame.
    let is_interrupted = || {
        inner.is_some_and(|&inner| {
            rules::cache().and_then(|cache| cache.get(inner.wrapping_add(1))).is_none_or(|rule| rule.is_signal())
        })
    };
    our.wrapping_add(1) == their || our == their && is_interrupted()
}

/// Describes a stack, if it is one of the first with a mismatch: see [`code::STACK_MISMATCH`].
fn describe(block: &mut ThreadBlock, id: StackId, at: usize, ours: &[u64], theirs: &[u64]) {
    let take = |slot: &AtomicU32| slot.compare_exchange(0, id.0, Ordering::Relaxed, Ordering::Relaxed);
    let is_new = |taken: Result<u32, u32>| taken.is_ok();
    // The first slot that does not hold another stack.
    if !DESCRIBED.iter().map(take).find(|&taken| is_new(taken) || taken == Err(id.0)).is_some_and(is_new) {
        return;
    }
    // SAFETY: `both_stacks` has mapped the workspace; nothing else lends this part of it.
    let description = unsafe { &mut (*block.workspace).description };
    let from = at.saturating_sub(DESCRIBED_BEFORE);
    let shown = |stack: &'_ [u64]| stack.len().saturating_sub(from).min(DESCRIBED_FRAMES);
    let (our_count, their_count) = (shown(ours), shown(theirs));
    let head = [u64::from(id.0), at as u64, our_count as u64, their_count as u64];
    let frames = ours.iter().skip(from).take(our_count).chain(theirs.iter().skip(from).take(their_count));
    description.iter_mut().zip(head.iter().chain(frames)).for_each(|(to, from)| *to = *from);
    let payload = description.get(..head.len() + our_count + their_count).unwrap_or(&[]);
    // An event is being written.
    let event = Extended::Annotation { code: code::STACK_MISMATCH, payload };
    if block.write_extended(ticks(), &event) == Err(WriteError::Disconnected) {
        session::turn_off();
    }
}
