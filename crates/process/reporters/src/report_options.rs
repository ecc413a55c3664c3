//! The options of a collection of reports.

use std::time::Duration;

/// The options of a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportOptions {
    /// Leave out what reporters have declared [private](crate::private).
    pub anonymous: bool,
    /// Mark measured blocks in the ledger, if one runs, each under the name of its reporter.
    /// Earlier marks are cleared, except kept ones. Then `Ledger::reported` returns the amounts
    /// that are unreported, and those that are reported twice.
    pub mark: bool,
    /// Ask the descendants of this process that [listen](crate::listen), too.
    pub children: bool,
    /// The time that each reporter may take.
    pub reporter_deadline: Duration,
    /// The time that the whole collection may take.
    pub deadline: Duration,
}

impl Default for ReportOptions {
    /// Nothing is left out, marked, or asked of others; 5 seconds for a reporter, 30 for all.
    fn default() -> ReportOptions {
        ReportOptions {
            anonymous: false,
            mark: false,
            children: false,
            reporter_deadline: Duration::from_secs(5),
            deadline: Duration::from_secs(30),
        }
    }
}
