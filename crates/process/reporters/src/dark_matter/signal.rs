//! Logs that are written when the program gets a signal, or when it ends.
//!
//! A handler may do next to nothing: it writes to a descriptor, at whose other end a thread waits
//! that does all the rest.

use std::fs::File;
use std::io::{self, Read};
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::{Path, PathBuf};
use std::process;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use heapledger_annotate::{untracked, untracked_thread};
use libc::c_int;

use super::actions::{exit_action, signal_actions};
use super::options::DarkMatterOptions;
use super::save;
use crate::fork;

/// The process whose thread waits; 0: there is none. A forked child has no such thread.
static PROCESS: AtomicU32 = AtomicU32::new(0);
/// Where it waits: an eventfd that is never closed.
static DESCRIPTOR: AtomicI32 = AtomicI32::new(-1);
/// The signals that have come and are not done with, by bits.
static PENDING: AtomicU64 = AtomicU64::new(0);

/// A signal at which a log is written, until this is dropped: see [`on_signal`].
#[must_use = "logs are written until this is dropped"]
pub struct OnSignal {
    signal: c_int,
    before: libc::sigaction,
}

/// Has a log written into a directory whenever the program gets a signal, as by
/// `kill -s RTMIN+0 PID`: a file `dmd-TIME-PID.json.gz`, where the time is that of the request, in
/// seconds since 1970.
///
/// An untracked thread does it: the signal interrupts nobody for longer than it takes to wake that,
/// and calls that it interrupts are restarted. What cannot be written is said on standard error.
/// Signals that come while a log is being written make one more. Children made by `fork` write none
/// unless they call this themselves.
///
/// Choose a signal that nobody else uses: `SIGRTMIN` and those after it are the program's own.
///
/// ```
/// # use heapledger_reporters as reports;
/// # mod libc { pub const SIGUSR2: i32 = 12; }
/// use reports::dark_matter::{self, DarkMatterOptions};
///
/// dark_matter::on_signal(libc::SIGUSR2, std::env::temp_dir(), DarkMatterOptions::default())?.keep();
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
///
/// An error if there is no such signal, if it cannot be handled, or if no thread or descriptor can
/// be made.
pub fn on_signal(signal: c_int, directory: impl Into<PathBuf>, options: DarkMatterOptions) -> io::Result<OnSignal> {
    if !(1..=64).contains(&signal) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    untracked::scope(|| handle_signal(signal, directory.into(), options))
}

fn handle_signal(signal: c_int, directory: PathBuf, options: DarkMatterOptions) -> io::Result<OnSignal> {
    fork::install_handlers();
    let mut signal_actions = signal_actions();
    start()?;
    // SAFETY: the structure is integers, a set and a function, for which zeroes stand.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    action.sa_sigaction = handle as extern "C" fn(c_int) as libc::sighandler_t;
    action.sa_flags = libc::SA_RESTART;
    let mut before = MaybeUninit::uninit();
    // SAFETY: an action with a handler that does what a handler may; the former one is written
    // where there is room.
    if unsafe { libc::sigaction(signal, &raw const action, before.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    signal_actions.insert(signal, (directory, options));
    // SAFETY: `assume_init` requires an initialised value. `sigaction` writes the former action if
    // it returns 0, and it has.
    Ok(OnSignal { signal, before: unsafe { before.assume_init() } })
}

impl OnSignal {
    /// Keeps the handler for as long as the program runs.
    pub fn keep(self) {
        mem::forget(self);
    }
}

impl Drop for OnSignal {
    fn drop(&mut self) {
        // SAFETY: `sigaction` requires an action whose handler may be called at any time, or null.
        // This one was in force before `handle_signal` replaced it, as its owner had it; the former
        // one is not asked for.
        unsafe { libc::sigaction(self.signal, &raw const self.before, ptr::null_mut()) };
        untracked::scope(|| signal_actions().remove(&self.signal));
    }
}

impl std::fmt::Debug for OnSignal {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("OnSignal").field("signal", &self.signal).finish_non_exhaustive()
    }
}

/// Has a log written into a directory, by the same name, when the program ends by `exit` or by
/// returning from `main`: not for a child that it forks, nor where a signal ends it. The last call
/// counts.
///
/// Reporters are asked while other threads still run.
///
/// # Errors
///
/// An error if the C library does not accept the function.
pub fn at_exit(directory: impl Into<PathBuf>, options: DarkMatterOptions) -> io::Result<()> {
    extern "C" fn write() {
        untracked::scope(|| {
            let action = exit_action().take();
            if let Some((process, directory, options)) = action
                && process == process::id()
            {
                print_error(write_into(&directory, &options));
            }
        });
    }

    static ONCE: Once = Once::new();
    let mut result = Ok(());
    ONCE.call_once(|| {
        // SAFETY: a function of this loaded object, which the C library calls when it is unloaded,
        // at the latest.
        let is_taken = untracked::scope(|| unsafe { libc::atexit(write) }) == 0;
        if !is_taken {
            result = Err(io::ErrorKind::OutOfMemory.into());
        }
    });
    untracked::scope(|| {
        fork::install_handlers();
        *exit_action() = Some((process::id(), directory.into(), options));
    });
    result
}

/// Starts the thread, if this process has none.
fn start() -> io::Result<()> {
    let own = process::id();
    if PROCESS.load(Ordering::Acquire) == own {
        return Ok(());
    }
    // SAFETY: a system call without memory; the descriptor is new, and nobody else's.
    let mut events = unsafe {
        let descriptor = libc::eventfd(0, libc::EFD_CLOEXEC);
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        File::from_raw_fd(descriptor)
    };
    let descriptor = events.as_raw_fd();
    let run = move || {
        let mut count = [0; 8];
        // It never ends: the descriptor is not closed.
        while events.read_exact(&mut count).is_ok() {
            let pending = PENDING.swap(0, Ordering::AcqRel);
            for signal in (1..=64).filter(|signal| pending & 1 << (signal - 1) != 0) {
                let found = signal_actions().get(&signal).cloned();
                if let Some((directory, options)) = found {
                    print_error(write_into(&directory, &options));
                }
            }
        }
    };
    untracked_thread::spawn("heapledger", run)?;
    DESCRIPTOR.store(descriptor, Ordering::Relaxed);
    PROCESS.store(own, Ordering::Release);
    Ok(())
}

/// Wakes the thread. Nothing but atomics and two system calls, and `errno` stays.
extern "C" fn handle(signal: c_int) {
    // SAFETY: the C library's place of the thread's `errno`; calls that may be made in handlers;
    // eight bytes are read.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        if libc::getpid() as u32 == PROCESS.load(Ordering::Acquire) {
            PENDING.fetch_or(1 << (signal - 1), Ordering::AcqRel);
            let one = 1_u64.to_ne_bytes();
            libc::write(DESCRIPTOR.load(Ordering::Relaxed), one.as_ptr().cast(), one.len());
        }
        *errno = before;
    }
}

fn write_into(directory: &Path, options: &DarkMatterOptions) -> io::Result<()> {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    save(directory.join(format!("dmd-{time}-{}.json.gz", process::id())), options)
}

/// There is nobody else to tell.
fn print_error(written: io::Result<()>) {
    if let Err(error) = written {
        eprintln!("heapledger: no log of the heap was written: {error}");
    }
}
