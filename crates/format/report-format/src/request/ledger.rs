//! The request that controls the ledger of a running process, over the socket on which the process
//! answers requests for its reports. The answer is a line, [`LedgerAnswer`].

use std::time::Duration;

use crate::ask::{RequestLine, refusal, refused};

const WORD: &str = "heapledger-ledger";

/// A request to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LedgerRequest {
    /// Only ask for the state.
    State,
    /// Sample one point per this many bytes from now on, if the ledger samples; start a ledger if
    /// none runs.
    Sample(u64),
    /// Record all blocks from now on; start a ledger if none runs.
    Exact,
    /// Stop the ledger: the program's calls go straight to its allocator.
    Stop,
}

impl LedgerRequest {
    /// Returns the line for the request.
    pub fn to_line(self) -> String {
        let word = match self {
            LedgerRequest::State => "state",
            LedgerRequest::Sample(every) => &format!("sample={every}"),
            LedgerRequest::Exact => "exact",
            LedgerRequest::Stop => "stop",
        };
        RequestLine::write(WORD, &[(true, word)])
    }

    /// Parses a line; words of newer versions are ignored. `None`: it is not a request.
    pub fn parse(line: &[u8]) -> Option<LedgerRequest> {
        let line = RequestLine::parse(line, WORD)?;
        if let Some(every) = line.value("sample") {
            return every.parse().ok().filter(|&every| every > 0).map(LedgerRequest::Sample);
        }
        let requests =
            [("state", LedgerRequest::State), ("exact", LedgerRequest::Exact), ("stop", LedgerRequest::Stop)];
        requests.into_iter().find(|(word, _)| line.has(word)).map(|(_, request)| request)
    }
}

/// The state of a process's ledger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LedgerState {
    /// True if it runs.
    pub is_on: bool,
    /// The mean distance of sample points, in bytes; `None`: all blocks are recorded.
    pub sample_every: Option<u64>,
    /// The time since it was started.
    pub age: Duration,
    /// The number of blocks allocated since then: an estimate, if it samples.
    pub allocations: u64,
    /// The live bytes of these blocks: an estimate, if it samples.
    pub bytes_live: u64,
    /// The memory of the ledger itself, in bytes.
    pub overhead: u64,
}

/// The answer of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LedgerAnswer {
    /// The present state of its ledger.
    State(LedgerState),
    /// It cannot do it, for this reason.
    Refused(String),
}

impl LedgerAnswer {
    /// Returns the line for the answer.
    pub fn to_line(&self) -> String {
        match self {
            LedgerAnswer::State(state) => {
                let every = state.sample_every.map_or(String::new(), |every| format!(" every={every}"));
                let is_on = if state.is_on { " on" } else { "" };
                let (age, allocations) = (state.age.as_millis(), state.allocations);
                let (live, overhead) = (state.bytes_live, state.overhead);
                format!("{WORD}{is_on}{every} age={age} allocations={allocations} live={live} overhead={overhead}\n")
            }
            LedgerAnswer::Refused(reason) => refusal(reason),
        }
    }

    /// Parses an answer; words of newer versions are ignored. `None`: it is not an answer.
    pub fn parse(answer: &[u8]) -> Option<LedgerAnswer> {
        let Some(line) = RequestLine::parse(answer, WORD) else {
            return refused(answer).map(|reason| LedgerAnswer::Refused(reason.to_owned()));
        };
        let number = |word| line.value(word)?.parse().ok();
        Some(LedgerAnswer::State(LedgerState {
            is_on: line.has("on"),
            sample_every: number("every"),
            age: Duration::from_millis(number("age")?),
            allocations: number("allocations")?,
            bytes_live: number("live")?,
            overhead: number("overhead")?,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_as_written() {
        for request in [
            LedgerRequest::State,
            LedgerRequest::Sample(1),
            LedgerRequest::Sample(u64::MAX),
            LedgerRequest::Exact,
            LedgerRequest::Stop,
        ] {
            assert_eq!(LedgerRequest::parse(request.to_line().as_bytes()), Some(request));
        }
        assert_eq!(LedgerRequest::parse(b"heapledger-ledger new stop\n"), Some(LedgerRequest::Stop));
        for line in [
            "",
            "\n",
            "heapledger-ledger",
            "heapledger-ledger new\n",
            "heapledger-ledger sample=0\n",
            "heapledger-dmd\n",
        ] {
            assert_eq!(LedgerRequest::parse(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn answers_are_read_as_written() {
        let all = LedgerState {
            is_on: true,
            sample_every: Some(512 << 10),
            age: Duration::from_secs(9),
            allocations: u64::MAX,
            bytes_live: 7,
            overhead: u64::MAX - 1,
        };
        for answer in [
            LedgerAnswer::State(all),
            LedgerAnswer::State(LedgerState::default()),
            LedgerAnswer::Refused("no memory".to_owned()),
        ] {
            let line = answer.to_line();
            assert!(line.len() < crate::ask::REQUEST_BYTES_MAX);
            assert_eq!(LedgerAnswer::parse(line.as_bytes()), Some(answer));
        }
        assert_eq!(LedgerAnswer::Refused("two\nlines".into()).to_line(), "refused two lines\n");
        for strange in ["", "refused", "heapledger-ledger on\n", "heapledger-ledger age=x\n"] {
            assert_eq!(LedgerAnswer::parse(strange.as_bytes()), None, "{strange}");
        }
    }
}
