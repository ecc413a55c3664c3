//! The request to a running process for its log, over the socket on which the process answers
//! requests for its reports. The answer is a line that says what follows ([`DmdAnswer`]), and the
//! contents.

use std::time::Duration;

use heapledger_report_format::ask::{RequestLine, refusal, refused};

use crate::log::Mode;

const WORD: &str = "heapledger-dmd";

/// A request to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmdRequest {
    /// The kind of log.
    pub mode: Mode,
    /// True if its reporters are to be asked first.
    pub report: bool,
    /// True to leave out private data.
    pub anonymous: bool,
    /// The time that each of its reporters may take.
    pub reporter_deadline: Duration,
    /// The time that all of them together may take.
    pub deadline: Duration,
}

impl DmdRequest {
    /// Returns the line for the request.
    pub fn to_line(self) -> String {
        let mode = format!("mode={}", self.mode.name());
        let deadlines = RequestLine::write_deadlines([self.reporter_deadline, self.deadline]);
        let DmdRequest { report, anonymous, .. } = self;
        RequestLine::write(WORD, &[(true, &mode), (report, "report"), (anonymous, "anonymous"), (true, &deadlines)])
    }

    /// Parses a line; words of newer versions are ignored. `None`: it is not a request.
    pub fn parse(line: &[u8]) -> Option<DmdRequest> {
        let line = RequestLine::parse(line, WORD)?;
        let [reporter_deadline, deadline] = line.deadlines()?;
        let mode = line.value("mode").map_or(Some(Mode::DarkMatter), Mode::from_name)?;
        let [report, anonymous] = ["report", "anonymous"].map(|word| line.has(word));
        Some(DmdRequest { mode, report, anonymous, reporter_deadline, deadline })
    }
}

/// The answer of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DmdAnswer<'a> {
    /// The log, as a file: compressed.
    Log(&'a [u8]),
    /// The program is recorded: its reporters have been asked, and their reports are in the
    /// recording.
    Recorded,
    /// It cannot do it, for this reason.
    Refused(&'a str),
}

const LOG: &[u8] = b"log\n";
const RECORDED: &[u8] = b"recorded\n";

impl<'a> DmdAnswer<'a> {
    /// Returns the bytes to send, in two parts.
    pub fn to_bytes(&self) -> (Vec<u8>, &'a [u8]) {
        match *self {
            DmdAnswer::Log(file) => (LOG.to_vec(), file),
            DmdAnswer::Recorded => (RECORDED.to_vec(), &[]),
            DmdAnswer::Refused(reason) => (refusal(reason).into_bytes(), &[]),
        }
    }

    /// Parses an answer. `None`: it is not an answer.
    pub fn parse(answer: &'a [u8]) -> Option<DmdAnswer<'a>> {
        if let Some(file) = answer.strip_prefix(LOG) {
            return Some(DmdAnswer::Log(file));
        }
        if answer == RECORDED {
            return Some(DmdAnswer::Recorded);
        }
        refused(answer).map(DmdAnswer::Refused)
    }
}

#[cfg(test)]
mod tests {
    use heapledger_report_format::ask::REQUEST_BYTES_MAX;

    use super::*;

    #[test]
    fn requests_are_read_as_written() {
        for mode in Mode::ALL {
            for bits in 0..4_u64 {
                let [reporter_deadline, deadline] = [bits, bits * 700].map(Duration::from_millis);
                let (report, anonymous) = (bits & 1 != 0, bits & 2 != 0);
                let request = DmdRequest { mode, report, anonymous, reporter_deadline, deadline };
                let line = request.to_line();
                assert!(line.len() < REQUEST_BYTES_MAX);
                assert_eq!(DmdRequest::parse(line.as_bytes()), Some(request));
                assert_eq!(DmdRequest::parse(line.trim_end().as_bytes()), None, "it is cut off");
            }
        }
        assert!(DmdRequest::parse(b"heapledger-dmd new=1 other report\n").unwrap().report);
        for line in [&b""[..], b"\n", b"heapledger-reports\n", b"heapledger-dmd mode=x\n", b"heapledger-dmd all=x\n"] {
            assert_eq!(DmdRequest::parse(line), None);
        }
    }

    #[test]
    fn answers_are_read_as_written() {
        for answer in [DmdAnswer::Log(b"\x1f\x8b\n"), DmdAnswer::Recorded, DmdAnswer::Refused("no ledger runs")] {
            let (mut bytes, file) = answer.to_bytes();
            bytes.extend_from_slice(file);
            assert_eq!(DmdAnswer::parse(&bytes), Some(answer));
        }
        let (bytes, _) = DmdAnswer::Refused("two\nlines").to_bytes();
        assert_eq!(DmdAnswer::parse(&bytes), Some(DmdAnswer::Refused("two lines")));
        for strange in [&b""[..], b"log", b"recorded", b"recorded\nx", b"refused ", b"\xff\n"] {
            assert_eq!(DmdAnswer::parse(strange), None);
        }
    }
}
