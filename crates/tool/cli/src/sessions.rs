//! The recordings that are being made on this machine, and the names that users have for them.

use std::path::{Path, PathBuf};

use heapledger_collect::{RunningSession, Status};

use crate::error::{Failure, Result};
use crate::exit::Exit;

/// Returns all recordings that are being made.
pub(crate) fn running() -> Result<Vec<RunningSession>> {
    RunningSession::all().map_err(|error| Failure::caused(Exit::Unexpected, "cannot look for recordings", error))
}

/// Returns the recorder of the recording that has this process, if there is one.
pub(crate) fn recorder_of(target: &str) -> Result<Option<u32>> {
    let all = running()?;
    Ok(all.iter().find(|running| is_meant(&running.status, target)).map(|running| running.status.recorder))
}

/// True if a process of a recording, or its file, has this name.
pub(crate) fn is_meant(status: &Status, target: &str) -> bool {
    match target.parse::<u32>() {
        Ok(pid) => status.recorder == pid || status.has_process(pid),
        Err(_) => is_output(&status.output, Path::new(target)),
    }
}

/// True if the target is the file that is being written, or the name that `record --rotate` numbers
/// its files after.
fn is_output(output: &Path, target: &Path) -> bool {
    // No file has the unnumbered name, so only its directory can be resolved.
    let real = |path: &Path| {
        let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Some(std::fs::canonicalize(directory).ok()?.join(path.file_name()?))
    };
    let is_file = std::fs::canonicalize(target)
        .is_ok_and(|path| path == std::fs::canonicalize(output).unwrap_or_else(|_| output.to_path_buf()));
    is_file || unnumbered(output).is_some_and(|base| real(&base).is_some_and(|base| real(target) == Some(base)))
}

/// Returns `NAME.hl` for `NAME.0007.hl`, and `NAME` for `NAME.0007`.
fn unnumbered(segment: &Path) -> Option<PathBuf> {
    let is_number = |text: &std::ffi::OsStr| text.len() >= 4 && text.as_encoded_bytes().iter().all(u8::is_ascii_digit);
    let ending = segment.extension()?;
    if is_number(ending) {
        return Some(segment.with_extension(""));
    }
    let rest = segment.with_extension("");
    is_number(rest.extension()?).then(|| rest.with_extension(ending))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_numbered_after_a_name() {
        let name = |segment: &str| unnumbered(Path::new(segment)).map(|path| path.to_str().unwrap().to_owned());
        assert_eq!(name("/tmp/app.0001.hl").as_deref(), Some("/tmp/app.hl"));
        assert_eq!(name("app.b.10000.hl").as_deref(), Some("app.b.hl"));
        assert_eq!(name("app.0001").as_deref(), Some("app"));
        for other in ["app.hl", "heapledger.app.711.hl", "app", "app.x001.hl"] {
            assert_eq!(name(other), None, "{other}");
        }
    }
}
