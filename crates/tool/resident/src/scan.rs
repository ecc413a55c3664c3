//! The system call `ioctl(PAGEMAP_SCAN)`, which tells pages of zeroes from others.
//!
//! Source: the kernel's `Documentation/admin-guide/mm/pagemap.rst` and `include/uapi/linux/fs.h`.

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::ops::Range;

use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, opcode};

/// `struct page_region`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PageRegion {
    pub(crate) start: u64,
    pub(crate) end: u64,
    categories: u64,
}

/// `struct pm_scan_arg`.
#[repr(C)]
#[derive(Debug, Default)]
struct Arguments {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    regions: u64,
    regions_length: u64,
    pages_max: u64,
    category_inverted: u64,
    category_mask: u64,
    category_any_of: u64,
    return_mask: u64,
}

const PRESENT: u64 = 1 << 3;
const PFN_IS_ZERO: u64 = 1 << 5;
const HUGE: u64 = 1 << 6;

/// A call. The buffer for its result is borrowed as long as it.
struct Scan<'b> {
    arguments: Arguments,
    regions: &'b mut [PageRegion],
}

// SAFETY: `Ioctl` requires that the opcode, the pointer and the output belong together.
// PAGEMAP_SCAN is `_IOWR('f', 16, struct pm_scan_arg)`, and the pointer is to that structure. The
// kernel writes to it, and at most `regions_length` structures `page_region` to `regions`, which
// `scan` sets to the borrowed buffer: `IS_MUTATING` is true, and the number that the call
// returns is the output.
unsafe impl Ioctl for Scan<'_> {
    /// The number of regions, and the address up to which the kernel has looked.
    type Output = (usize, u64);

    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        opcode::read_write::<Arguments>(b'f', 16)
    }

    fn as_ptr(&mut self) -> *mut c_void {
        self.arguments.regions = self.regions.as_mut_ptr().expose_provenance() as u64;
        self.arguments.regions_length = self.regions.len() as u64;
        (&raw mut self.arguments).cast()
    }

    unsafe fn output_from_ptr(count: IoctlOutput, arguments: *mut c_void) -> rustix::io::Result<(usize, u64)> {
        // SAFETY: `output_from_ptr` is given the pointer that `as_ptr` returned, to a structure
        // which the call borrows. Any number is a valid value of its fields.
        let walk_end = unsafe { (*arguments.cast::<Arguments>()).walk_end };
        Ok((usize::try_from(count).unwrap_or(0), walk_end))
    }
}

/// Returns the regions of pages in a range that are present and are not the page of zeroes, and the
/// address up to which the kernel has looked: it stops when there is no room for more regions.
///
/// # Errors
///
/// Fails with `ENOTTY` on kernels before 6.7.
pub(crate) fn resident<'b>(
    page_map: &File,
    range: Range<u64>,
    regions: &'b mut [PageRegion],
) -> io::Result<(&'b [PageRegion], u64)> {
    scan(page_map, range, (PRESENT | PFN_IS_ZERO, PFN_IS_ZERO), regions)
}

/// Returns the regions of huge pages in a range, and the address up to which the kernel has looked.
///
/// # Errors
///
/// Fails with `ENOTTY` on kernels before 6.7.
pub(crate) fn huge<'b>(
    page_map: &File,
    range: Range<u64>,
    regions: &'b mut [PageRegion],
) -> io::Result<(&'b [PageRegion], u64)> {
    scan(page_map, range, (PRESENT | HUGE | PFN_IS_ZERO, PFN_IS_ZERO), regions)
}

/// Returns the regions of pages that have all categories of a mask, except for those of another
/// one, which they must not have.
fn scan<'b>(
    page_map: &File,
    range: Range<u64>,
    (category_mask, category_inverted): (u64, u64),
    regions: &'b mut [PageRegion],
) -> io::Result<(&'b [PageRegion], u64)> {
    let arguments = Arguments {
        size: size_of::<Arguments>() as u64,
        start: range.start,
        end: range.end,
        category_inverted,
        category_mask,
        return_mask: PRESENT,
        ..Arguments::default()
    };
    let scan = Scan { arguments, regions: &mut *regions };
    // SAFETY: `ioctl` requires a valid call for this file: `Scan` says why it is one. A file that
    // is no page map refuses the opcode.
    let (count, walk_end) = unsafe { rustix::ioctl::ioctl(page_map, scan) }?;
    Ok((&regions[..count.min(regions.len())], walk_end))
}
