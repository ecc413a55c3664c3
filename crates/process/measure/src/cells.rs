//! Values behind a lock or in a cell.

use std::cell::{Cell, OnceCell, RefCell};
use std::sync::{Mutex, OnceLock, PoisonError, RwLock};

use heapledger_core::Bytes;

use crate::{HeapSize, Meter};

macro_rules! inside {
    ($($(#[$doc:meta])* <$of:ident $(: $copy:ident)?> $type:ty: $cell:ident => $inside:expr;)+) => {$(
        $(#[$doc])*
        impl<$of: HeapSize $(+ $copy)?> HeapSize for $type {
            fn heap_size(&self, meter: &mut Meter) -> Bytes {
                let $cell = self;
                $inside.heap_size(meter)
            }

            fn owns_nothing() -> bool {
                $of::owns_nothing()
            }
        }
    )+};
}

inside! {
    <T: Copy> Cell<T>: cell => cell.get();
    <T> OnceCell<T>: cell => OnceValue(cell.get());
    <T> OnceLock<T>: cell => OnceValue(cell.get());
    /// Panics while the cell is borrowed mutably.
    <T> RefCell<T>: cell => cell.borrow();
    /// Waits for the lock: this thread must not hold it. A poisoned lock is measured as well.
    <T> Mutex<T>: mutex => mutex.lock().unwrap_or_else(PoisonError::into_inner);
    /// Waits for the lock: this thread must not have locked it for writing. A poisoned lock is
    /// measured as well.
    <T> RwLock<T>: lock => lock.read().unwrap_or_else(PoisonError::into_inner);
}

/// A value that is set at most once, if it has been set.
struct OnceValue<'c, T>(Option<&'c T>);

impl<T: HeapSize> OnceValue<'_, T> {
    fn heap_size(&self, meter: &mut Meter) -> Bytes {
        self.0.map_or(Bytes(0), |value| value.heap_size(meter))
    }
}
