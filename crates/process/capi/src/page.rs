//! What about:memory shows, in the program itself.

use std::ffi::c_int;
use std::os::fd::BorrowedFd;

use heapledger_reports::about;

use crate::calls::{FAILED, print_text};
use crate::reports::{Collection, given};

const VERBOSE: u32 = 8;

/// The trees, as text.
///
/// # Safety
///
/// `what` is null or of so many bytes as its first field says.
pub(crate) unsafe extern "C" fn print(what: *const Collection, descriptor: c_int) -> c_int {
    if descriptor < 0 {
        return FAILED;
    }
    // SAFETY: the caller's contract; of the descriptor, that it is the caller's during the call: one that is not open is refused
    // by the kernel.
    let (given, to) = unsafe { (given(what), BorrowedFd::borrow_raw(descriptor)) };
    print_text(to, || {
        let reports = heapledger_report::collect(&given.options());
        let shown = about::Options { verbose: given.flags & VERBOSE != 0, ..about::Options::default() };
        let mut text = String::new();
        // A string takes everything.
        let _ = about::Page::of(&reports, &shown).print(&mut text);
        text
    })
}
