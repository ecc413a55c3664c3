//! The end of a program whose heap is corrupt.

use core::fmt::{self, Write};

#[cfg(not(miri))]
use heapledger_core::arch::{nr, syscall};
use heapledger_core::print::Printer;
#[cfg(not(miri))]
use heapledger_core::sys;

const STDERR: i32 = 2;
#[cfg(not(miri))]
const SIGABRT: usize = 6;
/// The status that a shell shows for a program that was ended by SIGABRT.
#[cfg(not(miri))]
const STATUS: usize = 128 + SIGABRT;

/// Prints the defect and the block's address to standard error, and aborts the program.
#[cold]
#[inline(never)]
pub(crate) fn abort(defect: &str, block: *const u8) -> ! {
    abort_with(format_args!("{defect}: {block:p}"))
}

/// Prints a defect to standard error, and aborts the program.
#[cold]
#[inline(never)]
pub(crate) fn abort_with(defect: fmt::Arguments<'_>) -> ! {
    let mut printer = Printer::new(STDERR);
    let _ = writeln!(printer, "heapledger: {defect}");
    printer.finish();
    #[cfg(miri)]
    std::panic!("{defect}");
    #[cfg(not(miri))]
    loop {
        // SAFETY: sends a signal to this thread, and ends the process if it has a handler that
        // returns, ignores the signal or blocks it; no memory is involved.
        unsafe {
            syscall(nr::TGKILL, [sys::process_id() as usize, sys::thread_id() as usize, SIGABRT, 0, 0, 0]);
            syscall(nr::EXIT_GROUP, [STATUS, 0, 0, 0, 0, 0]);
        }
    }
}
