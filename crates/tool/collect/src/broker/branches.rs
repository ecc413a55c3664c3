//! Branches: connections that processes of other network namespaces keep, and their children
//! inherit. Each message on one brings a fresh connection of the process that has made it.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

/// The maximum number of branches. Those of ended processes do not count.
const BRANCHES_MAX: usize = 1024;

/// The branches of a session.
#[derive(Debug, Default)]
pub(super) struct Branches(Vec<OwnedFd>);

impl Branches {
    /// Keeps a connection. If there are too many, the process has none.
    pub(super) fn add(&mut self, connection: OwnedFd) {
        if self.0.len() < BRANCHES_MAX {
            self.0.push(connection);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.0.iter().map(AsFd::as_fd)
    }

    /// Returns the connections that have come by the branches for which `ready` is true, and
    /// forgets branches that nobody has any more.
    pub(super) fn take(&mut self, ready: &[bool]) -> Vec<OwnedFd> {
        let mut ready = ready.iter();
        let mut connections = Vec::new();
        self.0.retain(|branch| !ready.next().copied().unwrap_or(false) || receive(branch, &mut connections));
        connections
    }
}

/// Receives all connections that have come by a branch. Returns false at its end.
fn receive(branch: &OwnedFd, connections: &mut Vec<OwnedFd>) -> bool {
    loop {
        let mut byte = [0_u8; 1];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        match recvmsg(branch, &mut [IoSliceMut::new(&mut byte)], &mut control, flags) {
            Ok(message) if message.bytes == 0 => return false,
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN) => return true,
            Err(_) => return false,
        }
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                connections.extend(fds);
            }
        }
    }
}
