//! Selects how an intercepted call is dispatched.
//!
//! Most programs most of the time have no hook installed, or only one observer that samples. Then a
//! call goes on to the program's own allocator after a few instructions, without a look at the hook
//! table.

use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicIsize, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use super::installed::{OBSERVERS, REPLACEMENTS};
use super::list::Slot;
use super::observer::Observer;
use super::replacement::Replacement;
use super::{HookError, Pointer};
use crate::lock::Lock;
use crate::{arch, filter};

/// The dispatch paths of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DispatchPath {
    /// To the program's own allocator: nobody observes, and nothing is replaced.
    Direct,
    /// To the program's own allocator for blocks that are not in the sample of the only observer.
    Sampled,
    /// To the program's own allocator for calls that the only hook, a replacement, does not want:
    /// see [`set_counted`].
    Counted,
    /// To the program's own allocator until [`REQUESTED`] is not 0: nobody observes yet, but
    /// somebody may ask for that from outside.
    Armed,
    /// Through the hook table.
    Hooked,
}

/// The largest value of the state that is a sampling rate.
const RATE_MAX: u32 = 0xff;
/// Set until this object's allocator is known.
pub(crate) const UNINITIALISED: u32 = 0x100;
const HOOKED: u32 = 0x200;
/// The value for [`set_sampling`] that stands for a rate which another process may change at any
/// time and which the observer reads itself.
pub const EXTERNAL_RATE: u32 = HOOKED;

/// Returns the dispatch state of this loaded object: 0 is [`DispatchPath::Direct`], a number up to
/// [`RATE_MAX`] is [`DispatchPath::Sampled`] at the rate with this logarithm. [`UNINITIALISED`] at
/// first.
#[inline(always)]
fn state() -> &'static AtomicU32 {
    arch::dispatch_path()
}

/// Held while the state, except its bit `UNINITIALISED`, or the watcher in `WATCHER` is updated.
static LOCK: Lock = Lock::new();
static SAMPLER: AtomicPtr<Observer> = AtomicPtr::new(ptr::null_mut());
static SAMPLING_RATE: AtomicU32 = AtomicU32::new(0);
/// A `fn(DispatchPath)`, or null.
static WATCHER: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// Not 0 if somebody outside of the process asks that it be observed. Read by entry points in
/// assembly while the path is [`DispatchPath::Armed`].
pub static REQUESTED: AtomicU32 = AtomicU32::new(0);
/// True if calls without any hook take [`DispatchPath::Armed`].
static IS_ARMED: AtomicBool = AtomicBool::new(false);

/// Makes calls without any hook take [`DispatchPath::Armed`] instead of [`DispatchPath::Direct`].
pub fn arm() {
    IS_ARMED.store(true, Ordering::Relaxed);
    update();
}

/// True if a call for `size` bytes, from 1 to [`isize::MAX`], may go straight to the program's own
/// allocator. False until [`set_initialised`].
#[inline(always)]
pub fn may_bypass_malloc(size: usize) -> bool {
    // No countdown was drawn at a number that is not a rate.
    arch::is_dispatch_direct() || arch::count_down(size, state().load(Ordering::Relaxed))
}

/// True if the free of a block may go straight to the program's own allocator.
#[inline(always)]
pub fn may_bypass_free(block: Pointer) -> bool {
    arch::is_dispatch_direct() || state().load(Ordering::Relaxed) <= RATE_MAX && !filter::may_contain(block as u64)
}

/// True if a reallocation to `size` bytes may go straight to the program's own allocator.
#[inline(always)]
pub fn may_bypass_realloc(old: Pointer, size: usize) -> bool {
    // As in `may_bypass_malloc`.
    arch::is_dispatch_direct()
        || !filter::may_contain(old as u64) && arch::count_down(size, state().load(Ordering::Relaxed))
}

/// True if [`set_initialised`] has been called.
#[inline]
pub fn is_initialised() -> bool {
    state().load(Ordering::Acquire) & UNINITIALISED == 0
}

/// Declares that the work of the first call is done, such as
/// [`set_underlying`](super::dispatch::set_underlying).
pub fn set_initialised() {
    state().fetch_and(!UNINITIALISED, Ordering::Release);
}

/// Declares that this observer, if it is the only one, does not want to be notified of blocks for
/// which the [`countdown`](crate::countdown) finds no sample point at this rate, nor of frees of
/// blocks that [`filter`] does not hold. With rate 0 it is notified of all. Only one observer may
/// call this, as often as it likes.
pub fn set_sampling(observer: &'static Observer, rate: u32) {
    SAMPLER.store(ptr::from_ref(observer).cast_mut(), Ordering::Relaxed);
    SAMPLING_RATE.store(rate, Ordering::Relaxed);
    update();
}

