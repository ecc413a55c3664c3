//! `heapledger live`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::common::Symbols;
use crate::args::values::number;
use crate::args::{By, Rows};

/// Watch a program while it runs: what is live, where from, and how fast it grows
///
///     $ heapledger live -- ./server --port 8080
///     $ heapledger live 4711                      one that is being recorded
///     $ heapledger live 4711 --json --once | jq .bytes_live
///     $ heapledger live -o server.hl --by type -- ./server
///
/// Shows a table in the terminal: arrows select, Enter goes into a row (to its
/// callers), Backspace back; s sorts, / filters, g groups, m marks the moment from
/// which growth counts, p pauses the picture, ? lists all keys, q ends.
///
/// With a COMMAND, records it. The file is removed at the end, unless -o names it;
/// what the program writes to the terminal is shown afterwards, and it gets no
/// input. q asks whether to end the program, or to leave it running unrecorded.
/// A PID is that of a program which `heapledger record` or `heapledger attach`
/// records, or of the recorder: the recording goes on when you leave.
///
/// With --json, prints a line a second until the program ends. The recorded program
/// pays nothing for being watched. See docs/live.md.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Live {
    /// A process that is being recorded [default: the only one]
    #[arg(value_name = "PID", conflicts_with = "command")]
    pub(crate) target: Option<String>,

    /// Show a table in the terminal (the default, unless --json)
    #[arg(long, conflicts_with_all = ["json", "once"], help_heading = "Output")]
    pub(crate) terminal: bool,

    /// Print a line of JSON each second
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,

    /// Print JSON once, and end. A COMMAND runs to its end
    #[arg(long, requires = "json", help_heading = "Output")]
    pub(crate) once: bool,

    /// The property by which blocks are summed up in rows
    #[arg(long, value_name = "WHAT", default_value = "function", value_parser = by(), help_heading = "What to show")]
    pub(crate) by: By,

    /// The most rows in a line of JSON; 0 for all
    #[arg(short = 'n', long = "rows", value_name = "N", default_value_t = 20, value_parser = number)]
    pub(crate) rows: usize,

    /// The recording to write with a COMMAND [default: none is kept]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "command")]
    #[arg(help_heading = "Output")]
    pub(crate) output: Option<PathBuf>,

    /// Replace the file if it is there
    #[arg(short, long, requires = "output", help_heading = "Output")]
    pub(crate) force: bool,

    #[command(flatten)]
    pub(crate) symbols: Symbols,

    /// A program to record, and its arguments
    #[arg(last = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// Returns the parser of `--by`: the breakdowns that need no events.
fn by() -> impl clap::builder::TypedValueParser<Value = By> {
    use clap::builder::TypedValueParser as _;
    clap::builder::EnumValueParser::<By>::new().try_map(|by| match by.rows() {
        Rows::Sites(..) => Ok(by),
        Rows::Events(_) => Err("it takes the events of a recording: heapledger top"),
    })
}
