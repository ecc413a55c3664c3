//! Values with several owners.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, LinkedList, VecDeque};
use std::rc::{self, Rc};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{self, Arc, Mutex, PoisonError, RwLock};

use heapledger_core::Bytes;

use crate::{HeapContainer, HeapSize, Meter};

/// A type that owns memory of the heap together with others.
///
/// If each owner measured the shared memory, it would count as often as there are owners. So the
/// caller chooses one of two ways:
///
/// - *as owner*: the one place that answers for the memory. The memory counts there, regardless of
///   other owners.
/// - *if first*: one of several equal owners. The memory counts where the [`Meter`] visits it
///   first, and nowhere else in the same traversal.
///
/// *Shallow* is the block in which the shared value lies; *heap size* also includes the memory that
/// the value owns.
///
/// ```
/// # extern crate heapledger_measure as heapledger;
/// use heapledger::{HeapContainer, Meter, SharedHeapSize};
/// use std::sync::Arc;
///
/// let name: Arc<str> = "shared by many".into();
/// let users = vec![name.clone(), name.clone(), name];
///
/// let mut meter = Meter::new();
/// let names = users.heap_size_with(&mut meter, |name, meter| name.heap_size_if_first(meter));
/// let once = users[0].heap_size_as_owner(&mut meter);
/// assert_eq!(names, users.shallow_size(&mut meter) + once);
/// ```
///
/// Collections, locks and options of shared values implement it too: the shared values are measured
/// in the way that is called, their own blocks in any case.
///
/// A [`Weak`](sync::Weak) answers for the block if there is no strong owner left: the value itself
/// is gone then.
pub trait SharedHeapSize {
    /// The type of the shared value.
    type Shared: ?Sized;

    /// The size of the block, regardless of other owners.
    fn shallow_size_as_owner(&self, meter: &mut Meter) -> Bytes;

    /// The size of the block, unless the meter has visited it before.
    fn shallow_size_if_first(&self, meter: &mut Meter) -> Bytes;

    /// The size of the block and of what the value owns, regardless of other owners.
    fn heap_size_as_owner(&self, meter: &mut Meter) -> Bytes
    where
        Self::Shared: HeapSize;

    /// The size of the block and of what the value owns, unless the meter has visited it before.
    fn heap_size_if_first(&self, meter: &mut Meter) -> Bytes
    where
        Self::Shared: HeapSize;
}

/// The size of the counts in front of a value in `Rc` and `Arc`.
const COUNTS: usize = 2 * size_of::<usize>();

/// Returns the size of the block in which a shared value of `bytes` bytes lies, behind the counts.
fn block(value: *const u8, bytes: usize, alignment: usize, meter: &mut Meter) -> Bytes {
    let offset = COUNTS.next_multiple_of(alignment);
    let requested = (offset + bytes).next_multiple_of(alignment.max(align_of::<usize>()));
    if is_laid_out_as_known() {
        // SAFETY: counts and value are one block of the global allocator, `repr(C)`: the value
        // comes behind the counts, as far as its alignment wants. That the counts are what they
        // were taken for has been looked at.
        unsafe { meter.block(value.wrapping_sub(offset), requested) }
    } else {
        // The counts are in front of the value, wherever the block begins.
        meter.block_around_or(value.wrapping_sub(1), requested)
    }
}

/// True if the two counts are right in front of the value in this version of the standard library,
/// as they have been since `Arc::from_raw` exists. Checked once.
fn is_laid_out_as_known() -> bool {
    const UNKNOWN: u8 = 0;
    const AS_KNOWN: u8 = 1;
    const OTHERWISE: u8 = 2;
    static ANSWER: AtomicU8 = AtomicU8::new(UNKNOWN);
    let mut answer = ANSWER.load(Ordering::Relaxed);
    if answer == UNKNOWN {
        answer = if looks_as_known() { AS_KNOWN } else { OTHERWISE };
        ANSWER.store(answer, Ordering::Relaxed);
    }
    answer == AS_KNOWN
}

#[cold]
fn looks_as_known() -> bool {
    // Three strong and two weak references, which count one more while there are strong ones.
    let arc = Arc::new(0_u64);
    let arcs = (arc.clone(), arc.clone(), Arc::downgrade(&arc), Arc::downgrade(&arc));
    let rc = Rc::new(0_u64);
    let rcs = (rc.clone(), rc.clone(), Rc::downgrade(&rc), Rc::downgrade(&rc));
    let counts = |value: *const u64| {
        let mut words = [[0_u64; 2]];
        let at = value.addr().wrapping_sub(COUNTS) as u64;
        (heapledger_core::sys::read_own_memory(&[at], &mut words) == 1).then_some(words[0])
    };
    let is_known = counts(Arc::as_ptr(&arc)) == Some([3, 3]) && counts(Rc::as_ptr(&rc)) == Some([3, 3]);
    drop((arcs, rcs));
    is_known
}

