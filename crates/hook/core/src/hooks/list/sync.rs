//! The parts of the list: ordinary atomics and memory, or those of loom in its tests.

#[cfg(not(all(test, loom)))]
pub(super) use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

#[cfg(not(all(test, loom)))]
pub(super) use crate::lock::Lock;

#[cfg(all(test, loom))]
pub(super) use loom::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

#[cfg(not(all(test, loom)))]
use core::cell::UnsafeCell;
#[cfg(all(test, loom))]
use loom::cell::UnsafeCell;

/// Memory that is written only while nobody else reads or writes it, as the list's rules ensure.
pub(super) struct Cell<T>(UnsafeCell<T>);

#[cfg(not(all(test, loom)))]
impl<T> Cell<T> {
    pub(super) const fn new(value: T) -> Cell<T> {
        Cell(UnsafeCell::new(value))
    }

    /// # Safety
    ///
    /// Nobody writes to the cell while the reference is in use.
    #[inline(always)]
    pub(super) unsafe fn get(&self) -> &T {
        // SAFETY: the pointer is that of the live cell, which holds a `T`. A shared reference
        // demands that nobody writes meanwhile: this function's `# Safety` demands it of the
        // caller.
        unsafe { &*self.0.get() }
    }

    /// # Safety
    ///
    /// Nobody reads or writes the cell during the call.
    pub(super) unsafe fn set(&self, value: T) {
        // SAFETY: the pointer is that of the live cell, which holds a `T` to be dropped. No access
        // may coincide with the write: this function's `# Safety` excludes all others.
        unsafe { *self.0.get() = value };
    }
}

#[cfg(all(test, loom))]
impl<T> Cell<T> {
    pub(super) fn new(value: T) -> Cell<T> {
        Cell(UnsafeCell::new(value))
    }

    /// # Safety
    ///
    /// Nobody writes to the cell while the reference is in use. Loom reports writes during the
    /// call.
    pub(super) unsafe fn get(&self) -> &T {
        // SAFETY: the pointer is that of the live cell. Nobody writes to it while it is
        // dereferenced, by this function's `# Safety`.
        self.0.with(|value| unsafe { &*value })
    }

    /// # Safety
    ///
    /// Nobody reads or writes the cell during the call; loom reports it otherwise.
    pub(super) unsafe fn set(&self, value: T) {
        // SAFETY: the pointer is that of the live cell. Nobody reads or writes it meanwhile, by
        // this function's `# Safety`.
        self.0.with_mut(|place| unsafe { *place = value });
    }
}

/// Loom's lock, in the place of ours.
#[cfg(all(test, loom))]
pub(super) struct Lock(loom::sync::Mutex<()>);

#[cfg(all(test, loom))]
impl Lock {
    pub(super) fn new() -> Lock {
        Lock(loom::sync::Mutex::new(()))
    }

    pub(super) fn lock(&self) -> impl Drop + '_ {
        self.0.lock().expect("not poisoned")
    }
}
