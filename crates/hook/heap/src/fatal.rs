//! The end of a program whose heap is corrupt.

use core::fmt::{self, Write};

use heapledger_core::print::Printer;

const STDERR: i32 = 2;

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
    heapledger_core::fatal::end()
}
