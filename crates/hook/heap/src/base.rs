//! The base allocator: memory for the allocator's own structures, which is never freed.

use core::ptr;

use crate::locked::Locked;
use crate::os;

/// The size in which memory is mapped, in bytes.
const BASE: usize = 64 << 10;
/// The alignment of all that is returned: a cache line.
const ALIGNMENT: usize = 64;

/// The rest of the newest mapping.
#[derive(Debug)]
pub(crate) struct Base {
    rest: *mut u8,
    left: usize,
    mapped: usize,
}

/// The base allocator. Locked last.
pub(crate) static BASE_ALLOCATOR: Locked<Base> = Locked::new(Base { rest: ptr::null_mut(), left: 0, mapped: 0 });

/// Returns zeroed memory that is never freed, aligned to a cache line. Null if there is none.
/// `size` is at most 64 KiB.
pub(crate) fn allocate(size: usize) -> *mut u8 {
    let size = size.next_multiple_of(ALIGNMENT);
    debug_assert!(size <= BASE);
    BASE_ALLOCATOR.with(|base| {
        if base.left < size {
            let start = os::map(BASE);
            if start.is_null() {
                return start;
            }
            (base.rest, base.left) = (start, BASE);
            base.mapped += BASE;
        }
        let start = base.rest;
        base.rest = start.wrapping_add(size);
        base.left -= size;
        start
    })
}

/// Returns the bytes that were mapped.
pub(crate) fn bytes() -> usize {
    BASE_ALLOCATOR.with(|base| base.mapped)
}
