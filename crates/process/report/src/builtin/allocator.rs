//! What the C library's allocator says.

use std::mem;

use heapledger_core::weak_address;
use heapledger_reports::{Report, Unit};

use super::add;

pub(super) fn report(reports: &mut Vec<Report>) {
    let Some(info) = mallinfo() else { return };
    add(
        reports,
        "heap-allocated",
        Unit::Bytes,
        (info.uordblks + info.hblkhd) as u64,
        "Bytes in blocks that the program has of the allocator, as glibc counts them: with its headers of 8 bytes a block, \
         and with blocks that were freed and are kept for the thread that freed them.",
    );
}

/// glibc's figures; `None` with another C library, or an old one.
fn mallinfo() -> Option<libc::mallinfo2> {
    let address = weak_address!("mallinfo2");
    if address == 0 {
        return None;
    }
    // SAFETY: the C library's function of this name.
    Some(unsafe { mem::transmute::<usize, unsafe extern "C" fn() -> libc::mallinfo2>(address)() })
}
