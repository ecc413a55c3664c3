//! The check that the process at the other end is the one in a socket's name, and not one that has
//! taken such a name.
//!
//! Every user may bind every abstract name. The credentials that the kernel has for the process
//! that called listen(2) cannot be forged: its process id and its user.

use std::error::Error;
use std::fmt;
use std::fs;
use std::io;
use std::os::fd::BorrowedFd;

/// The process at the other end, as the kernel reports it (`SO_PEERCRED`). A client sees the
/// process, not the thread, that called listen(2), and its effective user then. A server sees the
/// same of the call of connect(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its process id in this process's pid namespace; 0 if it has none there.
    pub pid: u32,
    /// Its user in this process's user namespace.
    pub user: u32,
}

/// Returns the process at the other end of a socket. The caller has this function, because it needs
/// `unsafe` code: the safe interface of rustix cannot return the pid 0.
pub type PeerOf = fn(BorrowedFd<'_>) -> io::Result<Peer>;

/// The reason why the answer of a socket is not accepted as that of the process in its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Impostor {
    /// It listens in a pid namespace that the client does not see.
    Unseen,
    /// It is another process.
    Process(Peer),
    /// It is a process of another user.
    User(Peer),
}

impl Peer {
    /// Checks that the peer is the process `named` in the socket's name, and that a client of the
    /// user `own` may accept its answer: the peer runs as the same user or, for root, as the user
    /// of that process. `status` is `/proc/PID/status` for the peer's process id, or empty if it
    /// cannot be read.
    ///
    /// The name of the socket of a process in a pid namespace below the client's has another
    /// process id than the client sees: both are in its status.
    ///
    /// # Errors
    ///
    /// The reason why it is somebody else's.
    pub(super) fn check(self, named: u32, own: u32, status: &[u8]) -> Result<(), Impostor> {
        if self.pid == 0 {
            return Err(Impostor::Unseen);
        }
        if self.pid != named && !numbers(status).any(|number| number == named) {
            return Err(Impostor::Process(self));
        }
        // Process ids are used again. Root, whom everybody's processes answer, therefore also
        // compares the users.
        if self.user == own || (own == 0 && user(status) == Some(self.user)) {
            return Ok(());
        }
        Err(Impostor::User(self))
    }
}

/// Returns the kernel's status of a process; empty if there is no such process.
pub(super) fn status(pid: u32) -> Vec<u8> {
    fs::read(format!("/proc/{pid}/status")).unwrap_or_default()
}

/// Returns the process ids of a process: in the reader's pid namespace, then in those below, down
/// to its own. From `/proc/PID/status`.
pub(super) fn numbers(status: &[u8]) -> impl Iterator<Item = u32> {
    field(status, "NSpid:").unwrap_or_default().split_ascii_whitespace().filter_map(|word| word.parse().ok())
}

/// Returns the effective user.
fn user(status: &[u8]) -> Option<u32> {
    field(status, "Uid:")?.split_ascii_whitespace().nth(1)?.parse().ok()
}

fn field<'s>(status: &'s [u8], name: &str) -> Option<&'s str> {
    // A process's name, in the first line, has its line breaks escaped.
    let line = status.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(name.as_bytes()))?;
    std::str::from_utf8(line).ok()
}

impl fmt::Display for Impostor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Impostor::Unseen => out.write_str("the socket of its name is of a process in another pid namespace"),
            Impostor::Process(Peer { pid, user }) => {
                write!(out, "the socket of its name is another process's: {pid}, of user {user}")
            }
            Impostor::User(Peer { user, .. }) => write!(out, "the socket of its name is another user's: {user}"),
        }
    }
}

impl Error for Impostor {}

impl From<Impostor> for io::Error {
    fn from(impostor: Impostor) -> io::Error {
        io::Error::new(io::ErrorKind::PermissionDenied, impostor)
    }
}

/// True if the error is an [`Impostor`].
pub fn is_impostor(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Impostor>())
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &[u8] = b"Name:\ta\\nNSpid:\t9\nUid:\t1000\t1001\t1001\t1001\nNSpid:\t120\t7\nThreads:\t1\n";

    #[test]
    fn the_peer_is_the_process_in_the_name() {
        let peer = |pid, user| Peer { pid, user };
        assert_eq!(peer(120, 1001).check(120, 1001, STATUS), Ok(()));
        assert_eq!(peer(120, 1001).check(120, 1001, b""), Ok(()), "nothing needs to be looked up");
        assert_eq!(peer(120, 1001).check(7, 1001, STATUS), Ok(()), "its number where it lives");
        assert_eq!(peer(120, 1001).check(9, 1001, STATUS), Err(Impostor::Process(peer(120, 1001))));
        assert_eq!(peer(0, 1001).check(120, 1001, STATUS), Err(Impostor::Unseen));
        assert_eq!(peer(0, 1001).check(0, 1001, STATUS), Err(Impostor::Unseen));
    }

    #[test]
    fn the_peer_is_of_the_clients_user_or_for_root_of_the_processs() {
        let peer = |user| Peer { pid: 120, user };
        assert_eq!(peer(1002).check(120, 1001, STATUS), Err(Impostor::User(peer(1002))));
        assert_eq!(peer(1001).check(120, 0, STATUS), Ok(()));
        assert_eq!(peer(0).check(120, 0, STATUS), Ok(()), "it has listened before it became another user's");
        // The process id of one that has ended may now belong to another user's process, which does
        // not get an answer accepted.
        assert_eq!(peer(1002).check(120, 0, STATUS), Err(Impostor::User(peer(1002))));
        assert_eq!(peer(1002).check(120, 0, b""), Err(Impostor::User(peer(1002))));
    }
}
