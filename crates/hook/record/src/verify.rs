//! `record --verify-stacks`: every captured stack against what glibc's `backtrace` says at the same place.
//!
//! Compared is what the recording will say: the nodes that have been announced, from the stack's id to the root.
//! `backtrace` runs on a stack of ours, since the program's may be too small for it, and finds its way back to the
//! program's by the unwind information of [`arch::call_on`]. It is loaded early, when nobody can hold the dynamic
//! linker's lock; from then on it takes no lock and allocates nothing, except where a program registers unwind
//! information of its own: that allocation is recorded as the program's.

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use heapledger_core::{NodeKind, StackId, sys};
use heapledger_unwind::arch::Registers;
use heapledger_unwind::rules;
use heapledger_unwind::walk::FRAMES_MAX;
use heapledger_wire::event::{Extended, code};

use crate::block::ThreadBlock;
use crate::process::Process;
use crate::{arch, hook};

/// glibc's `backtrace`.
pub type Backtrace = unsafe extern "C" fn(*mut *mut c_void, i32) -> i32;

/// Frames compared: more than a stack of ours can have, and the recorder's own before them.
const LENGTH: usize = 2 * FRAMES_MAX;
/// Frames of the recorder between the program and `backtrace`, at the most.
const OWN_MAX: usize = 16;
/// Mismatches that an image describes.
const TOLD_MAX: u32 = 8;
/// Frames of a described stack.
const TOLD_FRAMES: usize = 64;
/// Of these, frames before the one that differs.
const TOLD_BEFORE: usize = 8;
/// For `backtrace`, and for a signal handler that interrupts it.
const STACK_LENGTH: usize = 256 << 10;

static BACKTRACE: AtomicUsize = AtomicUsize::new(0);
static TOLD: AtomicU32 = AtomicU32::new(0);
/// The announced nodes, by id; null when nothing is verified.
static NODES: AtomicPtr<Node> = AtomicPtr::new(ptr::null_mut());
const NODES_LENGTH: usize = (StackId::MAX.0 as usize + 1) * size_of::<Node>();

/// A node as it was announced. Zeroed: not yet.
#[repr(C)]
struct Node {
    address: AtomicU64,
    /// Parent 32 │ kind 8 │ … │ 1 at the top.
    rest: AtomicU64,
}

/// What a thread needs to verify its stacks. Zeroed memory is valid.
#[derive(Debug)]
#[repr(C, align(16))]
pub(crate) struct Workspace {
    /// Addresses to look up, innermost first.
    ours: [u64; LENGTH],
    /// Return addresses, innermost first.
    theirs: [u64; LENGTH],
    told: [u64; 4 + 2 * TOLD_FRAMES],
    stack: [u8; STACK_LENGTH],
}

/// Whether this session verifies stacks. Only while introduced.
pub fn is_wanted() -> bool {
    hook::session_is_live() && crate::process::page().verifies_stacks.load(Ordering::Relaxed) != 0
}

/// From now on `backtrace` can be asked.
///
/// # Safety
///
/// It is glibc's, and has been called once, so that it has loaded what it needs.
pub unsafe fn start(backtrace: Backtrace) {
    BACKTRACE.store(backtrace as usize, Ordering::Release);
}

/// Before a thread's first capture: makes room for the nodes.
pub(crate) fn prepare() {
    if !NODES.load(Ordering::Acquire).is_null() {
        return;
    }
    let Ok(memory) = sys::map_private(NODES_LENGTH) else { return };
    sys::dont_dump(memory, NODES_LENGTH);
    if NODES.compare_exchange(ptr::null_mut(), memory.cast(), Ordering::AcqRel, Ordering::Relaxed).is_err() {
        // SAFETY: mapped just now; nobody else has its address.
        unsafe { sys::unmap(memory, NODES_LENGTH) };
    }
}

/// A node has been announced.
#[inline(always)]
pub(crate) fn note_node(id: StackId, parent: StackId, kind: NodeKind, address: u64) {
    if let Some(node) = node(id) {
        node.address.store(address, Ordering::Relaxed);
        node.rest.store(u64::from(parent.0) | (kind as u64) << 32 | 1 << 63, Ordering::Release);
    }
}

#[inline(always)]
fn node(id: StackId) -> Option<&'static Node> {
    let nodes = NODES.load(Ordering::Acquire);
    // SAFETY: null, or a mapping with a node for every id, never unmapped once it is here; zeroes are valid atomics.
    (!nodes.is_null()).then(|| unsafe { &*nodes.add((id.0 & StackId::MAX.0) as usize) })
}

