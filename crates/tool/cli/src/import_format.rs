//! Converts files of other tools to recordings.

use std::borrow::Cow;
use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;
use heapledger_analysis::rewrite::Draft;
use heapledger_analysis::{ImportedEvents, LogFacts, assumed, import};
use heapledger_census::read as census;
use heapledger_profile_formats::{
    Event, Profile, ReadError, bytehound, chrome, collapsed, dhat, firefox, gperftools, heapprofile, heaptrack,
    jemalloc, massif, memray, pprof, speedscope,
};
use heapledger_recording::{Footer, Recording};
use memmap2::Mmap;

use crate::code::Code;
use crate::error::Failure;
use crate::exit::Exit;
use crate::import_format::interpreters::Interpreters;
use crate::import_format::log::LogError;
use crate::progress::Progress;
use crate::text::{quoted, shown};

mod heap_snapshots;
mod interpreters;
pub(crate) mod log;

/// The number of unpacked bytes at the beginning of a file by which its format is detected.
const HEAD: u64 = 64 << 10;
/// The maximum unpacked size of a file that is read as a whole, in bytes.
const BYTES_MAX: u64 = 2 << 30;

/// A format that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ImportFormat {
    Jemalloc,
    Gperftools,
    Dhat,
    Massif,
    Memray,
    Bytehound,
    Heaptrack,
    Pprof,
    Chrome,
    Firefox,
    Heapprofile,
    /// A snapshot of V8's heap: `.heapsnapshot`, `.heaptimeline`.
    V8Snapshot,
    /// A snapshot of Firefox's JavaScript heap: `.fxsnapshot`.
    FirefoxSnapshot,
    Speedscope,
    /// A log of allocator calls, in logalloc's lines.
    Log,
    Collapsed,
}

impl fmt::Display for ImportFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ImportFormat::Jemalloc => "jemalloc",
            ImportFormat::Gperftools => "gperftools",
            ImportFormat::Dhat => "DHAT",
            ImportFormat::Massif => "massif",
            ImportFormat::Memray => "memray",
            ImportFormat::Bytehound => "bytehound",
            ImportFormat::Heaptrack => "heaptrack",
            ImportFormat::Pprof => "pprof",
            ImportFormat::Chrome => "Chrome",
            ImportFormat::Firefox | ImportFormat::FirefoxSnapshot => "Firefox",
            ImportFormat::Heapprofile | ImportFormat::V8Snapshot => "V8",
            ImportFormat::Speedscope => "Speedscope",
            ImportFormat::Log => "logalloc",
            ImportFormat::Collapsed => "collapsed stacks",
        })
    }
}

