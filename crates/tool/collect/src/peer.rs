//! Connecting to a process by its socket's name, and to nobody else: the rule is that of `request::peer`.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use heapledger_reports::request::peer::{Impostor, numbers};
use heapledger_reports::request::sockets;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::unix;

/// Between two attempts to connect to a process whose queue is full.
const PAUSE: Duration = Duration::from_millis(5);

/// A listening socket as it is listed: its name, and the process that the name tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The process's number, in the pid namespace where it lives.
    pub number: u32,
    /// The socket's abstract name.
    pub name: Vec<u8>,
}

/// A connection to a process that is the one in its socket's name.
#[derive(Debug)]
pub struct Connected {
    /// The connection; it waits for as long as was said at its making.
    pub socket: OwnedFd,
    /// The process's number in this process's pid namespace.
    pub pid: u32,
}

/// The sockets whose names begin so, whosever they are.
pub fn listed(prefix: &str) -> io::Result<Vec<Listed>> {
    let all = sockets(prefix, &fs::read("/proc/net/unix")?);
    Ok(all.into_iter().map(|(number, name)| Listed { number, name }).collect())
}

/// Returns those that may be a process's, by their names. Connecting to them tells if they are.
pub fn listed_of(prefix: &str, pid: u32) -> io::Result<Vec<Listed>> {
    let status = status(pid);
    let is_its = |number| number == pid || numbers(&status).any(|other| other == number);
    Ok(listed(prefix)?.into_iter().filter(|listed| is_its(listed.number)).collect())
}

/// Connects to the first of these that is the process in its name and, if one is asked for, that process. Others are passed
/// over. Neither this nor what is read and written afterwards waits for longer than `patience` at a time.
///
/// # Errors
///
/// If there is none, the reason of the last. An [`Impostor`] comes before all others.
pub fn connect(listed: &[Listed], asked: Option<u32>, kind: SocketType, patience: Duration) -> io::Result<Connected> {
    let end = Instant::now() + patience;
    let mut left: Vec<&Listed> = listed.iter().collect();
    let mut reason = io::Error::from(io::ErrorKind::NotFound);
    let mut is_impostor = false;
    while !left.is_empty() {
        let mut connected = None;
        left.retain(|listed| {
            if connected.is_some() {
                return false;
            }
            match try_connect(listed, asked, kind, patience) {
                Ok(found) => connected = Some(found),
                // Its queue is full; whoever has taken such a name may leave it so, and hides nobody by it.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(error) => {
                    let is_one = error.get_ref().is_some_and(|inner| inner.is::<Impostor>());
                    if is_one || !is_impostor {
                        reason = error;
                    }
                    is_impostor |= is_one;
                }
            }
            false
        });
        if let Some(connected) = connected {
            return Ok(connected);
        }
        if !left.is_empty() {
            if Instant::now() >= end {
                return Err(if is_impostor { reason } else { io::ErrorKind::TimedOut.into() });
            }
            thread::sleep(PAUSE);
        }
    }
    Err(reason)
}

fn try_connect(listed: &Listed, asked: Option<u32>, kind: SocketType, patience: Duration) -> io::Result<Connected> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new_abstract_name(&listed.name)?).map_err(|error| match error {
        Errno::AGAIN => io::ErrorKind::WouldBlock.into(),
        error => io::Error::from(error),
    })?;
    let peer = unix::peer(socket.as_fd())?;
    let own = rustix::process::geteuid().as_raw();
    let checked = match asked {
        Some(asked) if asked != peer.pid => Err(Impostor::Process(peer)),
        _ => peer.check(listed.number, own, &status(peer.pid)),
    };
    checked.map_err(|impostor| io::Error::new(io::ErrorKind::PermissionDenied, impostor))?;
    rustix::io::ioctl_fionbio(&socket, false)?;
    for timeout in [Timeout::Recv, Timeout::Send] {
        set_socket_timeout(&socket, timeout, Some(patience))?;
    }
    Ok(Connected { socket, pid: peer.pid })
}

/// Returns the kernel's status of a process; empty if there is no such process.
fn status(pid: u32) -> Vec<u8> {
    fs::read(format!("/proc/{pid}/status")).unwrap_or_default()
}
