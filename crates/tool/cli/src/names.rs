//! Names of functions that are kept in a recording: what `heapledger names` does, and `heapledger record` at its end.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use heapledger_analysis::find_names;
use heapledger_collect::Outcome;
use heapledger_core::Bytes;
use heapledger_recording::{Compressor, RecordingWriter};
use heapledger_symbols::Symbolizer;

use crate::args::{KeptNames, Names, SymbolFiles};
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
    /// The file is one of several of a recording that goes on, and may be removed meanwhile.
    is_part: bool,
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
    let named = add(&input, &symbolizer, Limits { time: None, is_small: false, is_part: false })?;
    tell(format_args!(
        "heapledger: {} has the names of {} places ({})",
        shown(&input.path),
        count(named.places as u64),
        bytes(named.length.0)
    ));
    Ok(())
}

impl Limits {
    /// `None`: no names at all.
    fn of(kept: KeptNames) -> Option<Limits> {
        match kept {
            KeptNames::None => None,
            KeptNames::Auto => Some(Limits { time: Some(TIME), is_small: true, is_part: false }),
            KeptNames::All => Some(Limits { time: None, is_small: false, is_part: false }),
        }
    }
}

/// Adds names to the files of a recording that goes on in the next one, in a thread of its own: a
/// file that is copied from there has them.
pub(crate) struct Namer {
    kept: KeptNames,
    /// True at the end of the recording: files that still wait are left to [`add_at_end`].
    is_over: Arc<AtomicBool>,
    thread: Option<(Sender<PathBuf>, JoinHandle<HashSet<PathBuf>>)>,
}

impl Namer {
    pub(crate) fn new(kept: KeptNames) -> Namer {
        Namer { kept, is_over: Arc::default(), thread: None }
    }

    /// Adds names to this file, soon.
    pub(crate) fn add_names(&mut self, path: &Path) {
        let Some(limits) = Limits::of(self.kept) else { return };
        let limits = Limits { is_part: true, ..limits };
        let (sender, _) = self.thread.get_or_insert_with(|| {
            let (sender, paths) = mpsc::channel::<PathBuf>();
            let is_over = Arc::clone(&self.is_over);
            let is_named = move |path: &PathBuf| !is_over.load(Ordering::Relaxed) && add_to_part(path, limits);
            (sender, thread::spawn(move || paths.into_iter().filter(is_named).collect()))
        });
        // The thread ends with this sender.
        let _ = sender.send(path.to_owned());
    }

    /// Returns the files that have names, when it has done the one that it is at.
    fn end(self) -> HashSet<PathBuf> {
        let Some((sender, thread)) = self.thread else { return HashSet::new() };
        self.is_over.store(true, Ordering::Relaxed);
        drop(sender);
        // If it has panicked, names are added with the others.
        thread.join().unwrap_or_default()
    }
}

/// Returns true if the file has its names now. Otherwise that is tried again at the end, and said.
fn add_to_part(path: &Path, limits: Limits) -> bool {
    // Not kept: names of a service that runs for months would take the recorder's memory all that
    // time.
    let symbolizer = Arc::new(symbolizer(&SymbolFiles::default()));
    let Ok(input) = Input::map(path) else { return false };
    let is_large = limits.is_small && input.length() > COPIED_MAX;
    !is_large && add(&input, &symbolizer, limits).is_ok_and(|named| named.left_out().is_none())
}

/// Adds names to what was recorded: to all files of it that are there and have none yet. Returns
/// the length of the last one.
pub(crate) fn add_at_end(outcome: &Outcome, namer: Namer, symbolizer: &Arc<Symbolizer>, is_quiet: bool) -> Bytes {
    let before = Bytes(outcome.bytes_written);
    let Some(limits) = Limits::of(namer.kept) else { return before };
    // The file that the namer is at is a part of what nobody waits longer for.
    let started = Instant::now();
    let named = namer.end();
    // A pipe, a device or a descriptor has what was written to it.
    if outcome.problem.is_some() || fs::metadata(&outcome.output).is_ok_and(|there| is_stream(&outcome.output, &there))
    {
        return before;
    }
    let mut length = before;
    let newest_first = std::iter::once(&outcome.output).chain(outcome.earlier.iter().rev());
    for (at, path) in newest_first.enumerate().filter(|(_, path)| !named.contains(*path)) {
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
    // While the program runs, the terminal is its own.
    let mut progress = (!limits.is_part).then(Progress::new);
    let mut tell = |done, all| progress.iter_mut().for_each(|progress| progress.places(done, all));
    let found = find_names(&recording, symbolizer, limits.time, &mut tell).map_err(failed)?;
    drop(progress);
    let room = Bytes((input.length().0 / 100 * SHARE).max(BYTES_MIN));
    let cannot_write = |error| Failure::caused(Exit::Unexpected, "cannot write names", error);
    let names = found.encode(limits.is_small.then_some(room)).map_err(cannot_write)?;
    names.chunks.iter().for_each(|chunk| writer.push(chunk));
    // That there is a footer is seen from there being a writer.
    writer.finish(recording.footer().unwrap_or(&Default::default()), &mut Compressor::new());

    let new = NewFile::create(&input.path, true, &[])?.quiet();
    let new = if limits.is_part { new.if_still_there() } else { new };
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