/// The reason why a file cannot be made a recording.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ImportError {
    /// The file is not in the format that it looked like.
    #[error("it looks like a file of {0}, but {1}")]
    Read(ImportFormat, ReadError),
    /// A line of a log cannot be read.
    #[error(transparent)]
    Log(LogError),
    /// The file is no whole snapshot.
    #[error("it looks like a heap snapshot of {0}, but it cannot be read")]
    Snapshot(ImportFormat, #[source] heapledger_census::ReadError),
    /// The snapshot has too many stacks.
    #[error("it is a heap snapshot of {0}, but {1}")]
    SnapshotStacks(ImportFormat, &'static str),
    /// The recording cannot be written.
    #[error("no recording could be made of it")]
    Write(#[from] heapledger_analysis::rewrite::Error),
    /// The file of the recording cannot be written.
    #[error("no recording could be made of it")]
    Io(#[from] std::io::Error),
}

impl ImportError {
    /// Returns the failure to read the file.
    pub(crate) fn failure(self, path: &Path) -> Failure {
        let hint = match self {
            ImportError::Read(ImportFormat::Chrome, _) => {
                Some("`heapledger reports show` shows what a trace says of allocators".to_owned())
            }
            // For another version of the format: the memray that wrote the file can read it.
            ImportError::Read(ImportFormat::Memray, _) => {
                let file = path.display();
                Some(format!(
                    "`memray transform speedscope {file}` writes what was live at the peak as a file that is read"
                ))
            }
            ImportError::Log(LogError::Line { .. }) => Some(format!(
                "leave such lines out: heapledger log convert --keep-going -o FILE.hl {}",
                quoted(&shown(path))
            )),
            _ => None,
        };
        let is_line = matches!(self, ImportError::Log(LogError::Line { .. }));
        let failure = Failure::caused(Exit::Unreadable, format_args!("cannot read `{}`", path.display()), self);
        let failure = if is_line { failure.code(Code::NotACall) } else { failure };
        match hint {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

/// The data that an imported file lacked.
#[derive(Debug)]
pub(crate) struct Imported {
    /// Phrases that name the figures that the file lacks.
    pub(crate) assumed: Vec<&'static str>,
    /// True if the file ends before the program did.
    pub(crate) is_cut: bool,
    /// True if it is a heap snapshot in which no node has a stack.
    pub(crate) lacks_stacks: bool,
    /// The contents of a log.
    pub(crate) log: Option<LogFacts>,
}

/// Returns true if a file that begins with these bytes may be of a format.
type Detect = fn(&[u8]) -> bool;

/// The compression of a file.
#[derive(Clone, Copy, PartialEq)]
enum Compression {
    Not,
    Gzip,
    Zstd,
}

impl Compression {
    fn of(bytes: &[u8]) -> Compression {
        match bytes {
            [0x1f, 0x8b, ..] => Compression::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Compression::Zstd,
            _ => Compression::Not,
        }
    }

    fn unpack<'r>(self, packed: impl BufRead + 'r) -> std::io::Result<Box<dyn BufRead + 'r>> {
        Ok(match self {
            Compression::Not => Box::new(packed),
            Compression::Gzip => Box::new(BufReader::new(MultiGzDecoder::new(packed))),
            Compression::Zstd => Box::new(BufReader::new(zstd::Decoder::with_buffer(packed)?)),
        })
    }
}

impl ImportFormat {
    /// Returns the format of a file; `None` if it is not known. The first format of the list whose
    /// `detects` is true is taken, so those that have no signature are last.
    pub(crate) fn of(file: &[u8]) -> Option<ImportFormat> {
        // Before it is unpacked: a snapshot of Firefox is always packed.
        if census::detect(file) == Some(census::Format::Firefox) {
            return Some(ImportFormat::FirefoxSnapshot);
        }
        let mut head = Vec::new();
        // A file that cannot be unpacked has no known format.
        Compression::of(file).unpack(file).ok()?.take(HEAD).read_to_end(&mut head).ok()?;
        let all: [(ImportFormat, Detect); 15] = [
            (ImportFormat::Jemalloc, jemalloc::detects),
            (ImportFormat::Gperftools, gperftools::detects),
            (ImportFormat::Dhat, dhat::detects),
            (ImportFormat::Massif, massif::detects),
            (ImportFormat::Memray, memray::detects),
            (ImportFormat::Bytehound, bytehound::detects),
            (ImportFormat::Heaptrack, heaptrack::detects),
            (ImportFormat::Chrome, chrome::detects),
            (ImportFormat::Firefox, firefox::detects),
            (ImportFormat::Heapprofile, heapprofile::detects),
            (ImportFormat::V8Snapshot, |head| census::detect(head) == Some(census::Format::V8)),
            (ImportFormat::Speedscope, speedscope::detects),
            (ImportFormat::Log, log::detects),
            (ImportFormat::Collapsed, collapsed::detects),
            (ImportFormat::Pprof, pprof::detects),
        ];
        all.into_iter().find(|(_, detects)| detects(&head)).map(|(import_format, _)| import_format)
    }

    /// Writes the recording of a file.
    pub(crate) fn import(self, bytes: &[u8], out: &File) -> Result<Imported, ImportError> {
        let source = if self.is_snapshot() { format!("{self}'s heap") } else { format!("{self}'s file") };
        let cannot = |error| ImportError::Read(self, error);
        let bytes = &*match self {
            // Heaptrack's events are read as a stream; the other readers unpack files themselves.
            ImportFormat::Heaptrack
            | ImportFormat::Log
            | ImportFormat::Pprof
            | ImportFormat::V8Snapshot
            | ImportFormat::FirefoxSnapshot => Cow::Borrowed(bytes),
            _ => unpacked(bytes)?,
        };
        let profiles = match self {
            ImportFormat::Jemalloc => jemalloc::read(bytes).map(|profile| vec![profile]),
            ImportFormat::Gperftools => gperftools::read(bytes).map(|profile| vec![profile]),
            ImportFormat::Dhat => dhat::read(bytes).map(|profile| vec![profile]),
            ImportFormat::Massif => massif::read(bytes).map(|profile| vec![profile]),
            ImportFormat::Memray => {
                let capture = memray::Capture::open(bytes).map_err(cannot)?;
                let mut interpreters = Interpreters::default();
                let mut runs_python = |path: &str, address| interpreters.runs_python(path, address);
                if !capture.is_aggregated() {
                    return import_events(out, &source, |take| {
                        capture.read_events(&mut runs_python, take).map_err(cannot)
                    });
                }
                capture.read_totals(&mut runs_python).map(|profile| vec![profile])
            }
            ImportFormat::Bytehound => {
                return import_events(out, &source, |take| bytehound::read(bytes, take).map_err(cannot));
            }
            ImportFormat::Heaptrack => {
                let mut input = Compression::of(bytes).unpack(bytes)?;
                return import_events(out, &source, |take| heaptrack::read(&mut *input, take).map_err(cannot));
            }
            ImportFormat::Log => {
                let mut input = Compression::of(bytes).unpack(bytes)?;
                let facts = log::import(&mut *input, "a log of allocator calls", false, out)?.facts;
                return Ok(Imported { assumed: Vec::new(), is_cut: false, lacks_stacks: false, log: Some(facts) });
            }
            ImportFormat::Pprof => pprof::read(bytes).map(|profile| vec![profile]),
            ImportFormat::Chrome => chrome::read(bytes),
            ImportFormat::Heapprofile => heapprofile::read(bytes).map(|profile| vec![profile]),
            ImportFormat::V8Snapshot | ImportFormat::FirefoxSnapshot => {
                return self.import_snapshot(bytes, &source, out);
            }
            ImportFormat::Speedscope => speedscope::read(bytes).map(|profile| vec![profile]),
            ImportFormat::Collapsed => collapsed::read(bytes).map(|profile| vec![profile]),
            ImportFormat::Firefox => {
                let (profile, events) = firefox::read(bytes).map_err(cannot)?;
                if !events.is_empty() {
                    return import_events(out, &source, |take| {
                        events.into_iter().for_each(take);
                        Ok(profile)
                    });
                }
                Ok(vec![profile])
            }
        };
        let profiles = profiles.map_err(cannot)?;
        import(&profiles, &source, std::io::BufWriter::new(out))?;
        let assumed = profiles.first().map_or_else(Vec::new, |first| assumed(first.known));
        Ok(Imported { assumed, is_cut: profiles.iter().any(|profile| profile.is_cut), lacks_stacks: false, log: None })
    }

    /// True if the file is a heap snapshot, which has one moment only.
    pub(crate) fn is_snapshot(self) -> bool {
        matches!(self, ImportFormat::V8Snapshot | ImportFormat::FirefoxSnapshot)
    }

    /// Writes the recording of a heap snapshot.
    fn import_snapshot(self, bytes: &[u8], source: &str, out: &File) -> Result<Imported, ImportError> {
        let graph = match Compression::of(bytes) {
            Compression::Zstd => census::read(Compression::Zstd.unpack(bytes)?),
            // The reader unpacks gzip itself.
            Compression::Not | Compression::Gzip => census::read(bytes),
        };
        let graph = graph.map_err(|error| ImportError::Snapshot(self, error))?;
        let profile = heap_snapshots::profile(&graph).map_err(|why| ImportError::SnapshotStacks(self, why))?;
        let lacks_stacks = !heap_snapshots::has_stacks(&graph);
        drop(graph);
        let assumed = assumed(profile.known);
        import(&[profile], source, std::io::BufWriter::new(out))?;
        Ok(Imported { assumed, is_cut: false, lacks_stacks, log: None })
    }
}

/// Returns a reader of a stream's contents, which unpacks them if they are packed.
pub(crate) fn unpacking<'r>(mut stream: impl BufRead + 'r) -> std::io::Result<Box<dyn BufRead + 'r>> {
    Compression::of(stream.fill_buf()?).unpack(stream)
}

/// Returns the contents of a file, unpacked if it is packed.
pub(crate) fn unpacked(bytes: &[u8]) -> std::io::Result<Cow<'_, [u8]>> {
    let packed = Compression::of(bytes);
    if packed == Compression::Not {
        return Ok(Cow::Borrowed(bytes));
    }
    let mut unpacked = Vec::new();
    packed.unpack(bytes)?.take(BYTES_MAX + 1).read_to_end(&mut unpacked)?;
    if unpacked.len() as u64 > BYTES_MAX {
        return Err(std::io::Error::other(format!("it has more than {} MiB unpacked", BYTES_MAX >> 20)));
    }
    Ok(Cow::Owned(unpacked))
}

/// Writes the recording of the events that `read` passes on, one by one.
fn import_events(
    out: &File,
    source: &str,
    read: impl FnOnce(&mut dyn FnMut(Event)) -> Result<Profile, ImportError>,
) -> Result<Imported, ImportError> {
    let mut draft = Draft::new(out.try_clone()?);
    let mut events = ImportedEvents::new(&mut draft);
    let mut written = Ok(());
    let profile = read(&mut |event| {
        if written.is_ok() {
            written = events.add(&event);
        }
    })?;
    written?;
    let footer = events.finish(&profile, source)?;
    count_and_finish(draft, footer, out)?;
    Ok(Imported { assumed: Vec::new(), is_cut: profile.is_cut, lacks_stacks: false, log: None })
}

/// Ends a recording whose events are written to `out`, with their totals.
pub(crate) fn count_and_finish(mut draft: Draft<File>, footer: Footer, out: &File) -> Result<(), ImportError> {
    draft.flush()?;
    // SAFETY: `Mmap::map` asks that the file is not changed or truncated while it is mapped. This
    // process has just made the file, and nobody else has it. Bytes that are appended to it below
    // are not in the mapping, which has the present length.
    let so_far = unsafe { Mmap::map(out) }?;
    let recording = Recording::open(&so_far).map_err(heapledger_analysis::rewrite::Error::from)?;
    let mut progress = Progress::new();
    draft.count_and_finish(&recording, footer, &mut |done, all| progress.events(done, all))?;
    Ok(())
}
