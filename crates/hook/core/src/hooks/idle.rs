//! Whether there is anything at all: one load for whoever stands at an allocator's door and is not the C library.

use core::sync::atomic::{AtomicU32, Ordering};

/// The artefact's allocator has not been found out yet.
const UNSETTLED: u32 = 1;
pub(super) const OBSERVED: u32 = 2;
pub(super) const REPLACED: u32 = 4;

static STATE: AtomicU32 = AtomicU32::new(UNSETTLED);

/// Whether a call may go straight to the program's own allocator: nobody is to be told, and nothing is in its place. False
/// until [`settle`].
#[inline(always)]
pub fn is_idle() -> bool {
    STATE.load(Ordering::Relaxed) == 0
}

/// Whether [`settle`] has been called.
#[inline]
pub fn is_settled() -> bool {
    STATE.load(Ordering::Acquire) & UNSETTLED == 0
}

/// What has to be done at the first call is done: [`set_bottom`](super::serve::set_bottom), for instance.
pub fn settle() {
    STATE.fetch_and(!UNSETTLED, Ordering::Release);
}

/// There is something of this kind from now on, or no longer.
pub(super) fn set(kind: u32, is_there: bool) {
    if is_there {
        STATE.fetch_or(kind, Ordering::Release);
    } else {
        STATE.fetch_and(!kind, Ordering::Release);
    }
}
