//! Connecting to a process at one of several sockets, some of which may not be the process's.

use std::io::{self, ErrorKind};
use std::mem;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::geteuid;

use super::listed::ListedSocket;
use super::peer::{Impostor, PeerOf, is_impostor, status};

/// Attempts to connect to a process, at the sockets that may be its own.
#[derive(Debug)]
pub struct Connecting {
    left: Vec<ListedSocket>,
    /// The process, or any.
    asked: Option<u32>,
    end: Instant,
    peer_of: PeerOf,
    /// The reason why the last socket did not qualify.
    reason: io::Error,
}

impl Connecting {
    /// The time between two attempts.
    pub const PAUSE: Duration = Duration::from_millis(5);

    /// Connects to the first of these sockets that belongs to the process in its name and, if
    /// `asked` is given, to that process. Others are skipped. Attempts are made until `end`.
    pub fn new(sockets: Vec<ListedSocket>, asked: Option<u32>, end: Instant, peer_of: PeerOf) -> Connecting {
        Connecting { left: sockets, asked, end, peer_of, reason: ErrorKind::NotFound.into() }
    }

    /// Makes an attempt at each socket that is left, without waiting. Returns the connection, which
    /// does not block, and the pid of the process as this process sees it. `None`: the queues of
    /// all that are left are full, and another attempt is due after [`PAUSE`](Connecting::PAUSE).
    ///
    /// # Errors
    ///
    /// If no socket qualifies, the reason of the last one; `TimedOut` if the time is over. An
    /// [`Impostor`] takes precedence over all others.
    pub fn attempt(&mut self) -> Option<io::Result<(UnixStream, u32)>> {
        let (asked, peer_of, reason) = (self.asked, self.peer_of, &mut self.reason);
        let mut connected = None;
        self.left.retain(|listed| {
            if connected.is_some() {
                return false;
            }
            match connect(listed, asked, peer_of) {
                Ok(connection) => connected = Some(connection),
                // A process that has taken such a name may keep its queue full; it must not hide
                // others by that.
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(error) if is_impostor(reason) && !is_impostor(&error) => {}
                Err(error) => *reason = error,
            }
            false
        });
        if let Some(connected) = connected {
            return Some(Ok(connected));
        }
        if !self.left.is_empty() && Instant::now() < self.end {
            return None;
        }
        if !self.left.is_empty() && !is_impostor(reason) {
            *reason = ErrorKind::TimedOut.into();
        }
        Some(Err(mem::replace(reason, ErrorKind::NotFound.into())))
    }
}

/// Connects, and checks the process at the other end.
fn connect(listed: &ListedSocket, asked: Option<u32>, peer_of: PeerOf) -> io::Result<(UnixStream, u32)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new_abstract_name(&listed.name)?)?;
    let peer = peer_of(socket.as_fd())?;
    if asked.is_some_and(|asked| asked != peer.pid) {
        return Err(Impostor::Process(peer).into());
    }
    peer.check(listed.number, geteuid().as_raw(), &status(peer.pid))?;
    Ok((socket.into(), peer.pid))
}
