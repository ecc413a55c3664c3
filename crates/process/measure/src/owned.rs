//! Types that own one block, and types that own what their parts own.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::ffi::{CString, OsString};
use std::io::{BufReader, BufWriter, Cursor, Write};
use std::mem::ManuallyDrop;
use std::num::{Saturating, Wrapping};
use std::ops::{Bound, ControlFlow, Deref, Range, RangeFrom, RangeInclusive, RangeTo, RangeToInclusive};
use std::path::PathBuf;
use std::pin::Pin;
use std::ptr;
use std::task::Poll;

use heapledger_core::Bytes;

use crate::{HeapSize, Meter};

/// Also for trait objects, if the trait has `HeapSize` as a supertrait.
impl<T: ?Sized + HeapSize> HeapSize for Box<T> {
    fn heap_size(&self, meter: &mut Meter) -> Bytes {
        let value = &**self;
        let bytes = size_of_val(value);
        // SAFETY: by the documentation of `Box` a value that is not of size zero lies at the
        // beginning of a block of the global allocator.
        let own = if bytes == 0 { Bytes(0) } else { unsafe { meter.block(ptr::from_ref(value), bytes) } };
        own + value.heap_size(meter)
    }
}

macro_rules! text {
    ($($type:ty: $of:ident => $start:expr, $capacity:expr;)+) => {$(
        impl HeapSize for $type {
            fn heap_size(&self, meter: &mut Meter) -> Bytes {
                let $of = self;
                let capacity = $capacity;
                // SAFETY: it is in a `Vec<u8>` or `Box<[u8]>`, which by their documentation have
                // their bytes at the beginning of a block of the global allocator, if there is room
                // for any.
                if capacity == 0 { Bytes(0) } else { unsafe { meter.block::<u8>($start, capacity) } }
            }
        }
    )+};
}

text! {
    String: text => text.as_ptr(), text.capacity();
    OsString: text => text.as_encoded_bytes().as_ptr(), text.capacity();
    PathBuf: path => path.as_os_str().as_encoded_bytes().as_ptr(), path.capacity();
    CString: text => text.as_ptr().cast(), text.as_bytes_with_nul().len();
}

impl<B: ?Sized + ToOwned<Owned: HeapSize>> HeapSize for Cow<'_, B> {
    fn heap_size(&self, meter: &mut Meter) -> Bytes {
        match self {
            Cow::Borrowed(_) => Bytes(0),
            Cow::Owned(owned) => owned.heap_size(meter),
        }
    }
}

/// Implements `HeapSize` by parts: a pattern, and those of its names that own something.
macro_rules! parts {
    ($(<$($of:ident),+> $type:ty: $($pattern:pat => $($part:ident)*),+;)+) => {$(
        impl<$($of: HeapSize),+> HeapSize for $type {
            #[inline]
            fn heap_size(&self, meter: &mut Meter) -> Bytes {
                let _ = &meter;
                match self {
                    $($pattern => Bytes(0) $(+ $part.heap_size(meter))*,)+
                }
            }

            #[inline]
            fn owns_nothing() -> bool {
                true $(&& $of::owns_nothing())+
            }
        }
    )+};
}

