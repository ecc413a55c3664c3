//! The types that blocks are stamped with: names, by number.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, Ordering};

use heapledger_core::TypeId;
use heapledger_core::lock::Lock;

use crate::control::type_of;

/// Names that there is room for; what comes after is the last one.
const TYPES_MAX: usize = 4096;
const OTHER: &str = "(other)";

struct Types {
    lock: Lock,
    /// Number 0 is no type.
    names: [UnsafeCell<&'static str>; TYPES_MAX],
    count: AtomicU32,
}

// SAFETY: a name is written once, under the lock, before `count` says that it is there; then it is only read.
unsafe impl Sync for Types {}

static TYPES: Types =
    Types { lock: Lock::new(), names: [const { UnsafeCell::new(OTHER) }; TYPES_MAX], count: AtomicU32::new(1) };

/// The number of a name. Takes as long as there are names.
pub(crate) fn number(name: &'static str) -> u32 {
    let find = |from: u32, to: u32| (from..to).find(|&number| get(number) == Some(name));
    let known = TYPES.count.load(Ordering::Acquire);
    if let Some(number) = find(1, known) {
        return number;
    }
    let _guard = TYPES.lock.lock();
    let count = TYPES.count.load(Ordering::Acquire);
    if let Some(number) = find(known, count) {
        return number;
    }
    match TYPES.names.get(count as usize + 1) {
        // The last place keeps what it has.
        None => count,
        Some(_) => {
            if let Some(place) = TYPES.names.get(count as usize) {
                // SAFETY: under the lock, and nobody reads it before the count is stored.
                unsafe { *place.get() = name };
                TYPES.count.store(count + 1, Ordering::Release);
            }
            count
        }
    }
}

fn get(number: u32) -> Option<&'static str> {
    // SAFETY: a name below the count is not written any more; the last place never is.
    TYPES.names.get(number as usize).map(|place| unsafe { *place.get() })
}

/// The type that a block was stamped with; `None` where it was not.
pub fn type_name(stamp: TypeId) -> Option<&'static str> {
    let number = type_of(stamp);
    if number == 0 { None } else { get(number) }
}
