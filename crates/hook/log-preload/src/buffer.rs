//! The buffer of a process for `log record`: a file beside the library, mapped shared, so that its
//! lines are there when the process has ended, whatever ended it.
//!
//! The file is `PID.TICKS.lines`. It begins with the number of bytes that are in it, the number of
//! all lines, and the number of lines that were dropped, 8 bytes each, of this processor's order.

use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering};

use heapledger_core::{arch, sandbox, sys};

use crate::destination::make_beside;

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
    /// Makes and maps the file of this process. `None` if that fails; the file is then empty, if it
    /// is there, which `log record` counts.
    pub(crate) fn create() -> Option<*mut Buffer> {
        // In strict mode, the kernel allows neither system calls nor the time stamp counter.
        if sandbox::is_entered() {
            return None;
        }
        let name = format_args!("{}.{:x}.lines", sys::process_id(), arch::ticks());
        make_beside(name, |fd| {
            sys::allocate(fd, LENGTH)?;
            sys::map_shared(fd, LENGTH)
        })
        .map(<*mut u8>::cast)
    }

    /// Returns the lines that are in the buffer.
    pub(crate) fn content(&self) -> &[u8] {
        self.bytes.get(..self.filled()).unwrap_or(&[])
    }

    /// Removes the first bytes, which have been written.
    pub(crate) fn consume(&mut self, count: usize) {
        let (filled, count) = (self.filled(), count.min(self.filled()));
        if count < filled {
            self.bytes.copy_within(count..filled, 0);
        }
        self.filled.store((filled - count) as u64, Ordering::Release);
    }

    /// Empties the buffer, whose lines are lost.
    pub(crate) fn lose(&mut self) {
        let lost = self.content().iter().filter(|&&byte| byte == b'\n').count() as u64;
        self.lines.store(self.lines.load(Ordering::Relaxed).saturating_sub(lost), Ordering::Relaxed);
        self.count_dropped(lost);
        self.consume(CAPACITY);
    }

    /// Counts lines that were dropped. Forked children count here, too, if they have no buffer.
    pub(crate) fn count_dropped(&self, count: u64) {
        self.dropped.fetch_add(count, Ordering::Relaxed);
    }

    /// Adds a line; false if it does not fit. `is_own` says whether the buffer is still that of
    /// this process: a signal handler may have interrupted this and forked, and the child that goes
    /// on from here has the buffer of its parent.
    pub(crate) fn add(&mut self, line: &[u8], is_own: impl Fn() -> bool) -> bool {
        let filled = self.filled();
        let Some(room) = self.bytes.get_mut(filled..).and_then(|rest| rest.get_mut(..line.len())) else { return false };
        // SAFETY: both slices have `line.len()` bytes, and do not overlap: the line is on the
        // stack.
        unsafe { ptr::copy_nonoverlapping(line.as_ptr(), room.as_mut_ptr(), line.len()) };
        if is_own() {
            self.lines.store(self.lines.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            // The line counts once it is whole.
            self.filled.store((filled + line.len()) as u64, Ordering::Release);
        }
        true
    }

    fn filled(&self) -> usize {
        // The file is the program's, too: its content is not trusted.
        (self.filled.load(Ordering::Relaxed) as usize).min(CAPACITY)
    }
}
