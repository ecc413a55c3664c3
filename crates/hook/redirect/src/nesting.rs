//! The mark of a thread that is inside a call of an allocator.
//!
//! It is the stack pointer of the outermost call. A call is nested if it has a smaller one. If the
//! outermost call has never returned (`longjmp`), calls from outer frames are not taken for nested.

use core::sync::atomic::{AtomicBool, Ordering};

use crate::arch;

static IS_ACTIVE: AtomicBool = AtomicBool::new(false);

/// True if calls are marked: entry points have been redirected in this process, or its C library
/// calls the functions of the malloc family by their exported names.
#[inline(always)]
pub fn is_active() -> bool {
    IS_ACTIVE.load(Ordering::Relaxed)
}

/// Marks calls from now on. Call before the first call of a redirected entry. Other threads may be
/// inside of unmarked calls: of those, the nested ones notify observers as they did before.
pub fn activate() {
    IS_ACTIVE.store(true, Ordering::Release);
}

/// The call of an allocator that another call is inside of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Around {
    /// The stack and frame pointers with which it was made, if both are known.
    pub registers: Option<[u64; 2]>,
}

/// Returns the call of an allocator that a call is inside of whose stack pointer on entry is `sp`.
/// `None` if calls are not marked.
#[inline]
pub fn around(sp: u64) -> Option<Around> {
    let outermost = arch::outermost();
    if !is_active() || outermost <= sp {
        return None;
    }
    let frame_pointer = arch::frame_pointer();
    // Calls of redirected entries do not keep it.
    let is_known = arch::site() == 0 && frame_pointer != 0;
    Some(Around { registers: is_known.then_some([outermost, frame_pointer]) })
}

/// An outermost call: while it exists, the calls inside are nested.
#[derive(Debug)]
pub struct Outermost {
    is_marked: bool,
}

/// Begins a call whose stack and frame pointers on entry are `sp` and `rbp`. `None` if it is
/// nested: observers are not notified of it. If calls are not marked, none is nested.
#[inline(always)]
pub fn begin(sp: u64, rbp: u64) -> Option<Outermost> {
    if !is_active() {
        return Some(Outermost { is_marked: false });
    }
    if arch::outermost() > sp {
        return None;
    }
    arch::begin_outermost(sp, rbp);
    Some(Outermost { is_marked: true })
}

impl Drop for Outermost {
    #[inline(always)]
    fn drop(&mut self) {
        if self.is_marked {
            arch::end_outermost();
        }
    }
}

#[cfg(test)]
mod tests;
