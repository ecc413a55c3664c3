//! Opens the recording that was asked for.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use heapledger_analysis::rewrite::{self, Draft};
use heapledger_analysis::{self as analysis, LogFacts};
use heapledger_core::Bytes;
use heapledger_recording::{ChunkKind, Damage, Reason, Recording};
use memmap2::Mmap;

use crate::args::Named;
use crate::code::Code;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::format::{counted, time};
use crate::import_format::{ImportError, ImportFormat, Imported, count_and_finish};
use crate::messages::{notify, warn};
use crate::near::nearest;
use crate::notices::lost;
use crate::text::{quoted, shown};

/// A file that should be a recording, mapped into memory.
#[derive(Debug)]
pub(crate) struct Input {
    pub(crate) path: PathBuf,
    bytes: Option<Mmap>,
    /// The format that it was converted from, if it is another tool's.
    converted_from: Option<ImportFormat>,
    /// True if its blocks are the mappings of the recording in the file.
    counts_mappings: bool,
}

impl Input {
    /// Opens the named file, or the newest recording in the current directory.
    pub(crate) fn find(file: Option<&Path>) -> Result<Input> {
        match file {
            Some(path) => Input::map(path),
            None => {
                let path = newest()?;
                notify(format_args!("heapledger: reading {}", shown(&path)));
                Input::map(&path)
            }
        }
    }

    pub(crate) fn map(path: &Path) -> Result<Input> {
        let mut input = Input::map_unconverted(path)?;
        if let Some(import_format) = input.import_format() {
            input.bytes = Some(input.converted(import_format)?);
            input.converted_from = Some(import_format);
        }
        Ok(input)
    }

    /// Does the same as `map`, but does not convert a log of allocator calls: returns `None`, for
    /// the verbs that read logs line by line.
    pub(crate) fn map_unless_log(path: &Path) -> Result<Option<Input>> {
        let mut input = Input::map_unconverted(path)?;
        match input.import_format() {
            Some(ImportFormat::Log) => return Ok(None),
            Some(import_format) => {
                input.bytes = Some(input.converted(import_format)?);
                input.converted_from = Some(import_format);
            }
            None => {}
        }
        Ok(Some(input))
    }

    pub(crate) fn map_unconverted(path: &Path) -> Result<Input> {
        let cannot = |error: std::io::Error| {
            let failure = Failure::caused(Exit::Unreadable, format_args!("cannot read `{}`", path.display()), error);
            match Named::parse(path.to_owned()) {
                _ if path.exists() => failure,
                Ok(named) if named.at.is_some() && named.exists() => {
                    failure.hint("the whole recording is needed here, and no moment of it")
                }
                _ => failure.hint("`heapledger --help` lists the verbs"),
            }
        };
        let file = File::open(path).map_err(cannot)?;
        let metadata = file.metadata().map_err(cannot)?;
        if metadata.is_dir() {
            return Err(cannot(std::io::Error::from(std::io::ErrorKind::IsADirectory)));
        }
        // An empty file cannot be mapped.
        let bytes = match metadata.len() {
            0 => None,
            // SAFETY: `Mmap::map` requires that the file is not changed or truncated while it is
            // mapped. Recordings are written once, by appending, and heapledger never changes or
            // truncates them. If another program does, the reader sees other bytes, all of which it
            // checks before use, or the process ends by SIGBUS; the process only reads, so nothing
            // else is at stake.
            _ => Some(unsafe { Mmap::map(&file) }.map_err(cannot)?),
        };
        Ok(Input { path: path.to_owned(), bytes, converted_from: None, counts_mappings: false })
    }

    /// Returns the tool that wrote the file, if it is another tool's.
    pub(crate) fn import_format(&self) -> Option<ImportFormat> {
        let bytes = self.bytes.as_deref()?;
        if self.is_recording() { None } else { ImportFormat::of(bytes) }
    }

