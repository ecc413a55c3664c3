//! Signals, and the few system calls that rustix does not have. With `shared`, all the `unsafe` of this crate.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use heapledger_recording::ExitStatus;
use heapledger_reports::request::peer::Peer;

use crate::launch::Image;

/// One recording at a time may own the process's signals.
static OWNER: Mutex<()> = Mutex::new(());
static PHASE: AtomicU32 = AtomicU32::new(phase::STARTING);
/// The command's pidfd while there is one, else −1.
static COMMAND: AtomicI32 = AtomicI32::new(-1);
/// A signal that came before there was a command to pass it to.
static PENDING: AtomicI32 = AtomicI32::new(0);
/// A signal came after the command had ended: do not wait for anybody any more.
static HURRY: AtomicBool = AtomicBool::new(false);

mod phase {
    pub(super) const STARTING: u32 = 0;
    pub(super) const RUNNING: u32 = 1;
    pub(super) const ENDED: u32 = 2;
}

/// A request to start or stop recording that has not been looked at: the signal, and above it the pid of the sender.
static REQUEST: AtomicU64 = AtomicU64::new(0);

/// Handled signals: the keyboard's, which reach the command by themselves, requests to end, which are passed on, and
/// requests to start and stop recording.
const HANDLED: [i32; 7] =
    [libc::SIGINT, libc::SIGQUIT, libc::SIGTSTP, libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2];

/// Signals that process 1 passes on in addition: the kernel keeps from it what it has no handler for, and a container
/// may be stopped by any of them (`STOPSIGNAL`). Those for real time come after them.
const HANDLED_BY_FIRST: [i32; 7] =
    [libc::SIGALRM, libc::SIGCONT, libc::SIGWINCH, libc::SIGPWR, libc::SIGIO, libc::SIGURG, libc::SIGVTALRM];

/// True in the first process of a pid namespace (of a container), on which orphans fall.
pub(crate) fn is_first_process() -> bool {
    std::process::id() == 1
}

/// The handled signals of this process.
fn handled() -> Vec<i32> {
    let mut handled = HANDLED.to_vec();
    if is_first_process() {
        handled.extend(HANDLED_BY_FIRST);
        handled.extend(libc::SIGRTMIN()..=libc::SIGRTMAX());
    }
    handled
}

/// Our signal handlers, as long as this lives. A signal that was ignored stays so, for us and the command; the handled
/// ones are at their defaults in the command, since exec resets what has a handler.
#[derive(Debug)]
pub(crate) struct Signals {
    before: Vec<(i32, libc::sigaction)>,
    _owner: MutexGuard<'static, ()>,
}

