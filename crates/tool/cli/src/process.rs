//! A running process, which answers over a socket of its own: `format/reports/src/request.rs`, `format/dmd/src/request.rs`.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use heapledger_reports::request::sockets;
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

use crate::error::{Failure, Result};
use crate::exit::Exit;

/// How long each of the process's reporters may take.
pub(crate) const REPORTER_DEADLINE: Duration = Duration::from_secs(5);
/// How long all of them may take.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);
/// How long the process may be silent, whatever it is asked.
const PATIENCE: Duration = Duration::from_secs(60);

/// The process that a source means, if it means one: a number that is no file's name.
pub(crate) fn number(source: &str) -> Option<u32> {
    source.parse().ok().filter(|_| !Path::new(source).exists())
}

/// What the process answers to a line that asks for something, as far as it may be that long.
pub(crate) fn ask(pid: u32, line: &str, wanted: &str, bytes_max: usize) -> Result<Vec<u8>> {
    if !Path::new(&format!("/proc/{pid}")).exists() {
        return Err(Failure::new(Exit::Unreadable, format_args!("there is no process {pid}"))
            .hint("`pgrep NAME` tells the numbers of the processes of a name"));
    }
    let cannot = |error: io::Error| {
        Failure::caused(Exit::Unreadable, format_args!("cannot read {wanted} of process {pid}"), error)
            .hint("it answers processes of its own user, and root's, in the same network namespace")
    };
    let Some((_, name)) = listening().map_err(cannot)?.into_iter().find(|&(of, _)| of == pid) else {
        return Err(Failure::new(Exit::Unreadable, format_args!("process {pid} does not answer")).hint(
            "a program answers once it has called `heapledger::reports::listen()`, or in C `heapledger_listen()`; \
             see docs/reporters.md",
        ));
    };
    exchange(&name, line, bytes_max, PATIENCE).map_err(cannot)
}

/// The processes that can be asked, whosever they are, and the names of their sockets.
pub(crate) fn listening() -> io::Result<Vec<(u32, Vec<u8>)>> {
    Ok(sockets(&fs::read("/proc/net/unix")?))
}

/// What is answered to a line, as far as it may be that long, by a process that may be silent for so long.
pub(crate) fn exchange(name: &[u8], line: &str, bytes_max: usize, patience: Duration) -> io::Result<Vec<u8>> {
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    for timeout in [Timeout::Recv, Timeout::Send] {
        set_socket_timeout(&socket, timeout, Some(patience))?;
    }
    rustix::net::connect(&socket, &SocketAddrUnix::new_abstract_name(name)?)?;
    // Anybody can take such a name.
    let (user, own) = (socket_peercred(&socket)?.uid, rustix::process::geteuid());
    if user != own && !own.is_root() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    rustix::net::send(&socket, line.as_bytes(), SendFlags::NOSIGNAL)?;
    read(&socket, bytes_max)
}

fn read(socket: &OwnedFd, bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut file = Vec::new();
    let mut buffer = vec![0_u8; 64 << 10];
    loop {
        let (count, _) = rustix::net::recv(socket.as_fd(), &mut buffer[..], RecvFlags::empty())?;
        if count == 0 && file.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if count == 0 || file.len() > bytes_max {
            return Ok(file);
        }
        file.extend_from_slice(&buffer[..count]);
    }
}
