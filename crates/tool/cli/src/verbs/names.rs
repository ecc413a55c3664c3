//! Function names kept in a recording: `heapledger names`, and the last step of
//! `heapledger record`.

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
use crate::input::Input;
use crate::messages::notify;
use crate::new_file::{NewFile, is_stream};
use crate::progress::Progress;
use crate::symbols::symbolizer;
use crate::text::{quoted, shown};

/// The longest time for which `record` looks names up, so that the end of a run is not delayed
/// more.
const TIME: Duration = Duration::from_secs(5);
/// The largest share of a recording that its names may be, in percent, and the size in bytes that
/// they may have in any case.
const SHARE: u64 = 10;
const BYTES_MIN: u64 = 64 << 10;
/// The size up to which names are added unless requested: adding them writes the file anew.
const COPIED_MAX: Bytes = Bytes(2 << 30);

/// Limits for names.
#[derive(Clone, Copy, Debug)]
struct Limits {
    time: Option<Duration>,
    is_small: bool,
    /// True if the file is a finished segment of a recording that goes on; it may be removed in the
    /// meantime.
    is_part: bool,
}

/// The result of adding names to a file.
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
    notify(format_args!(
        "heapledger: {} has the names of {} places ({})",
        shown(&input.path),
        count(named.places as u64),
        bytes(named.length.0)
    ));
    Ok(())
}

impl Limits {
    /// Returns the limits for this option, or `None` if no names are to be kept.
    fn of(kept: KeptNames) -> Option<Limits> {
        match kept {
            KeptNames::None => None,
            KeptNames::Auto => Some(Limits { time: Some(TIME), is_small: true, is_part: false }),
            KeptNames::All => Some(Limits { time: None, is_small: false, is_part: false }),
        }
    }
}

/// Adds names to the finished segments of a recording in a background thread, so that a segment
/// copied elsewhere has them.
pub(crate) struct Namer {
    kept: KeptNames,
    /// True at the end of the recording: files that are still queued are left to [`add_at_end`].
    is_over: Arc<AtomicBool>,
    thread: Option<(Sender<PathBuf>, JoinHandle<HashSet<PathBuf>>)>,
}

impl Namer {
    pub(crate) fn new(kept: KeptNames) -> Namer {
        Namer { kept, is_over: Arc::default(), thread: None }
    }

    /// Queues a file, to which names are then added in the background.
    pub(crate) fn add_names(&mut self, path: &Path) {
        let Some(limits) = Limits::of(self.kept) else { return };
        let limits = Limits { is_part: true, ..limits };
        let (sender, _) = self.thread.get_or_insert_with(|| {
            let (sender, paths) = mpsc::channel::<PathBuf>();
            let is_over = Arc::clone(&self.is_over);
            let is_named = move |path: &PathBuf| !is_over.load(Ordering::Relaxed) && add_to_part(path, limits);
            (sender, thread::spawn(move || paths.into_iter().filter(is_named).collect()))
        });
        // Sending fails only if the thread has panicked; [`add_at_end`] then handles the file.
        let _ = sender.send(path.to_owned());
    }

    /// Returns the files that have names, after waiting for the one in progress.
    fn end(self) -> HashSet<PathBuf> {
        let Some((sender, thread)) = self.thread else { return HashSet::new() };
        self.is_over.store(true, Ordering::Relaxed);
        drop(sender);
        // If the thread has panicked, names are added to its files with the others.
        thread.join().unwrap_or_default()
    }
}

/// Adds names to a segment. Returns true if it has all of them; otherwise [`add_at_end`] tries
/// again, and reports failures.
fn add_to_part(path: &Path, limits: Limits) -> bool {
    // The symbolizer is dropped after each file: for a service that runs for months, its names
    // would otherwise take the recorder's memory all that time.
    let symbolizer = Arc::new(symbolizer(&SymbolFiles::default()));
    let Ok(input) = Input::map(path) else { return false };
    let is_large = limits.is_small && input.length() > COPIED_MAX;
    !is_large && add(&input, &symbolizer, limits).is_ok_and(|named| named.left_out().is_none())
}

/// Adds names to all files of the recording that still exist and have none. Returns the length of
/// the last file.
pub(crate) fn add_at_end(outcome: &Outcome, namer: Namer, symbolizer: &Arc<Symbolizer>, is_quiet: bool) -> Bytes {
    let before = Bytes(outcome.bytes_written);
    let Some(limits) = Limits::of(namer.kept) else { return before };
    // Waiting for the file in progress counts towards the time limit.
    let started = Instant::now();
    let named = namer.end();
    // A pipe, a device or a descriptor has already consumed what was written to it.
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
            notify(format_args!("heapledger: {name} {why}\n{hint}"));
        }
    }
    length
}

/// Looks up the names in a recording, and writes the file anew with them.
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
    // While the program runs, the terminal belongs to the program: no progress bar.
    let mut progress = (!limits.is_part).then(Progress::new);
    let mut show_progress = |done, all| progress.iter_mut().for_each(|progress| progress.places(done, all));
    let found = find_names(&recording, symbolizer, limits.time, &mut show_progress).map_err(failed)?;
    drop(progress);
    let room = Bytes((input.length().0 / 100 * SHARE).max(BYTES_MIN));
    let cannot_write = |error| Failure::caused(Exit::Unexpected, "cannot write names", error);
    let names = found.encode(limits.is_small.then_some(room)).map_err(cannot_write)?;
    names.chunks.iter().for_each(|chunk| writer.push(chunk));
    // There is a footer, or there would be no writer.
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

/// Copies the first `length` bytes of a file.
fn copy(path: &Path, length: u64, out: &mut dyn io::Write) -> io::Result<()> {
    let mut part = File::open(path)?.take(length);
    let copied = io::copy(&mut part, out)?;
    if copied == length { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

impl Named {
    /// Describes the locations in a file that have no names, and why.
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
