//! Abstract Unix sockets between processes of one user. Anybody can take such a name: the rule is
//! that of `request::peer`.

use std::fs;
use std::io::{self, Read};
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::process;
use std::time::Duration;

use heapledger_report_format::request::peer::{Impostor, Peer};
use heapledger_report_format::request::{SOCKET_PREFIX, sockets};

/// Listens under a name that has this process's number.
pub(crate) fn listen() -> io::Result<UnixListener> {
    let mut random = [0_u8; 16];
    fs::File::open("/dev/urandom")?.read_exact(&mut random)?;
    let digits: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let name = format!("{SOCKET_PREFIX}{}.{digits}", process::id());
    UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)
}

/// The sockets of processes that listen, as they are listed: numbers in their names, and names.
pub(crate) fn listed() -> Vec<(u32, Vec<u8>)> {
    sockets(SOCKET_PREFIX, &fs::read("/proc/net/unix").unwrap_or_default())
}

/// Returns the kernel's status of a process; empty if there is no such process.
pub(crate) fn status(pid: u32) -> Vec<u8> {
    fs::read(format!("/proc/{pid}/status")).unwrap_or_default()
}

/// A connection to a process's socket, if it is that process who listens there; it waits for
/// nothing. An [`Impostor`] is a `PermissionDenied`; a process whose queue is full, `WouldBlock`.
pub(crate) fn connect(pid: u32, name: &[u8]) -> io::Result<UnixStream> {
    // By hand, since it must not wait: the other side's queue may be full.
    // SAFETY: plain system calls; the descriptor is new, and nobody else's.
    let socket = unsafe {
        let flags = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let descriptor = libc::socket(libc::AF_UNIX, flags, 0);
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        UnixStream::from(OwnedFd::from_raw_fd(descriptor))
    };
    connect_to(&socket, name)?;
    let peer = peer(&socket)?;
    let checked =
        if peer.pid == pid { peer.check(pid, own_user(), &status(pid)) } else { Err(Impostor::Process(peer)) };
    checked.map_err(|impostor| io::Error::new(io::ErrorKind::PermissionDenied, impostor))?;
    Ok(socket)
}

fn connect_to(socket: &UnixStream, name: &[u8]) -> io::Result<()> {
    // SAFETY: `zeroed` requires a type of which zeroes are a value. All fields of a `sockaddr_un`
    // are integers.
    let mut address: libc::sockaddr_un = unsafe { mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    // The first byte is 0: the name is abstract.
    let room = address.sun_path.get_mut(1..1 + name.len()).ok_or(io::ErrorKind::InvalidInput)?;
    for (to, &from) in room.iter_mut().zip(name) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    let length = mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len();
    // SAFETY: `connect` requires `length` bytes that may be read: they are the family, a zero and
    // the name, within `address`, since `get_mut` has found room for them.
    let error = unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), length as libc::socklen_t) };
    if error == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Waits for one of these, for so long at most; for ever with `None`. Their `revents` say which.
pub(crate) fn poll(polled: &mut [libc::pollfd], timeout: Option<Duration>) -> io::Result<()> {
    // Rounded up: not to turn round in the last millisecond.
    let milliseconds = timeout.map_or(-1, |timeout| timeout.as_micros().div_ceil(1000).min(60_000) as i32);
    // SAFETY: `poll` requires an array of that many elements that may be written, which the slice
    // is.
    let count = unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, milliseconds) };
    if count >= 0 {
        return Ok(());
    }
    polled.iter_mut().for_each(|polled| polled.revents = 0);
    match io::Error::last_os_error() {
        error if error.kind() == io::ErrorKind::Interrupted => Ok(()),
        error => Err(error),
    }
}

/// The process at the other end.
pub(crate) fn peer(socket: &UnixStream) -> io::Result<Peer> {
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

/// The user of this process.
pub(crate) fn own_user() -> u32 {
    // SAFETY: `geteuid` requires nothing: it takes no memory, and only returns a number.
    unsafe { libc::geteuid() }
}
