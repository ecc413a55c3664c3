//! The buffer of a process for `log record`: a file beside the library, mapped shared, so that its
//! lines are there when the process has ended, whatever ended it.
//!
//! The file is `PID.TICKS.lines`. It begins with the number of bytes of lines that are in it, the
//! number of all lines, and the number of lines that were dropped, 8 bytes each, in this
//! processor's order. Behind 8 bytes more are the lines.

use core::sync::atomic::{AtomicU64, Ordering};

use heapledger_core::{arch, sandbox, sys};

use crate::destination::make_beside;
use crate::line::{LINE_MAX, Line};
use crate::prefixes::Prefixes;

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
    /// The process, whose prefixes are below.
    process: AtomicU64,
    bytes: [u8; CAPACITY],
    /// Here because a forked child then has none of its parent's, and leaves these as they are.
    prefixes: Prefixes,
}

impl Buffer {
    /// Makes and maps the file of this process. `None` if that fails; the file is then empty, if it
    /// is there, which `log record` counts.
    pub(crate) fn create() -> Option<*mut Buffer> {
        // In strict mode, the kernel allows neither system calls nor the time stamp counter.
        if sandbox::is_entered() {
            return None;
        }
        let process = sys::process_id();
        let make = |fd| {
            sys::allocate(fd, LENGTH)?;
            sys::map_shared(fd, LENGTH)
        };
        let mapped = make_beside(format_args!("{process}.{:x}.lines", arch::ticks()), make)?;
        let buffer = mapped.cast::<Buffer>();
        // SAFETY: `map_shared` returned a mapping of so many bytes as a `Buffer` has, which begins
        // at a page and so is aligned. It stays mapped, no other reference to it exists yet, and
        // any bytes are a valid `Buffer`.
        unsafe { (*buffer).process.store(process.into(), Ordering::Relaxed) };
        Some(buffer)
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

    /// True if any line fits.
    #[inline(always)]
    pub(crate) fn has_room(&self) -> bool {
        self.filled() + LINE_MAX <= CAPACITY
    }

    /// Adds a line that `write` writes, with the prefixes of this process; none if there may be no
    /// room for it. `is_own` says whether the buffer is still that of this process: a signal
    /// handler may have interrupted this and forked, and the child that goes on from here has the
    /// buffer of its parent, to which it writes the same bytes.
    #[inline(always)]
    pub(crate) fn add(&mut self, write: impl FnOnce(&mut Line<'_>, &mut Prefixes, u32), is_own: impl Fn() -> bool) {
        let (filled, process) = (self.filled(), self.process.load(Ordering::Relaxed) as u32);
        let Some(room) = self.bytes.get_mut(filled..).and_then(<[u8]>::first_chunk_mut) else { return };
        let mut line = Line::new(room);
        write(&mut line, &mut self.prefixes, process);
        let length = line.length();
        if is_own() {
            self.lines.store(self.lines.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            // The line counts once it is whole.
            self.filled.store((filled + length) as u64, Ordering::Release);
        }
    }

    fn filled(&self) -> usize {
        // The file is the program's, too: its content is not trusted.
        (self.filled.load(Ordering::Relaxed) as usize).min(CAPACITY)
    }
}
