//! The system calls that rustix does not have. This module, `exec`, `signals` and `shared` have all
//! the `unsafe` code of this crate.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use heapledger_recording::ExitStatus;
use heapledger_report_format::ask::Peer;

/// Waits until a child has ended, and returns its pid without reaping it. `None` if there are no
/// children.
pub(crate) fn wait_for_any_end() -> Option<rustix::process::Pid> {
    // SAFETY: zero is valid for a siginfo, which consists of numbers. The call fills it in, and
    // si_pid is a field of what it reports about children. WNOWAIT leaves the child as it is.
    let pid = unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        libc::waitid(libc::P_ALL, 0, &mut info, libc::WEXITED | libc::WNOWAIT);
        info.si_pid()
    };
    rustix::process::Pid::from_raw(pid)
}

/// Returns the process at the other end of a Unix socket. rustix's `Pid` cannot be 0, which is the
/// pid of a process in another pid namespace.
pub(crate) fn peer(socket: BorrowedFd<'_>) -> io::Result<Peer> {
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the option's value is a ucred; the kernel writes no more than `length` bytes, which
    // the live one has.
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

/// Returns the user and system time of the children that were waited for, including their own such
/// children, in nanoseconds.
pub(crate) fn children_cpu_ns() -> u64 {
    // SAFETY: zero is valid for a rusage, which consists of numbers; the call fills it in.
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
/// `_IOWR(0xFF, 11, struct pidfd_info)`: the size is that of the first version, which every kernel
/// understands.
/// musl's `ioctl` takes an `int`.
const PIDFD_GET_INFO: libc::Ioctl = (3 << 30 | (size_of::<PidfdInfo>() as u32) << 16 | 0xff << 8 | 11) as libc::Ioctl;
const _: () = assert!(size_of::<PidfdInfo>() == 64);

/// Returns the exit status of the process of a pidfd, which need not be our child. `None` while it
/// runs, until its parent has waited for it, and on kernels before 6.15.
pub(crate) fn exit_of(pidfd: BorrowedFd<'_>) -> Option<ExitStatus> {
    let mut info = PidfdInfo { mask: PIDFD_INFO_EXIT, ..PidfdInfo::default() };
    // SAFETY: the request says how long the live struct behind the pointer is; the kernel writes no
    // more than that. Another kind of descriptor, or an older kernel, refuses the request.
    let answer = unsafe { libc::ioctl(pidfd.as_raw_fd(), PIDFD_GET_INFO, &raw mut info) };
    (answer == 0 && info.mask & PIDFD_INFO_EXIT != 0).then(|| exit_status(info.exit_code))
}

/// Converts an exit status from the form that the wait calls use.
fn exit_status(code: i32) -> ExitStatus {
    match code & 0x7f {
        0 => ExitStatus::Code(code >> 8 & 0xff),
        signal => ExitStatus::Signal(signal),
    }
}

#[cfg(test)]
mod tests;
