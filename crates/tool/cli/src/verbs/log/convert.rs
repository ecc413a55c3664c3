//! `heapledger log convert`: a log as a recording, and a recording as a log.

use std::io::{self, BufReader, Write as _};

use heapledger_alloc_log::{Fields, Line};
use heapledger_analysis::{LogFields, log_lines};
use heapledger_recording::{EventChunk, Recording, RecordingError};

use super::{BUFFER, opened};
use crate::args::{ConvertLog, Target};
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::format::counted;
use crate::import_format::log;
use crate::input::{Input, notify_of_log};
use crate::messages::notify;
use crate::new_file::NewFile;
use crate::output::Output;
use crate::progress::Progress;
use crate::text::{quoted, shown};

/// Lines are written when they are as many bytes.
const FULL: usize = 64 << 10;

pub(super) fn run(arguments: &ConvertLog, out: &mut Output) -> Result<()> {
    match super::recording(&arguments.file)? {
        Some(input) => to_log(arguments, &input, out),
        None => to_recording(arguments),
    }
}

/// Writes the recording of a log.
fn to_recording(arguments: &ConvertLog) -> Result<()> {
    let path = &arguments.file;
    let Some(output) = arguments.written.output.clone() else {
        return Err(Failure::new(Exit::Usage, format_args!("`{}` is a log, and becomes a recording", path.display()))
            .hint(format_args!("name the recording: heapledger log convert -o FILE.hl {}", quoted(&shown(path)))));
    };
    let target = Target { output, force: arguments.written.force };
    let new = NewFile::recording(&target, &[path])?;
    let stream = BufReader::with_capacity(BUFFER, opened(&path.to_string_lossy())?);
    let imported = log::import(stream, "a log of allocator calls", arguments.keep_going, &new.file()?)
        .map_err(|error| error.failure(path))?;
    if let Some((count, first)) = imported.left_out {
        let lines = counted(count, "line is", "lines are");
        notify(format_args!("heapledger: {lines} left out; {first}"));
    }
    notify_of_log(&imported.facts);
    new.keep()
}

/// Writes the log of a recording.
fn to_log(arguments: &ConvertLog, input: &Input, out: &mut Output) -> Result<()> {
    let recording = input.open()?;
    let file = shown(&input.path);
    let all = events(input, &recording)?;
    if let Some(path) = &arguments.written.output {
        out.direct(path, arguments.written.force, &[&input.path])?;
    }
    let options = arguments.fields;
    let fields = LogFields { times: options.times, usable: options.usable, arenas: options.arenas };
    let (mut progress, mut done, mut unknown, mut text) = (Progress::new(), 0, 0_u64, Vec::new());
    for start in recording.images() {
        let written = log_lines(
            &recording,
            start.image,
            fields,
            |events| {
                done += events;
                progress.events(done, all);
            },
            |line: &Line, fields: &Fields<'_>| {
                line.write_to(&mut text);
                fields.write_to(&mut text);
                text.push(b'\n');
                if text.len() >= FULL {
                    out.stream().write_all(&text)?;
                    text.clear();
                }
                Ok::<(), Cannot>(())
            },
        );
        unknown += written.map_err(|error| match error {
            Cannot::Read(error) => Failure::caused(Exit::Unreadable, format_args!("cannot read `{file}`"), error),
            Cannot::Write(error) => error.into(),
        })?;
    }
    out.stream().write_all(&text)?;
    drop(progress);
    if unknown > 0 {
        let frees = counted(unknown, "free", "frees");
        notify(format_args!("heapledger: {frees} of blocks that the recording does not have: they are #0"));
    }
    Ok(())
}

/// Returns the number of events of a recording. Fails if it has none, or not all of them.
pub(super) fn events(input: &Input, recording: &Recording<'_>) -> Result<u64> {
    let file = shown(&input.path);
    if recording.is_sample() {
        let what = format_args!("`{file}` has a sample of the blocks: a log has all calls");
        return Err(Failure::new(Exit::Usage, what).hint("record all blocks: heapledger record -o FILE.hl -- COMMAND"));
    }
    let rows = |chunk: EventChunk<'_>| u64::from(chunk.head().rows);
    let all: u64 = recording.images().iter().flat_map(|start| recording.event_chunks(start.image)).map(rows).sum();
    if all > 0 {
        return Ok(all);
    }
    Err(Failure::new(Exit::Usage, format_args!("`{file}` has no events"))
        .hint("a recording made with --aggregate has only sums: record without it"))
}

/// The reason why a line cannot be written.
enum Cannot {
    Read(RecordingError),
    Write(io::Error),
}

impl From<RecordingError> for Cannot {
    fn from(error: RecordingError) -> Cannot {
        Cannot::Read(error)
    }
}

impl From<io::Error> for Cannot {
    fn from(error: io::Error) -> Cannot {
        Cannot::Write(error)
    }
}
