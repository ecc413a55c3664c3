//! The ledger of this process as others see and steer it.

use std::time::Duration;

use heapledger_core::Bytes;
use heapledger_inspect::{Ledger, Options, StartError};
use heapledger_reports::request::ledger::{Answer, Request, State};
use heapledger_resident::control;
use heapledger_resident::overhead::age_of_ledger;

/// Does what is asked, and says how the ledger is then.
pub(crate) fn answer(request: Request) -> Answer {
    let done = match request {
        Request::State => Ok(()),
        Request::Sample(every) => sample(Some(Bytes(every))),
        Request::Exact => sample(None),
        Request::Stop => {
            Ledger::get().stop();
            Ok(())
        }
    };
    match done {
        Ok(()) => Answer::State(state()),
        Err(reason) => Answer::Refused(reason),
    }
}

fn sample(every: Option<Bytes>) -> Result<(), String> {
    let ledger = Ledger::get();
    if !ledger.is_running() {
        let options = Options { sample_every: every, ..Options::SAMPLED };
        match Ledger::start(options) {
            Ok(_) => return Ok(()),
            // The program itself, just now.
            Err(StartError::Running) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    // A ledger that has every block would no longer have them all.
    if every.is_some() && !control::is_sample() {
        return Err("its ledger has all blocks".to_owned());
    }
    ledger.set_sampling(every);
    Ok(())
}

fn state() -> State {
    let ledger = Ledger::get();
    let totals = ledger.totals();
    State {
        is_on: ledger.is_running(),
        sample_every: ledger.sampling().map(|mean| mean.0),
        age: Duration::from_nanos(age_of_ledger()),
        allocations: totals.allocations.0,
        bytes_live: totals.bytes_live.0,
        overhead: ledger.overhead().bytes().0,
    }
}
