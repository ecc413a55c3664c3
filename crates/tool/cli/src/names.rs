//! Names of functions that are kept in a recording: what `heapledger names` does, and `heapledger record` at its end.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use heapledger_analysis::find_names;
use heapledger_collect::Outcome;
use heapledger_core::Bytes;
use heapledger_recording::{Compressor, RecordingWriter};
use heapledger_symbols::Symbolizer;

use crate::args::{KeptNames, Names};
use crate::error::{Failure, Result, hint_lines};
use crate::exit::Exit;
use crate::format::{bytes, count};
use crate::input::{Input, shown};
use crate::label::symbolizer;
use crate::new_file::{NewFile, is_stream};
use crate::output::tell;
use crate::progress::Progress;
use crate::report::quoted;

/// How long `record` looks names up: nobody waits longer for the end of a run.
const TIME: Duration = Duration::from_secs(5);
/// The part of a recording that its names may be, in percent, and what they may be in any case.
const SHARE: u64 = 10;
const BYTES_MIN: u64 = 64 << 10;
/// A recording to which names are added is written anew. Of a larger one only on request.
const COPIED_MAX: Bytes = Bytes(2 << 30);

/// Limits for names.
#[derive(Clone, Copy, Debug)]
struct Limits {
    time: Option<Duration>,
    is_small: bool,
}

/// What has become of a file.
#[derive(Debug)]
struct Named {
    length: Bytes,
    places: usize,
    no_time: usize,
    no_room: usize,
}

pub(crate) fn run(arguments: &Names) -> Result<()> {
    let input = Input::find(arguments.file.as_deref())?;
    let symbolizer = Arc::new(symbolizer(&arguments.symbols));
    let named = add(&input, &symbolizer, Limits { time: None, is_small: false })?;
    tell(format_args!(
        "heapledger: {} has the names of {} places ({})",
        shown(&input.path),
        count(named.places as u64),
        bytes(named.length.0)
    ));
    Ok(())
}

/// Adds names to what was recorded: to all files of it that are there. Returns the length of the last one.
pub(crate) fn add_at_end(outcome: &Outcome, kept: KeptNames, symbolizer: &Arc<Symbolizer>, is_quiet: bool) -> Bytes {
    let before = Bytes(outcome.bytes_written);
    let limits = match kept {
        KeptNames::None => return before,
        KeptNames::Auto => Limits { time: Some(TIME), is_small: true },
        KeptNames::All => Limits { time: None, is_small: false },
    };
    // A pipe, a device or a descriptor has what was written to it.
    if outcome.problem.is_some() || fs::metadata(&outcome.output).is_ok_and(|there| is_stream(&outcome.output, &there))
    {
        return before;
    }
    let started = Instant::now();
    let mut length = before;
    let newest_first = std::iter::once(&outcome.output).chain(outcome.earlier.iter().rev());
    for (at, path) in newest_first.enumerate() {
        let time = limits.time.map(|time| time.saturating_sub(started.elapsed()));
        let why = match Input::map(path).and_then(|input| {
            let is_large = limits.is_small && input.length() > COPIED_MAX;
            if is_large { Ok(None) } else { add(&input, symbolizer, Limits { time, ..limits }).map(Some) }
        }) {
            Ok(Some(named)) => {
                if at == 0 {
                    length = named.length;
                }
                named.left_out()
            }
            Ok(None) => Some("has no names yet: it is large, and would have to be copied".to_owned()),
            Err(failure) => Some(format!("has no names: {failure}")),
        };
        if let Some(why) = why.filter(|_| !is_quiet) {
            let name = shown(path);
            let hint = hint_lines(&format!("heapledger names {}", quoted(&name)));
            tell(format_args!("heapledger: {name} {why}\n{hint}"));
        }
    }
    length
}

/// Looks up the names in a recording, and writes it anew with them.
fn add(input: &Input, symbolizer: &Arc<Symbolizer>, limits: Limits) -> Result<Named> {
    let recording = input.recording()?;
    let cannot = |why: &str, hint: String| {
        let what = format_args!("cannot add names to `{}`: {why}", input.path.display());
        Failure::new(Exit::Usage, what).hint(hint)
    };
    if input.is_converted() {
        let hint = format!("first: heapledger import -o NEW.hl {}", quoted(&shown(&input.path)));
        return Err(cannot("it is another tool's file", hint));
    }
    if fs::metadata(&input.path).is_ok_and(|there| is_stream(&input.path, &there)) {
        return Err(cannot("it has no name of its own to be replaced under", "name the file itself".to_owned()));
    }
    let Some((mut writer, kept)) = RecordingWriter::after(&recording) else {
        let hint = format!(
            "to make a whole one of what is there: heapledger trim --from 0s -o NEW.hl {}",
            quoted(&shown(&input.path))
        );
        return Err(cannot("its end is missing, or it is damaged", hint));
    };
    let failed = |why| Failure::caused(Exit::Unexpected, "cannot look names up", why);
    let mut progress = Progress::new();
    let found = find_names(&recording, symbolizer, limits.time, &mut |done, all| progress.places(done, all));
    let found = found.map_err(failed)?;
    drop(progress);
    let room = Bytes((input.length().0 / 100 * SHARE).max(BYTES_MIN));
    let cannot_write = |error| Failure::caused(Exit::Unexpected, "cannot write names", error);
    let names = found.encode(limits.is_small.then_some(room)).map_err(cannot_write)?;
    names.chunks.iter().for_each(|chunk| writer.push(chunk));
    // That there is a footer is seen from there being a writer.
    writer.finish(recording.footer().unwrap_or(&Default::default()), &mut Compressor::new());

    let new = NewFile::create(&input.path, true, &[])?.quiet();
    let length = Bytes(writer.length());
    new.write(&mut io::sink(), |out| {
        copy(&input.path, kept, out)?;
        out.write_all(writer.pending())
    })?;
    Ok(Named { length, places: names.places, no_time: found.not_looked_up(), no_room: names.left_out })
}

/// Copies the beginning of a file.
fn copy(path: &Path, length: u64, out: &mut dyn io::Write) -> io::Result<()> {
    let mut part = File::open(path)?.take(length);
    let copied = io::copy(&mut part, out)?;
    if copied == length { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

impl Named {
    /// What of a file has no names, and why.
    fn left_out(&self) -> Option<String> {
        let Named { places, no_time, no_room, .. } = *self;
        let left_out = no_time + no_room;
        let why = match (no_time, no_room) {
            (0, 0) => return None,
            (0, _) => "the others would take too much of it",
            (_, 0) => "for the others there was no time",
            _ => "for the others there was no time or no room",
        };
        let all = count((places + left_out) as u64);
        Some(format!("has the names of {} places of {all}; {why}", count(places as u64)))
    }
}
