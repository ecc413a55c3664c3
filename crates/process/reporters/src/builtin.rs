//! Built-in reports for every process: figures of the kernel and of the allocator.

mod allocator;
mod heapledger;
mod ledger;
mod phc;
mod process;
mod statistics;
mod threads;

use heapledger_report_format::{Kind, Report, Unit};

use crate::report_options::ReportOptions;
pub use allocator::Figures;
pub use statistics::allocator_statistics;

/// Low-level first: what comes later disturbs it the least.
pub(crate) fn reports(options: &ReportOptions) -> Vec<Report> {
    let mut reports = Vec::new();
    process::report(&mut reports);
    allocator::report(&mut reports);
    ledger::report(&mut reports);
    threads::report(&mut reports, options.anonymous);
    reports
}

fn add(reports: &mut Vec<Report>, path: &str, unit: Unit, amount: u64, description: &str) {
    add_kind(reports, path, Kind::Other, unit, amount, description);
}

fn add_kind(reports: &mut Vec<Report>, path: &str, kind: Kind, unit: Unit, amount: u64, description: &str) {
    reports.push(Report {
        process: "".into(),
        path: path.into(),
        stable_path: None,
        kind,
        unit,
        amount: i64::try_from(amount).unwrap_or(i64::MAX),
        description: description.into(),
    });
}
