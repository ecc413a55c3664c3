//! Files without a build id that have changed since a recording: their names may not be those of
//! the build that ran.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use heapledger_analysis::Names;
use heapledger_recording::{ModuleId, Recording};
use heapledger_report_format::escape;

use crate::code::Code;
use crate::messages::warn;

/// Warns of each changed file without a build id from which names are taken.
pub(crate) fn warn_of_rebuilt(recording: &Recording<'_>, names: &Names<'_, '_>) {
    let Some(end) = end(recording) else { return };
    let without_id = recording.modules().iter().filter(|module| module.build_id.is_empty());
    let changed: Vec<_> =
        without_id.filter(|module| modified(&module.path).is_some_and(|modified| modified > end)).collect();
    if changed.is_empty() {
        return;
    }
    // Names that a recording carries are those of the build that ran.
    let recorded = names.recorded();
    let carried: HashSet<ModuleId> = recorded.iter().map(|place| place.module).collect();
    for module in changed.into_iter().filter(|module| !carried.contains(&module.module)) {
        let path = String::from_utf8_lossy(&module.path);
        warn(
            Code::Rebuilt,
            escape(&format!("`{path}` has changed since the recording, and has no build id: its names may be wrong")),
        );
    }
}

/// Returns the time at which the recording ended, if the recorder finished.
fn end(recording: &Recording<'_>) -> Option<SystemTime> {
    let end = recording.session()?.start_unix_ns.checked_add(recording.footer()?.time.0)?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_nanos(end))
}

fn modified(path: &[u8]) -> Option<SystemTime> {
    let path = Path::new(OsStr::from_bytes(path));
    // Modules that never were files have names that are not paths, such as `[vdso]`.
    std::fs::metadata(path).ok().filter(|file| path.is_absolute() && file.is_file())?.modified().ok()
}
