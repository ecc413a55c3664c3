//! Where logs come from.

use std::fs::File;
use std::io::{self, Read};
use std::time::Duration;

use heapledger_dmd::{Log, ReadError};

use crate::args::{Dmd, Named};
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::format::duration;
use crate::output::tell;
use crate::process::number;

use super::beside::Beside;
use super::process::{self, Told};
use super::{mode, mode_asked, recording};

/// Where a log comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source<'a> {
    /// A file of version 5.
    File(&'a str),
    /// Such a file on standard input.
    Stdin,
    /// A running process.
    Process(u32),
    /// A recording, and the moment beside its name.
    Recording(Named),
}

impl<'a> Source<'a> {
    /// What a command line names.
    pub(super) fn of(text: &'a str) -> Source<'a> {
        match (text, number(text)) {
            ("-", _) => Source::Stdin,
            (_, Some(pid)) => Source::Process(pid),
            (path, None) => match Named::parse(path.into()) {
                Ok(named) if recording::is_recording(&named) => Source::Recording(named),
                _ => Source::File(path),
            },
        }
    }

    /// The log; of a process or a recording one such as is asked for.
    pub(super) fn read(self, arguments: &Dmd) -> Result<Log> {
        match self {
            Source::Stdin => as_asked("-", parse("-", io::stdin().lock(), arguments)?, arguments),
            Source::Process(pid) => of_process(pid, arguments),
            Source::Recording(named) => recording::log(&named, named.at, arguments),
            Source::File(path) => {
                let file = File::open(path).map_err(|error| {
                    Failure::caused(Exit::Unreadable, format_args!("cannot read `{path}`"), error)
                        .hint("`heapledger dmd --help` says what can be read")
                })?;
                let log = match frames_max(arguments) {
                    // A pipe can be read once.
                    Some(frames_max) if file.metadata().is_ok_and(|metadata| metadata.is_file()) => {
                        read(path, Log::read_by_frames(file, frames_max, Beside::start()))
                    }
                    _ => parse(path, file, arguments),
                };
                as_asked(path, log?, arguments)
            }
        }
    }
}

fn of_process(pid: u32, arguments: &Dmd) -> Result<Log> {
    match process::ask(pid, mode(arguments), arguments.process.anonymize)? {
        Told::Log(file) => {
            let log = parse(&pid.to_string(), &file[..], arguments)?;
            let pause = duration(Duration::from_nanos(log.about.pause_ns));
            tell(format_args!("heapledger: process {pid} was held up for {pause}"));
            Ok(log)
        }
        Told::Recorded => recording::log_so_far(pid, arguments),
    }
}

fn parse(name: &str, input: impl Read, arguments: &Dmd) -> Result<Log> {
    // What is written again keeps each size of blocks as it is there.
    let log = if arguments.beyond.save.is_some() { Log::read(input) } else { Log::read_merged(input) };
    read(name, log)
}

/// Refuses a file of another mode than the one that was asked for: it is what it was when it was written.
fn as_asked(name: &str, log: Log, arguments: &Dmd) -> Result<Log> {
    match mode_asked(arguments) {
        Some(mode) if mode != log.mode => {
            let what = format!("`{name}` is a log of mode `{}`, not `{}`", log.mode.name(), mode.name());
            Err(Failure::new(Exit::Usage, what)
                .hint("without --mode it is shown as it is; processes and recordings have all modes"))
        }
        _ => Ok(log),
    }
}

/// How many frames of each stack are looked at, if it is not all of them.
fn frames_max(arguments: &Dmd) -> Option<usize> {
    let (view, beyond) = (&arguments.view, &arguments.beyond);
    let is_all = view.ignore_alloc_fns || beyond.advice || beyond.page || beyond.save.is_some();
    (!is_all && beyond.who_points_to.is_none()).then_some(view.max_frames.into())
}

fn read(name: &str, log: std::result::Result<Log, ReadError>) -> Result<Log> {
    log.map_err(|error| {
        Failure::caused(Exit::Unreadable, format_args!("`{name}` is no log of the dark matter detector"), error)
            .hint("`heapledger dmd --help` says what can be read")
    })
}
