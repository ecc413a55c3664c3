//! Libraries whose calls of the allocator a recording does not have.

use heapledger_recording::{Annotation, Recording};
use serde::Serialize;

use crate::format::counted;
use crate::label::seconds;

/// The code of such an annotation.
pub(crate) const UNSEEN_LIBRARY: u32 = 264;

/// Paths in the sentence.
const NAMED_MAX: usize = 3;

/// A library that a program opened.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct UnseenLibrary {
    image: u32,
    /// The path that was asked for.
    path: String,
    reason: Reason,
    time_seconds: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
enum Reason {
    Dlmopen,
    Deepbind,
}

/// All that the recording names.
pub(crate) fn libraries(recording: &Recording<'_>) -> Vec<UnseenLibrary> {
    let images = recording.images().iter();
    let annotations = images.flat_map(|image| recording.annotations(image.image)).filter_map(|found| found.ok());
    annotations.filter_map(|annotation| library(&annotation)).collect()
}

/// `None` for annotations of another kind, and for what has not the form of this one.
fn library(annotation: &Annotation) -> Option<UnseenLibrary> {
    if annotation.code != UNSEEN_LIBRARY {
        return None;
    }
    let (reason, path) = annotation.payload.split_first_chunk::<8>()?;
    let reason = match u64::from_le_bytes(*reason) {
        1 => Reason::Dlmopen,
        2 => Reason::Deepbind,
        _ => return None,
    };
    let path = path.split(|&byte| byte == 0).next().unwrap_or(&[]);
    Some(UnseenLibrary {
        image: annotation.image.0,
        path: String::from_utf8_lossy(path).into_owned(),
        reason,
        time_seconds: seconds(annotation.time),
    })
}

/// `calls of 1 library are not recorded: libplugin.so`, if there is one.
pub(crate) fn told(recording: &Recording<'_>) -> Option<String> {
    let all = libraries(recording);
    let mut paths: Vec<&str> = all.iter().map(|library| library.path.as_str()).collect();
    paths.sort_unstable();
    paths.dedup();
    if paths.is_empty() {
        return None;
    }
    let more = paths.len().saturating_sub(NAMED_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let count = counted(paths.len() as u64, "library", "libraries");
    paths.truncate(NAMED_MAX);
    Some(format!("the allocator calls of {count} are not recorded: {}{more}", paths.join(", ")))
}
