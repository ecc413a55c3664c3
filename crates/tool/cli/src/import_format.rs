//! Converts files of other tools to recordings.

use std::borrow::Cow;
use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;
use heapledger_analysis::rewrite::Draft;
use heapledger_analysis::{ImportedEvents, assumed, import};
use heapledger_census::read as census;
use heapledger_profile_formats::{
    Event, Profile, ReadError, bytehound, chrome, collapsed, dhat, firefox, gperftools, heapprofile, heaptimeline,
    heaptrack, jemalloc, massif, memray, pprof, speedscope,
};
use heapledger_recording::Recording;
use memmap2::Mmap;

use crate::error::Failure;
use crate::exit::Exit;
use crate::import_format::interpreters::Interpreters;
use crate::progress::Progress;
use crate::text::quoted;

mod interpreters;

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
    Heaptimeline,
    Speedscope,
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
            ImportFormat::Firefox => "Firefox",
            ImportFormat::Heapprofile | ImportFormat::Heaptimeline => "V8",
            ImportFormat::Speedscope => "Speedscope",
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
            // A snapshot without stacks, most often.
            ImportError::Read(ImportFormat::Heaptimeline, _) => Some(hint_of_snapshot(path)),
            _ => None,
        };
        let failure = Failure::caused(Exit::Unreadable, format_args!("cannot read `{}`", path.display()), self);
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
        let mut head = Vec::new();
        // A file that cannot be unpacked has no known format.
        Compression::of(file).unpack(file).ok()?.take(HEAD).read_to_end(&mut head).ok()?;
        let all: [(ImportFormat, Detect); 14] = [
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
            (ImportFormat::Heaptimeline, heaptimeline::detects),
            (ImportFormat::Speedscope, speedscope::detects),
            (ImportFormat::Collapsed, collapsed::detects),
            (ImportFormat::Pprof, pprof::detects),
        ];
        all.into_iter().find(|(_, detects)| detects(&head)).map(|(import_format, _)| import_format)
    }

    /// Writes the recording of a file.
    pub(crate) fn import(self, bytes: &[u8], out: &File) -> Result<Imported, ImportError> {
        let source = format!("{self}'s file");
        let cannot = |error| ImportError::Read(self, error);
        let bytes = &*match self {
            // Heaptrack's events are read as a stream; pprof's reader unpacks the file itself.
            ImportFormat::Heaptrack | ImportFormat::Pprof => Cow::Borrowed(bytes),
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
            ImportFormat::Pprof => pprof::read(bytes).map(|profile| vec![profile]),
            ImportFormat::Chrome => chrome::read(bytes),
            ImportFormat::Heapprofile => heapprofile::read(bytes).map(|profile| vec![profile]),
            ImportFormat::Heaptimeline => heaptimeline::read(bytes).map(|profile| vec![profile]),
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
        Ok(Imported { assumed, is_cut: profiles.iter().any(|profile| profile.is_cut) })
    }
}

/// Returns a reader of a stream's contents, which unpacks them if they are packed.
pub(crate) fn unpacking<'r>(mut stream: impl BufRead + 'r) -> std::io::Result<Box<dyn BufRead + 'r>> {
    Compression::of(stream.fill_buf()?).unpack(stream)
}

/// Fails if a file is a snapshot of Firefox's JavaScript heap, of which no recording can be made.
pub(crate) fn refuse_snapshot(path: &Path, file: &[u8]) -> crate::error::Result<()> {
    if census::detect(file) != Some(census::Format::Firefox) {
        return Ok(());
    }
    let what = format_args!("cannot read `{}`: it is a snapshot of Firefox's JavaScript heap", path.display());
    Err(Failure::new(Exit::Unreadable, what).hint(hint_of_snapshot(path)))
}

/// Returns the hint which verb reads a snapshot of a JavaScript heap.
fn hint_of_snapshot(path: &Path) -> String {
    format!("snapshots of JavaScript heaps are read by: heapledger heap census {}", quoted(&path.to_string_lossy()))
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
    draft.flush()?;
    // SAFETY: `Mmap::map` asks that the file is not changed or truncated while it is mapped. This
    // process has just made the file, and nobody else has it. Bytes that are appended to it below
    // are not in the mapping, which has the present length.
    let so_far = unsafe { Mmap::map(out) }?;
    let recording = Recording::open(&so_far).map_err(heapledger_analysis::rewrite::Error::from)?;
    let mut progress = Progress::new();
    draft.count_and_finish(&recording, footer, &mut |done, all| progress.events(done, all))?;
    Ok(Imported { assumed: Vec::new(), is_cut: profile.is_cut })
}