    /// Converts another tool's file into a recording, in a file without a name.
    fn converted(&self, import_format: ImportFormat) -> Result<Mmap> {
        let cannot = |error: ImportError| error.failure(&self.path);
        let file = tempfile::tempfile().map_err(|error| cannot(error.into()))?;
        let imported = import_format.import(self.bytes.as_deref().unwrap_or_default(), &file).map_err(cannot)?;
        notify_of_import(&self.path, import_format, &imported);
        // SAFETY: `Mmap::map` requires that the file is not changed or truncated while it is
        // mapped. The file has no name, no other process has it open, and this process has finished
        // writing it.
        unsafe { Mmap::map(&file) }.map_err(|error| cannot(error.into()))
    }

    /// Returns the same recording with its mappings in place of its blocks, in a file without a
    /// name.
    pub(crate) fn into_mappings(self) -> Result<Input> {
        let cannot = |error: rewrite::Error| match error {
            rewrite::Error::Analysis(error) => self.unanswered(error),
            error => Failure::caused(Exit::Unexpected, "cannot write the mappings of a recording", error),
        };
        let recording = self.open()?;
        let file = tempfile::tempfile().map_err(|error| cannot(error.into()))?;
        let mut draft = Draft::new(file.try_clone().map_err(|error| cannot(error.into()))?);
        let (footer, damage) = rewrite::mappings(&recording, &mut draft).map_err(cannot)?;
        self.warn_of(&damage);
        count_and_finish(draft, footer, &file).map_err(|error| match error {
            ImportError::Write(error) => cannot(error),
            error => error.failure(&self.path),
        })?;
        drop(recording);
        // SAFETY: `Mmap::map` requires that the file is not changed or truncated while it is
        // mapped. The file has no name, no other process has it open, and this process has finished
        // writing it.
        let bytes = unsafe { Mmap::map(&file) }.map_err(|error| cannot(error.into()))?;
        Ok(Input { bytes: Some(bytes), counts_mappings: true, ..self })
    }

    /// True if mappings stand in place of blocks.
    pub(crate) fn counts_mappings(&self) -> bool {
        self.counts_mappings
    }

