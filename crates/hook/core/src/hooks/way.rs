//! Which way a call takes: for whoever stands at an allocator's door.
//!
//! Most programs most of the time have nothing installed, or one observer that samples: then a call goes on to the program's own
//! allocator after a few instructions, and the table is not looked at.

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use super::{Observer, Pointer, registry};
use crate::lock::Lock;
use crate::{arch, filter};

/// The ways of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// To the program's own allocator: nobody is to be told, and nothing is in its place.
    Straight,
    /// The same, for blocks that are not in the sample of the only observer there is.
    Sampled,
    /// Through the table.
    Told,
}

/// The largest number that is a rate.
const RATE_MAX: u32 = 0xff;
/// The artefact's allocator has not been found out yet.
pub(crate) const UNSETTLED: u32 = 0x100;
const TOLD: u32 = 0x200;
/// In the place of a rate, in [`offer`]: another process may change it at any time, and the observer knows where it is.
pub const ELSEWHERE: u32 = TOLD;

/// The way, for an artefact with an allocator of its own: 0 is straight, up to [`RATE_MAX`] sampled
/// at the rate of this logarithm. [`UNSETTLED`] at first.
#[inline(always)]
fn state() -> &'static AtomicU32 {
    arch::way()
}

/// Taken by whoever changes the state, but for its bit `UNSETTLED`, or the doors.
static LOCK: Lock = Lock::new();
static OFFERER: AtomicPtr<Observer> = AtomicPtr::new(ptr::null_mut());
static OFFERED: AtomicU32 = AtomicU32::new(0);
/// A `fn(Way)`, or null.
static DOORS: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// Whether a call for so many bytes, from 1 to [`isize::MAX`], may go straight to the program's own
/// allocator. False until [`settle`].
#[inline(always)]
pub fn passes_malloc(size: usize) -> bool {
    // No countdown was drawn at what is no rate.
    arch::is_way_zero() || arch::count_down(size, state().load(Ordering::Relaxed))
}

/// The same of the free of a block.
#[inline(always)]
pub fn passes_free(block: Pointer) -> bool {
    arch::is_way_zero() || state().load(Ordering::Relaxed) <= RATE_MAX && !filter::may_hold(block as u64)
}

/// The same of a reallocation to so many bytes.
#[inline(always)]
pub fn passes_realloc(old: Pointer, size: usize) -> bool {
    // As in `passes_malloc`.
    arch::is_way_zero() || !filter::may_hold(old as u64) && arch::count_down(size, state().load(Ordering::Relaxed))
}

/// Whether [`settle`] has been called.
#[inline]
pub fn is_settled() -> bool {
    state().load(Ordering::Acquire) & UNSETTLED == 0
}

/// What has to be done at the first call is done: [`set_bottom`](super::serve::set_bottom), for instance.
pub fn settle() {
    state().fetch_and(!UNSETTLED, Ordering::Release);
}

/// Says that this observer, where it is the only one, does not want to be told of blocks for which the [`countdown`](crate::countdown) finds no sample
/// point at this rate, nor of the frees of blocks that [`filter`] does not hold. 0: of all. There is one observer that says so,
/// as often as it likes.
pub fn offer(observer: &'static Observer, rate: u32) {
    OFFERER.store(ptr::from_ref(observer).cast_mut(), Ordering::Relaxed);
    OFFERED.store(rate, Ordering::Relaxed);
    update();
}

/// Has this called with the way of calls, now and whenever it changes. There is one that wants it.
pub fn watch(doors: fn(Way)) {
    DOORS.store(doors as *mut (), Ordering::Release);
    update();
}

/// Observers or replacements have come or gone, or what the doors lead to.
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
        // SAFETY: stored by `watch`, of this type.
        unsafe { core::mem::transmute::<*mut (), fn(Way)>(doors)(way) };
    }
}

/// Whether whoever samples is the only observer.
fn is_alone() -> bool {
    // SAFETY: null, or a static that was offered.
    let offerer = unsafe { OFFERER.load(Ordering::Relaxed).as_ref() };
    let (Some(offerer), Some(first)) = (offerer, registry::OBSERVERS.first()) else { return false };
    let function = |observer: &Observer| observer.malloc.map(|function| function as usize);
    first.next().is_none() && function(first.value()) == function(offerer)
}
