//! The same reports as metrics of OpenTelemetry.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use heapledger_report_format::{Kind, Report, Unit};
use opentelemetry::KeyValue;
use opentelemetry::metrics::Meter;

use crate::collect::collect;
use crate::report_options::ReportOptions;

/// Instruments that are read together are read of one collection, which is not older than this.
const FRESH: Duration = Duration::from_millis(500);

/// Offers the reports as metrics: whenever the meter's reader asks for them they are collected.
///
/// | instrument | is | unit |
/// |---|---|---|
/// | `memory.report` | gauge | `By` |
/// | `memory.report.items` | gauge | `{item}` |
/// | `memory.report.events` | counter | `{event}` |
/// | `memory.report.ratio` | gauge | `1` |
///
/// Attributes are `process`, `path` and `kind` (`heap`, `nonheap`, `other`). Parts of paths that
/// [change from run to run](crate::variable) are `NNN`, and amounts whose attributes are equal are
/// summed up, so that there are as many series as kinds of things. SDKs have a limit, often 2,000
/// for each instrument: what is beyond it is one series.
///
/// A reader waits for the collection: see [`ReportOptions`] for how long that may be.
pub fn observe(meter: &Meter, options: ReportOptions) {
    let source = Arc::new(Source { options, last: Mutex::default() });
    let of = |unit: Unit| {
        let source = Arc::clone(&source);
        move || source.amounts(unit)
    };
    let amounts = of(Unit::Bytes);
    meter
        .i64_observable_gauge("memory.report")
        .with_unit("By")
        .with_description("Memory, as a reporter of the program has measured it.")
        .with_callback(move |observer| amounts().iter().for_each(|(key, amount)| observer.observe(*amount, key)))
        .build();
    let amounts = of(Unit::Count);
    meter
        .i64_observable_gauge("memory.report.items")
        .with_unit("{item}")
        .with_description("How many of something there are.")
        .with_callback(move |observer| amounts().iter().for_each(|(key, amount)| observer.observe(*amount, key)))
        .build();
    let amounts = of(Unit::CountCumulative);
    meter
        .u64_observable_counter("memory.report.events")
        .with_unit("{event}")
        .with_description("How often something has happened.")
        .with_callback(move |observer| {
            amounts().iter().for_each(|(key, amount)| observer.observe(u64::try_from(*amount).unwrap_or(0), key));
        })
        .build();
    let amounts = of(Unit::Percentage);
    meter
        .f64_observable_gauge("memory.report.ratio")
        .with_unit("1")
        .with_description("A part of a whole, which is 1.")
        .with_callback(move |observer| {
            amounts().iter().for_each(|(key, amount)| observer.observe(*amount as f64 / 10_000.0, key));
        })
        .build();
}

struct Source {
    options: ReportOptions,
    last: Mutex<Option<(Instant, Arc<Vec<Report>>)>>,
}

impl Source {
    fn reports(&self) -> Arc<Vec<Report>> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((when, reports)) = &*last
            && when.elapsed() < FRESH
        {
            return Arc::clone(reports);
        }
        let reports = Arc::new(collect(&self.options).reports);
        *last = Some((Instant::now(), Arc::clone(&reports)));
        reports
    }

    fn amounts(&self, unit: Unit) -> Vec<([KeyValue; 3], i64)> {
        let reports = self.reports();
        let mut sums: BTreeMap<(&str, &str, &str), i64> = BTreeMap::new();
        for report in reports.iter().filter(|report| report.unit == unit) {
            let path = report.stable_path.as_ref().unwrap_or(&report.path);
            let kind = match report.kind {
                Kind::NonHeap => "nonheap",
                Kind::Heap => "heap",
                Kind::Other => "other",
            };
            let sum = sums.entry((&report.process, path, kind)).or_default();
            *sum = sum.saturating_add(report.amount);
        }
        let attributes = |(process, path, kind): (&str, &str, &'static str)| {
            [
                KeyValue::new("process", process.to_owned()),
                KeyValue::new("path", path.to_owned()),
                KeyValue::new("kind", kind),
            ]
        };
        sums.into_iter().map(|(key, sum)| (attributes(key), sum)).collect()
    }
}