/// Compares a stack that was captured just now.
#[cold]
#[inline(never)]
pub(crate) fn check(block: &mut ThreadBlock, caller: &Registers, id: StackId) {
    let Some(counters) = Process::get().and_then(Process::counters) else { return };
    let counter = match ask(block, caller) {
        None => &counters.stacks_unasked,
        Some((theirs, room)) => {
            let (ours, is_cut) = read_back(id, room);
            let both = ours.len().min(theirs.len());
            match (0..both).find(|&index| !is_same(ours, theirs, index)) {
                None if ours.len() == theirs.len() || is_cut && both == ours.len() => &counters.stacks_verified,
                None if both == theirs.len() && both > 0 => &counters.stacks_outlasting,
                difference => {
                    tell(block, id, difference.unwrap_or(both), ours, theirs);
                    &counters.stacks_mismatched
                }
            }
        }
    };
    counter.fetch_add(1, Ordering::Relaxed);
}

/// The return addresses that `backtrace` finds, from the caller's on, and room for as many. `None`: it cannot be asked.
fn ask(block: &mut ThreadBlock, caller: &Registers) -> Option<(&'static [u64], &'static mut [u64; LENGTH])> {
    let backtrace = BACKTRACE.load(Ordering::Acquire);
    if backtrace == 0 || NODES.load(Ordering::Acquire).is_null() {
        return None;
    }
    if block.workspace.is_null() {
        let memory = sys::map_private(size_of::<Workspace>()).ok()?;
        sys::dont_dump(memory, size_of::<Workspace>());
        block.workspace = memory.cast();
    }
    let space = block.workspace;
    // SAFETY: the workspace is this thread's, mapped above or earlier, and never unmapped; its parts are lent once at a
    // time, here and in `tell`. `backtrace` writes no more than `LENGTH` entries; `call_on` is given the end of the
    // stack, which is aligned, since the workspace is and has a length in multiples of 16.
    let (theirs, room) = unsafe {
        let end = space.add(1).cast::<u8>();
        let count = arch::call_on(backtrace, (&raw mut (*space).theirs).cast(), LENGTH as i32, end);
        (&(*space).theirs, (&mut (*space).ours, count))
    };
    let (room, count) = room;
    let all = theirs.get(..count.max(0) as usize).unwrap_or(&[]);
    // Before the program's frame are those of the recorder.
    let first = all.iter().take(OWN_MAX).position(|&address| address == caller.lookup.wrapping_add(1));
    Some((first.and_then(|first| all.get(first..)).unwrap_or(&[]), room))
}

/// The frames that lead from a node to the root, innermost first, as addresses to look up, and whether outer ones were
/// cut off.
fn read_back(id: StackId, room: &mut [u64; LENGTH]) -> (&[u64], bool) {
    let (mut at, mut length, mut is_cut) = (id, 0, false);
    while at != StackId::ROOT
        && let Some(node) = node(at)
        && let Some(place) = room.get_mut(length)
    {
        let rest = node.rest.load(Ordering::Acquire);
        let kind = rest >> 32 & 0xff;
        if rest == 0 {
            break;
        }
        is_cut |= kind == NodeKind::Truncated as u64;
        if kind == NodeKind::Frame as u64 {
            *place = node.address.load(Ordering::Relaxed);
            length += 1;
        }
        at = StackId(rest as u32);
    }
    (room.get(..length).unwrap_or(&[]), is_cut)
}

/// Whether both have the same frame at this place. Where a signal interrupted a frame, it goes on at the very address;
/// everywhere else behind a call.
fn is_same(ours: &[u64], theirs: &[u64], index: usize) -> bool {
    let (Some(&our), Some(&their)) = (ours.get(index), theirs.get(index)) else { return false };
    let inner = index.checked_sub(1).and_then(|inner| ours.get(inner));
    // A rule that has been displaced from the cache may have been one.
    let is_interrupted =
        || inner.is_some_and(|&inner| rules::cache().and_then(|cache| cache.get(inner)).is_none_or(|rule| rule.is_signal()));
    our.wrapping_add(1) == their || our == their && is_interrupted()
}

/// Describes one of the first mismatches: see [`code::STACK_MISMATCH`].
fn tell(block: &mut ThreadBlock, id: StackId, at: usize, ours: &[u64], theirs: &[u64]) {
    if TOLD.fetch_add(1, Ordering::Relaxed) >= TOLD_MAX {
        return;
    }
    // SAFETY: `ask` has mapped the workspace; nothing else lends this part of it.
    let told = unsafe { &mut (*block.workspace).told };
    let from = at.saturating_sub(TOLD_BEFORE);
    let shown = |stack: &'_ [u64]| stack.len().saturating_sub(from).min(TOLD_FRAMES);
    let (our_count, their_count) = (shown(ours), shown(theirs));
    let head = [u64::from(id.0), at as u64, our_count as u64, their_count as u64];
    let frames = ours.iter().skip(from).take(our_count).chain(theirs.iter().skip(from).take(their_count));
    told.iter_mut().zip(head.iter().chain(frames)).for_each(|(to, from)| *to = *from);
    let payload = told.get(..head.len() + our_count + their_count).unwrap_or(&[]);
    hook::write_mismatch(block, &Extended::Annotation { code: code::STACK_MISMATCH, payload });
}
