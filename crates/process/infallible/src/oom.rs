//! The one way of a request that cannot be met. Nothing here allocates.
//!
//! The symbols are those of `heapledger/infallible.h`: where C and Rust are linked into one
//! program, the definitions here replace the weak ones of the header.
#![allow(unreachable_pub, reason = "exported C symbols must be `pub`, though no Rust code names them")]

use std::cell::Cell;
use std::ffi::{c_char, c_int};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicUsize, Ordering};

/// A function that frees memory when a request cannot be met. Called in the thread that allocates,
/// with the bytes of the request. It returns 0 if it could not free anything; otherwise the request
/// is made again, as often as this goes on.
///
/// It may allocate, [fallibly](crate::fallibly). If it comes to [`handle_oom`] itself, the program
/// ends. A panic in it ends the program.
pub type OomHandler = extern "C" fn(size: usize) -> c_int;

/// The bytes of the latest request that came to [`handle_oom`], 0 before.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "the name is a C symbol")]
pub static heapledger_oom_size: AtomicUsize = AtomicUsize::new(0);

const MESSAGE: usize = 64;

/// The message with which the program ends, and a NUL. Empty before.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "the name is a C symbol")]
pub static heapledger_oom_message: [AtomicU8; MESSAGE] = [const { AtomicU8::new(0) }; MESSAGE];

/// The address of the handler, null if there is none.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "the name is a C symbol")]
pub static heapledger_oom_hook: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

std::thread_local! {
    /// True while this thread is in the handler. Without a destructor, so that it can be read at
    /// any time.
    static IS_HANDLED: Cell<bool> = const { Cell::new(false) };
}

/// Sets the handler, or removes it. Returns the one before. Its threads may still be in that one.
pub fn set_oom_handler(handler: Option<OomHandler>) -> Option<OomHandler> {
    let address = handler.map_or(ptr::null_mut(), |handler| handler as *mut ());
    as_handler(heapledger_oom_hook.swap(address, Ordering::AcqRel))
}

fn as_handler(address: *mut ()) -> Option<OomHandler> {
    // SAFETY: `transmute` demands null or the address of a function of this type: the variable
    // begins as null, and `set_oom_handler`, as its counterpart in C, stores only those.
    unsafe { std::mem::transmute::<*mut (), Option<OomHandler>>(address) }
}

/// Returns the bytes of the latest request that could not be met; 0 if there was none.
pub fn oom_size() -> usize {
    heapledger_oom_size.load(Ordering::Relaxed)
}

/// Handles a request of `size` bytes that cannot be met: records the size and calls the handler.
/// Returns if the handler has freed memory, so that the request should be made again; prints a
/// message and aborts the program otherwise.
#[cold]
#[inline(never)]
pub fn handle_oom(size: usize) {
    heapledger_oom_size.store(size, Ordering::Relaxed);
    let handler = as_handler(heapledger_oom_hook.load(Ordering::Acquire));
    let is_first = IS_HANDLED.with(|is_handled| !is_handled.replace(true));
    let has_freed = is_first && handler.is_some_and(|handler| handler(size) != 0);
    if has_freed {
        return IS_HANDLED.set(false);
    }
    let text = message(size);
    heapledger_oom_message.iter().zip(text).for_each(|(to, from)| to.store(from, Ordering::Relaxed));
    abort_with(text.split(|&byte| byte == 0).next().unwrap_or(&[]));
}

/// Returns `out of memory: 0x… bytes requested` with sixteen digits, and zeroes behind.
pub(crate) fn message(size: usize) -> [u8; MESSAGE] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = (0..16).rev().map(|place| DIGITS[(size as u64 >> (4 * place)) as usize & 15]);
    let all = b"out of memory: 0x".iter().copied().chain(digits).chain(*b" bytes requested");
    let mut text = [0; MESSAGE];
    text.iter_mut().zip(all).for_each(|(to, from)| *to = from);
    text
}

fn abort_with(text: &[u8]) -> ! {
    // Not by `std::io::stderr`: another thread may hold its lock, and wait for this one.
    let stderr = rustix::stdio::stderr();
    for part in [text, b"\n"] {
        let mut left = part;
        while !left.is_empty() {
            match rustix::io::write(stderr, left) {
                Ok(0) => break,
                Ok(written) => left = left.get(written..).unwrap_or(&[]),
                Err(rustix::io::Errno::INTR) => {}
                // A failure cannot be reported.
                Err(_) => break,
            }
        }
    }
    std::process::abort();
}

/// `heapledger_handle_oom` of the header: see [`handle_oom`].
#[unsafe(no_mangle)]
pub extern "C" fn heapledger_handle_oom(size: usize) {
    handle_oom(size);
}

/// `heapledger_abort` of the header: prints the message and a newline, and aborts the program.
///
/// # Safety
///
/// `message` is a text that ends with NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heapledger_abort(message: *const c_char) -> ! {
    // SAFETY: `from_ptr` demands a text that ends with NUL, as this function's `# Safety` does.
    abort_with(unsafe { std::ffi::CStr::from_ptr(message) }.to_bytes());
}

#[cfg(test)]
mod tests;
