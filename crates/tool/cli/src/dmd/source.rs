//! Where logs come from.

use std::fs::File;
use std::io::{self, Read};

use heapledger_dmd::Log;

use crate::error::{Failure, Result};
use crate::exit::Exit;

/// Where a log comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source<'a> {
    /// A file of version 5.
    File(&'a str),
    /// Such a file on standard input.
    Stdin,
}

impl<'a> Source<'a> {
    /// What a command line names.
    pub(super) fn of(text: &'a str) -> Source<'a> {
        match text {
            "-" => Source::Stdin,
            path => Source::File(path),
        }
    }

    /// The log; with each size of blocks as it is there if it is to be written again.
    pub(super) fn read(self, to_write: bool) -> Result<Log> {
        match self {
            Source::Stdin => parse("-", io::stdin().lock(), to_write),
            Source::File(path) => {
                let file = File::open(path).map_err(|error| {
                    Failure::caused(Exit::Unreadable, format_args!("cannot read `{path}`"), error)
                        .hint("`heapledger dmd --help` says what can be read")
                })?;
                parse(path, file, to_write)
            }
        }
    }
}

fn parse(name: &str, input: impl Read, to_write: bool) -> Result<Log> {
    let log = if to_write { Log::read(input) } else { Log::read_merged(input) };
    log.map_err(|error| {
        Failure::caused(Exit::Unreadable, format_args!("`{name}` is no log of the dark matter detector"), error)
            .hint("`heapledger dmd --help` says what can be read")
    })
}
