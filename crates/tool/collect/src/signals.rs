//! The signals that this process handles while it records, and signals that it sends to itself.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// Held by the recording that handles the process's signals; only one can at a time.
static OWNER: Mutex<()> = Mutex::new(());
static PHASE: AtomicU32 = AtomicU32::new(phase::STARTING);
/// The command's pidfd while it runs, else −1.
static COMMAND: AtomicI32 = AtomicI32::new(-1);
/// A signal that came before there was a command to pass it to.
static PENDING: AtomicI32 = AtomicI32::new(0);
/// True if a signal came after the command had ended: then no other process is waited for.
static HURRY: AtomicBool = AtomicBool::new(false);

mod phase {
    pub(super) const STARTING: u32 = 0;
    pub(super) const RUNNING: u32 = 1;
    pub(super) const ENDED: u32 = 2;
}

/// A pending request to start or stop recording: the signal, and above it the pid of the sender.
static REQUEST: AtomicU64 = AtomicU64::new(0);

/// The installed signal handlers; dropping this removes them. A signal that was ignored stays
/// ignored, for us and the command. Handled signals are at their defaults in the command, because
/// exec resets handlers.
#[derive(Debug)]
pub(crate) struct Signals {
    before: Vec<(i32, libc::sigaction)>,
    _owner: MutexGuard<'static, ()>,
}

impl Signals {
    /// Installs the handlers. Returns `None` if another recording of this process has them.
    pub(crate) fn handle() -> Option<Signals> {
        let owner = match OWNER.try_lock() {
            Ok(owner) => owner,
            // The lock guards only atomics, which are set anew below.
            Err(TryLockError::Poisoned(poisoned)) => PoisonError::into_inner(poisoned),
            Err(TryLockError::WouldBlock) => return None,
        };
        PHASE.store(phase::STARTING, Ordering::SeqCst);
        COMMAND.store(-1, Ordering::SeqCst);
        PENDING.store(0, Ordering::SeqCst);
        HURRY.store(false, Ordering::SeqCst);
        REQUEST.store(0, Ordering::SeqCst);
        let mut signals = Signals { before: Vec::new(), _owner: owner };
        for signal in handled() {
            let before = disposition(signal);
            if before.sa_sigaction != libc::SIG_IGN {
                set_disposition(signal, &handler());
                signals.before.push((signal, before));
            }
        }
        // Exceeding the limit on file sizes becomes an ordinary error; the command gets the default
        // back on exec.
        let before = disposition(libc::SIGXFSZ);
        if before.sa_sigaction != libc::SIG_IGN {
            let mut action = default();
            let nothing: extern "C" fn(i32) = on_file_limit;
            action.sa_sigaction = nothing as usize;
            action.sa_flags = libc::SA_RESTART;
            set_disposition(libc::SIGXFSZ, &action);
            signals.before.push((libc::SIGXFSZ, before));
        }
        // If it were ignored, the exit status of the command could not be learned.
        let before = disposition(libc::SIGCHLD);
        if before.sa_sigaction == libc::SIG_IGN {
            set_disposition(libc::SIGCHLD, &default());
            signals.before.push((libc::SIGCHLD, before));
        }
        Some(signals)
    }

    /// Passes requests to end on to the command from now on.
    pub(crate) fn command_runs(&self, command: BorrowedFd<'_>) {
        COMMAND.store(command.as_raw_fd(), Ordering::SeqCst);
        PHASE.store(phase::RUNNING, Ordering::SeqCst);
        let pending = PENDING.swap(0, Ordering::SeqCst);
        if pending != 0 {
            send(command.as_raw_fd(), pending);
        }
    }

    /// Handles requests to end in this process from now on.
    pub(crate) fn command_ended(&self) {
        PHASE.store(phase::ENDED, Ordering::SeqCst);
        COMMAND.store(-1, Ordering::SeqCst);
    }

    /// Returns whether SIGUSR1 (true) or SIGUSR2 (false) came since the last call, and the pid of
    /// its sender. If both came, the later one counts.
    pub(crate) fn take_request(&self) -> Option<(bool, u32)> {
        let request = REQUEST.swap(0, Ordering::SeqCst);
        (request != 0).then_some((request as u32 == libc::SIGUSR1 as u32, (request >> 32) as u32))
    }

    /// True if this process was asked to end after the command had ended.
    pub(crate) fn is_hurried(&self) -> bool {
        HURRY.load(Ordering::Relaxed)
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        COMMAND.store(-1, Ordering::SeqCst);
        for (signal, before) in &self.before {
            set_disposition(*signal, before);
        }
    }
}

/// True in the first process of a pid namespace (of a container), to which orphans are reparented.
pub(crate) fn is_first_process() -> bool {
    std::process::id() == 1
}

/// True if SIGPIPE was ignored when this program started. Async-signal-safe: it reads an atomic.
pub(crate) fn sigpipe_was_ignored() -> bool {
    SIGPIPE_WAS_IGNORED.load(Ordering::Relaxed)
}

/// Stops this process like the default action of `signal`, and returns when it has been continued.
pub(crate) fn stop_by(signal: i32) {
    let before = disposition(signal);
    set_disposition(signal, &default());
    raise(signal);
    set_disposition(signal, &before);
}

/// Ends this process by the default action of a signal, without a second core file. To be called
/// after the last line was printed.
///
/// If the signal does not kill by default, the process exits with 128 plus its number, as a shell
/// would report it. So does the first process of a container, which the kernel does not let be
/// killed from inside.
pub fn die_by(signal: i32) -> ! {
    let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
    // If this is refused, there is an extra core file.
    let _ = rustix::process::setrlimit(rustix::process::Resource::Core, none);
    // SIGKILL and SIGSTOP always have the default disposition; the call refuses them.
    set_disposition(signal, &default());
    raise(signal);
    std::process::exit(128_i32.saturating_add(signal))
}

