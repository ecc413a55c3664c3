//! The page in a browser.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use crate::args::SymbolFiles;

/// Look at files in a browser
///
/// Serves a page about recordings, and about all other files that verbs read, to
/// this machine alone, and opens it in the browser, until Ctrl-C. Several files can
/// be compared. The page asks the verbs: its figures are those of `--json`.
///
///     $ heapledger open                  the newest heapledger.*.hl here
///     $ heapledger open before.hl after.hl
///     $ heapledger open dmd-4711.json.gz memory-report.json.gz
///     $ heapledger open --no-browser server.hl
///     $ heapledger open server.hl --save server.html
///
/// With --save it writes the page with its answers to one file, which needs no
/// server and no network, and can be attached to an issue.
///
/// The address has a secret: everybody on this machine who knows it can see the
/// page. Through an SSH tunnel it can be seen from elsewhere:
/// `ssh -L 8080:127.0.0.1:8080 HOST heapledger open --no-browser --port 8080 FILE`.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Open {
    /// The files: recordings, other tools' profiles and logs, heap snapshots, memory reports,
    /// logs of the dark matter detector [default: the newest heapledger.*.hl here]
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) files: Vec<PathBuf>,

    /// Print the address, and open no browser
    #[arg(long)]
    pub(crate) no_browser: bool,

    /// The port to listen at on 127.0.0.1 [default: any free one]
    #[arg(long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
    pub(crate) port: u16,

    /// Write the page with its answers to one HTML file, and serve nothing; - for stdout
    ///
    /// It has the answers that the views ask for at first, about the peak, the end and all
    /// allocations, in at most 10 MB. Other questions are left to the recording.
    #[arg(long, value_name = "HTML", value_hint = ValueHint::FilePath, help_heading = "Output")]
    #[arg(conflicts_with_all = ["no_browser", "port", "json"])]
    pub(crate) save: Option<PathBuf>,

    /// Replace the saved file if it is there
    #[arg(short, long, requires = "save", help_heading = "Output")]
    pub(crate) force: bool,

    /// Print the address, the files and their verbs as JSON before serving
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) symbols: SymbolFiles,
}
