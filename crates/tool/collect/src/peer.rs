//! Connects to a process by its socket's name, and to no other process: the rule is the one in
//! `request::peer`.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use heapledger_report_format::request::peer::{Impostor, numbers};
use heapledger_report_format::request::sockets;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::unix;

/// The time between two attempts to connect to a process whose queue is full.
const PAUSE: Duration = Duration::from_millis(5);

/// A listening socket from the list of sockets: its name, and the process in the name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedSocket {
    /// The pid in the process's own pid namespace.
    pub number: u32,
    /// The socket's abstract name.
    pub name: Vec<u8>,
}

/// A connection to a process that is the one in its socket's name.
#[derive(Debug)]
pub struct PeerConnection {
    /// The connection, with the timeout that was given to [`connect`].
    pub socket: OwnedFd,
    /// The pid in this process's pid namespace.
    pub pid: u32,
}

/// Returns the sockets whose names begin with this prefix, of any process.
pub fn listed(prefix: &str) -> io::Result<Vec<ListedSocket>> {
    let all = sockets(prefix, &fs::read("/proc/net/unix")?);
    Ok(all.into_iter().map(|(number, name)| ListedSocket { number, name }).collect())
}

/// Returns the sockets that may belong to a process, judging by their names. Only connecting tells
/// whether they do.
pub fn listed_of(prefix: &str, pid: u32) -> io::Result<Vec<ListedSocket>> {
    let status = status(pid);
    let is_its = |number| number == pid || numbers(&status).any(|other| other == number);
    Ok(listed(prefix)?.into_iter().filter(|listed| is_its(listed.number)).collect())
}

/// Connects to the first of these sockets that belongs to the process in its name and, if `asked`
/// is given, to that process. Others are skipped. This call, and each later read and write, waits
/// for at most `timeout`.
///
/// # Errors
///
/// If no socket qualifies, the reason of the last one. An [`Impostor`] takes precedence over all
/// others.
pub fn connect(
    listed: &[ListedSocket],
    asked: Option<u32>,
    kind: SocketType,
    timeout: Duration,
) -> io::Result<PeerConnection> {
    let end = Instant::now() + timeout;
    let mut left: Vec<&ListedSocket> = listed.iter().collect();
    let mut reason = io::Error::from(io::ErrorKind::NotFound);
    let mut is_impostor = false;
    while !left.is_empty() {
        let mut connected = None;
        left.retain(|listed| {
            if connected.is_some() {
                return false;
            }
            match try_connect(listed, asked, kind, timeout) {
                Ok(found) => connected = Some(found),
                // The queue is full. A process that has taken such a name may keep it full; it must
                // not hide others by that.
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

fn try_connect(
    listed: &ListedSocket,
    asked: Option<u32>,
    kind: SocketType,
    timeout: Duration,
) -> io::Result<PeerConnection> {
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
    for direction in [Timeout::Recv, Timeout::Send] {
        set_socket_timeout(&socket, direction, Some(timeout))?;
    }
    Ok(PeerConnection { socket, pid: peer.pid })
}

/// Returns the kernel's status of a process; empty if there is no such process.
fn status(pid: u32) -> Vec<u8> {
    fs::read(format!("/proc/{pid}/status")).unwrap_or_default()
}
