//! The kernel's list of listening sockets.

use std::fs;
use std::io;

use super::peer::{numbers, status};

/// A listening socket: its name, and the process in the name. Every user can take every name, so
/// only connecting tells whose the socket is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedSocket {
    /// The pid in the process's own pid namespace.
    pub number: u32,
    /// The socket's abstract name.
    pub name: Vec<u8>,
}

impl ListedSocket {
    /// Returns the sockets of all processes whose names begin with this prefix.
    ///
    /// # Errors
    ///
    /// An error if the list cannot be read.
    pub fn all(prefix: &str) -> io::Result<Vec<ListedSocket>> {
        Ok(parse(prefix, &fs::read("/proc/net/unix")?))
    }

    /// Returns those of these sockets that may belong to a process, judging by their names.
    pub fn of(all: &[ListedSocket], pid: u32) -> Vec<ListedSocket> {
        let status = status(pid);
        let is_its = |number| number == pid || numbers(&status).any(|other| other == number);
        all.iter().filter(|listed| is_its(listed.number)).cloned().collect()
    }
}

/// Returns the sockets whose names are this prefix, a pid, a dot, and more, from the lines of
/// `/proc/net/unix`.
fn parse(prefix: &str, net_unix: &[u8]) -> Vec<ListedSocket> {
    let mut found: Vec<ListedSocket> = Vec::new();
    for line in net_unix.split(|&byte| byte == b'\n') {
        let Some(at) = line.iter().position(|&byte| byte == b'@') else { continue };
        let name = &line[at + 1..];
        let pid = || {
            let rest = std::str::from_utf8(name).ok()?.strip_prefix(prefix)?;
            rest.split_once('.')?.0.parse().ok()
        };
        // A connection has the same name as the listening socket.
        if let Some(number) = pid()
            && !found.iter().any(|other| other.name == name)
        {
            found.push(ListedSocket { number, name: name.to_vec() });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_found_by_name() {
        let text = b"Num RefCount Protocol Flags Type St Inode Path\n\
            0: 00000002 00000000 00010000 0001 01 123 @heapledger-reports.17.abc\n\
            0: 00000003 00000000 00000000 0001 03 124 @heapledger-reports.17.abc\n\
            0: 00000003 00000000 00000000 0001 03 124 /run/@heapledger-reports\n\
            0: 00000002 00000000 00010000 0001 01 125 @heapledger-reports.x.abc\n\
            0: 00000002 00000000 00010000 0001 01 126 @heapledger-control.9.abc\n\
            0: 00000002 00000000 00010000 0001 01 127 @heapledger-reports.18.d@e\n";
        let listed = |number, name: &[u8]| ListedSocket { number, name: name.to_vec() };
        let expected = [listed(17, b"heapledger-reports.17.abc"), listed(18, b"heapledger-reports.18.d@e")];
        assert_eq!(parse("heapledger-reports.", text), expected);
    }
}
