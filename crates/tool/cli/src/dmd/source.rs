//! Where logs come from.

use std::fs::File;
use std::io::{self, Read};
use std::time::Duration;

use heapledger_dmd::{Log, Mode};

use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::format::duration;
use crate::output::tell;
use crate::process::number;

use super::process::{self, Told};

/// Where a log comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source<'a> {
    /// A file of version 5.
    File(&'a str),
    /// Such a file on standard input.
    Stdin,
    /// A running process.
    Process(u32),
}

impl<'a> Source<'a> {
    /// What a command line names.
    pub(super) fn of(text: &'a str) -> Source<'a> {
        match (text, number(text)) {
            ("-", _) => Source::Stdin,
            (_, Some(pid)) => Source::Process(pid),
            (path, None) => Source::File(path),
        }
    }

    /// The log; of a process one of this mode.
    pub(super) fn read(self, mode: Mode, is_anonymous: bool) -> Result<Log> {
        match self {
            Source::Stdin => parse("-", io::stdin().lock()),
            Source::Process(pid) => of_process(pid, mode, is_anonymous),
            Source::File(path) => {
                let file = File::open(path).map_err(|error| {
                    Failure::caused(Exit::Unreadable, format_args!("cannot read `{path}`"), error)
                        .hint("`heapledger dmd --help` says what can be read")
                })?;
                parse(path, file)
            }
        }
    }
}

fn of_process(pid: u32, mode: Mode, is_anonymous: bool) -> Result<Log> {
    match process::ask(pid, mode, is_anonymous)? {
        Told::Log(file) => {
            let log = parse(&pid.to_string(), &file[..])?;
            let pause = duration(Duration::from_nanos(log.about.pause_ns));
            tell(format_args!("heapledger: process {pid} was held up for {pause}"));
            Ok(log)
        }
        Told::Recorded => Err(Failure::new(Exit::Unreadable, format_args!("process {pid} is recorded"))
            .hint("its reporters have been asked; when the recording is complete: heapledger dmd RECORDING")),
    }
}

fn parse(name: &str, input: impl Read) -> Result<Log> {
    Log::read(input).map_err(|error| {
        Failure::caused(Exit::Unreadable, format_args!("`{name}` is no log of the dark matter detector"), error)
            .hint("`heapledger dmd --help` says what can be read")
    })
}
