//! The first two columns of a line, the process and the thread, as text that is made once per
//! thread.

use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering, compiler_fence};

use heapledger_core::sys;

use crate::line::{LINE_MAX, Line, PREFIX_MAX};

/// The texts of some threads of one process, each at an index that its pointer chooses: two threads
/// that share one write theirs anew each time. Valid when zeroed. In private memory: a child that
/// was forked in the middle of a line changes its own copy.
pub(crate) struct Prefixes([Prefix; 1 << COUNT_LOG]);
const COUNT_LOG: u32 = 6;

/// The text of one thread, in a cache line.
#[repr(C, align(64))]
struct Prefix {
    /// The complement of the thread's pointer, so that 0 is no thread.
    thread: AtomicUsize,
    length: usize,
    text: [u8; PREFIX_MAX],
}

impl Prefixes {
    /// Returns empty ones, which are never unmapped; null if there is no memory.
    pub(crate) fn create() -> *mut Prefixes {
        sys::map_private(size_of::<Prefixes>()).map_or(ptr::null_mut(), <*mut u8>::cast)
    }

    #[inline(always)]
    fn add(&mut self, line: &mut Line<'_>, process: u32, thread: usize) {
        // The high bits of a product by the golden ratio depend on all bits of the pointer.
        let index = (thread as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - COUNT_LOG);
        let Some(prefix) = self.0.get_mut(index as usize) else { return };
        if prefix.thread.load(Ordering::Relaxed) != !thread {
            prefix.fill(process, thread);
        }
        // The program can write to it, as to all its memory.
        line.add(prefix.text, prefix.length.min(PREFIX_MAX));
    }
}

impl Prefix {
    #[cold]
    #[inline(never)]
    fn fill(&mut self, process: u32, thread: usize) {
        // A signal handler that leaves this by a jump leaves no thread's text.
        self.thread.store(0, Ordering::Relaxed);
        compiler_fence(Ordering::Release);
        let mut bytes = [0; LINE_MAX];
        let mut line = Line::new(&mut bytes);
        write(&mut line, process, thread);
        self.length = line.length();
        self.text = *bytes.first_chunk().unwrap_or(&[0; PREFIX_MAX]);
        self.thread.store(!thread, Ordering::Release);
    }
}

/// Begins a line with the process and the thread.
#[inline(always)]
pub(crate) fn add(prefixes: Option<&mut Prefixes>, line: &mut Line<'_>, process: u32, thread: usize) {
    match prefixes {
        Some(prefixes) => prefixes.add(line, process, thread),
        None => line.apart(|line| write(line, process, thread)),
    }
}

/// Begins a line with the process and the thread, without the texts of threads.
#[inline(never)]
pub(crate) fn write(line: &mut Line<'_>, process: u32, thread: usize) {
    line.decimal(process.into());
    line.text(b" ");
    // logalloc's number of a thread is that of `pthread_self`, which is the thread's pointer.
    line.decimal(thread as u64);
    line.text(b" ");
}
