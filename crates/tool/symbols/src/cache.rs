//! Answers from earlier runs: files for each build id, in a directory of the user's.
//!
//! A file is a checksum and one message. It is replaced as a whole, by renaming, so a reader sees
//! the old one or the new one. A file that is damaged, or was made from other files than the
//! present ones, is ignored; and a directory that cannot be written is only read. A user who can
//! write there can give wrong names, and do no other harm.
//!
//! The names of a module are in a file that is called like the build id. Other answers about it are
//! in files with an extension.

pub(crate) mod names;

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::state::BuildId;

/// Changes when the same files give other answers: a [fingerprint](MadeFrom::fingerprint) begins
/// with it.
pub const RULES: &str = concat!(env!("CARGO_PKG_VERSION"), " 4");
/// The maximum bytes of all files; beyond that, the oldest are removed until a quarter is free.
const DIRECTORY_MAX: u64 = 256 << 20;
/// The minimum size that a file counts for in the sum of all.
const BLOCK: u64 = 4096;
/// The length of a build id in bytes. Others are made up.
const BUILD_ID: std::ops::RangeInclusive<usize> = 8..=64;
const MAGIC: [u8; 8] = *b"\x89HLS\r\n\x1a\n";

/// The place of the answers about one module, or about another file.
#[derive(Debug, Clone)]
pub struct CacheEntry {
    directory: PathBuf,
    /// The path of the names.
    path: PathBuf,
}

/// The identity of the files that answers about a module are made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MadeFrom {
    /// The paths of the files, with their lengths and times; empty if there is no file.
    pub fingerprint: Arc<[u8]>,
    /// False if better answers may be possible later.
    pub is_final: bool,
}

impl CacheEntry {
    /// Returns the entry of a module; `None` if this is not a real build id.
    pub(crate) fn new(directory: &Path, build_id: &[u8]) -> Option<CacheEntry> {
        BUILD_ID.contains(&build_id.len()).then(|| CacheEntry {
            directory: directory.to_owned(),
            path: directory.join(BuildId(build_id.into()).to_string()),
        })
    }

    /// Returns an entry about something else than a module. The name must be a file name without
    /// an extension; no other entry of the directory may have it.
    pub fn named(directory: &Path, name: &str) -> CacheEntry {
        CacheEntry { directory: directory.to_owned(), path: directory.join(name) }
    }

    /// Reads the file with this extension. Of a file with more than `most` bytes, one byte more is
    /// read, so that [`unsealed`] refuses it.
    pub fn read(&self, extension: &str, most: u64) -> Option<Vec<u8>> {
        let file = File::open(self.path.with_extension(extension)).ok()?;
        if !file.metadata().ok()?.is_file() {
            return None;
        }
        let mut bytes = Vec::new();
        file.take(most + 1).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    /// Replaces the file with this extension, and removes old files if there is no room. Failing is
    /// not an error.
    pub fn write(&self, extension: &str, bytes: &[u8]) {
        let Self { directory, path } = self;
        let _ =
            replace(directory, &path.with_extension(extension), bytes).and_then(|()| trim(directory, DIRECTORY_MAX));
    }
}

/// Returns the message in a file if it has at most so many bytes, and the checksum matches.
pub fn unsealed(bytes: &[u8], most: u64) -> Option<&[u8]> {
    let (checksum, message) = bytes.strip_prefix(&MAGIC)?.split_first_chunk::<4>()?;
    (bytes.len() as u64 <= most && u32::from_le_bytes(*checksum) == crc32fast::hash(message)).then_some(message)
}

/// Returns a file with this message.
pub fn sealed(message: &[u8]) -> Vec<u8> {
    [&MAGIC[..], &crc32fast::hash(message).to_le_bytes(), message].concat()
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

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

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