parts! {
    <T> Option<T>: Some(value) => value, None => ;
    <T, E> Result<T, E>: Ok(value) => value, Err(error) => error;
    <T> Poll<T>: Poll::Ready(value) => value, Poll::Pending => ;
    <B, C> ControlFlow<B, C>: ControlFlow::Break(value) => value, ControlFlow::Continue(value) => value;
    <T> Bound<T>: Bound::Included(value) => value, Bound::Excluded(value) => value, Bound::Unbounded => ;
    <T> Range<T>: Range { start, end } => start end;
    <T> RangeFrom<T>: RangeFrom { start } => start;
    <T> RangeTo<T>: RangeTo { end } => end;
    <T> RangeToInclusive<T>: RangeToInclusive { end } => end;
    <T> Reverse<T>: Reverse(value) => value;
    <T> Wrapping<T>: Wrapping(value) => value;
    <T> Saturating<T>: Saturating(value) => value;
    <A> (A,): (a,) => a;
    <A, B> (A, B): (a, b) => a b;
    <A, B, C> (A, B, C): (a, b, c) => a b c;
    <A, B, C, D> (A, B, C, D): (a, b, c, d) => a b c d;
    <A, B, C, D, E> (A, B, C, D, E): (a, b, c, d, e) => a b c d e;
    <A, B, C, D, E, F> (A, B, C, D, E, F): (a, b, c, d, e, f) => a b c d e f;
    <A, B, C, D, E, F, G> (A, B, C, D, E, F, G): (a, b, c, d, e, f, g) => a b c d e f g;
    <A, B, C, D, E, F, G, H> (A, B, C, D, E, F, G, H): (a, b, c, d, e, f, g, h) => a b c d e f g h;
    <A, B, C, D, E, F, G, H, I> (A, B, C, D, E, F, G, H, I): (a, b, c, d, e, f, g, h, i) => a b c d e f g h i;
    <A, B, C, D, E, F, G, H, I, J> (A, B, C, D, E, F, G, H, I, J):
        (a, b, c, d, e, f, g, h, i, j) => a b c d e f g h i j;
    <A, B, C, D, E, F, G, H, I, J, K> (A, B, C, D, E, F, G, H, I, J, K):
        (a, b, c, d, e, f, g, h, i, j, k) => a b c d e f g h i j k;
    <A, B, C, D, E, F, G, H, I, J, K, L> (A, B, C, D, E, F, G, H, I, J, K, L):
        (a, b, c, d, e, f, g, h, i, j, k, l) => a b c d e f g h i j k l;
}

impl<T: HeapSize> HeapSize for RangeInclusive<T> {
    fn heap_size(&self, meter: &mut Meter) -> Bytes {
        self.start().heap_size(meter) + self.end().heap_size(meter)
    }

    fn owns_nothing() -> bool {
        T::owns_nothing()
    }
}

impl<T: HeapSize> HeapSize for Pin<Box<T>> {
    fn heap_size(&self, meter: &mut Meter) -> Bytes {
        let value = self.deref();
        let bytes = size_of_val(value);
        // SAFETY: `Meter::block` requires where a live block of the global allocator begins. By the
        // documentation of `Box` a value that is not of size zero lies there, and `Pin` keeps it
        // there.
        let own = if bytes == 0 { Bytes(0) } else { unsafe { meter.block(ptr::from_ref(value), bytes) } };
        own + value.heap_size(meter)
    }
}

impl<T: ?Sized + HeapSize> HeapSize for ManuallyDrop<T> {
    fn heap_size(&self, meter: &mut Meter) -> Bytes {
        (**self).heap_size(meter)
    }
}

impl<T: HeapSize> HeapSize for Cursor<T> {
    fn heap_size(&self, meter: &mut Meter) -> Bytes {
        self.get_ref().heap_size(meter)
    }

    fn owns_nothing() -> bool {
        T::owns_nothing()
    }
}

/// The buffer is found by an address inside it, which needs a ledger.
impl<R: HeapSize> HeapSize for BufReader<R> {
    fn heap_size(&self, meter: &mut Meter) -> Bytes {
        let capacity = self.capacity();
        let first = self.buffer().as_ptr();
        // If nothing is left to be read, this may be the address behind the buffer.
        let is_inside =
            !self.buffer().is_empty() || meter.extent_around(first).is_some_and(|it| it.address == first.addr() as u64);
        let inside = if is_inside { first } else { first.wrapping_sub(1) };
        let own = if capacity == 0 { Bytes(0) } else { meter.block_around_or(inside, capacity) };
        own + self.get_ref().heap_size(meter)
    }
}

impl<W: Write + HeapSize> HeapSize for BufWriter<W> {
    fn heap_size(&self, meter: &mut Meter) -> Bytes {
        let capacity = self.capacity();
        // SAFETY: `Meter::block` requires where a live block of the global allocator begins.
        // `BufWriter` has its buffer in a `Vec<u8>`, which `into_parts` gives out, and `buffer`
        // returns the bytes of that from the first. By the documentation of `Vec` they lie where
        // its block begins, if there is room for any.
        let own = if capacity == 0 { Bytes(0) } else { unsafe { meter.block(self.buffer().as_ptr(), capacity) } };
        own + self.get_ref().heap_size(meter)
    }
}
