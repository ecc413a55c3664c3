//! Cells that one thread at a time writes, and that any thread may read without a lock.
//!
//! They are atomics that are loaded and stored with the relaxed ordering, which takes the same
//! instructions as for plain memory on every processor. The writer is the heap's thread, or has a
//! lock. A reader without it gets a value that was stored at some time, and has to judge it.

use core::ptr;
use core::sync::atomic::{AtomicI64, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering};

macro_rules! relaxed {
    ($($(#[$about:meta])* $name:ident, $atomic:ty, $value:ty;)+) => {$(
        $(#[$about])*
        #[derive(Debug)]
        #[repr(transparent)]
        pub(crate) struct $name($atomic);

        impl $name {
            /// Returns a cell with the value 0.
            #[allow(dead_code, reason = "some cells begin as zeroed memory")]
            pub(crate) const fn new() -> $name {
                $name(<$atomic>::new(0))
            }

            /// Returns a cell with a value.
            #[allow(dead_code, reason = "most cells begin with 0")]
            pub(crate) const fn with(value: $value) -> $name {
                $name(<$atomic>::new(value))
            }

            /// Returns the value.
            #[inline(always)]
            pub(crate) fn get(&self) -> $value {
                self.0.load(Ordering::Relaxed)
            }

            /// Changes the value. One thread at a time.
            #[inline(always)]
            pub(crate) fn set(&self, value: $value) {
                self.0.store(value, Ordering::Relaxed);
            }

            /// Changes the value if it is `current`. For any thread.
            #[allow(dead_code, reason = "most cells have one writer")]
            pub(crate) fn exchange(&self, current: $value, new: $value) {
                let _ = self.0.compare_exchange(current, new, Ordering::Relaxed, Ordering::Relaxed);
            }
        }
    )+};
}

relaxed! {
    /// A cell of 8 bits.
    RelaxedU8, AtomicU8, u8;
    /// A cell of 16 bits.
    RelaxedU16, AtomicU16, u16;
    /// A cell of 32 bits.
    RelaxedU32, AtomicU32, u32;
    /// A cell of 64 bits.
    RelaxedU64, AtomicU64, u64;
    /// A cell of 64 bits with a sign.
    RelaxedI64, AtomicI64, i64;
    /// A cell of a size.
    RelaxedUsize, AtomicUsize, usize;
}

/// A cell of an address.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct RelaxedPtr<T>(AtomicPtr<T>);

impl<T> RelaxedPtr<T> {
    /// Returns a cell with the null address.
    pub(crate) const fn new() -> RelaxedPtr<T> {
        RelaxedPtr(AtomicPtr::new(ptr::null_mut()))
    }

    /// Returns the address.
    #[inline(always)]
    pub(crate) fn get(&self) -> *mut T {
        self.0.load(Ordering::Relaxed)
    }

    /// Changes the address. One thread at a time.
    #[inline(always)]
    pub(crate) fn set(&self, value: *mut T) {
        self.0.store(value, Ordering::Relaxed);
    }
}
