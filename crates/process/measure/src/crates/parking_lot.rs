//! `parking_lot`: what is behind its locks. Threads wait in a table that is not theirs.

use heapledger_core::Bytes;
use parking_lot::{Condvar, FairMutex, Mutex, Once, ReentrantMutex, RwLock};

use crate::{HeapSize, Meter};

macro_rules! locks {
    ($($lock:ident: $method:ident)+) => {$(
        /// Waits for the lock: this thread must not hold it so that it would wait for ever.
        impl<T: HeapSize> HeapSize for $lock<T> {
            fn heap_size(&self, meter: &mut Meter) -> Bytes {
                self.$method().heap_size(meter)
            }

            fn owns_nothing() -> bool {
                T::owns_nothing()
            }
        }
    )+};
}

locks! { Mutex: lock FairMutex: lock ReentrantMutex: lock RwLock: read }

macro_rules! nothing {
    ($($type:ident)+) => {$(
        impl HeapSize for $type {
            fn heap_size(&self, _: &mut Meter) -> Bytes {
                Bytes(0)
            }

            fn owns_nothing() -> bool {
                true
            }
        }
    )+};
}

nothing! { Condvar Once }
