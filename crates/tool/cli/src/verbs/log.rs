//! `heapledger log`: logs of allocator calls.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::Path;
use std::process::ExitCode;

use heapledger_alloc_log::{Munge, for_each_line};
use heapledger_report_format::escape;

use crate::args::{LogAction, MungeLog};
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::import_format::unpacking;
use crate::output::Output;
use crate::progress::Progress;

mod convert;
pub(crate) mod info;
mod record;
pub(crate) mod stats;

/// The size of the reader's buffer, in bytes.
const BUFFER: usize = 256 << 10;

pub(crate) fn run(action: &LogAction, out: &mut Output) -> Result<ExitCode> {
    match action {
        // Ends as the program did.
        LogAction::Record(arguments) => return record::run(arguments),
        LogAction::Info(arguments) => info::run(arguments, out)?,
        LogAction::Stats(arguments) => stats::run(arguments, out)?,
        LogAction::Munge(arguments) => munge(arguments, out)?,
        LogAction::Convert(arguments) => convert::run(arguments, out)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn munge(arguments: &MungeLog, out: &mut Output) -> Result<()> {
    if let Some(path) = &arguments.written.output {
        out.direct(path, arguments.written.force, &[Path::new(&arguments.log)])?;
    }
    let (mut munge, mut written, mut text) = (Munge::default(), Ok(()), Vec::new());
    let mut ignored = io::stderr().lock();
    read(&arguments.log, |line| match munge.line(line) {
        Ok(line) => {
            text.clear();
            line.write_to(&mut text);
            text.push(b'\n');
            written = out.stream().write_all(&text);
            if written.is_ok() { Seen::Call } else { Seen::Enough }
        }
        Err(error) => {
            let text = String::from_utf8_lossy(line.trim_ascii());
            // There is nowhere to say that stderr is closed.
            let _ = writeln!(ignored, "Ignored \"{}\": {error}", escape(&text));
            Seen::Other
        }
    })?;
    Ok(written?)
}

/// The result of looking at a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Call,
    Other,
    /// Nothing else is to be read.
    Enough,
}

/// Reads a log line by line; fails if it cannot be read, or if no line is a call.
pub(crate) fn read(log: &str, mut line: impl FnMut(&[u8]) -> Seen) -> Result<()> {
    let cannot = |error: io::Error| Failure::caused(Exit::Unreadable, format_args!("cannot read `{log}`"), error);
    let (stream, length): (Box<dyn Read>, u64) = match log {
        "-" => (Box::new(io::stdin().lock()), 0),
        path => {
            let file = File::open(path).map_err(cannot)?;
            let length = file.metadata().map_or(0, |metadata| metadata.len());
            (Box::new(file), length)
        }
    };
    let stream = Watched { stream, progress: Progress::new(), read: 0, length };
    let stream = unpacking(BufReader::with_capacity(BUFFER, stream)).map_err(cannot)?;
    let (mut calls, mut lines) = (0_u64, 0_u64);
    for_each_line(BufReader::with_capacity(BUFFER, stream), |text| {
        let seen = line(text);
        lines += 1;
        calls += u64::from(seen == Seen::Call);
        seen != Seen::Enough
    })
    .map_err(cannot)?;
    if calls > 0 {
        return Ok(());
    }
    let why = if lines == 0 { "is empty" } else { "has no call of an allocator" };
    Err(Failure::new(Exit::Unreadable, format_args!("`{log}` {why}"))
        .hint("a line of a log is `PID TID malloc(32)=0x7f90495120e0`: see `heapledger log --help`"))
}

/// A stream that shows how much of it has been read.
struct Watched {
    stream: Box<dyn Read>,
    progress: Progress,
    read: u64,
    /// The bytes of the stream; 0 if that is not known.
    length: u64,
}

impl Read for Watched {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.stream.read(buffer)?;
        self.read += read as u64;
        if self.length > 0 {
            self.progress.bytes(self.read, self.length);
        }
        Ok(read)
    }
}
