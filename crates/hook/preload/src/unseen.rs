//! Libraries whose calls of the allocator are not seen: when the program opens one, the recording
//! names it, and hook libraries are notified.
//!
//! `dlmopen` opens libraries in a namespace that has a C library of its own: their calls are seen
//! if that could be redirected ([`namespaces`](crate::namespaces)). With `RTLD_DEEPBIND`, libraries
//! find the program's C library, and their calls are not seen if it could not be redirected
//! ([`redirect`](Objects::redirect)).
//!
//! The dynamic linker uses the return address to find out which object called. So `dlopen` does its
//! own work first, and jumps to the next definition with the stack as it was.

use core::arch::naked_asm;
use core::ffi::{CStr, c_char, c_int};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use heapledger_interpose::next::Objects;
use heapledger_recorder::hook::declarations;
use heapledger_recorder::session;
use heapledger_wire::event::code;
use heapledger_wire::session::ALLOCATOR_FILE_NAME;

use crate::guard::with_guard;
use crate::libraries;
use crate::linker::find_next;

/// The reasons, as in the recording.
const NAMESPACE: u64 = 1;
const DEEP: u64 = 2;
const LATER: u64 = 3;

/// The largest number of libraries of a process that are named.
const NAMED_MAX: u32 = 64;
/// The number of words of a path that are kept.
const WORDS_MAX: usize = 128;

/// True if a look-up of the malloc functions in the C library finds ours.
static IS_REDIRECTED: AtomicBool = AtomicBool::new(false);
static NAMED: AtomicU32 = AtomicU32::new(0);
static DLOPEN: AtomicUsize = AtomicUsize::new(0);

/// Redirects the definitions of the C library. Called once, at start.
pub(crate) fn redirect(objects: &Objects<'_>) {
    // Our own allocator looks nothing up, so it may come between.
    let is_redirected = objects.redirect(&heapledger_interpose::NAMES, ALLOCATOR_FILE_NAME.as_bytes());
    IS_REDIRECTED.store(is_redirected, Ordering::Relaxed);
}

extern "C" fn dlopen_begins(path: *const c_char, flags: c_int) -> usize {
    const RTLD_DEEPBIND: c_int = 8;
    if flags & RTLD_DEEPBIND != 0 && !IS_REDIRECTED.load(Ordering::Relaxed) {
        record_unseen(DEEP, path);
    }
    find_next(&DLOPEN, c"dlopen")
}

/// True if a look-up of the malloc functions in the program's C library finds ours.
pub(crate) fn is_redirected() -> bool {
    IS_REDIRECTED.load(Ordering::Relaxed)
}

/// Names a library that was opened in a namespace whose C library could not be redirected.
pub(crate) fn record_unseen_namespace(path: *const c_char) {
    record_unseen(NAMESPACE, path);
}

fn record_unseen(reason: u64, path: *const c_char) {
    if path.is_null() {
        return;
    }
    // SAFETY: not null: the argument of the program's call, a NUL-terminated string.
    let path = unsafe { CStr::from_ptr(path) };
    libraries::unseen(reason, path);
    name(reason, path);
}

/// Names a library that was opened later, and has an allocator of its own whose entries were not
/// redirected, or could not be examined.
pub(crate) fn record_later(path: &CStr) {
    name(LATER, path);
}

/// Writes the annotation that names a library.
fn name(reason: u64, path: &CStr) {
    if !session::is_on() || NAMED.fetch_add(1, Ordering::Relaxed) >= NAMED_MAX {
        return;
    }
    let mut words = [0_u64; 1 + WORDS_MAX];
    words[0] = reason;
    let mut length = 1;
    for (at, &byte) in path.to_bytes().iter().enumerate().take(WORDS_MAX * 8) {
        if let Some(word) = words.get_mut(1 + at / 8) {
            *word |= u64::from(byte) << (at % 8 * 8);
            length = 2 + at / 8;
        }
    }
    let payload = words.get(..length).unwrap_or(&[]);
    with_guard(|sp| declarations::annotate(code::UNSEEN_LIBRARY, payload, sp));
}

/// The C function of this name.
///
/// # Safety
///
/// The contract of POSIX.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn dlopen() {
    naked_asm!(
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {begins}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "jz 2f",
        "jmp rax",
        "2:",
        "ret",
        begins = sym dlopen_begins,
    )
}
