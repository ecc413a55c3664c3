//! What has to be found out at the first call: nothing, where nobody observes.

use std::alloc::GlobalAlloc;

use heapledger_core::hooks::way;

use crate::Allocator;

/// Has calls passed on from now on.
#[cold]
#[inline(never)]
pub(crate) fn settle<A: GlobalAlloc>(_: &Allocator<A>) {
    way::settle();
}
