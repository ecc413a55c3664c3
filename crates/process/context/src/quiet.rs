//! A thread that the program does not notice.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::thread::{Builder, JoinHandle};

/// Runs this in a thread that takes none of the program's signals and whose allocations are in no ledger.
///
/// # Errors
///
/// When no thread is to be had.
pub fn thread(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    quietly(|| {
        Builder::new().name(name.to_owned()).spawn(move || {
            let _ignored = crate::ignore();
            run();
        })
    })
}

/// Does something that makes a thread, which takes none of the program's signals: the program's handlers run in the program's
/// threads.
pub fn quietly<T>(spawn: impl FnOnce() -> T) -> T {
    let before = block_signals();
    let made = spawn();
    restore_signals(&before);
    made
}

/// Those of faults are left: a program may handle them, and a reporter that runs in this thread may rely on that.
const FAULTS: [libc::c_int; 6] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// A thread begins with the mask of the one that made it.
fn block_signals() -> libc::sigset_t {
    let mut all = MaybeUninit::<libc::sigset_t>::zeroed();
    let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: sigfillset writes a whole set, from which sigdelset takes signals that exist; pthread_sigmask reads one set
    // and writes the other, both are ours. It fails for unknown requests only, and then `before` is the empty set, which
    // zero bytes are.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        for fault in FAULTS {
            libc::sigdelset(all.as_mut_ptr(), fault);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
        before.assume_init()
    }
}

fn restore_signals(before: &libc::sigset_t) {
    // SAFETY: a set that pthread_sigmask wrote; no second one is asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, ptr::null_mut()) };
}
