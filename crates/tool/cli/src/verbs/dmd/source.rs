//! The sources of logs.

use std::fs::File;
use std::io::{self, Read};
use std::time::Duration;

use heapledger_dmd::{FrameTexts, Log, Mode, ReadError, SpooledLog, Spooling};

use crate::args::{Dmd, Named};
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::format::duration;
use crate::messages::notify;
use crate::process::number;

use super::process::{self, HeapAnswer};
use super::{mode, mode_asked, recording};

/// The source of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source<'a> {
    /// A log file of version 5.
    File(&'a str),
    /// A log on standard input.
    Stdin,
    /// A running process.
    Process(u32),
    /// A recording, and the moment given with it (FILE@WHEN).
    Recording(Named),
}

impl<'a> Source<'a> {
    /// Returns the source that a command line names.
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

    /// Reads the log; a process or a recording makes one as the arguments ask.
    pub(super) fn read(self, arguments: &Dmd) -> Result<Log> {
        match self {
            Source::Stdin => {
                let log = parse("-", io::stdin().lock(), arguments)?;
                as_asked("-", log.mode, arguments)?;
                Ok(log)
            }
            Source::Process(pid) => of_process(pid, arguments),
            Source::Recording(named) => recording::log(&named, named.at, arguments),
            Source::File(path) => {
                let log = parse(path, open(path)?, arguments)?;
                as_asked(path, log.mode, arguments)?;
                Ok(log)
            }
        }
    }

    /// Returns true if this is a file or standard input.
    pub(super) fn is_file(&self) -> bool {
        matches!(self, Source::File(_) | Source::Stdin)
    }

    /// Reads a file for its analysis alone: its contents are stored in temporary files, not kept in
    /// memory.
    pub(super) fn read_spooled<'s>(self, arguments: &Dmd, spooling: Spooling<'s>) -> Result<SpooledLog<'s>> {
        // Functions to leave out at the beginning of stacks are known only once frames have names,
        // so all frames are read.
        let is_cut_later = arguments.view.ignore_alloc_fns || !arguments.view.no_fix_stacks;
        let frames_max = if is_cut_later { usize::MAX } else { arguments.view.max_frames.into() };
        let (name, log) = match self {
            Source::File(path) => (path, SpooledLog::read(open(path)?, frames_max, spooling)),
            _ => ("-", SpooledLog::read(io::stdin().lock(), frames_max, spooling)),
        };
        let log = read(name, log)?;
        as_asked(name, log.log().mode, arguments)?;
        Ok(log)
    }
}

fn open(path: &str) -> Result<File> {
    File::open(path).map_err(|error| {
        Failure::caused(Exit::Unreadable, format_args!("cannot read `{path}`"), error)
            .hint("`heapledger dmd --help` says what can be read")
    })
}

fn of_process(pid: u32, arguments: &Dmd) -> Result<Log> {
    match process::ask(pid, mode(arguments), arguments.process.anonymize)? {
        HeapAnswer::Log(file) => {
            let log = parse(&pid.to_string(), &file[..], arguments)?;
            let pause = duration(Duration::from_nanos(log.about.pause_ns));
            notify(format_args!("heapledger: process {pid} was held up for {pause}"));
            Ok(log)
        }
        HeapAnswer::Recorded => recording::log_so_far(pid, arguments),
    }
}

fn parse(name: &str, input: impl Read, arguments: &Dmd) -> Result<Log> {
    // A log that is saved again keeps each size of blocks as it is in the file.
    let log = if arguments.beyond.save.is_some() { Log::read(input) } else { Log::read_merged(input) };
    read(name, log)
}

/// Refuses a file of another mode than the one that was asked for: the mode was fixed when it was
/// written.
fn as_asked(name: &str, found: Mode, arguments: &Dmd) -> Result<()> {
    match mode_asked(arguments) {
        Some(mode) if mode != found => {
            let what = format!("`{name}` is a log of mode `{}`, not `{}`", found.name(), mode.name());
            Err(Failure::new(Exit::Usage, what)
                .hint("without --mode it is shown as it is; processes and recordings have all modes"))
        }
        _ => Ok(()),
    }
}

fn read<T>(name: &str, log: std::result::Result<T, ReadError>) -> Result<T> {
    log.map_err(|error| {
        Failure::caused(Exit::Unreadable, format_args!("`{name}` is no log of the dark matter detector"), error)
            .hint("`heapledger dmd --help` says what can be read")
    })
}
