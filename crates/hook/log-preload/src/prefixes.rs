//! The first two columns of a line, the process and the thread, as text that is made once per
//! thread.

use core::sync::atomic::{AtomicUsize, Ordering, compiler_fence};

use crate::line::{LINE_MAX, Line};

/// The texts of some threads of one process, each at an index that its pointer chooses: two threads
/// that share one write theirs anew each time. Valid when zeroed.
#[repr(C)]
pub(crate) struct Prefixes([Prefix; 1 << COUNT_LOG]);
const COUNT_LOG: u32 = 6;

/// The longest text in bytes: two numbers and two blanks.
const LENGTH_MAX: usize = 32;

/// The text of one thread, in a cache line.
#[repr(C, align(64))]
struct Prefix {
    /// The complement of the thread's pointer, so that 0 is no thread.
    thread: AtomicUsize,
    length: usize,
    text: [u8; LENGTH_MAX],
}

impl Prefixes {
    /// Begins a line with the process and the thread.
    #[inline(always)]
    pub(crate) fn add(&mut self, line: &mut Line<'_>, process: u32, thread: usize) {
        // The high bits of a product by the golden ratio depend on all bits of the pointer.
        let index = (thread as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - COUNT_LOG);
        let Some(prefix) = self.0.get_mut(index as usize) else { return };
        if prefix.thread.load(Ordering::Relaxed) != !thread {
            prefix.fill(process, thread);
        }
        // The program can write to it, as to all its memory.
        line.add(prefix.text, prefix.length.min(LENGTH_MAX));
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
        self.text = *bytes.first_chunk().unwrap_or(&[0; LENGTH_MAX]);
        self.thread.store(!thread, Ordering::Release);
    }
}

/// Begins a line with the process and the thread, without the texts of threads.
pub(crate) fn write(line: &mut Line<'_>, process: u32, thread: usize) {
    line.decimal(process.into());
    line.text(b" ");
    // logalloc's number of a thread is that of `pthread_self`, which is the thread's pointer.
    line.decimal(thread as u64);
    line.text(b" ");
}
