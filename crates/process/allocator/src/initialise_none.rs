//! The first call on platforms where nothing can observe: there is nothing to find out.

use std::alloc::GlobalAlloc;

use heapledger_core::hooks::{Functions, dispatch_path};

use crate::Allocator;

/// No functions: nothing is replaced.
pub(crate) static SYSTEM: Functions = Functions::EMPTY;

/// Has calls passed on from now on.
#[cold]
#[inline(never)]
pub(crate) fn initialise<A: GlobalAlloc>(_: &Allocator<A>) {
    dispatch_path::set_initialised();
}
