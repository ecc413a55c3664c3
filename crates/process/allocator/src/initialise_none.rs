//! The first call on platforms where nothing can observe: there is nothing to find out.

use std::alloc::GlobalAlloc;

use heapledger_core::hooks::dispatch_path;

use crate::Allocator;

/// Has calls passed on from now on.
#[cold]
#[inline(never)]
pub(crate) fn initialise<A: GlobalAlloc>(_: &Allocator<A>) {
    dispatch_path::set_initialised();
}