macro_rules! shared {
    ($strong:ident, $weak:path) => {
        impl<T: ?Sized> SharedHeapSize for $strong<T> {
            type Shared = T;

            fn shallow_size_as_owner(&self, meter: &mut Meter) -> Bytes {
                block($strong::as_ptr(self).cast(), size_of_val(&**self), align_of_val(&**self), meter)
            }

            fn shallow_size_if_first(&self, meter: &mut Meter) -> Bytes {
                if meter.is_first_visit($strong::as_ptr(self)) { self.shallow_size_as_owner(meter) } else { Bytes(0) }
            }

            fn heap_size_as_owner(&self, meter: &mut Meter) -> Bytes
            where
                T: HeapSize,
            {
                self.shallow_size_as_owner(meter) + (**self).heap_size(meter)
            }

            fn heap_size_if_first(&self, meter: &mut Meter) -> Bytes
            where
                T: HeapSize,
            {
                if meter.is_first_visit($strong::as_ptr(self)) { self.heap_size_as_owner(meter) } else { Bytes(0) }
            }
        }

        /// Answers for the block if there is no strong owner left: the value is gone then.
        impl<T> SharedHeapSize for $weak {
            type Shared = T;

            fn shallow_size_as_owner(&self, meter: &mut Meter) -> Bytes {
                // A weak reference from `new` has no block.
                if self.strong_count() > 0 || self.ptr_eq(&<$weak>::new()) {
                    return Bytes(0);
                }
                block(self.as_ptr().cast(), size_of::<T>(), align_of::<T>(), meter)
            }

            fn shallow_size_if_first(&self, meter: &mut Meter) -> Bytes {
                // As long as there are strong owners, one of them answers for the block.
                if self.strong_count() == 0 && meter.is_first_visit(self.as_ptr()) {
                    self.shallow_size_as_owner(meter)
                } else {
                    Bytes(0)
                }
            }

            fn heap_size_as_owner(&self, meter: &mut Meter) -> Bytes {
                self.shallow_size_as_owner(meter)
            }

            fn heap_size_if_first(&self, meter: &mut Meter) -> Bytes {
                self.shallow_size_if_first(meter)
            }
        }
    };
}

shared!(Rc, rc::Weak<T>);
shared!(Arc, sync::Weak<T>);

/// Implements `SharedHeapSize` for a type with shared values in it: its own blocks count in any
/// case, and each shared value as the called method says. A macro, since the four methods have the
/// same form: `$ask` is that method.
macro_rules! with_shared {
    ($(<S $(, $of:ident: $bound:path)* $(; $count:ident)?> $type:ty: |$all:ident, $meter:ident, $ask:ident| $sizes:expr;)+) => {$(
        impl<S: SharedHeapSize $(, $of: $bound)* $(, const $count: usize)?> SharedHeapSize for $type {
            type Shared = S::Shared;

            with_shared! { @shallow shallow_size_as_owner |$all, $meter, $ask| $sizes }
            with_shared! { @shallow shallow_size_if_first |$all, $meter, $ask| $sizes }
            with_shared! { @deep heap_size_as_owner |$all, $meter, $ask| $sizes }
            with_shared! { @deep heap_size_if_first |$all, $meter, $ask| $sizes }
        }
    )+};
    (@shallow $name:ident |$all:ident, $meter:ident, $ask:ident| $sizes:expr) => {
        fn $name(&self, $meter: &mut Meter) -> Bytes {
            let ($all, $ask) = (self, |shared: &S, meter: &mut Meter| shared.$name(meter));
            $sizes
        }
    };
    (@deep $name:ident |$all:ident, $meter:ident, $ask:ident| $sizes:expr) => {
        fn $name(&self, $meter: &mut Meter) -> Bytes
        where
            Self::Shared: HeapSize,
        {
            let ($all, $ask) = (self, |shared: &S, meter: &mut Meter| shared.$name(meter));
            $sizes
        }
    };
}

with_shared! {
    <S> Option<S>: |option, meter, ask| option.as_ref().map_or(Bytes(0), |shared| ask(shared, meter));
    <S> [S]: |all, meter, ask| all.iter().map(|shared| ask(shared, meter)).sum();
    <S; N> [S; N]: |all, meter, ask| all.iter().map(|shared| ask(shared, meter)).sum();
    <S> Vec<S>: |all, meter, ask| all.heap_size_with(meter, ask);
    <S> VecDeque<S>: |all, meter, ask| all.heap_size_with(meter, ask);
    <S> LinkedList<S>: |all, meter, ask| all.heap_size_with(meter, ask);
    <S, K: HeapSize, H: HeapSize> HashMap<K, S, H>: |map, meter, ask| {
        let own = map.hasher().heap_size(meter);
        own + map.heap_size_with(meter, |(key, shared), meter| key.heap_size(meter) + ask(shared, meter))
    };
    <S, K: HeapSize> BTreeMap<K, S>: |map, meter, ask| {
        map.heap_size_with(meter, |(key, shared), meter| key.heap_size(meter) + ask(shared, meter))
    };
    <S> RefCell<S>: |cell, meter, ask| ask(&cell.borrow(), meter);
    <S> Mutex<S>: |mutex, meter, ask| ask(&mutex.lock().unwrap_or_else(PoisonError::into_inner), meter);
    <S> RwLock<S>: |lock, meter, ask| ask(&lock.read().unwrap_or_else(PoisonError::into_inner), meter);
}
