//! The request to a running process for its dump, over the socket on which the process answers
//! requests for its reports. The answer is a [`ProcessDump`](super::ProcessDump).

use std::time::Duration;

use heapledger_report_format::ask::RequestLine;

use super::guid::Guid;
use super::process::{Kind, Level};

/// The first word of a request.
pub const WORD: &str = "heapledger-dump";

/// A request to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DumpRequest {
    /// The number of the dump, the same for all processes.
    pub guid: Guid,
    /// The level of detail.
    pub level: Level,
    /// The reason for the dump.
    pub kind: Kind,
    /// The time that each provider may take.
    pub provider_deadline: Duration,
    /// The time that all of them together may take.
    pub deadline: Duration,
}

impl DumpRequest {
    /// Returns the line for the request.
    pub fn to_line(self) -> String {
        let guid = format!("id={}", self.guid);
        let (level, kind) = (format!("level={}", self.level.name()), format!("kind={}", self.kind.name()));
        let deadlines = RequestLine::write_deadlines([self.provider_deadline, self.deadline]);
        RequestLine::write(WORD, &[(true, &guid), (true, &level), (true, &kind), (true, &deadlines)])
    }

    /// Parses a line; words of newer versions are ignored. `None`: it is not a request.
    pub fn parse(line: &[u8]) -> Option<DumpRequest> {
        let line = RequestLine::parse(line, WORD)?;
        let [provider_deadline, deadline] = line.deadlines()?;
        let guid = Guid(u64::from_str_radix(line.value("id")?, 16).ok()?);
        let level = line.value("level").map_or(Some(Level::default()), Level::from_name)?;
        let kind = line.value("kind").map_or(Some(Kind::default()), Kind::from_name)?;
        Some(DumpRequest { guid, level, kind, provider_deadline, deadline })
    }
}

#[cfg(test)]
mod tests {
    use heapledger_report_format::ask::REQUEST_BYTES_MAX;

    use super::*;

    #[test]
    fn requests_are_read_as_written() {
        for level in Level::ALL {
            for kind in Kind::ALL {
                let [provider_deadline, deadline] = [1, 700].map(Duration::from_millis);
                let request = DumpRequest { guid: Guid(u64::MAX), level, kind, provider_deadline, deadline };
                let line = request.to_line();
                assert!(line.len() < REQUEST_BYTES_MAX);
                assert_eq!(DumpRequest::parse(line.as_bytes()), Some(request));
                assert_eq!(DumpRequest::parse(line.trim_end().as_bytes()), None, "it is cut off");
            }
        }
        let other = DumpRequest::parse(b"heapledger-dump new=1 id=7 other\n").unwrap();
        assert_eq!((other.guid, other.level, other.kind), (Guid(7), Level::Light, Kind::Explicit));
        for line in [&b""[..], b"heapledger-dump\n", b"heapledger-dump id=x\n", b"heapledger-dump id=1 level=x\n"] {
            assert_eq!(DumpRequest::parse(line), None);
        }
    }
}
