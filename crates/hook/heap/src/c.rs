//! The functions of `include/heapledger/allocator.h`: what the allocator says, for C.
//!
//! Programs that link the allocator have them as well as the preload library, so that others in the
//! process find them by their names.

use core::ffi::{c_char, c_int, c_void};
use core::fmt::{self, Write};
use core::ops::ControlFlow;
use core::ptr;

use crate::arena::ids::ArenaId;
use crate::{self as heap, StatisticsFormat};

const EINVAL: c_int = 22;
const ENOENT: c_int = 2;

/// `struct heapledger_ptr_info`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PtrInfo {
    size: u32,
    kind: u32,
    start: *const c_void,
    length: usize,
    arena: u64,
}

/// Copies a structure to one of the caller's, whose first field is its size as a `Size`. Returns
/// `EINVAL` if that is not even as large as the field.
///
/// # Safety
///
/// `to` is null, or begins with its size, of which all bytes may be written.
unsafe fn copy<T: Copy, Size: Copy + Into<u64> + TryFrom<usize>>(from: &T, to: *mut T) -> c_int {
    if to.is_null() {
        return EINVAL;
    }
    // SAFETY: `read` demands a valid value: the structure begins with its size, by this function's
    // `# Safety`.
    let room: u64 = unsafe { to.cast::<Size>().read_unaligned() }.into();
    let bytes = usize::try_from(room).unwrap_or(usize::MAX).min(size_of::<T>());
    let Some(size) = Size::try_from(bytes).ok().filter(|_| bytes >= size_of::<Size>()) else { return EINVAL };
    // SAFETY: `copy_nonoverlapping` demands `bytes` bytes in both: they are at most those of a `T`,
    // and at most those that the caller says he has. The size is written over that of `from`.
    unsafe {
        ptr::copy_nonoverlapping(ptr::from_ref(from).cast::<u8>(), to.cast::<u8>(), bytes);
        to.cast::<Size>().write_unaligned(size);
    }
    0
}

/// Tells what an address is, as [`heap::pointer_info`] does. Returns 0, or `EINVAL`.
///
/// # Safety
///
/// `to` is null or a structure whose `size` is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heapledger_ptr_info(address: *const c_void, to: *mut PtrInfo) -> c_int {
    let info = heap::pointer_info(address.cast());
    let from = PtrInfo {
        size: 0,
        kind: info.kind as u32,
        start: ptr::without_provenance(info.start),
        length: info.size,
        arena: info.arena,
    };
    // SAFETY: `copy` demands null or a structure that begins with its size: the contract of this
    // function.
    unsafe { copy::<_, u32>(&from, to) }
}

/// The visitor of [`heapledger_walk`].
pub type Visit = unsafe extern "C" fn(context: *mut c_void, block: *mut c_void, size: usize, arena: u64) -> c_int;

/// Visits the blocks in use, as [`heap::walk`] does, until the visitor returns another value than
/// 0. Returns that value.
///
/// # Safety
///
/// `visit` may be called with `context`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heapledger_walk(visit: Option<Visit>, context: *mut c_void) -> c_int {
    let Some(visit) = visit else { return EINVAL };
    let mut answer = 0;
    let _ = heap::walk(|block| {
        let start = ptr::with_exposed_provenance_mut(block.start);
        // SAFETY: by the contract of this function.
        answer = unsafe { visit(context, start, block.size, block.arena) };
        if answer == 0 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    answer
}

/// Fills in the statistics, as [`heap::detailed_statistics`] returns them. Returns 0, or `EINVAL`.
///
/// # Safety
///
/// `to` is null or a structure whose `size` is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heapledger_stats(to: *mut heap::DetailedStatistics) -> c_int {
    // SAFETY: `copy` demands null or a structure that begins with its size: the contract of this
    // function.
    unsafe { copy::<_, Size>(&heap::detailed_statistics(), to) }
}

/// Fills in the statistics of one arena. Returns 0, `EINVAL`, or `ENOENT` if no arena has the id.
///
/// # Safety
///
/// `to` is null or a structure whose `size` is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heapledger_arena_stats(arena: u64, to: *mut heap::DetailedStatistics) -> c_int {
    match heap::detailed_arena_statistics(ArenaId::from_raw(arena)) {
        // SAFETY: as for `heapledger_stats`.
        Some(now) => unsafe { copy::<_, Size>(&now, to) },
        None => ENOENT,
    }
}

/// Fills in the totals, as [`heap::lite_statistics`] returns them. Returns 0, or `EINVAL`.
///
/// # Safety
///
/// `to` is null or a structure whose `size` is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heapledger_stats_lite(to: *mut heap::LiteStatistics) -> c_int {
    // SAFETY: as for `heapledger_stats`.
    unsafe { copy::<_, Size>(&heap::lite_statistics(), to) }
}

/// The type of a size in structures of `size_t`.
type Size = u64;

/// The receiver of the text of [`heapledger_stats_print`].
pub type WriteText = unsafe extern "C" fn(context: *mut c_void, text: *const c_char, length: usize);

struct Callback {
    write: WriteText,
    context: *mut c_void,
}

impl Write for Callback {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // SAFETY: `heapledger_stats_print` demands a function that may be called with `context`.
        unsafe { (self.write)(self.context, text.as_ptr().cast(), text.len()) };
        Ok(())
    }
}

/// Writes the statistics in a format (0 text, 1 JSON, 2 OpenMetrics) to a function, in pieces.
/// Nothing is allocated. Returns 0, or `EINVAL` for another format.
///
/// # Safety
///
/// `write` may be called with `context`, a text that is not terminated, and its length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heapledger_stats_print(
    format: c_int,
    write: Option<WriteText>,
    context: *mut c_void,
) -> c_int {
    let format = match format {
        0 => StatisticsFormat::Text,
        1 => StatisticsFormat::Json,
        2 => StatisticsFormat::OpenMetrics,
        _ => return EINVAL,
    };
    let Some(write) = write else { return EINVAL };
    c_int::from(heap::write_statistics(format, &mut Callback { write, context }).is_err())
}
