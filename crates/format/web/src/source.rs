//! The source of measurements.

use heapledger_dmd::Log;
use heapledger_report_format::Reports;

/// The subject of the page: a running program, or only files.
///
/// The functions are called one at a time, and may take as long as they need: only the page waits.
pub trait Source: Send + Sync {
    /// Returns the name of the subject, such as `redis (pid 12)`.
    fn title(&self) -> String;

    /// Returns what can be asked of the source.
    fn capabilities(&self) -> Capabilities;

    /// Makes all reports, now.
    ///
    /// # Errors
    ///
    /// Fails with the reason, as a sentence.
    fn measure(&self, measure_options: MeasureOptions) -> Result<Reports, String>;

    /// Returns the log of the dark matter detector, now: which blocks are reported, by which
    /// reporters, and which are not. By default there is none.
    ///
    /// # Errors
    ///
    /// Fails with the reason, as a sentence.
    fn dark_matter(&self, measure_options: MeasureOptions) -> Result<Log, String> {
        let MeasureOptions { anonymous: _ } = measure_options;
        Err("there is no heap here to be looked at".to_owned())
    }

    /// Has the program give back the memory that it can spare.
    ///
    /// # Errors
    ///
    /// Fails with the reason, as a sentence.
    fn minimise(&self) -> Result<(), String>;

    /// Returns the allocator's own statistics, as text.
    ///
    /// # Errors
    ///
    /// Fails with the reason, as a sentence.
    fn allocator(&self) -> Result<String, String>;

    /// Returns the time for dating a measurement, in milliseconds since 1970.
    fn now(&self) -> u64;
}

/// The requests that a [`Source`] supports; the page has no buttons for others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// True if there is a program to measure.
    pub measure: bool,
    /// True if its heap can be looked at, block by block.
    pub dark_matter: bool,
    /// True if it can be asked to give back memory.
    pub minimise: bool,
    /// True if its allocator has statistics.
    pub allocator: bool,
}

/// The options of a measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeasureOptions {
    /// True to leave out private data.
    pub anonymous: bool,
}

/// A source without a program, for loaded files. The title is the page's title.
#[derive(Clone, Debug)]
pub struct Files(pub String);

impl Source for Files {
    fn title(&self) -> String {
        self.0.clone()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    fn measure(&self, _: MeasureOptions) -> Result<Reports, String> {
        Err("there is no program here to be measured".to_owned())
    }

    fn minimise(&self) -> Result<(), String> {
        Err("there is no program here whose memory could be minimised".to_owned())
    }

    fn allocator(&self) -> Result<String, String> {
        Err("there is no program here with an allocator".to_owned())
    }

    fn now(&self) -> u64 {
        0
    }
}
