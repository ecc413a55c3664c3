//! What is behind a lock or in a cell.

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
    /// Panics while it is borrowed mutably.
    <T> RefCell<T>: cell => cell.borrow();
    /// Waits for the lock: this thread must not hold it. That it is poisoned does not matter.
    <T> Mutex<T>: mutex => mutex.lock().unwrap_or_else(PoisonError::into_inner);
    /// Waits for the lock: this thread must not have locked it for writing. That it is poisoned does not matter.
    <T> RwLock<T>: lock => lock.read().unwrap_or_else(PoisonError::into_inner);
}

/// What may have been set.
struct OnceValue<'c, T>(Option<&'c T>);

impl<T: HeapSize> OnceValue<'_, T> {
    fn heap_size(&self, meter: &mut Meter) -> Bytes {
        self.0.map_or(Bytes(0), |value| value.heap_size(meter))
    }
}
