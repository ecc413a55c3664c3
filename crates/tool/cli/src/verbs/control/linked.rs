//! Programs that answer requests about a ledger of their own, without a recorder.

use std::time::Duration;

use heapledger_collect::ask;
use heapledger_core::Bytes;
use heapledger_core::sample::Rate;
use heapledger_report_format::ask::ListedSocket;
use heapledger_report_format::request::SOCKET_PREFIX;
use heapledger_report_format::request::ledger::{LedgerAnswer, LedgerRequest, LedgerState};

use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::process;

/// The timeout for each program when all are asked.
const TIMEOUT: Duration = Duration::from_secs(2);
const ANSWER_BYTES_MAX: usize = 1 << 10;
/// The mean distance between sample points, in bytes, if the user sets no other.
const MEAN: u64 = 512 << 10;

/// A program with a ledger of its own, and the state of the ledger.
#[derive(Clone, Copy, Debug)]
pub(super) struct Linked {
    pub(super) process: u32,
    pub(super) state: LedgerState,
}

impl Linked {
    /// Returns all programs that answer this user.
    pub(super) fn all() -> Vec<Linked> {
        let mut all: Vec<Linked> = ListedSocket::all(SOCKET_PREFIX)
            .unwrap_or_default()
            .into_iter()
            .filter_map(|listed| {
                let line = LedgerRequest::State.to_line();
                let (process, answer) = ask::ask(vec![listed], None, &line, ANSWER_BYTES_MAX, TIMEOUT).ok()?;
                match LedgerAnswer::parse(&answer)? {
                    LedgerAnswer::State(state) => Some(Linked { process, state }),
                    LedgerAnswer::Refused(_) => None,
                }
            })
            .collect();
        all.sort_by_key(|one| one.process);
        all
    }

    /// Returns the process with this number and its state now, if it can be asked.
    pub(super) fn find(target: &str) -> Option<Linked> {
        let process = target.parse().ok()?;
        let is_there = !process::sockets_of(process).ok()?.is_empty();
        let state = is_there.then(|| ask(process, LedgerRequest::State).ok())??;
        Some(Linked { process, state })
    }

    /// Sets the sampling rate, or records all blocks; starts the ledger if there is none.
    pub(super) fn sample(self, rate: Rate) -> Result<Linked> {
        let request = rate.mean().map_or(LedgerRequest::Exact, |Bytes(mean)| LedgerRequest::Sample(mean));
        self.steered(request)
    }

    /// Starts the ledger, if it does not run.
    pub(super) fn start(self) -> Result<Linked> {
        if self.state.is_on { Ok(self) } else { self.steered(LedgerRequest::Sample(MEAN)) }
    }

    /// Stops the ledger.
    pub(super) fn stop(self) -> Result<Linked> {
        self.steered(LedgerRequest::Stop)
    }

    fn steered(self, request: LedgerRequest) -> Result<Linked> {
        Ok(Linked { state: ask(self.process, request)?, ..self })
    }
}

fn ask(process: u32, request: LedgerRequest) -> Result<LedgerState> {
    let answer = process::ask(process, &request.to_line(), "the ledger", ANSWER_BYTES_MAX)?.unwrap_or_default();
    match LedgerAnswer::parse(&answer) {
        Some(LedgerAnswer::State(state)) => Ok(state),
        Some(LedgerAnswer::Refused(reason)) => Err(Failure::caused(
            Exit::Usage,
            format_args!("the ledger of process {process} stays as it is"),
            Reason(reason),
        )),
        None => Err(Failure::new(Exit::Unreadable, format_args!("process {process} does not say how its ledger is"))
            .hint("it may be of an older version of Heapledger")),
    }
}

/// The reason why a process refuses, in its own words.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Reason(String);
