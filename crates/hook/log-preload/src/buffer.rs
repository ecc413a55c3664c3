//! The buffer of a process for `log record`: a file beside the library, mapped shared, so that its
//! lines are there when the process has ended, whatever ended it.
//!
//! The file is `PID.TICKS.lines`. It begins with the number of bytes that are in it, the number of
//! all lines, and the number of lines that were dropped, 8 bytes each, of this processor's order.

use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering};

use heapledger_core::{arch, sys};

use crate::destination::DIRECTORY;
use crate::line::LINE_MAX;

/// Bytes of lines.
const CAPACITY: usize = 64 << 10;
/// Bytes of the file.
const LENGTH: usize = size_of::<Buffer>();

/// The mapped file.
#[repr(C)]
pub(crate) struct Buffer {
    filled: AtomicU64,
    lines: AtomicU64,
    dropped: AtomicU64,
    reserved: u64,
    bytes: [u8; CAPACITY],
}

impl Buffer {
    /// Makes and maps the file of this process. `None` if that fails.
    pub(crate) fn create() -> Option<*mut Buffer> {
        const O_RDWR_CREAT_EXCL_CLOEXEC: usize = 2 | 0o100 | 0o200 | 0o2000000;
        let name = format_args!("{}.{:x}.lines", sys::process_id(), arch::ticks());
        let fd = DIRECTORY.open(name, O_RDWR_CREAT_EXCL_CLOEXEC, 0o600).ok()?;
        let mapped = sys::set_length(fd, LENGTH).and_then(|()| sys::map_shared(fd, LENGTH));
        sys::close(fd);
        mapped.ok().map(<*mut u8>::cast)
    }

    /// Returns the lines that are in the buffer.
    pub(crate) fn content(&self) -> &[u8] {
        self.bytes.get(..self.filled()).unwrap_or(&[])
    }

    /// Empties the buffer, whose lines have been written.
    pub(crate) fn clear(&mut self) {
        self.filled.store(0, Ordering::Release);
    }

    /// Empties the buffer, whose lines are lost.
    pub(crate) fn lose(&mut self) {
        let lost = self.content().iter().filter(|&&byte| byte == b'\n').count() as u64;
        self.lines.store(self.lines.load(Ordering::Relaxed).saturating_sub(lost), Ordering::Relaxed);
        self.count_dropped(lost);
        self.clear();
    }

    /// Counts lines that were dropped.
    pub(crate) fn count_dropped(&mut self, count: u64) {
        self.dropped.store(self.dropped.load(Ordering::Relaxed) + count, Ordering::Relaxed);
    }

    /// Adds a line; false if it does not fit.
    pub(crate) fn add(&mut self, line: &[u8]) -> bool {
        debug_assert!(line.len() <= LINE_MAX);
        let filled = self.filled();
        let Some(room) = self.bytes.get_mut(filled..).and_then(|rest| rest.get_mut(..line.len())) else { return false };
        // SAFETY: both slices have `line.len()` bytes, and do not overlap: the line is on the
        // stack.
        unsafe { ptr::copy_nonoverlapping(line.as_ptr(), room.as_mut_ptr(), line.len()) };
        self.lines.store(self.lines.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        // The line counts once it is whole.
        self.filled.store((filled + line.len()) as u64, Ordering::Release);
        true
    }

    fn filled(&self) -> usize {
        // The file is the program's, too: its content is not trusted.
        (self.filled.load(Ordering::Relaxed) as usize).min(CAPACITY)
    }
}
