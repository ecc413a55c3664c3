//! The credentials of Unix sockets.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use heapledger_report_format::ask::Peer;

/// Returns the process at the other end of a socket.
pub(crate) fn peer(socket: BorrowedFd<'_>) -> io::Result<Peer> {
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `getsockopt` requires room for `length` bytes, and a length that may be written,
    // which are the two locals. The value of `SO_PEERCRED` is a `ucred`.
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
