//! The pages of about:memory, served by the program itself.

use std::ffi::{c_char, c_int};
use std::os::fd::BorrowedFd;
use std::process;
use std::sync::{Mutex, PoisonError};

use heapledger_annotate::untracked;
use heapledger_report_format::about;
use heapledger_serve::{PageServer, PageServerOptions};

use crate::address::write_address;
use crate::calls::print_text;
use crate::collection::{Collection, given};
use crate::status::FAILED;

const VERBOSE: u32 = 8;

/// Prints the trees as text.
///
/// # Safety
///
/// `what` is null or *sized* (see [`crate::sized`]).
pub(crate) unsafe extern "C" fn print(what: *const Collection, descriptor: c_int) -> c_int {
    if descriptor < 0 {
        return FAILED;
    }
    // SAFETY: the caller's contract; of the descriptor, that it is the caller's during the call:
    // one that is not open is refused by the kernel.
    let (given, to) = unsafe { (given(what), BorrowedFd::borrow_raw(descriptor)) };
    print_text(to, || {
        let reports = heapledger_reporters::collect(&given.options());
        let shown = about::AboutOptions { verbose: given.flags & VERBOSE != 0, ..about::AboutOptions::default() };
        let mut text = String::new();
        // A string takes everything.
        let _ = about::Page::of(&reports, &shown).print(&mut text);
        text
    })
}

/// The server and its process: a forked child has none of its parent's threads.
static SERVER: Mutex<Option<(u32, PageServer)>> = Mutex::new(None);

/// Serves the page for the rest of the process's life, and writes its address to `url`.
///
/// # Safety
///
/// `url` is null, or may be written for `length` bytes.
pub(crate) unsafe extern "C" fn serve(url: *mut c_char, length: usize) -> c_int {
    let _untracked = untracked::enter();
    let mut server = SERVER.lock().unwrap_or_else(PoisonError::into_inner);
    if server.as_ref().is_none_or(|(of, _)| *of != process::id()) {
        let Ok(new) = PageServer::start(PageServerOptions::default()) else { return FAILED };
        if let Some((_, parents)) = server.replace((process::id(), new)) {
            parents.keep();
        }
    }
    let Some((_, running)) = &*server else { return FAILED };
    // SAFETY: `write_address` requires null, or `length` bytes that may be written; this function's
    // `# Safety` requires the same of `url`.
    unsafe { write_address(running.url(), url, length) }
}
