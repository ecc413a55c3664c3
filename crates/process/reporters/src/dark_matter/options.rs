//! The options of a log.

use std::time::Duration;

use heapledger_core::Bytes;
use heapledger_dmd::Mode;

use crate::report_options::ReportOptions;

/// The options of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DarkMatterOptions {
    /// The blocks in the log, and the data about each.
    pub mode: Mode,
    /// Ask all reporters first, instead of what has been reported before. Only for
    /// [`Mode::DarkMatter`].
    pub report: bool,
    /// Tell reporters to leave out what is private: their own names may be. Contents of blocks are
    /// left out.
    pub anonymous: bool,
    /// The time that each reporter may take.
    pub reporter_deadline: Duration,
    /// The time that all reporters together may take.
    pub deadline: Duration,
    /// The number of bytes of contents that are copied, at most. Only for [`Mode::Scan`], with
    /// which all threads that allocate or free wait for the copy: a second for some gigabytes.
    pub contents_max: Bytes,
}

impl Default for DarkMatterOptions {
    /// Dark matter, after all reporters have been asked: 5 seconds for each, 30 for all. Contents
    /// of a gigabyte.
    fn default() -> DarkMatterOptions {
        let ReportOptions { reporter_deadline, deadline, .. } = ReportOptions::default();
        let (mode, contents_max) = (Mode::DarkMatter, Bytes(1 << 30));
        DarkMatterOptions { mode, report: true, anonymous: false, reporter_deadline, deadline, contents_max }
    }
}
