//! The calls of plain entries, to which thunks lead that use the registers a call may change.

use core::ptr;
use core::sync::atomic::Ordering;

use heapledger_core::Api;
use heapledger_core::hooks::dispatch_path::REQUESTED;
use heapledger_core::hooks::{Caller, notify};
use heapledger_wire::redirection::Site;
#[cfg(doc)]
use heapledger_wire::redirection::Thunk;

use super::{Call, failed, is_own_code, is_started, pointer, prepare};
use crate::arch::{self, Allocated};

/// Defines a function that thunks lead to. The usual path saves no register for what may have to be
/// done before a call, because it leaves that to a copy of itself.
macro_rules! outermost {
    ($(#[$doc:meta])* $name:ident by $make:ident($($argument:ident: $type:ty),*) -> $result:ty) => {
        $(#[$doc])*
        pub(crate) unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            /// # Safety
            ///
            /// The contract of the function around it.
            #[cold]
            #[inline(never)]
            unsafe extern "C" fn unprepared($($argument: $type),*) -> $result {
                prepare();
                // SAFETY: `$make` asks for the same as this function.
                unsafe { $make($($argument),*) }
            }
            // SAFETY: both ask for the same as this function.
            unsafe { if is_prepared() { $make($($argument),*) } else { unprepared($($argument),*) } }
        }
    };
}

outermost! {
    /// Makes an outermost call of a plain allocation, and ends it. `slot` is the address of the
    /// return address.
    ///
    /// # Safety
    ///
    /// *Redirected call* (see [`call`](super::call)), of a kind of [`Thunk::Malloc`].
    malloc by make_malloc(a: u64, b: u64, c: u64, slot: u64, rbp: u64, site: &Site) -> u64
}

/// # Safety
///
/// See [`malloc`].
#[inline(always)]
unsafe fn make_malloc(a: u64, b: u64, c: u64, slot: u64, rbp: u64, site: &Site) -> u64 {
    let call = Call { site, mark: slot, caller: Caller { slot, rbp } };
    // SAFETY: `few` requires the arguments of the call, of which these kinds have three at most,
    // and `Call::returned` the call that has been made.
    unsafe {
        let block = few(site.original, a, b, c);
        call.returned(block, a);
        arch::unmark();
        block
    }
}

outermost! {
    /// Makes an outermost call of a free, and ends it. `slot` is the address of the return address.
    ///
    /// # Safety
    ///
    /// *Redirected call* (see [`call`](super::call)), of a kind of [`Thunk::Free`].
    free by make_free(a: u64, b: u64, c: u64, slot: u64, rbp: u64, site: &Site) -> ()
}

/// # Safety
///
/// See [`free`].
#[inline(always)]
unsafe fn make_free(a: u64, b: u64, c: u64, slot: u64, rbp: u64, site: &Site) {
    // SAFETY: the word at `slot` is the return address, on this thread's stack. The notification
    // requires the live calling frame of this thread, which the thunk has passed, and a call that
    // is about to be made: it is, just below. `few` requires the arguments of the call, of which
    // these kinds have three at most.
    unsafe {
        if a != 0 && !is_own_code(ptr::with_exposed_provenance::<u64>(slot as usize).read()) {
            notify::free(pointer(a), Caller { slot, rbp });
        }
        few(site.original, a, b, c);
    }
    arch::unmark();
}

outermost! {
    /// Makes an outermost call of an operator that throws if it fails, and ends it. `slot` is the
    /// address of the return address. Returns the block, or null and the address of the original,
    /// which is to fail in its own way.
    ///
    /// # Safety
    ///
    /// *Redirected call* (see [`call`](super::call)), of a kind of [`Thunk::New`].
    new by make_new(size: u64, slot: u64, rbp: u64, site: &Site) -> Allocated
}

/// # Safety
///
/// See [`new`].
#[inline(always)]
unsafe fn make_new(size: u64, slot: u64, rbp: u64, site: &Site) -> Allocated {
    let call = Call { site, mark: slot, caller: Caller { slot, rbp } };
    // SAFETY: `few` requires the arguments of the sibling, which are the size and a `nothrow_t`;
    // `Call::returned` requires the call that has been made.
    unsafe {
        let block = few(site.nothrow, size, ptr::from_ref(site).expose_provenance() as u64, 0);
        call.returned(block, size);
        arch::unmark();
        Allocated { block, pass: site.pass }
    }
}

outermost! {
    /// Makes an outermost call that allocates an array, and ends it. `slot` is the address of the
    /// return address.
    ///
    /// # Safety
    ///
    /// *Redirected call* (see [`call`](super::call)), of a kind of [`Thunk::Calloc`].
    calloc by make_calloc(count: u64, each: u64, c: u64, slot: u64, rbp: u64, site: &Site) -> u64
}

/// # Safety
///
/// See [`calloc`].
#[inline(always)]
unsafe fn make_calloc(count: u64, each: u64, c: u64, slot: u64, rbp: u64, site: &Site) -> u64 {
    let call = Call { site, mark: slot, caller: Caller { slot, rbp } };
    // SAFETY: `few` requires the arguments of the call, of which these kinds have three at most.
    // The notifications require the live calling frame of this thread, which the thunk has passed,
    // and a call that has been made as told.
    unsafe {
        let block = few(site.original, count, each, c);
        call.mark_again();
        match block {
            0 => failed(Api::Calloc, count.saturating_mul(each), [0, count], call.caller),
            _ => notify::calloc(pointer(block), count as usize, each as usize, call.caller),
        }
        arch::unmark();
        block
    }
}

outermost! {
    /// Makes an outermost call that reallocates a block, and ends it. `slot` is the address of the
    /// return address.
    ///
    /// # Safety
    ///
    /// *Redirected call* (see [`call`](super::call)), of a kind of [`Thunk::Realloc`].
    realloc by make_realloc(old: u64, size: u64, c: u64, d: u64, slot: u64, rbp: u64, site: &Site) -> u64
}

/// # Safety
///
/// See [`realloc`].
#[inline(always)]
unsafe fn make_realloc(old: u64, size: u64, c: u64, d: u64, slot: u64, rbp: u64, site: &Site) -> u64 {
    let call = Call { site, mark: slot, caller: Caller { slot, rbp } };
    // SAFETY: `transmute` requires a C function of four integers: the original of these kinds has
    // four arguments at most. The notifications require the live calling frame of this thread,
    // which the thunk has passed, and a call made as told: the old block is live before the call,
    // and the new one has been returned after it.
    unsafe {
        if old != 0 {
            notify::realloc_begins(Api::Realloc, pointer(old), call.caller);
        }
        type Function = unsafe extern "C" fn(u64, u64, u64, u64) -> u64;
        let original: *const () = ptr::with_exposed_provenance(site.original as usize);
        let block = core::mem::transmute::<*const (), Function>(original)(old, size, c, d);
        call.mark_again();
        notify::realloc_ends(pointer(old), pointer(block), size as usize, call.caller);
        arch::unmark();
        block
    }
}

outermost! {
    /// Makes an outermost call of an aligned allocation, and ends it. `slot` is the address of the
    /// return address.
    ///
    /// # Safety
    ///
    /// *Redirected call* (see [`call`](super::call)), of a kind of [`Thunk::Aligned`].
    aligned by make_aligned(size: u64, alignment: u64, c: u64, slot: u64, rbp: u64, site: &Site) -> u64
}

/// # Safety
///
/// See [`aligned`].
#[inline(always)]
unsafe fn make_aligned(size: u64, alignment: u64, c: u64, slot: u64, rbp: u64, site: &Site) -> u64 {
    let call = Call { site, mark: slot, caller: Caller { slot, rbp } };
    // SAFETY: as in `make_calloc`.
    unsafe {
        let block = few(site.original, size, alignment, c);
        call.mark_again();
        match block {
            0 => failed(Api::AlignedAlloc, size, [alignment, 0], call.caller),
            _ => {
                notify::aligned(Api::AlignedAlloc, pointer(block), alignment as usize, size as usize, call.caller);
            }
        }
        arch::unmark();
        block
    }
}

/// True if nothing has to be done before a call is made.
#[inline(always)]
fn is_prepared() -> bool {
    is_started() && REQUESTED.load(Ordering::Relaxed) == 0
}

/// Calls a function of the allocator that takes at most three arguments.
///
/// # Safety
///
/// See [`original`](super::original).
#[inline(always)]
unsafe fn few(address: u64, a: u64, b: u64, c: u64) -> u64 {
    type Function = unsafe extern "C" fn(u64, u64, u64) -> u64;
    // SAFETY: as in `original`: by this function's `# Safety` the address is that of a C function,
    // which takes at most three integers.
    unsafe { core::mem::transmute::<*const (), Function>(ptr::with_exposed_provenance(address as usize))(a, b, c) }
}
