//! Names from earlier runs: a file for each build id, in a directory of the user's.
//!
//! A file is a checksum and one message. It is replaced as a whole, by renaming, so a reader sees
//! the old one or the new one. A file that is damaged, or was made from other files than the
//! present ones, is ignored; and a directory that cannot be written is only read. A user who can
//! write there can give wrong names, and do no other harm.

mod records;
mod sites;
mod types;

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use prost::Message;

use crate::frame::{Function, NameSource, SymbolFrame};
use crate::state::{BuildId, DebugInfo};
use crate::types::TypedFrame;
pub(crate) use sites::{Concluded, Sites, key as site_key};
pub(crate) use types::Types;

/// Changes when the same files give other names.
const RULES: &str = concat!(env!("CARGO_PKG_VERSION"), " 4");
/// The maximum bytes of a file: some 50,000 addresses. Further names are not kept.
const FILE_MAX: u64 = 4 << 20;
/// The maximum number of frames in a file.
const FRAMES_MAX: usize = 1 << 18;
/// The maximum bytes of all files; beyond that, the oldest are removed until a quarter is free.
const DIRECTORY_MAX: u64 = 256 << 20;
/// The minimum size that a file counts for in the sum of all.
const BLOCK: u64 = 4096;
/// The length of a build id in bytes. Others are made up.
const BUILD_ID: std::ops::RangeInclusive<usize> = 8..=64;

/// The facts about a module from an earlier run.
#[derive(Debug)]
pub(crate) struct Kept {
    /// The kind of debug information that the module has.
    pub(crate) debug: DebugInfo,
    /// Addresses, and the frames there; empty for an address without a name.
    pub(crate) places: HashMap<u64, Arc<[SymbolFrame]>>,
}

/// Returns the identity of the files that names were made from, with their lengths and times.
pub(crate) fn fingerprint<'f>(files: impl Iterator<Item = &'f Path>) -> Vec<u8> {
    let mut text = RULES.to_owned();
    for file in files {
        let data = fs::metadata(file).map_or((0, 0, 0), |data| (data.len(), data.mtime(), data.mtime_nsec()));
        text.push_str(&format!("\n{} {data:?}", file.display()));
    }
    text.into_bytes()
}

/// Reads the file of a module; `None` if there is none, or if it was made from something other than
/// `fingerprint`. Without a fingerprint, no file is there to make names from, and the old ones are
/// used.
pub(crate) fn read(directory: &Path, build_id: &[u8], fingerprint: Option<&[u8]>) -> Option<Kept> {
    decode(&read_file(&path(directory, build_id)?, FILE_MAX)?, fingerprint)
}

/// Reads the types of a module, under the same conditions.
pub(crate) fn read_types(directory: &Path, build_id: &[u8], fingerprint: Option<&[u8]>) -> Option<Types> {
    types::decode(&read_file(&path(directory, build_id)?.with_extension("types"), types::FILE_MAX)?, fingerprint)
}

/// Reads the conclusions about stacks; each of them states the files that it was made from.
pub(crate) fn read_sites(directory: &Path, build_id: &[u8]) -> Option<Sites> {
    sites::decode(&read_file(&path(directory, build_id)?.with_extension("sites"), sites::FILE_MAX)?)
}

fn read_file(path: &Path, most: u64) -> Option<Vec<u8>> {
    let file = File::open(path).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Writes the facts about a module, as far as there is room. Failing is not an error.
pub(crate) fn write<'p>(
    directory: &Path,
    build_id: &[u8],
    fingerprint: &[u8],
    debug: DebugInfo,
    places: impl Iterator<Item = (u64, &'p [SymbolFrame])>,
) {
    let (Some(path), Some(bytes)) = (path(directory, build_id), encode(fingerprint, debug, places)) else { return };
    let _ = replace(directory, &path, &bytes).and_then(|()| trim(directory, DIRECTORY_MAX));
}

/// Writes the types of a module. `lacking` are the source files that were missing.
pub(crate) fn write_types<'p>(
    directory: &Path,
    build_id: &[u8],
    fingerprint: &[u8],
    lacking: impl Iterator<Item = &'p Arc<str>>,
    places: impl Iterator<Item = (u64, &'p [TypedFrame])>,
) {
    let bytes = types::encode(fingerprint, lacking, places);
    let (Some(path), Some(bytes)) = (path(directory, build_id), bytes) else { return };
    let _ = replace(directory, &path.with_extension("types"), &bytes).and_then(|()| trim(directory, DIRECTORY_MAX));
}

/// Writes the conclusions about stacks.
pub(crate) fn write_sites(directory: &Path, build_id: &[u8], lacking: &[Arc<str>], sites: &mut Sites) {
    let Some(path) = path(directory, build_id) else { return };
    let Some(bytes) = sites.encode(RULES.as_bytes(), lacking) else { return };
    let _ = replace(directory, &path.with_extension("sites"), &bytes).and_then(|()| trim(directory, DIRECTORY_MAX));
}

fn path(directory: &Path, build_id: &[u8]) -> Option<PathBuf> {
    BUILD_ID.contains(&build_id.len()).then(|| directory.join(BuildId(build_id.into()).to_string()))
}

fn replace(directory: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let fresh = path.with_extension(format!("{}-{number}.new", std::process::id()));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh)?;
    let written = file.write_all(bytes).and_then(|()| fs::rename(&fresh, path));
    if written.is_err() {
        let _ = fs::remove_file(&fresh);
    }
    written
}