impl Signals {
    /// Installs the handlers. `None` if another recording of this process has them.
    pub(crate) fn handle() -> Option<Signals> {
        let owner = match OWNER.try_lock() {
            Ok(owner) => owner,
            // What it guards are atomics that are set anew below.
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
        // A file that may not grow is an error like others; the command gets the default back on exec.
        let before = disposition(libc::SIGXFSZ);
        if before.sa_sigaction != libc::SIG_IGN {
            let mut action = default();
            let nothing: extern "C" fn(i32) = on_file_limit;
            action.sa_sigaction = nothing as usize;
            action.sa_flags = libc::SA_RESTART;
            set_disposition(libc::SIGXFSZ, &action);
            signals.before.push((libc::SIGXFSZ, before));
        }
        // Ignored, it would keep us from learning how the command ended.
        let before = disposition(libc::SIGCHLD);
        if before.sa_sigaction == libc::SIG_IGN {
            set_disposition(libc::SIGCHLD, &default());
            signals.before.push((libc::SIGCHLD, before));
        }
        Some(signals)
    }

    /// From now on requests to end go to this process.
    pub(crate) fn command_runs(&self, command: BorrowedFd<'_>) {
        COMMAND.store(command.as_raw_fd(), Ordering::SeqCst);
        PHASE.store(phase::RUNNING, Ordering::SeqCst);
        let pending = PENDING.swap(0, Ordering::SeqCst);
        if pending != 0 {
            send(command.as_raw_fd(), pending);
        }
    }

    /// From now on requests to end are for us.
    pub(crate) fn command_ended(&self) {
        PHASE.store(phase::ENDED, Ordering::SeqCst);
        COMMAND.store(-1, Ordering::SeqCst);
    }

    /// Whether SIGUSR1 (true) or SIGUSR2 (false) came since the last time, the later of them, and the pid of who sent it.
    pub(crate) fn take_request(&self) -> Option<(bool, u32)> {
        let request = REQUEST.swap(0, Ordering::SeqCst);
        (request != 0).then_some((request as u32 == libc::SIGUSR1 as u32, (request >> 32) as u32))
    }

    /// Whether we were asked to end after the command had.
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

extern "C" fn on_file_limit(_: i32) {}

/// Whether SIGPIPE was ignored when this program started. The standard library ignores it for itself before `main`, and
/// sets it to its default in children.
static SIGPIPE_WAS_IGNORED: AtomicBool = AtomicBool::new(false);

extern "C" fn before_main() {
    SIGPIPE_WAS_IGNORED.store(disposition(libc::SIGPIPE).sa_sigaction == libc::SIG_IGN, Ordering::Relaxed);
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = before_main;

fn disposition(signal: i32) -> libc::sigaction {
    let mut action = default();
    // SAFETY: a null new action changes nothing; the old one is written to a live sigaction. The signals asked for
    // exist, so the call cannot fail.
    unsafe { libc::sigaction(signal, ptr::null(), &mut action) };
    action
}

fn set_disposition(signal: i32, action: &libc::sigaction) {
    // SAFETY: the action is a live sigaction: the default, one that was in force before, or `on_signal`, which keeps
    // to what a handler may do.
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

/// Async-signal-safe: atomics, and system calls by wrappers that may be called in handlers. `errno` may change only in
/// `send`, which restores it.
extern "C" fn on_signal(signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    if signal == libc::SIGUSR1 || signal == libc::SIGUSR2 {
        // SAFETY: with SA_SIGINFO the kernel passes a valid siginfo; the pid of a signal that no process sent is 0.
        let sender = unsafe { if (*info).si_code <= 0 { (*info).si_pid() } else { 0 } };
        REQUEST.store(signal as u64 | (sender as u32 as u64) << 32, Ordering::SeqCst);
        return;
    }
    if PHASE.load(Ordering::SeqCst) == phase::ENDED {
        // A first request to end stops the waiting; a second one is taken at its word.
        let ends = [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP].contains(&signal);
        if ends && HURRY.swap(true, Ordering::SeqCst) {
            if is_first_process() {
                // The kernel keeps its default action from it.
                // SAFETY: ends the process without running anything of it.
                unsafe { libc::_exit(128 + signal) };
            }
            set_disposition(signal, &default());
            // SAFETY: raising a signal touches no memory of ours. It is delivered when the handler returns.
            unsafe { libc::raise(signal) };
        }
        return;
    }
    // Everybody who wants to stop a container signals its first process alone.
    if signal != libc::SIGTERM && signal != libc::SIGHUP && !is_first_process() {
        return;
    }
    // SAFETY: with SA_SIGINFO the kernel passes a valid siginfo.
    let from_a_process = unsafe { (*info).si_code } <= 0;
    // What the kernel sends (a terminal hanging up) goes to the whole process group: the command has it already.
    if from_a_process {
        match COMMAND.load(Ordering::SeqCst) {
            -1 => PENDING.store(signal, Ordering::SeqCst),
            command => send(command, signal),
        }
    }
}

/// Waits until a child has ended, and says which, without reaping it. `None` if there are no children.
pub(crate) fn wait_for_any_end() -> Option<rustix::process::Pid> {
    // SAFETY: zero is valid for a siginfo, which is numbers; the call fills it in, and si_pid is a field of what it
    // says of children. WNOWAIT leaves the child as it is.
    let pid = unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        libc::waitid(libc::P_ALL, 0, &mut info, libc::WEXITED | libc::WNOWAIT);
        info.si_pid()
    };
    rustix::process::Pid::from_raw(pid)
}

/// Sends a signal to the process of a pidfd.
fn send(pidfd: i32, signal: i32) {
    // SAFETY: `__errno_location` returns this thread's errno, which lives as long as the thread. The call reads no
    // memory of ours: its third argument, a siginfo, may be null. It is a bare system call, fit for signal handlers.
    // A descriptor that is no pidfd is refused.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        libc::syscall(libc::SYS_pidfd_send_signal, pidfd, signal, ptr::null::<libc::siginfo_t>(), 0);
        *errno = before;
    }
}

/// Stops this process as `signal` does by default, and returns when it has been continued.
pub(crate) fn stop_by(signal: i32) {
    let before = disposition(signal);
    set_disposition(signal, &default());
    raise(signal);
    set_disposition(signal, &before);
}

/// Dies by this signal with its default action, without a second core file. For after the last line was printed.
///
/// A signal that does not kill by default makes the process exit with 128 plus its number, as a shell would report it;
/// so does every signal in the first process of a container, which the kernel lets none of its own kill.
pub fn die_by(signal: i32) -> ! {
    let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
    // Refused, there is a core file more.
    let _ = rustix::process::setrlimit(rustix::process::Resource::Core, none);
    // SIGKILL and SIGSTOP have no other disposition than the default; the call refuses them.
    set_disposition(signal, &default());
    raise(signal);
    std::process::exit(128_i32.saturating_add(signal))
}

/// Sends a signal to this thread, which takes it before this returns. Sent to the process, it would be for any thread,
/// which on a busy machine may look at it only when its disposition has changed again. A default stop or end is that of
/// the whole process either way.
fn raise(signal: i32) {
    // SAFETY: `pthread_sigmask` and `sigaddset` read and write only the two live local sets, `raise` no memory of ours.
    // A number that is no signal is refused by each of them.
    unsafe {
        let (mut set, mut before): (libc::sigset_t, libc::sigset_t) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, &mut before);
        libc::raise(signal);
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, ptr::null_mut());
    }
}

