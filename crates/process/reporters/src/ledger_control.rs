//! Requests of other processes to control the ledger of this process.

use std::time::Duration;

use heapledger_core::Bytes;
use heapledger_inprocess::control;
use heapledger_inprocess::overhead::age_of_ledger;
use heapledger_query::{Ledger, LedgerOptions, StartError};
use heapledger_report_format::request::ledger::{LedgerAnswer, LedgerRequest, LedgerState};

/// Does what is asked, and says how the ledger is then.
pub(crate) fn answer(request: LedgerRequest) -> LedgerAnswer {
    let done = match request {
        LedgerRequest::State => Ok(()),
        LedgerRequest::Sample(every) => sample(Some(Bytes(every))),
        LedgerRequest::Exact => sample(None),
        LedgerRequest::Stop => {
            Ledger::get().stop();
            Ok(())
        }
    };
    match done {
        Ok(()) => LedgerAnswer::State(state()),
        Err(reason) => LedgerAnswer::Refused(reason),
    }
}

fn sample(every: Option<Bytes>) -> Result<(), String> {
    let ledger = Ledger::get();
    if !ledger.is_running() {
        let options = LedgerOptions { sample_every: every, ..LedgerOptions::SAMPLED };
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

fn state() -> LedgerState {
    let ledger = Ledger::get();
    let totals = ledger.totals();
    LedgerState {
        is_on: ledger.is_running(),
        sample_every: ledger.sampling().map(|mean| mean.0),
        age: Duration::from_nanos(age_of_ledger()),
        allocations: totals.allocations.0,
        bytes_live: totals.bytes_live.0,
        overhead: ledger.overhead().bytes().0,
    }
}