/// The signals that are handled: those of the keyboard, which reach the command by themselves,
/// requests to end, which are passed on, and requests to start and stop recording.
const HANDLED: [i32; 7] =
    [libc::SIGINT, libc::SIGQUIT, libc::SIGTSTP, libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2];

/// The signals that process 1 passes on in addition: the kernel does not deliver signals to it for
/// which it has no handler, and a container may be stopped by any of them (`STOPSIGNAL`). Real-time
/// signals are added to them.
const HANDLED_BY_FIRST: [i32; 7] =
    [libc::SIGALRM, libc::SIGCONT, libc::SIGWINCH, libc::SIGPWR, libc::SIGIO, libc::SIGURG, libc::SIGVTALRM];

/// Returns the signals that this process handles.
fn handled() -> Vec<i32> {
    let mut handled = HANDLED.to_vec();
    if is_first_process() {
        handled.extend(HANDLED_BY_FIRST);
        handled.extend(libc::SIGRTMIN()..=libc::SIGRTMAX());
    }
    handled
}

/// Handles a signal. Async-signal-safe: it uses atomics, and system calls through wrappers that may
/// be called in handlers. `errno` may change only in `send`, which restores it.
extern "C" fn on_signal(signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    if signal == libc::SIGUSR1 || signal == libc::SIGUSR2 {
        // SAFETY: with SA_SIGINFO the kernel passes a valid siginfo; the pid of a signal that no
        // process sent is 0.
        let sender = unsafe { if (*info).si_code <= 0 { (*info).si_pid() } else { 0 } };
        REQUEST.store(signal as u64 | (sender as u32 as u64) << 32, Ordering::SeqCst);
        return;
    }
    if PHASE.load(Ordering::SeqCst) == phase::ENDED {
        // The first request to end stops the waiting; the second one ends the process.
        let ends = [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP].contains(&signal);
        if ends && HURRY.swap(true, Ordering::SeqCst) {
            if is_first_process() {
                // The kernel does not apply default actions to the first process of a container.
                // SAFETY: ends the process without running any of its code.
                unsafe { libc::_exit(128 + signal) };
            }
            set_disposition(signal, &default());
            // SAFETY: raising a signal touches no memory of ours. It is delivered when the handler
            // returns.
            unsafe { libc::raise(signal) };
        }
        return;
    }
    // In a container, signals are often sent to its first process only, so all of them are passed
    // on.
    if signal != libc::SIGTERM && signal != libc::SIGHUP && !is_first_process() {
        return;
    }
    // SAFETY: `info` points to a siginfo, which has `si_code` for every signal: only the kernel
    // calls this handler, and `handler` asks for SA_SIGINFO.
    let from_a_process = unsafe { (*info).si_code } <= 0;
    // A signal from the kernel (a terminal that hangs up) goes to the whole process group, so the
    // command already has it.
    if from_a_process {
        match COMMAND.load(Ordering::SeqCst) {
            -1 => PENDING.store(signal, Ordering::SeqCst),
            command => send(command, signal),
        }
    }
}

extern "C" fn on_file_limit(_: i32) {}

/// See [`sigpipe_was_ignored`]. The standard library ignores the signal for itself before `main`,
/// and sets it to its default in children.
static SIGPIPE_WAS_IGNORED: AtomicBool = AtomicBool::new(false);

extern "C" fn before_main() {
    SIGPIPE_WAS_IGNORED.store(disposition(libc::SIGPIPE).sa_sigaction == libc::SIG_IGN, Ordering::Relaxed);
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = before_main;

fn disposition(signal: i32) -> libc::sigaction {
    let mut action = default();
    // SAFETY: a null new action changes nothing; the old one is written to a live sigaction. The
    // signals that are asked for exist, so the call cannot fail.
    unsafe { libc::sigaction(signal, ptr::null(), &mut action) };
    action
}

fn set_disposition(signal: i32, action: &libc::sigaction) {
    // SAFETY: the action is a live sigaction: the default, one that was in force before, or a
    // handler of this module (`on_signal`, or `on_file_limit`, which does nothing), which is
    // async-signal-safe.
    unsafe { libc::sigaction(signal, action, ptr::null_mut()) };
}

fn default() -> libc::sigaction {
    // SAFETY: zero is valid for all fields: SIG_DFL, no flags, an empty set of signals.
    unsafe { std::mem::zeroed() }
}

fn handler() -> libc::sigaction {
    let on_signal: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) = on_signal;
    let mut action = default();
    action.sa_sigaction = on_signal as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
    action
}

/// Sends a signal to the process of a pidfd.
fn send(pidfd: i32, signal: i32) {
    // SAFETY: `__errno_location` returns the address of this thread's errno, which lives as long as
    // the thread. The call reads no memory of ours: its third argument, a siginfo, may be null. It
    // is a bare system call, and so async-signal-safe. A descriptor that is not a pidfd is refused.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        libc::syscall(libc::SYS_pidfd_send_signal, pidfd, signal, ptr::null::<libc::siginfo_t>(), 0);
        *errno = before;
    }
}

/// Sends a signal to this thread, which handles it before this returns. If it were sent to the
/// process, any thread might take it, on a busy machine perhaps only after the disposition has
/// changed again. A default stop or end concerns the whole process either way.
fn raise(signal: i32) {
    // SAFETY: `pthread_sigmask` and `sigaddset` read and write only the two live local sets;
    // `raise` touches no memory of ours. Each of them refuses an invalid signal number.
    unsafe {
        let (mut set, mut before): (libc::sigset_t, libc::sigset_t) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, &mut before);
        libc::raise(signal);
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, ptr::null_mut());
    }
}
