//! Types that own no memory of the heap.

use std::alloc::Layout;
use std::any::TypeId;
use std::cmp::Ordering;
use std::collections::hash_map::RandomState;
use std::convert::Infallible;
use std::ffi::{CStr, OsStr};
use std::hash::BuildHasherDefault;
use std::marker::{PhantomData, PhantomPinned};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::num::*;
use std::ops::RangeFull;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::*;
use std::sync::{Barrier, Condvar, Once};
use std::thread::ThreadId;
use std::time::{Duration, Instant, SystemTime};

use heapledger_core::{Blocks, Bytes};

use crate::{HeapSize, Meter};

macro_rules! nothing {
    ($($({$($of:ident $(: ?$sized:ident)?),+})? $type:ty;)+) => {$(
        impl$(<$($of $(: ?$sized)?),+>)? HeapSize for $type {
            #[inline(always)]
            fn heap_size(&self, _: &mut Meter) -> Bytes {
                Bytes(0)
            }

            #[inline(always)]
            fn owns_nothing() -> bool {
                true
            }
        }
    )+};
}

nothing! {
    (); bool; char; f32; f64;
    i8; i16; i32; i64; i128; isize; u8; u16; u32; u64; u128; usize;
    NonZeroI8; NonZeroI16; NonZeroI32; NonZeroI64; NonZeroI128; NonZeroIsize;
    NonZeroU8; NonZeroU16; NonZeroU32; NonZeroU64; NonZeroU128; NonZeroUsize;
    AtomicBool; AtomicI8; AtomicI16; AtomicI32; AtomicI64; AtomicIsize;
    AtomicU8; AtomicU16; AtomicU32; AtomicU64; AtomicUsize; {T} AtomicPtr<T>;
    Ipv4Addr; Ipv6Addr; IpAddr; SocketAddrV4; SocketAddrV6; SocketAddr;
    Duration; Instant; SystemTime; ThreadId; TypeId; Layout; Ordering; RangeFull; Infallible; RandomState;
    Barrier; Condvar; Once; PhantomPinned; Blocks; Bytes;
    {H} BuildHasherDefault<H>; {T: ?Sized} PhantomData<T>;
    // They point to what somebody else owns.
    {T: ?Sized} &T; {T: ?Sized} &mut T; {T: ?Sized} *const T; {T: ?Sized} *mut T; {T: ?Sized} NonNull<T>;
}

/// Types whose size only the pointer to them knows: the owner of the block counts their memory.
macro_rules! unsized_nothing {
    ($($type:ty)+) => {$(
        impl HeapSize for $type {
            #[inline(always)]
            fn heap_size(&self, _: &mut Meter) -> Bytes {
                Bytes(0)
            }
        }
    )+};
}

unsized_nothing! { str CStr OsStr Path }

macro_rules! functions {
    ($($argument:ident)*) => {
        nothing! {
            {R $(, $argument)*} fn($($argument),*) -> R;
            {R $(, $argument)*} unsafe fn($($argument),*) -> R;
            {R $(, $argument)*} extern "C" fn($($argument),*) -> R;
            {R $(, $argument)*} unsafe extern "C" fn($($argument),*) -> R;
        }
    };
}

functions! {}
functions! { A }
functions! { A B }
functions! { A B C }
functions! { A B C D }
functions! { A B C D E }
functions! { A B C D E F }
