//! The buffer of a process for `log record`: a file beside the library, mapped shared, so that its
//! lines are there when the process has ended, whatever ended it.
//!
//! The file is `PID.TICKS.lines`. It begins with the number of bytes of lines that are in it, the
//! number of all lines, and the number of lines that were dropped, 8 bytes each, in this
//! processor's order. Behind 8 bytes more are the lines.

use core::sync::atomic::{AtomicU64, Ordering, compiler_fence};

use heapledger_core::{arch, sandbox, sys};

use crate::destination::make_beside;
use crate::line::{LINE_MAX, Line};

/// Bytes of lines.
const CAPACITY: usize = 64 << 10;
/// Bytes of the file.
const LENGTH: usize = size_of::<File>();

/// The mapped file.
#[repr(C)]
pub(crate) struct File {
    head: Head,
    bytes: [u8; CAPACITY],
}

/// The numbers in front of the lines.
#[repr(C)]
pub(crate) struct Head {
    filled: AtomicU64,
    lines: AtomicU64,
    dropped: AtomicU64,
    /// The process whose file this is.
    process: AtomicU64,
}

impl File {
    /// Makes and maps the file of this process. `None` if that fails; the file is then empty, if it
    /// is there, which `log record` counts.
    pub(crate) fn create() -> Option<*mut File> {
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
        let file = mapped.cast::<File>();
        // SAFETY: `map_shared` returned a mapping of so many bytes as a `File` has, which begins at
        // a page and so is aligned. It stays mapped, no other reference to it exists yet, and any
        // bytes are a valid `File`.
        unsafe { (*file).head.process.store(process.into(), Ordering::Relaxed) };
        Some(file)
    }

    /// Returns the numbers of a file, if there is one. Any thread may use them at any time.
    ///
    /// # Safety
    ///
    /// The file is null, or one of [`File::create`].
    #[inline(always)]
    pub(crate) unsafe fn head<'a>(file: *mut File) -> Option<&'a Head> {
        // SAFETY: null, or a mapping of `create`, by this function's `# Safety`: it is as long as a
        // `File` and stays mapped. All fields of a `Head` are atomic, so others may use them, too.
        (!file.is_null()).then(|| unsafe { &(*file).head })
    }
}

impl Head {
    /// Counts lines that were dropped. Forked children count here, too, if they have no buffer.
    pub(crate) fn count_dropped(&self, count: u64) {
        self.dropped.fetch_add(count, Ordering::Relaxed);
    }

    fn filled(&self) -> usize {
        // The file is the program's, too: its content is not trusted.
        (self.filled.load(Ordering::Relaxed) as usize).min(CAPACITY)
    }
}

/// The buffer of a thread that holds the lock.
pub(crate) struct Buffer<'a> {
    head: &'a Head,
    bytes: &'a mut [u8; CAPACITY],
}

impl Buffer<'_> {
    /// Opens the buffer in a file, if there is one.
    ///
    /// # Safety
    ///
    /// The file is null, or one of [`File::create`]. No other `Buffer` of it exists in this process
    /// while this one does.
    #[inline(always)]
    pub(crate) unsafe fn open<'a>(file: *mut File) -> Option<Buffer<'a>> {
        // SAFETY: the requirement of `head` is a part of this function's.
        let head = unsafe { File::head(file) }?;
        // SAFETY: a mapping of `create`, since it is not null: it is as long as a `File` and stays
        // mapped. By this function's `# Safety` there is no other reference to the bytes.
        Some(Buffer { head, bytes: unsafe { &mut (*file).bytes } })
    }

    /// Returns the lines that are in the buffer.
    pub(crate) fn content(&self) -> &[u8] {
        self.bytes.get(..self.head.filled()).unwrap_or(&[])
    }

    /// Removes the first bytes, which have been written.
    pub(crate) fn consume(&mut self, count: usize) {
        let filled = self.head.filled();
        let count = count.min(filled);
        if count < filled {
            self.bytes.copy_within(count..filled, 0);
        }
        self.head.filled.store((filled - count) as u64, Ordering::Release);
    }

    /// Empties the buffer, whose lines are lost.
    pub(crate) fn lose(&mut self) {
        let lost = self.content().iter().filter(|&&byte| byte == b'\n').count() as u64;
        let lines = &self.head.lines;
        lines.store(lines.load(Ordering::Relaxed).saturating_sub(lost), Ordering::Relaxed);
        self.head.count_dropped(lost);
        self.consume(CAPACITY);
    }

    /// Returns where the next line begins, if any line fits.
    #[inline(always)]
    pub(crate) fn room(&self) -> Option<usize> {
        let filled = self.head.filled.load(Ordering::Relaxed) as usize;
        (filled <= CAPACITY - LINE_MAX).then_some(filled)
    }

    /// Adds a line at a place that [`Buffer::room`] returned. `write` writes it for the process of
    /// the number that it gets.
    ///
    /// `is_own` says whether the buffer is still that of this process: a signal handler may have
    /// interrupted this at any point and forked, and the child that goes on from here has the
    /// buffer of its parent. It leaves the number of bytes as it is. If it was in the middle of the
    /// line, it stores the same bytes as its parent at the same place, and none behind the line,
    /// where its parent may have written more. Only if it stands still for so long that its parent
    /// has emptied the buffer and filled it again up to there can it damage a line.
    #[inline(always)]
    pub(crate) fn add(&mut self, filled: usize, write: impl FnOnce(&mut Line<'_>, u32), is_own: impl Fn() -> bool) {
        let process = self.head.process.load(Ordering::Relaxed) as u32;
        compiler_fence(Ordering::SeqCst);
        // Behind the reading of `filled`: a child that reads it after the fork may see more lines,
        // and would write its own behind them.
        if !is_own() {
            return;
        }
        let Some(room) = self.bytes.get_mut(filled..).and_then(<[u8]>::first_chunk_mut) else { return };
        let mut line = Line::new(room);
        write(&mut line, process);
        let end = (filled + line.length()) as u64;
        compiler_fence(Ordering::SeqCst);
        if !is_own() {
            return;
        }
        // The line counts once it is whole, and only if none was added meanwhile: by the child that
        // was forked behind the question, which adds the same, or by a handler on another stack,
        // which the lock does not keep out.
        match self.head.filled.compare_exchange(filled as u64, end, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => self.head.lines.store(self.head.lines.load(Ordering::Relaxed) + 1, Ordering::Relaxed),
            Err(other) if other != end && is_own() => self.head.count_dropped(1),
            Err(_) => {}
        }
    }
}
