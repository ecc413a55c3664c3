//! `heapledger log`: logs of allocator calls.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::ExitCode;

use heapledger_alloc_log::{Fields, Line, LineParser, Munge, for_each_line};
use heapledger_analysis::{LogFields, log_lines};
use heapledger_recording::RecordingError;
use heapledger_report_format::escape;

use crate::args::{LogAction, MungeLog};
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::import_format::unpacking;
use crate::input::Input;
use crate::output::Output;
use crate::progress::Progress;
use crate::text::quoted;

mod convert;
pub(crate) mod info;
mod record;
pub(crate) mod stats;

/// The size of the reader's buffer, in bytes.
const BUFFER: usize = 256 << 10;
/// Lines are written when they are as many bytes; a line has fewer than the rest of the buffer.
const FULL: usize = BUFFER - 4096;

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
    if recording(Path::new(&arguments.log))?.is_some() {
        let file = quoted(&arguments.log);
        return Err(Failure::new(Exit::Usage, format_args!("`{}` is a recording, and no log", arguments.log))
            .hint(format_args!("make it one: heapledger log convert {file} | heapledger log munge -")));
    }
    if let Some(path) = &arguments.written.output {
        out.direct(path, arguments.written.force, &[Path::new(&arguments.log)])?;
    }
    let (mut munge, mut written, mut text) = (Munge::default(), Ok(()), Vec::with_capacity(BUFFER));
    let mut ignored = io::stderr().lock();
    read(&arguments.log, |line| match munge.line(line) {
        Ok(line) => {
            line.write_to(&mut text);
            text.push(b'\n');
            if text.len() < FULL {
                return Seen::Call;
            }
            written = out.stream().write_all(&text);
            text.clear();
            if written.is_ok() { Seen::Call } else { Seen::Enough }
        }
        Err(error) => {
            let text = String::from_utf8_lossy(line.trim_ascii());
            // There is nowhere to say that stderr is closed.
            let _ = writeln!(ignored, "Ignored \"{}\": {error}", escape(&text));
            Seen::Other
        }
    })?;
    written?;
    Ok(out.stream().write_all(&text)?)
}

/// The result of looking at a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Call,
    Other,
    /// Nothing else is to be read.
    Enough,
}

/// Opens a log, packed or not.
pub(crate) fn opened(log: &str) -> Result<Box<dyn BufRead>> {
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
    unpacking(BufReader::with_capacity(BUFFER, stream)).map_err(cannot)
}

/// Returns the recording that a file is, or is converted to; `None` if it is a log, or anything
/// that is read only once.
fn recording(file: &Path) -> Result<Option<Input>> {
    if !file.metadata().is_ok_and(|there| there.is_file() && there.len() > 0) {
        return Ok(None);
    }
    Ok(Input::map_unless_log(file)?.filter(Input::is_recording))
}

/// Hands out the calls of a log or of a recording, with their fields; `None` for each line that is
/// no call. Returns true if it is a recording. Fails if there is no call, or if the file cannot be
/// read.
fn for_each_call(file: &str, mut each: impl FnMut(Option<(&Line, &Fields<'_>)>)) -> Result<bool> {
    let Some(input) = recording(Path::new(file))? else {
        let mut parser = LineParser::default();
        read(file, |line| match parser.parse_with_fields(line) {
            Ok((line, fields)) => {
                each(Some((&line, &fields)));
                Seen::Call
            }
            Err(_) => {
                each(None);
                Seen::Other
            }
        })?;
        return Ok(false);
    };
    let recording = input.open()?;
    let events = convert::events(&input, &recording)?;
    let (mut progress, mut done) = (Progress::new(), 0);
    let fields = LogFields { times: true, usable: true, arenas: true };
    for start in recording.images() {
        let read = log_lines::<RecordingError>(
            &recording,
            start.image,
            fields,
            |count| {
                done += count;
                progress.events(done, events);
            },
            |line, fields| {
                each(Some((line, fields)));
                Ok(())
            },
        );
        read.map_err(|error| Failure::caused(Exit::Unreadable, format_args!("cannot read `{file}`"), error))?;
    }
    Ok(true)
}

/// Reads a log line by line; fails if it cannot be read, or if no line is a call.
pub(crate) fn read(log: &str, mut line: impl FnMut(&[u8]) -> Seen) -> Result<()> {
    let cannot = |error: io::Error| Failure::caused(Exit::Unreadable, format_args!("cannot read `{log}`"), error);
    let (mut calls, mut lines) = (0_u64, 0_u64);
    for_each_line(opened(log)?, |text| {
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
