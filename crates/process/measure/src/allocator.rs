//! Heapledger's own allocator as the one to ask for the block around an address.

use std::ffi::{c_int, c_void};
use std::{mem, ptr};

use heapledger_core::bridge::Extent;
use heapledger_core::weak_address;

/// `heapledger_pointer_info` of `include/heapledger/allocator.h`.
#[repr(C)]
struct PointerInfo {
    size: u32,
    kind: u32,
    start: *const c_void,
    length: usize,
    arena: u64,
}

/// The kind of an address in a block in use.
const LIVE: u32 = 1;

/// Returns the block in use around an address, if the program's allocator is Heapledger's own and
/// knows one. The requested size is not known: the usable size stands in its place. The address may
/// be any number.
pub(crate) fn block_around(address: usize) -> Option<Extent> {
    let function = weak_address!("heapledger_ptr_info");
    if function == 0 {
        return None;
    }
    type Ask = unsafe extern "C" fn(*const c_void, *mut PointerInfo) -> c_int;
    let size = size_of::<PointerInfo>() as u32;
    let mut info = PointerInfo { size, kind: 0, start: ptr::null(), length: 0, arena: 0 };
    // SAFETY: `transmute` demands the address of a function of this type, as allocator.h declares
    // the one of this name. The function takes any address, and a structure that says its size.
    let error = unsafe { mem::transmute::<usize, Ask>(function)(ptr::without_provenance(address), &raw mut info) };
    let is_known = error == 0 && info.size == size && info.kind == LIVE;
    let (start, bytes) = (info.start.addr() as u64, info.length as u64);
    is_known.then_some(Extent { address: start, bytes, bytes_usable: bytes })
}
