//! Selects how an intercepted call is dispatched.
//!
//! Most programs most of the time have no hook installed, or only one observer that samples. Then a
//! call goes on to the program's own allocator after a few instructions, without a look at the hook
//! table.

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use super::{Observer, Pointer, registry};
use crate::lock::Lock;
use crate::{arch, filter};

/// The dispatch paths of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// To the program's own allocator: nobody observes, and nothing is replaced.
    Straight,
    /// To the program's own allocator for blocks that are not in the sample of the only observer.
    Sampled,
    /// Through the hook table.
    Told,
}

/// The largest value of the state that is a sampling rate.
const RATE_MAX: u32 = 0xff;
/// Set until this object's allocator is known.
pub(crate) const UNSETTLED: u32 = 0x100;
const TOLD: u32 = 0x200;
/// The value for [`offer`] that stands for a rate which another process may change at any time and
/// which the observer reads itself.
pub const ELSEWHERE: u32 = TOLD;

/// Returns the dispatch state of this loaded object: 0 is [`Way::Straight`], a number up to
/// [`RATE_MAX`] is [`Way::Sampled`] at the rate with this logarithm. [`UNSETTLED`] at first.
#[inline(always)]
fn state() -> &'static AtomicU32 {
    arch::way()
}

/// Held while the state, except its bit `UNSETTLED`, or the watcher in `DOORS` is updated.
static LOCK: Lock = Lock::new();
static OFFERER: AtomicPtr<Observer> = AtomicPtr::new(ptr::null_mut());
static OFFERED: AtomicU32 = AtomicU32::new(0);
/// A `fn(Way)`, or null.
static DOORS: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// True if a call for `size` bytes, from 1 to [`isize::MAX`], may go straight to the program's own
/// allocator. False until [`settle`].
#[inline(always)]
pub fn passes_malloc(size: usize) -> bool {
    // No countdown was drawn at a number that is not a rate.
    arch::is_way_zero() || arch::count_down(size, state().load(Ordering::Relaxed))
}

/// True if the free of a block may go straight to the program's own allocator.
#[inline(always)]
pub fn passes_free(block: Pointer) -> bool {
    arch::is_way_zero() || state().load(Ordering::Relaxed) <= RATE_MAX && !filter::may_hold(block as u64)
}

/// True if a reallocation to `size` bytes may go straight to the program's own allocator.
#[inline(always)]
pub fn passes_realloc(old: Pointer, size: usize) -> bool {
    // As in `passes_malloc`.
    arch::is_way_zero() || !filter::may_hold(old as u64) && arch::count_down(size, state().load(Ordering::Relaxed))
}

/// True if [`settle`] has been called.
#[inline]
pub fn is_settled() -> bool {
    state().load(Ordering::Acquire) & UNSETTLED == 0
}

/// Declares that the work of the first call is done, such as
/// [`set_bottom`](super::serve::set_bottom).
pub fn settle() {
    state().fetch_and(!UNSETTLED, Ordering::Release);
}

/// Declares that this observer, if it is the only one, does not want to be notified of blocks for
/// which the [`countdown`](crate::countdown) finds no sample point at this rate, nor of frees of
/// blocks that [`filter`] does not hold. With rate 0 it is notified of all. Only one observer may
/// call this, as often as it likes.
pub fn offer(observer: &'static Observer, rate: u32) {
    OFFERER.store(ptr::from_ref(observer).cast_mut(), Ordering::Relaxed);
    OFFERED.store(rate, Ordering::Relaxed);
    update();
}

/// Calls `doors` with the dispatch path now and whenever it changes. There is one such watcher.
pub fn watch(doors: fn(Way)) {
    DOORS.store(doors as *mut (), Ordering::Release);
    update();
}

/// Updates the dispatch path after observers or replacements, or the targets of the entry points,
/// have changed.
pub fn update() {
    let _guard = LOCK.lock();
    let rate = if is_alone() { OFFERED.load(Ordering::Relaxed) } else { 0 };
    let (way, new) = match (registry::OBSERVERS.first(), registry::REPLACEMENTS.first()) {
        (None, None) => (Way::Straight, 0),
        (Some(_), None) if rate != 0 => (Way::Sampled, rate),
        _ => (Way::Told, TOLD),
    };
    let _ = state().fetch_update(Ordering::Release, Ordering::Relaxed, |old| Some(old & UNSETTLED | new));
    let doors = DOORS.load(Ordering::Acquire);
    if !doors.is_null() {
        // SAFETY: `transmute` asks that the bits are a valid `fn(Way)`. `DOORS` is not null, so
        // `watch` has stored it: it was a `fn(Way)` there, and both types have the size of an
        // address.
        unsafe { core::mem::transmute::<*mut (), fn(Way)>(doors)(way) };
    }
}

/// True if the observer that samples is the only observer.
fn is_alone() -> bool {
    // SAFETY: null, or a static that was passed to `offer`.
    let offerer = unsafe { OFFERER.load(Ordering::Relaxed).as_ref() };
    let (Some(offerer), Some(first)) = (offerer, registry::OBSERVERS.first()) else { return false };
    let function = |observer: &Observer| observer.malloc.map(|function| function as usize);
    first.next().is_none() && function(first.value()) == function(offerer)
}
