//! Programs with a ledger of their own, which answer: no recorder has a part in it.

use std::slice;
use std::time::Duration;

use heapledger_collect::peer;
use heapledger_core::Bytes;
use heapledger_core::sample::Rate;
use heapledger_reports::request::SOCKET_PREFIX;
use heapledger_reports::request::ledger::{Answer, Request, State};
use rustix::net::SocketType;

use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::process;

/// How long one may be silent where all are asked.
const PATIENCE: Duration = Duration::from_secs(2);
const ANSWER_BYTES_MAX: usize = 1 << 10;
/// The rate at which one begins to sample if nobody says another.
const MEAN: u64 = 512 << 10;

/// One of them, as it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Linked {
    pub(super) process: u32,
    pub(super) state: State,
}

impl Linked {
    /// All that answer this user.
    pub(super) fn all() -> Vec<Linked> {
        let mut all: Vec<Linked> = peer::listed(SOCKET_PREFIX)
            .unwrap_or_default()
            .iter()
            .filter_map(|listed| {
                let connected = peer::connect(slice::from_ref(listed), None, SocketType::STREAM, PATIENCE).ok()?;
                let answer = process::exchange(&connected, &Request::State.to_line(), ANSWER_BYTES_MAX).ok()?;
                match Answer::parse(&answer)? {
                    Answer::State(state) => Some(Linked { process: connected.pid, state }),
                    Answer::Refused(_) => None,
                }
            })
            .collect();
        all.sort_by_key(|one| one.process);
        all
    }

    /// The process with this number, if it is one that can be asked, as it is now.
    pub(super) fn find(target: &str) -> Option<Linked> {
        let process = target.parse().ok()?;
        let is_there = !peer::listed_of(SOCKET_PREFIX, process).ok()?.is_empty();
        let state = is_there.then(|| ask(process, Request::State).ok())??;
        Some(Linked { process, state })
    }

    /// Has it sample at a rate, or record all blocks; starts its ledger if there is none.
    pub(super) fn sample(self, rate: Rate) -> Result<Linked> {
        let request = rate.mean().map_or(Request::Exact, |Bytes(mean)| Request::Sample(mean));
        self.steered(request)
    }

    /// Starts its ledger, if it does not run.
    pub(super) fn start(self) -> Result<Linked> {
        if self.state.is_on { Ok(self) } else { self.steered(Request::Sample(MEAN)) }
    }

    /// Stops its ledger.
    pub(super) fn stop(self) -> Result<Linked> {
        self.steered(Request::Stop)
    }

    fn steered(self, request: Request) -> Result<Linked> {
        Ok(Linked { state: ask(self.process, request)?, ..self })
    }
}

fn ask(process: u32, request: Request) -> Result<State> {
    let answer = process::ask(process, &request.to_line(), "the ledger", ANSWER_BYTES_MAX)?.unwrap_or_default();
    match Answer::parse(&answer) {
        Some(Answer::State(state)) => Ok(state),
        Some(Answer::Refused(reason)) => Err(Failure::caused(
            Exit::Usage,
            format_args!("the ledger of process {process} stays as it is"),
            Reason(reason),
        )),
        None => Err(Failure::new(Exit::Unreadable, format_args!("process {process} does not say how its ledger is"))
            .hint("it may be of an older version of Heapledger")),
    }
}

/// Why a process refuses, in its own words.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Reason(String);
