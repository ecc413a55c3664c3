//! `heapledger merge`: several recordings as one.

use std::path::{Path, PathBuf};

use heapledger_analysis::rewrite::{self, Error};
use heapledger_recording::Recording;

use crate::args::Merge;
use crate::code::Code;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::input::Input;
use crate::messages::warn;
use crate::new_file::NewFile;
use crate::notices::lost;
use crate::text::shown;

pub(crate) fn run(arguments: &Merge) -> Result<()> {
    let inputs = arguments.files.iter().map(|file| Input::map(file)).collect::<Result<Vec<_>>>()?;
    let recordings = inputs.iter().map(Input::open).collect::<Result<Vec<_>>>()?;
    let paths: Vec<&Path> = arguments.files.iter().map(PathBuf::as_path).collect();
    let target = NewFile::recording(&arguments.target, &paths)?;
    let mut draft = target.draft()?;
    let merged = rewrite::merge(&recordings.iter().collect::<Vec<_>>(), &mut draft);
    let merged = merged.map_err(|error| refused(arguments, &recordings, &target, error))?;
    for (input, damage) in inputs.iter().zip(&merged.damage) {
        input.warn_of(damage);
    }
    if !merged.is_counted {
        return target.count_and_keep(draft, merged.footer);
    }
    if let Some(bounds) = lost::peak_bounds(&merged.footer) {
        warn(Code::PeakBounds, bounds);
    }
    draft.finish(&merged.footer).map_err(|error| target.failed(error))?;
    target.keep()
}

/// Explains why the recordings cannot be merged, and what to do instead.
fn refused(arguments: &Merge, recordings: &[Recording<'_>], target: &NewFile, error: Error) -> Failure {
    let file = |at: usize| &*arguments.files[at];
    let cannot = |at: usize, error: Error| {
        Failure::caused(Exit::Usage, format_args!("cannot merge `{}`", file(at).display()), error)
    };
    match error {
        Error::BeginsInMidRun(at) => cannot(at, error).hint(
            "`heapledger merge` takes all segments of one session from any on, or together with others \
             those of a session from its first on",
        ),
        Error::SegmentsBesideTotals(at) => {
            cannot(at, error).hint("merge the segments first, and the recording that this makes with the others")
        }
        Error::TotalsMissing(at) => cannot(at, error).hint("merge the others without it"),
        Error::SegmentTwice { at, .. } => cannot(at, error).hint("name each segment once"),
        Error::SegmentMissing { before, at, number } => {
            let mut files = consecutive(arguments, recordings, at);
            if let Some(missing) = sibling(file(before), number - 1, number).filter(|path| path.exists()) {
                files = arguments.files.clone();
                files.insert(at, missing);
            }
            let failure = cannot(at, error);
            match &files[..] {
                [_, _, ..] => failure.hint(format_args!(
                    "merge consecutive files: heapledger merge -o {} {}",
                    shown(&arguments.target.output),
                    files.iter().map(|path| shown(path)).collect::<Vec<_>>().join(" ")
                )),
                _ => failure.hint("merge consecutive files; each of these answers for its own time"),
            }
        }
        error => target.failed(error),
    }
}

/// Returns the path of the segment number `other`, given the path of number `own`.
fn sibling(path: &Path, own: u32, other: u32) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?;
    let (before, after) = name.rsplit_once(&format!(".{own:04}"))?;
    Some(path.with_file_name(format!("{before}.{other:04}{after}")))
}

/// Returns the longest run of consecutive files from a segment's session.
fn consecutive(arguments: &Merge, recordings: &[Recording<'_>], at: usize) -> Vec<PathBuf> {
    let session = |recording: &Recording<'_>| {
        recording.session().map(|session| (session.start_unix_ns, session.segment)).unwrap_or_default()
    };
    let (start, _) = session(&recordings[at]);
    let all = recordings.iter().zip(&arguments.files).map(|(recording, file)| (session(recording), file));
    let mut segments: Vec<(u32, &PathBuf)> =
        all.filter(|((other, part), _)| *other == start && *part > 0).map(|((_, part), file)| (part, file)).collect();
    segments.sort();
    let runs = segments.chunk_by(|before, after| before.0.checked_add(1) == Some(after.0));
    runs.max_by_key(|run| run.len()).unwrap_or_default().iter().map(|(_, file)| (*file).clone()).collect()
}
