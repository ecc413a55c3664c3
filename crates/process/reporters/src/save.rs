//! Report files.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process;

use heapledger_annotate::untracked;

use crate::collect::collect;
use crate::report_options::ReportOptions;

/// Collects reports, and writes them to a file that `heapledger reports`, and Firefox's
/// about:memory, can open: gzipped JSON. By custom its name ends with `.json.gz`.
///
/// The file is first written under another name in the same directory, so it is either complete or
/// missing. Only this user can read it: names may be private.
///
/// ```
/// # use heapledger_reporters as reports;
/// # let path = std::env::temp_dir().join(format!("doc-{}.json.gz", std::process::id()));
/// reports::save(&path, &reports::ReportOptions::default())?;
/// # std::fs::remove_file(path)?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
///
/// An error if the file cannot be written.
pub fn save(path: impl AsRef<Path>, options: &ReportOptions) -> io::Result<()> {
    untracked::scope(|| whole(path.as_ref(), &collect(options).to_gzip()))
}

/// Writes a file as a whole, or not at all.
pub(crate) fn whole(path: &Path, file: &[u8]) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let mut incomplete = std::ffi::OsString::from(format!("incomplete-{}-", process::id()));
    incomplete.push(name);
    let incomplete = path.with_file_name(incomplete);
    let write = || {
        let mut out = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&incomplete)?;
        out.write_all(file)?;
        fs::rename(&incomplete, path)
    };
    let result = write();
    if result.is_err() {
        let _ = fs::remove_file(&incomplete);
    }
    result
}
