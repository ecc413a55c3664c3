//! `heapledger log stats`: requests by their size.

use heapledger_alloc_log::{Requests, SizeClass};
use serde::Serialize;

use super::for_each_call;
use crate::args::StatsLog;
use crate::error::Result;
use crate::format::count;
use crate::json::document::{Document, Form};
use crate::output::Output;

pub(super) fn run(arguments: &StatsLog, out: &mut Output) -> Result<()> {
    let mut requests = Requests::default();
    for_each_call(&arguments.log, |call| {
        if let Some((line, _)) = call {
            requests.add(line);
        }
    })?;
    if arguments.json {
        return out.document(&LogStatsJson::new(&requests), Form::Json);
    }
    for class in SizeClass::ALL {
        let (number, percent) = (count(requests.count(class)), 100.0 * requests.share(class));
        out.line(format_args!("{:<5}: {number:>12} {percent:6.2}%", class.name()))?;
    }
    Ok(())
}

/// The document of `--json`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct LogStatsJson {
    /// The requests of all classes.
    requests: u64,
    /// The classes, smallest sizes first.
    rows: Vec<SizeClassJson>,
}

/// A class of requested sizes.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct SizeClassJson {
    /// Its name: `Small`, `Large` or `Huge`.
    class: &'static str,
    requests: u64,
    /// The part of all requests, from 0 to 1.
    share: f64,
}

impl LogStatsJson {
    fn new(requests: &Requests) -> LogStatsJson {
        let row = |class: SizeClass| SizeClassJson {
            class: class.name(),
            requests: requests.count(class),
            share: requests.share(class),
        };
        LogStatsJson { requests: requests.total(), rows: SizeClass::ALL.map(row).into() }
    }
}

impl Document for LogStatsJson {
    const SCHEMA: &'static str = "log-stats";
}