/// The calls that a replacement wants: see [`set_counted`]. Read by entry points in assembly.
#[derive(Debug)]
#[repr(C)]
pub struct Counted {
    /// The distance of a word of each thread from its thread pointer.
    pub word: AtomicIsize,
    /// The first address of the replacement's own blocks.
    pub first: AtomicUsize,
    /// The number of addresses from there on.
    pub length: AtomicUsize,
    /// The replacement's `malloc`; 0 if there is none that counts.
    malloc: AtomicUsize,
}

/// The calls that the replacement wants that has called [`set_counted`].
pub static COUNTED: Counted = Counted {
    word: AtomicIsize::new(0),
    first: AtomicUsize::new(0),
    length: AtomicUsize::new(0),
    malloc: AtomicUsize::new(0),
};

/// Declares that this replacement, if it is the only hook, does not want to be asked for a block
/// until a word of the thread has been counted down below 0, one for each call, and that its blocks
/// lie in a range of addresses. Entry points may pass other calls of `malloc`, `calloc`, `realloc`
/// and `free` on to the program's own allocator. The replacement sets the word anew when it is
/// called with the word below 0. To be called before its first block.
///
/// `word` is the distance of the word from the thread pointer, the same in each thread.
///
/// # Errors
///
/// [`HookError::Full`] if there is a replacement already that counts: then this one is asked for
/// each block. [`HookError::Malformed`] without a `malloc`.
pub fn set_counted(replacement: &Replacement, word: isize, first: usize, length: usize) -> Result<(), HookError> {
    let malloc = replacement.functions.malloc.ok_or(HookError::Malformed)?;
    // Entry points may be reading the words of the first: they are never written again.
    static CLAIMED: AtomicBool = AtomicBool::new(false);
    if CLAIMED.swap(true, Ordering::Relaxed) {
        return Err(HookError::Full);
    }
    COUNTED.word.store(word, Ordering::Relaxed);
    COUNTED.first.store(first, Ordering::Relaxed);
    COUNTED.length.store(length, Ordering::Relaxed);
    COUNTED.malloc.store(malloc as usize, Ordering::Release);
    update();
    Ok(())
}

/// True if the replacement that counts is the only one, and is installed.
fn is_counted(slot: &'static Slot<Replacement>) -> bool {
    let malloc = COUNTED.malloc.load(Ordering::Acquire);
    let own = slot.value().functions.malloc.map_or(0, |malloc| malloc as usize);
    malloc != 0 && own == malloc && slot.is_active() && slot.next().is_none()
}

/// Calls `watcher` with the dispatch path now and whenever it changes. There is one such watcher.
pub fn watch(watcher: fn(DispatchPath)) {
    WATCHER.store(watcher as *mut (), Ordering::Release);
    update();
}

/// Updates the dispatch path after observers or replacements, or the targets of the entry points,
/// have changed.
pub fn update() {
    let _guard = LOCK.lock();
    let rate = if is_alone() { SAMPLING_RATE.load(Ordering::Relaxed) } else { 0 };
    let (dispatch_path, new) = match (OBSERVERS.first(), REPLACEMENTS.first()) {
        (None, None) if IS_ARMED.load(Ordering::Relaxed) => (DispatchPath::Armed, 0),
        (None, None) => (DispatchPath::Direct, 0),
        (Some(_), None) if rate != 0 => (DispatchPath::Sampled, rate),
        (None, Some(slot)) if is_counted(slot) => (DispatchPath::Counted, HOOKED),
        _ => (DispatchPath::Hooked, HOOKED),
    };
    let _ = state().fetch_update(Ordering::Release, Ordering::Relaxed, |old| Some(old & UNINITIALISED | new));
    let watcher = WATCHER.load(Ordering::Acquire);
    if !watcher.is_null() {
        // SAFETY: `transmute` asks that the bits are a valid `fn(DispatchPath)`. `WATCHER` is not
        // null, so `watch` has stored it: it was a `fn(DispatchPath)` there, and both types have
        // the size of an address.
        unsafe { core::mem::transmute::<*mut (), fn(DispatchPath)>(watcher)(dispatch_path) };
    }
}

/// True if the observer that samples is the only observer.
fn is_alone() -> bool {
    // SAFETY: null, or a static that was passed to `set_sampling`.
    let sampler = unsafe { SAMPLER.load(Ordering::Relaxed).as_ref() };
    let (Some(sampler), Some(first)) = (sampler, OBSERVERS.first()) else { return false };
    let function = |observer: &Observer| observer.malloc.map(|function| function as usize);
    first.next().is_none() && function(first.value()) == function(sampler)
}
