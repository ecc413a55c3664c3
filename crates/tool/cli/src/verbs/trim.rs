//! `heapledger trim`: a part of a recording's time.

use heapledger_analysis::{Moment, rewrite};
use heapledger_recording::{Recording, Time};

use crate::args::Trim;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::format::time;
use crate::input::Input;
use crate::new_file::NewFile;
use crate::progress::Progress;

pub(crate) fn run(arguments: &Trim) -> Result<()> {
    let input = Input::find(arguments.file.as_deref())?;
    let recording = input.open()?;
    let (from, to) = part(&recording, arguments)?;
    let target = NewFile::recording(&arguments.target, &[&input.path])?;
    let mut draft = target.draft()?;
    let mut progress = Progress::new();
    let trimmed = rewrite::trim(&recording, from..=to, &mut draft, &mut |done, all| progress.events(done, all));
    drop(progress);
    let (footer, damage) = trimmed.map_err(|error| match error {
        rewrite::Error::Analysis(error) => input.unanswered(error),
        error => target.failed(error),
    })?;
    input.warn_of(&damage);
    target.count_and_keep(draft, footer)
}

/// Returns the part that was asked for, within the time of the recording.
fn part(recording: &Recording<'_>, arguments: &Trim) -> Result<(Time, Time)> {
    let begins = recording.session().map_or(Time(0), |session| session.begins);
    let last = || recording.chunks().iter().map(|chunk| chunk.head.time_last).max();
    let ends = recording.footer().map(|footer| footer.time).or_else(last).unwrap_or(begins);
    let (from, to) = arguments.range.bounds();
    let cut = match arguments.file.as_ref().and_then(|file| file.at) {
        Some(Moment::At(time)) => Some(time),
        Some(Moment::Peak) => recording.footer().map(|footer| footer.counts.bytes_live_max_time),
        Some(Moment::End | Moment::Total) | None => None,
    };
    let to = to.into_iter().chain(cut).min();
    let (from, to) = (from.unwrap_or(begins).max(begins), to.unwrap_or(ends).min(ends));
    if from > to {
        let span = format!("the recording goes from {} to {}", time(begins), time(ends));
        return Err(Failure::new(Exit::Usage, "there is nothing between these times").hint(span));
    }
    Ok((from, to))
}