    /// Returns the word for its blocks.
    pub(crate) fn unit(&self) -> &'static str {
        if self.counts_mappings { "mappings" } else { "blocks" }
    }

    /// True if the file is a recording, damaged or not.
    pub(crate) fn is_recording(&self) -> bool {
        let opened = Recording::open(self.bytes.as_deref().unwrap_or_default());
        !opened.is_err_and(|error| error == heapledger_recording::RecordingError::NotARecording)
    }

    /// Opens the recording in the file.
    pub(crate) fn recording(&self) -> Result<Recording<'_>> {
        Recording::open(self.bytes.as_deref().unwrap_or_default()).map_err(|error| self.unreadable(error))
    }

    /// Opens the recording in the file, and warns on stderr of everything that is wrong with it.
    pub(crate) fn open(&self) -> Result<Recording<'_>> {
        let recording = self.recording()?;
        if recording.footer().is_none() {
            let why = "the recorder was stopped, or the end is missing";
            let what = format_args!("{} is not finished: {why}; {}", shown(&self.path), self.lost(&recording));
            warn(Code::Unfinished, what);
        } else if !recording.complete() {
            warn(Code::Incomplete, format_args!("{} is incomplete", shown(&self.path)));
        }
        self.warn_of(recording.damage());
        if let Some(sandboxed) = lost::sandboxed(&recording) {
            warn(Code::Sandboxed, sandboxed);
        }
        if let Some(stalls) = lost::stalls(recording.pauses()) {
            warn(Code::Stalled, stalls);
        }
        if let Some(lost) = recording.footer().and_then(|footer| lost::describe(&footer.counts)) {
            warn(Code::Lost, lost);
        }
        if let Some(missed) = recording.footer().and_then(|footer| lost::missed(&footer.counts)) {
            warn(Code::MissedFrees, missed);
        }
        if let Some(folded) = recording.footer().and_then(|footer| lost::folded(&footer.counts)) {
            warn(Code::Folded, folded);
        }
        if let Some(unproven) = recording.footer().and_then(|footer| lost::unproven(&footer.counts)) {
            warn(Code::UnprovenStacks, unproven);
        }
        if let Some(bounds) = recording.footer().and_then(lost::peak_bounds) {
            warn(Code::PeakBounds, bounds);
        }
        Ok(recording)
    }

    /// Describes what is missing from a recording without an end.
    fn lost(&self, recording: &Recording<'_>) -> String {
        let events = recording.chunks().iter().filter(|chunk| chunk.kind == ChunkKind::Events);
        let lost = match events.map(|chunk| chunk.head.time_last).max() {
            Some(last) => format!("what happened after {} is not in it", time(last)),
            None => "nothing that the program allocated is in it".to_owned(),
        };
        let rest = recording.damage().iter().find(|damage| damage.reason == Reason::Truncated);
        match rest {
            Some(rest) => {
                let rest = self.length().0.saturating_sub(rest.offset);
                format!("{lost} (its last {} are a part of a chunk)", counted(rest, "byte", "bytes"))
            }
            None => lost,
        }
    }

    /// True if the file is another tool's and was converted.
    pub(crate) fn is_converted(&self) -> bool {
        self.converted_from.is_some()
    }

    /// Fails if the file is a heap snapshot, which has one moment and no calls. `instead` names a
    /// verb of `heap` that answers a similar question.
    pub(crate) fn needs_history(&self, instead: &str) -> Result<()> {
        if !self.converted_from.is_some_and(ImportFormat::is_snapshot) {
            return Ok(());
        }
        Err(self.without_history(instead))
    }

    fn without_history(&self, instead: &str) -> Failure {
        let file = quoted(&shown(&self.path));
        let what = format_args!(
            "`{}` is a heap snapshot: it has one moment, and no allocations and frees over time",
            self.path.display()
        );
        Failure::new(Exit::Usage, what).code(Code::Momentary).hint(instead.replace("FILE", &file))
    }

    /// Returns the size of the recording.
    pub(crate) fn length(&self) -> Bytes {
        Bytes(self.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }

    /// Warns on stderr of what could not be read.
    pub(crate) fn warn_of(&self, damage: &[Damage]) {
        // The missing end was reported before.
        let mut damage = damage.iter().filter(|damage| damage.reason != Reason::NoTrailer);
        if let Some(first) = damage.next() {
            let more = damage.count();
            let more = if more > 0 { format!(" (and {more} more)") } else { String::new() };
            warn(Code::Damaged, format_args!("{} is damaged {first}{more}", shown(&self.path)));
        }
    }

    /// Explains why a question to the recording has no answer.
    pub(crate) fn unanswered(&self, error: analysis::Error) -> Failure {
        match error {
            analysis::Error::Recording(error) => self.unreadable(error),
            analysis::Error::NoSuchThread(ref name) => {
                let list = format!("`heapledger info {}` lists the threads", self.path.display());
                let hint = self.near("--thread", name, |recording| {
                    let images = recording.images().iter();
                    let threads = images.flat_map(|image| recording.threads(image.image));
                    threads.map(|thread| String::from_utf8_lossy(&thread.name).into_owned()).collect()
                });
                Failure::new(Exit::Usage, error).hint(hint.unwrap_or(list))
            }
            analysis::Error::NoSuchProcess(ref name) => {
                let list = format!("`heapledger summary {}` lists the processes", self.path.display());
                let file =
                    |path: &[u8]| Some(Path::new(OsStr::from_bytes(path)).file_name()?.to_string_lossy().into_owned());
                let hint = self.near("--process", name, |recording| {
                    recording.images().iter().filter_map(|image| file(&image.executable)).collect()
                });
                Failure::new(Exit::Usage, error).hint(hint.unwrap_or(list))
            }
            analysis::Error::AfterEnd => Failure::new(Exit::Usage, error)
                .hint(format_args!("`heapledger info {}` says how long it is", self.path.display())),
            analysis::Error::BeforeBeginning(begins) => Failure::new(Exit::Usage, error).hint(format_args!(
                "it begins at {}, in the middle of a run: name the file before it, or a later moment",
                time(begins)
            )),
            analysis::Error::NoUsableSizes => Failure::new(Exit::Usage, error)
                .code(Code::NoUsableSizes)
                .hint("`heapledger record --usable` asks the allocator for the usable size of each block"),
            analysis::Error::NoMappings => Failure::new(Exit::Usage, error)
                .code(Code::NoMappings)
                .hint("`heapledger record --mappings -- COMMAND` records them"),
            analysis::Error::MappingsLimit => Failure::new(Exit::Usage, error).hint(format_args!(
                "take a part of the time: heapledger trim --during FROM-TO -o PART.hl {}",
                quoted(&shown(&self.path))
            )),
            analysis::Error::NoEvents if self.converted_from.is_some_and(ImportFormat::is_snapshot) => {
                self.without_history("the nodes by type, file or stack: heapledger heap census FILE")
            }
            analysis::Error::NoEvents => Failure::new(Exit::Usage, error)
                .hint("it was made by `heapledger record --aggregate`; a recording made without that option can tell"),
            other => Failure::caused(Exit::Unexpected, format_args!("cannot analyse `{}`", self.path.display()), other),
        }
    }

    /// Returns a hint with the names in the recording that are most like one that it does not have.
    fn near(&self, option: &str, name: &str, names: impl Fn(&Recording<'_>) -> Vec<String>) -> Option<String> {
        let names = names(&self.recording().ok()?);
        let near = nearest(name, names.iter().map(String::as_str));
        let near: Vec<String> = near.into_iter().map(|name| format!("{option} {}", quoted(name))).collect();
        (!near.is_empty()).then(|| format!("did you mean {}?", near.join(" or ")))
    }

    fn unreadable(&self, error: heapledger_recording::RecordingError) -> Failure {
        Failure::caused(Exit::Unreadable, format_args!("cannot read `{}`", self.path.display()), error)
    }
}

/// Says on stderr which tool wrote a file, and which data it lacks.
pub(crate) fn notify_of_import(path: &Path, import_format: ImportFormat, imported: &Imported) {
    notify(format_args!("heapledger: {} is a file of {import_format}", shown(path)));
    if !imported.assumed.is_empty() {
        let assumed = imported.assumed.join(", ");
        notify(format_args!("heapledger: it does not say {assumed}: other figures of it stand there"));
    }
    if imported.lacks_stacks {
        notify(format_args!("heapledger: it has no stacks: the types of its nodes stand there"));
    }
    if let Some(facts) = imported.log {
        notify_of_log(&facts);
    }
    if imported.is_cut {
        notify(format_args!("heapledger: it ends before the program did: what happened later is not in it"));
    }
}

/// Says on stderr what a recording of a log does not have.
pub(crate) fn notify_of_log(facts: &LogFacts) {
    let lacks = if facts.has_times { "no stacks" } else { "no stacks, and no times: each line counts as 1 µs" };
    notify(format_args!("heapledger: a log of allocator calls has {lacks}"));
    if facts.frees_missed > 0 {
        let frees = counted(facts.frees_missed, "free is", "frees are");
        notify(format_args!("heapledger: {frees} missing in the log, and stand where the block is allocated again"));
    }
}

/// Returns the newest `heapledger.*.hl` in the current directory.
fn newest() -> Result<PathBuf> {
    let entries = fs::read_dir(".").map_err(|error| Failure::caused(Exit::Unreadable, "cannot list `.`", error))?;
    let is_recording = |path: &PathBuf| {
        let name = path.file_name().map(OsStrExt::as_bytes).unwrap_or_default();
        name.starts_with(b"heapledger.") && name.ends_with(b".hl")
    };
    let paths = entries.filter_map(|entry| Some(PathBuf::from(entry.ok()?.file_name())));
    let newest = paths
        .filter(is_recording)
        .max_by_key(|path| (path.metadata().and_then(|data| data.modified()).ok(), path.clone()));
    newest.ok_or_else(|| {
        Failure::new(Exit::Usage, "no recording was named, and there is no `heapledger.*.hl` here")
            .hint("make one: heapledger record -- COMMAND")
    })
}
