//! A timer that gets a thread out of a deadlock with the program that it traces.
//!
//! Seizing a thread takes a lock of its process. The execve(2) of a process with several threads
//! holds this lock until the other threads have ended, and a traced thread has not ended until its
//! tracer has been told so by waitpid(2), which waits for the lock. The kernel makes an interrupted
//! request again by itself. So the tracer is sent a signal, whose handler takes the messages.

use std::cell::Cell;
use std::io;
use std::mem;
use std::ptr;
use std::sync::Once;

/// The signal. The kernel never sends it, and programs do not use it.
const SIGNAL: libc::c_int = libc::SIGSTKFLT;
/// The interval of the timer, in nanoseconds. Seizing a thread takes microseconds.
const INTERVAL: libc::c_long = 100_000_000;
/// The most messages that are taken: as many threads as a process is likely to have.
const TAKEN_MAX: usize = 4096;

thread_local! {
    /// Where the handler puts messages; null when this thread is not seizing.
    static TAKEN: Cell<*const Taken> = const { Cell::new(ptr::null()) };
}

struct Taken {
    count: Cell<usize>,
    /// The threads, and their statuses as waitpid(2) returns them.
    messages: Vec<Cell<(u32, i32)>>,
}

/// A timer that sends the signal to the thread that has made it.
pub(crate) struct Reaping {
    timer: libc::timer_t,
    /// From `Box::into_raw`: the handler writes there.
    taken: *const Taken,
}

impl Reaping {
    /// Starts the timer. To be [finished](Reaping::finish) by the same thread.
    pub(crate) fn start() -> io::Result<Reaping> {
        static INSTALLED: Once = Once::new();
        INSTALLED.call_once(install);
        let mut timer = ptr::null_mut();
        // SAFETY: structures of integers and pointers, for which zeroes are valid.
        let (mut event, mut times): (libc::sigevent, libc::itimerspec) = unsafe { (mem::zeroed(), mem::zeroed()) };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = SIGNAL;
        event.sigev_notify_thread_id = rustix::thread::gettid().as_raw_pid();
        times.it_value.tv_nsec = INTERVAL;
        times.it_interval.tv_nsec = INTERVAL;
        // SAFETY: timer_create(2) reads the event and writes the timer: both are live.
        if unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let taken = Taken { count: Cell::new(0), messages: vec![Cell::new((0, 0)); TAKEN_MAX] };
        let taken = Box::into_raw(Box::new(taken)).cast_const();
        TAKEN.set(taken);
        let reaping = Reaping { timer, taken };
        // SAFETY: timer_settime(2) reads the times, which are live; the timer has been made above.
        if unsafe { libc::timer_settime(reaping.timer, 0, &raw const times, ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(reaping)
    }

    /// Stops the timer, and returns the messages that the handler has taken.
    pub(crate) fn finish(self) -> Vec<(u32, i32)> {
        // SAFETY: `start` has made it, and `drop` alone frees it. What changes are cells, by this
        // thread.
        let taken = unsafe { &*self.taken };
        let count = taken.count.get();
        taken.messages.iter().take(count).map(Cell::get).collect()
    }
}

impl Drop for Reaping {
    fn drop(&mut self) {
        // A signal that has been sent is delivered before the call returns.
        // SAFETY: the timer has been made by `start`, and is deleted once.
        unsafe { libc::timer_delete(self.timer) };
        TAKEN.set(ptr::null());
        // SAFETY: from `Box::into_raw`, freed once, and the handler does not find it any more.
        drop(unsafe { Box::from_raw(self.taken.cast_mut()) });
    }
}

fn install() {
    let handler: extern "C" fn(libc::c_int) = take;
    // SAFETY: a structure of integers and pointers, for which zeroes are valid.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    action.sa_sigaction = handler as usize;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: sigaction(2) reads the action, which is live. The handler is async-signal-safe, as it
    // says. It fails for no signal that exists.
    unsafe { libc::sigaction(SIGNAL, &raw const action, ptr::null_mut()) };
}

/// Takes the messages of this thread's tracees. Async-signal-safe: it makes system calls, and
/// writes to memory that the thread has set aside, which needs no allocation and has no destructor.
extern "C" fn take(_: libc::c_int) {
    // SAFETY: null, or what `Reaping` owns until it has stopped the timer: the interrupted thread
    // is the one that has made it, and it holds no reference that would be exclusive.
    let Some(taken) = (unsafe { TAKEN.get().as_ref() }) else { return };
    let before = io::Error::last_os_error().raw_os_error().unwrap_or(0);
    while let Some(message) = taken.messages.get(taken.count.get()) {
        let mut status = 0;
        // SAFETY: waitpid writes an int to the address that it is given, which is that of a live
        // one.
        let tid = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | libc::__WNOTHREAD | libc::WNOHANG) };
        if tid <= 0 {
            break;
        }
        message.set((tid.cast_unsigned(), status));
        taken.count.set(taken.count.get() + 1);
    }
    // SAFETY: the address of this thread's errno, which lives as long as the thread.
    unsafe { *libc::__errno_location() = before };
}
