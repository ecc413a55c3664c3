//! Abstract Unix sockets between processes of one user.

use std::fs;
use std::io::{self, Read, Write};
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::process;
use std::time::Duration;

use heapledger_reports::request::SOCKET_PREFIX;

/// Listens under a name that has this process's number.
pub(crate) fn listen() -> io::Result<UnixListener> {
    let mut random = [0_u8; 16];
    fs::File::open("/dev/urandom")?.read_exact(&mut random)?;
    let digits: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let name = format!("{SOCKET_PREFIX}{}.{digits}", process::id());
    UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)
}

/// Connects to a socket of this user's, or for root of anybody's, and writes something. Neither this nor what is read and
/// written afterwards waits for longer than that at a time.
pub(crate) fn ask(name: &[u8], request: &[u8], patience: Duration) -> io::Result<UnixStream> {
    // By hand, since the time has to be set before it connects: the other side's queue may be full.
    // SAFETY: plain system calls; the descriptor is new, and nobody else's.
    let socket = unsafe {
        let descriptor = libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        UnixStream::from(OwnedFd::from_raw_fd(descriptor))
    };
    socket.set_read_timeout(Some(patience))?;
    socket.set_write_timeout(Some(patience))?;
    connect(&socket, name)?;
    // Anybody can take such a name.
    let (user, own) = (peer(&socket)?, own_user());
    if user != own && own != 0 {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    (&socket).write_all(request)?;
    Ok(socket)
}

fn connect(socket: &UnixStream, name: &[u8]) -> io::Result<()> {
    // SAFETY: zeroes are an address.
    let mut address: libc::sockaddr_un = unsafe { mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    // The first byte is 0: the name is abstract.
    let room = address.sun_path.get_mut(1..1 + name.len()).ok_or(io::ErrorKind::InvalidInput)?;
    for (to, &from) in room.iter_mut().zip(name) {
        *to = from.cast_signed();
    }
    let length = mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len();
    // SAFETY: an address of that length, which is within the structure.
    let error = unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), length as libc::socklen_t) };
    if error == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The user at the other end.
pub(crate) fn peer(socket: &UnixStream) -> io::Result<u32> {
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the option's value is of this type, and there is room for it.
    let error = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &raw mut length,
        )
    };
    if error == 0 { Ok(credentials.uid) } else { Err(io::Error::last_os_error()) }
}

/// The user of this process.
pub(crate) fn own_user() -> u32 {
    // SAFETY: it only returns a number.
    unsafe { libc::geteuid() }
}