/// Removes the oldest files if there is more than `most`, including those that a killed process
/// left behind.
fn trim(directory: &Path, most: u64) -> io::Result<()> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let data = entry.metadata()?;
        if data.is_file() {
            files.push((data.modified()?, data.len().max(BLOCK), entry.path()));
        }
    }
    let mut sum: u64 = files.iter().map(|(_, length, _)| length).sum();
    if sum <= most {
        return Ok(());
    }
    files.sort();
    for (_, length, path) in files {
        if sum <= most / 4 * 3 {
            break;
        }
        fs::remove_file(path)?;
        sum -= length;
    }
    Ok(())
}

const MAGIC: [u8; 8] = *b"\x89HLS\r\n\x1a\n";

fn encode<'p>(
    fingerprint: &[u8],
    debug: DebugInfo,
    places: impl Iterator<Item = (u64, &'p [SymbolFrame])>,
) -> Option<Vec<u8>> {
    let mut file = Names { fingerprint: fingerprint.to_vec(), debug: debug as u32, ..Names::default() };
    let (mut functions, mut strings) = (HashMap::new(), HashMap::new());
    let mut count = 0;
    for (offset, frames) in places {
        count += frames.len();
        let frames = frames.iter().filter(|frame| frame.source != NameSource::None).map(|frame| {
            let function = *functions.entry(frame.function.clone()).or_insert_with_key(|function| {
                file.functions.push(NamedFunction {
                    full: function.full().to_owned(),
                    short: (function.short() != function.full()).then(|| function.short().to_owned()),
                    linkage: function.linkage().map(str::to_owned),
                });
                file.functions.len() as u32 - 1
            });
            let source_file = frame.file.as_ref().map(|name| {
                *strings.entry(name.clone()).or_insert_with(|| {
                    file.files.push(name.as_ref().to_owned());
                    file.files.len() as u32 - 1
                })
            });
            NamedFrame {
                function,
                file: source_file,
                line: frame.line,
                column: frame.column,
                source: frame.source as u32,
            }
        });
        let frames = frames.collect();
        file.places.push(NamedPlace { offset, frames });
    }
    let bytes = sealed(&file.encode_to_vec());
    (count <= FRAMES_MAX && bytes.len() as u64 <= FILE_MAX).then_some(bytes)
}

/// Decodes a file. The memory taken is bounded by a multiple of the length, which is bounded.
pub(crate) fn decode(bytes: &[u8], fingerprint: Option<&[u8]>) -> Option<Kept> {
    let file = Names::decode(unsealed(bytes, FILE_MAX)?).ok()?;
    let frames: usize = file.places.iter().map(|place| place.frames.len()).sum();
    if fingerprint.is_some_and(|made_from| file.fingerprint != made_from) || frames > FRAMES_MAX {
        return None;
    }
    let debug = [DebugInfo::Missing, DebugInfo::ExportsOnly, DebugInfo::SymbolsOnly, DebugInfo::Full];
    let debug = debug.into_iter().find(|&known| known as u32 == file.debug)?;
    let functions: Vec<Function> = file
        .functions
        .iter()
        .map(|name| Function::new(&name.full, name.short.as_ref().unwrap_or(&name.full), name.linkage.as_deref()))
        .collect();
    let files: Vec<Arc<str>> = file.files.iter().map(|name| name.as_str().into()).collect();
    let place = |place: NamedPlace| {
        let last = place.frames.len().saturating_sub(1);
        let frame = |(at, frame): (usize, &NamedFrame)| {
            let sources = [NameSource::Debug, NameSource::SymbolTable, NameSource::Nearest];
            Some(SymbolFrame {
                function: functions.get(frame.function as usize)?.clone(),
                file: frame.file.map(|file| files.get(file as usize).cloned().ok_or(())).transpose().ok()?,
                line: frame.line,
                column: frame.column,
                inlined: at < last,
                source: sources.into_iter().find(|&known| known as u32 == frame.source)?,
            })
        };
        let frames: Option<Arc<[SymbolFrame]>> = place.frames.iter().enumerate().map(frame).collect();
        Some((place.offset, frames?))
    };
    let places = file.places.into_iter().map(place).collect::<Option<_>>()?;
    Some(Kept { debug, places })
}

