//! The protocol that asks a running process for its reports, over a Unix socket with an abstract
//! name.
//!
//! The client connects, writes one line ([`ReportsRequest::to_line`]), and reads a report file
//! until the end. Both sides first ask the kernel for the identity of the other: the program checks
//! the client's user, the client also the process ([`peer`]).

pub mod ledger;
pub mod peer;

use std::fmt::Write;
use std::time::Duration;

/// The prefix of the names of sockets; the process id, a dot, and random digits follow.
pub const SOCKET_PREFIX: &str = "heapledger-reports.";
/// The length of the longest request, in bytes.
pub const REQUEST_BYTES_MAX: usize = 256;

const WORD: &str = "heapledger-reports";

/// A request to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportsRequest {
    /// True to leave out private data.
    pub anonymous: bool,
    /// True if measured blocks are to be marked in the ledger.
    pub mark: bool,
    /// True to include the reports of descendants that can be asked.
    pub children: bool,
    /// The time that each of its reporters may take.
    pub reporter_deadline: Duration,
    /// The time that the process may take to collect all reports.
    pub deadline: Duration,
}

impl ReportsRequest {
    /// Returns the line for the request.
    pub fn to_line(self) -> String {
        let flags = [(self.anonymous, "anonymous"), (self.mark, "mark"), (self.children, "children")];
        RequestLine::write(WORD, &flags, [self.reporter_deadline, self.deadline])
    }

    /// Parses a line; words of newer versions are ignored. `None`: it is not a request.
    pub fn parse(line: &[u8]) -> Option<ReportsRequest> {
        let line = RequestLine::parse(line, WORD)?;
        let [reporter_deadline, deadline] = line.deadlines()?;
        let [anonymous, mark, children] = ["anonymous", "mark", "children"].map(|word| line.has(word));
        Some(ReportsRequest { anonymous, mark, children, reporter_deadline, deadline })
    }
}

/// The line of any request: words, and words with values, separated by spaces, and a newline at the
/// end.
#[derive(Clone, Copy, Debug)]
pub struct RequestLine<'line>(&'line str);

impl<'line> RequestLine<'line> {
    /// Returns a line that begins with `first`, with those of the words that are set, and with the
    /// times that each reporter, and all of them, may take.
    pub fn write(first: &str, words: &[(bool, &str)], [each, all]: [Duration; 2]) -> String {
        let mut line = first.to_owned();
        for (_, word) in words.iter().filter(|(is_set, _)| *is_set) {
            line.push(' ');
            line.push_str(word);
        }
        // Writing to a string cannot fail.
        let _ = writeln!(line, " each={} all={}", each.as_millis(), all.as_millis());
        line
    }

    /// Parses a line whose first word is `first`. `None`: it has another one, or is cut off.
    pub fn parse(line: &'line [u8], first: &str) -> Option<RequestLine<'line>> {
        let line = std::str::from_utf8(line.get(..REQUEST_BYTES_MAX).unwrap_or(line)).ok()?.strip_suffix('\n')?;
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        (word == first).then_some(RequestLine(rest))
    }

    /// True if the line has this word.
    pub fn has(self, word: &str) -> bool {
        self.0.split(' ').any(|one| one == word)
    }

    /// Returns the value of this word.
    pub fn value(self, word: &str) -> Option<&'line str> {
        self.0.split(' ').find_map(|one| one.strip_prefix(word)?.strip_prefix('='))
    }

    /// Returns the times that each reporter, and all of them, may take: 0 if the line does not say.
    /// `None`: a value is not a number.
    pub fn deadlines(self) -> Option<[Duration; 2]> {
        let milliseconds = |word| self.value(word).map_or(Some(0), |number| number.parse().ok());
        Some([milliseconds("each")?, milliseconds("all")?].map(Duration::from_millis))
    }
}

const REFUSED: &str = "refused ";

/// Returns the line of a process that cannot do what it is asked, for this reason.
pub fn refusal(reason: &str) -> String {
    format!("{REFUSED}{}\n", reason.replace('\n', " "))
}

/// Returns the reason in such a line. `None`: it is not a refusal.
pub fn refused(answer: &[u8]) -> Option<&str> {
    std::str::from_utf8(answer).ok()?.strip_suffix('\n')?.strip_prefix(REFUSED)
}

/// Returns the sockets whose names are this prefix, a process id, a dot, and more: the ids and the
/// names, from the lines of `/proc/net/unix`. Every user can take every name: see [`peer`].
pub fn sockets(prefix: &str, net_unix: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let mut found: Vec<(u32, Vec<u8>)> = Vec::new();
    for line in net_unix.split(|&byte| byte == b'\n') {
        let Some(at) = line.iter().position(|&byte| byte == b'@') else { continue };
        let name = &line[at + 1..];
        let pid = || {
            let rest = std::str::from_utf8(name).ok()?.strip_prefix(prefix)?;
            rest.split_once('.')?.0.parse().ok()
        };
        // A connection has the same name as the listening socket.
        if let Some(pid) = pid()
            && !found.iter().any(|(_, other)| other == name)
        {
            found.push((pid, name.to_vec()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_as_written() {
        for bits in 0..8_u64 {
            let [reporter_deadline, deadline] = [bits, bits * 700].map(Duration::from_millis);
            let (anonymous, mark, children) = (bits & 1 != 0, bits & 2 != 0, bits & 4 != 0);
            let request = ReportsRequest { anonymous, mark, children, reporter_deadline, deadline };
            let line = request.to_line();
            assert!(line.len() < REQUEST_BYTES_MAX);
            assert_eq!(ReportsRequest::parse(line.as_bytes()), Some(request));
            assert_eq!(ReportsRequest::parse(line.trim_end().as_bytes()), None, "it is cut off");
        }
        assert!(ReportsRequest::parse(b"heapledger-reports new=1 other anonymous\n").unwrap().anonymous);
        for line in [&b""[..], b"\n", b"GET / HTTP/1.1\n", b"heapledger-reports all=x\n", b"\xff\n"] {
            assert_eq!(ReportsRequest::parse(line), None);
        }
    }

    #[test]
    fn sockets_are_found_by_name() {
        let text = b"Num RefCount Protocol Flags Type St Inode Path\n\
            0: 00000002 00000000 00010000 0001 01 123 @heapledger-reports.17.abc\n\
            0: 00000003 00000000 00000000 0001 03 124 @heapledger-reports.17.abc\n\
            0: 00000003 00000000 00000000 0001 03 124 /run/@heapledger-reports\n\
            0: 00000002 00000000 00010000 0001 01 125 @heapledger-reports.x.abc\n\
            0: 00000002 00000000 00010000 0001 01 126 @heapledger-control.9.abc\n\
            0: 00000002 00000000 00010000 0001 01 127 @heapledger-reports.18.d@e\n";
        let found = sockets(SOCKET_PREFIX, text);
        let expected = [(17, b"heapledger-reports.17.abc".to_vec()), (18, b"heapledger-reports.18.d@e".to_vec())];
        assert_eq!(found, expected);
    }
}