/// The process at the other end of a Unix socket. rustix's `Pid` has no place for 0, which is the number of a process in
/// another pid namespace.
pub(crate) fn peer(socket: BorrowedFd<'_>) -> io::Result<Peer> {
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the option's value is a ucred; the kernel writes no more than `length` bytes, which the live one has.
    let error = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &raw mut length,
        )
    };
    if error != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Peer { pid: credentials.pid.cast_unsigned(), user: credentials.uid })
}

/// User and system time of the children that were waited for, theirs included, in nanoseconds.
pub(crate) fn children_cpu_ns() -> u64 {
    // SAFETY: zero is valid for a rusage, which is numbers only; the call fills it in.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage);
        usage
    };
    let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1_000;
    ns(usage.ru_utime) + ns(usage.ru_stime)
}

/// `struct pidfd_info` of linux/pidfd.h, in its first version.
#[derive(Default)]
#[repr(C)]
struct PidfdInfo {
    mask: u64,
    cgroup: u64,
    pid: u32,
    tgid: u32,
    ppid: u32,
    ids: [u32; 8],
    exit_code: i32,
}

const PIDFD_INFO_EXIT: u64 = 1 << 3;
/// `_IOWR(0xFF, 11, struct pidfd_info)`: the size is that of the first version, which every kernel understands.
const PIDFD_GET_INFO: libc::c_ulong = 3 << 30 | (size_of::<PidfdInfo>() as libc::c_ulong) << 16 | 0xff << 8 | 11;
const _: () = assert!(size_of::<PidfdInfo>() == 64);

/// How the process of a pidfd ended; it need not be our child. `None` while it runs, until it has been waited for by
/// its parent, and with kernels before 6.15.
pub(crate) fn exit_of(pidfd: BorrowedFd<'_>) -> Option<ExitStatus> {
    let mut info = PidfdInfo { mask: PIDFD_INFO_EXIT, ..PidfdInfo::default() };
    // SAFETY: the request says how long the live struct behind the pointer is; the kernel writes no more than that.
    // Another kind of descriptor, or an older kernel, refuses the request.
    let answer = unsafe { libc::ioctl(pidfd.as_raw_fd(), PIDFD_GET_INFO, &raw mut info) };
    (answer == 0 && info.mask & PIDFD_INFO_EXIT != 0).then(|| exit_status(info.exit_code))
}

/// An exit status from the form that the wait calls use.
fn exit_status(code: i32) -> ExitStatus {
    match code & 0x7f {
        0 => ExitStatus::Code(code >> 8 & 0xff),
        signal => ExitStatus::Signal(signal),
    }
}

/// This process's environment as it is: in its order, with entries that are no `NAME=VALUE` too.
pub(crate) fn environment() -> Vec<OsString> {
    unsafe extern "C" {
        static environ: *const *const libc::c_char;
    }
    let mut entries = Vec::new();
    // SAFETY: the C library's variable: null, or an array of strings up to a null pointer. `record` is documented not to
    // be called while another thread changes the environment, as for `std::env::set_var`.
    unsafe {
        let mut at = environ;
        while !at.is_null() && !(*at).is_null() {
            entries.push(OsStr::from_bytes(CStr::from_ptr(*at).to_bytes()).to_owned());
            at = at.add(1);
        }
    }
    entries
}

/// Has the command's child execute this image, instead of what the command says.
pub(crate) fn exec_instead(command: &mut Command, image: Image) {
    /// Pointers into strings that live as long.
    struct Pointers {
        arguments: Vec<*const libc::c_char>,
        environment: Vec<*const libc::c_char>,
        image: Image,
    }
    // SAFETY: the pointers refer to heap memory of `image`, which is never changed.
    unsafe impl Send for Pointers {}
    // SAFETY: as above.
    unsafe impl Sync for Pointers {}
    let pointers =
        |strings: &[CString]| strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect::<Vec<_>>();
    let pointers = Pointers { arguments: pointers(&image.arguments), environment: pointers(&image.environment), image };
    let exec = move || {
        let pointers = &pointers;
        if SIGPIPE_WAS_IGNORED.load(Ordering::Relaxed) {
            // SAFETY: a valid signal and disposition.
            unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
        }
        // SAFETY: NUL-terminated strings, and arrays of them that end with null.
        unsafe {
            libc::execve(pointers.image.file.as_ptr(), pointers.arguments.as_ptr(), pointers.environment.as_ptr());
        }
        Err(io::Error::last_os_error())
    };
    // SAFETY: after the fork the closure makes system calls only, on memory that was made before it, and allocates
    // nothing.
    unsafe { command.pre_exec(exec) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn the_exit_of_a_reaped_process_is_known_afterwards() {
        let mut child = std::process::Command::new("/bin/sh").args(["-c", "exit 7"]).spawn().unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
        child.wait().unwrap();
        // Older kernels do not say.
        if let Some(exit) = exit_of(pidfd.as_fd()) {
            assert_eq!(exit, ExitStatus::Code(7));
        }
        assert!(children_cpu_ns() > 0);
    }

    #[test]
    fn wait_statuses_are_told_apart() {
        assert_eq!(exit_status(0x0300), ExitStatus::Code(3));
        assert_eq!(exit_status(0x8b), ExitStatus::Signal(11));
    }
}
