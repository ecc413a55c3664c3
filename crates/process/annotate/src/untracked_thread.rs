//! Untracked threads: those of Heapledger, whose allocations are in no ledger.

use std::ffi::{CString, c_void};
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{io, mem, ptr};

use crate::untracked;

/// The size of a thread's stack in bytes, the same as the standard library's.
const STACK: usize = 2 << 20;
/// The number of bytes of a thread's name that the kernel takes.
const NAME_MAX: usize = 15;

/// A thread of Heapledger. If it is dropped, the thread is detached.
///
/// *Own process*: a value is joined or dropped only in the process that made it. A forked child has
/// a copy of the value, but no such thread: the child's owner of the copy must forget it.
#[derive(Debug)]
pub struct Thread(libc::pthread_t);

/// The function and the argument that a thread begins with.
struct Start {
    name: CString,
    run: Box<dyn FnOnce() + Send>,
}

/// Runs a function in a new thread that takes none of the program's signals and whose allocations
/// are in no ledger.
///
/// The standard library's threads would allocate before they run a function of Heapledger's.
///
/// # Errors
///
/// An error if no thread can be made.
pub fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<Thread> {
    spawn_with_stack(name, STACK, run)
}

/// Runs a function in a new thread with a stack of this size in bytes.
///
/// # Errors
///
/// An error if no thread can be made.
pub fn spawn_with_stack(name: &str, bytes: usize, run: impl FnOnce() + Send + 'static) -> io::Result<Thread> {
    untracked::scope(|| {
        let name = CString::new(name.get(..NAME_MAX).unwrap_or(name))?;
        let start = Box::into_raw(Box::new(Start { name, run: Box::new(run) }));
        let mut attributes = MaybeUninit::uninit();
        let mut thread = MaybeUninit::uninit();
        let before = block_signals();
        // SAFETY: attributes that are initialised before they are used, and destroyed once; a
        // function that takes what it is given, which is a box that it owns then.
        let error = unsafe {
            libc::pthread_attr_init(attributes.as_mut_ptr());
            libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), bytes);
            let error = libc::pthread_create(thread.as_mut_ptr(), attributes.as_ptr(), begin, start.cast());
            libc::pthread_attr_destroy(attributes.as_mut_ptr());
            error
        };
        restore_signals(&before);
        if error != 0 {
            // SAFETY: `Box::from_raw` requires a box that `Box::into_raw` gave away, once. `start`
            // is from above, and no thread has taken it: `pthread_create` has failed.
            drop(unsafe { Box::from_raw(start) });
            return Err(io::Error::from_raw_os_error(error));
        }
        // SAFETY: `assume_init` requires an initialised value. `pthread_create` writes the thread's
        // number if it returns 0, and it has.
        Ok(Thread(unsafe { thread.assume_init() }))
    })
}

extern "C" fn begin(start: *mut c_void) -> *mut c_void {
    // Until the thread's end: allocations by the destructors of the C library and of Rust are not
    // the program's either.
    untracked::begin_for_thread();
    // SAFETY: `Box::from_raw` requires a box that `Box::into_raw` gave away, once.
    // `spawn_with_stack` has passed `start` to this thread alone, and frees it itself only if
    // there is no thread.
    let Start { name, run } = *unsafe { Box::from_raw(start.cast::<Start>()) };
    // SAFETY: `pthread_setname_np` requires a thread that exists, as the calling one does, and a
    // text that ends with NUL, as a `CString` does.
    unsafe { libc::pthread_setname_np(libc::pthread_self(), name.as_ptr()) };
    // The panic has been printed.
    let _ = catch_unwind(AssertUnwindSafe(run));
    ptr::null_mut()
}

impl Thread {
    /// Waits until the thread has ended.
    pub fn join(self) {
        let thread = self.0;
        mem::forget(self);
        // SAFETY: `pthread_join` requires a thread of this process that is neither joined nor
        // detached. Only this function and `drop` do that to the thread, each takes the value, and
        // this one forgets it. The thread is of this process: *own process* (`Thread`).
        untracked::scope(|| unsafe { libc::pthread_join(thread, ptr::null_mut()) });
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        // SAFETY: `pthread_detach` requires a thread of this process that is neither joined nor
        // detached. Only this function and `join` do that to the thread, and `join` forgets the
        // value. The thread is of this process: *own process* (`Thread`).
        unsafe { libc::pthread_detach(self.0) };
    }
}

/// The signals of faults stay unblocked: a program may handle them, and a reporter that runs in
/// this thread may rely on that.
const FAULTS: [libc::c_int; 6] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// Blocks all signals except faults, and returns the previous mask: a thread inherits the mask of
/// the thread that makes it.
fn block_signals() -> libc::sigset_t {
    let mut all = MaybeUninit::<libc::sigset_t>::zeroed();
    let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: sigfillset writes a whole set, from which sigdelset takes signals that exist;
    // pthread_sigmask reads one set and writes the other, both are ours. It fails for unknown
    // requests only, and then `before` is the empty set, which zero bytes are.
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
    // SAFETY: `pthread_sigmask` requires null or a set: this one is what `block_signals` has
    // returned, and the second is null.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, ptr::null_mut()) };
}
