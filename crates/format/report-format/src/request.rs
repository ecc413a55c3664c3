//! The request to a running process for its reports, in the protocol of [`ask`](crate::ask). The
//! answer is a report file.

pub mod ledger;

use std::time::Duration;

use crate::ask::RequestLine;

/// The prefix of the names of the sockets on which processes answer requests for their reports,
/// ledgers, logs and dumps.
pub const SOCKET_PREFIX: &str = "heapledger-reports.";

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
        let deadlines = RequestLine::write_deadlines([self.reporter_deadline, self.deadline]);
        let ReportsRequest { anonymous, mark, children, .. } = self;
        RequestLine::write(
            WORD,
            &[(anonymous, "anonymous"), (mark, "mark"), (children, "children"), (true, &deadlines)],
        )
    }

    /// Parses a line; words of newer versions are ignored. `None`: it is not a request.
    pub fn parse(line: &[u8]) -> Option<ReportsRequest> {
        let line = RequestLine::parse(line, WORD)?;
        let [reporter_deadline, deadline] = line.deadlines()?;
        let [anonymous, mark, children] = ["anonymous", "mark", "children"].map(|word| line.has(word));
        Some(ReportsRequest { anonymous, mark, children, reporter_deadline, deadline })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ask::REQUEST_BYTES_MAX;

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
}
