//! Libraries whose calls of the allocator are missing from a recording.

use heapledger_recording::{Annotation, Recording};
use serde::Serialize;

use crate::code::Code;
use crate::format::{counted, seconds};

/// The code of the annotation that names an unseen library.
pub(crate) const UNSEEN_LIBRARY: u32 = 264;

/// The most paths in the sentence.
const NAMED_MAX: usize = 3;

/// A library that a program opened.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct UnseenLibrary {
    image: u32,
    /// The path that the program passed to open it.
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
    /// It was opened with `dlopen`, and has an allocator of its own that was not redirected.
    Later,
}

/// Returns all unseen libraries that the recording names.
pub(crate) fn libraries(recording: &Recording<'_>) -> Vec<UnseenLibrary> {
    let images = recording.images().iter();
    let annotations = images.flat_map(|image| recording.annotations(image.image)).filter_map(|found| found.ok());
    annotations.filter_map(|annotation| library(&annotation)).collect()
}

/// Decodes an annotation. `None` for annotations of another kind, and for malformed ones.
fn library(annotation: &Annotation) -> Option<UnseenLibrary> {
    if annotation.code != UNSEEN_LIBRARY {
        return None;
    }
    let (reason, path) = annotation.payload.split_first_chunk::<8>()?;
    let reason = match u64::from_le_bytes(*reason) {
        1 => Reason::Dlmopen,
        2 => Reason::Deepbind,
        3 => Reason::Later,
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

/// Returns `the allocator calls of 1 library are not recorded: libplugin.so`, if there is one, and
/// the code for it; then the same for libraries with an allocator that was not redirected.
pub(crate) fn describe(recording: &Recording<'_>) -> Vec<(Code, String)> {
    let all = libraries(recording);
    let (later, others): (Vec<_>, Vec<_>) = all.iter().partition(|library| library.reason == Reason::Later);
    let others = named(&others, "the allocator calls of", "are not recorded");
    let later = named(&later, "the calls of an allocator inside", "are not recorded, or not all");
    let others = others.map(|text| (Code::UnseenLibrary, text));
    others.into_iter().chain(later.map(|text| (Code::NotRedirectedLater, text))).collect()
}

/// Returns a sentence about libraries, with their number and paths; `None` if there are none.
fn named(libraries: &[&UnseenLibrary], before: &str, after: &str) -> Option<String> {
    let mut paths: Vec<&str> = libraries.iter().map(|library| library.path.as_str()).collect();
    paths.sort_unstable();
    paths.dedup();
    if paths.is_empty() {
        return None;
    }
    let more = paths.len().saturating_sub(NAMED_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let count = counted(paths.len() as u64, "library", "libraries");
    paths.truncate(NAMED_MAX);
    Some(format!("{before} {count} {after}: {}{more}", paths.join(", ")))
}