/// Implements the fuzz target: reads the bytes as a file, and as the message in a file with a valid
/// checksum.
pub fn exercise(data: &[u8]) {
    let _ = decode(data, None);
    let _ = decode(&sealed(data), None);
    types::exercise(&sealed(data));
    sites::exercise(&sealed(data));
}

/// Returns the message in a file if the checksum matches.
fn unsealed(bytes: &[u8], most: u64) -> Option<&[u8]> {
    let (checksum, message) = bytes.strip_prefix(&MAGIC)?.split_first_chunk::<4>()?;
    (bytes.len() as u64 <= most && u32::from_le_bytes(*checksum) == crc32fast::hash(message)).then_some(message)
}

fn sealed(message: &[u8]) -> Vec<u8> {
    [&MAGIC[..], &crc32fast::hash(message).to_le_bytes(), message].concat()
}

#[derive(Clone, PartialEq, prost::Message)]
struct Names {
    #[prost(bytes = "vec", tag = 1)]
    fingerprint: Vec<u8>,
    #[prost(uint32, tag = 2)]
    debug: u32,
    #[prost(message, repeated, tag = 3)]
    functions: Vec<NamedFunction>,
    #[prost(string, repeated, tag = 4)]
    files: Vec<String>,
    #[prost(message, repeated, tag = 5)]
    places: Vec<NamedPlace>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct NamedFunction {
    #[prost(string, tag = 1)]
    full: String,
    #[prost(string, optional, tag = 2)]
    short: Option<String>,
    #[prost(string, optional, tag = 3)]
    linkage: Option<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct NamedPlace {
    #[prost(uint64, tag = 1)]
    offset: u64,
    #[prost(message, repeated, tag = 2)]
    frames: Vec<NamedFrame>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
struct NamedFrame {
    #[prost(uint32, tag = 1)]
    function: u32,
    #[prost(uint32, optional, tag = 2)]
    file: Option<u32>,
    #[prost(uint32, optional, tag = 3)]
    line: Option<u32>,
    #[prost(uint32, optional, tag = 4)]
    column: Option<u32>,
    #[prost(uint32, tag = 5)]
    source: u32,
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    fn sample() -> Vec<u8> {
        let frame = |name: &str, source, inlined| SymbolFrame {
            function: Function::new(&format!("{name}<int>(int)"), name, Some("_Z1x")),
            file: Some("a.cc".into()),
            line: Some(7),
            column: None,
            inlined,
            source,
        };
        let inlined = [frame("inner", NameSource::Debug, true), frame("outer", NameSource::Debug, false)];
        let unnamed = [frame("lib+0x1", NameSource::None, false)];
        let places = [(16, &inlined[..]), (u64::MAX, &unnamed[..])];
        let bytes = encode(b"made from", DebugInfo::Full, places.into_iter()).unwrap();
        let kept = decode(&bytes, Some(b"made from")).unwrap();
        assert_eq!(kept.debug, DebugInfo::Full);
        assert_eq!((&*kept.places[&16], kept.places[&u64::MAX].len()), (&inlined[..], 0));
        bytes
    }

    #[test]
    fn what_was_written_is_read_and_nothing_else() {
        let bytes = sample();
        assert!(decode(&bytes, None).is_some() && decode(&bytes, Some(b"something else")).is_none());
        for length in 0..bytes.len() {
            assert!(decode(&bytes[..length], None).is_none());
        }
        // Damage that the checksum does not show: nothing panics, and invalid references are
        // refused.
        for_each_damaged(&bytes[12..], exercise);
    }

    /// Calls `body` with 20,000 versions of a message with three bytes changed, which its checksum
    /// would not show.
    pub(super) fn for_each_damaged(message: &[u8], mut body: impl FnMut(&[u8])) {
        let mut random = 0x1234_5678_9abc_def1_u64;
        for _ in 0..20_000 {
            let mut bad = message.to_vec();
            for _ in 0..3 {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let at = random as usize % bad.len();
                bad[at] = (random >> 32) as u8;
            }
            body(&bad);
        }
    }

    #[test]
    fn the_oldest_go_first() {
        let directory = tempfile::TempDir::new().unwrap();
        let now = SystemTime::now();
        for age in 0..10 {
            let path = directory.path().join(age.to_string());
            fs::write(&path, [0; 10]).unwrap();
            let times = fs::FileTimes::new().set_modified(now - Duration::from_secs(age));
            File::options().write(true).open(path).unwrap().set_times(times).unwrap();
        }
        trim(directory.path(), 10 * BLOCK).unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 10);
        trim(directory.path(), 8 * BLOCK).unwrap();
        let mut left: Vec<_> =
            fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["0", "1", "2", "3", "4", "5"]);
    }
}
