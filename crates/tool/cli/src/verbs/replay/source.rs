//! The calls that are replayed, from a recording or a log.

use std::collections::HashMap;
use std::path::Path;

use heapledger_alloc_log::Line;
use heapledger_recording::{ImageId, Recording};
use heapledger_replay::{LogReader, RecordedError, Skipped, WorkError, WorkWriter, recorded};
use heapledger_report_format::escape;

use crate::args::Replay;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::format::counted;
use crate::input::Input;
use crate::messages::notify;
use crate::progress::Progress;
use crate::text::{quoted, shown};
use crate::verbs::log::{Seen, read};

/// Adds the calls of a process of a recording. Returns the process.
pub(super) fn add_recording(
    arguments: &Replay,
    input: &Input,
    recording: &Recording<'_>,
    work: &mut WorkWriter,
) -> Result<u64> {
    let file = shown(&input.path);
    if recording.is_sample() {
        let what = format_args!("`{file}` has a sample of the blocks: an allocator would not do the same for them");
        return Err(Failure::new(Exit::Usage, what).hint("record all blocks: heapledger record -o FILE.hl -- COMMAND"));
    }
    let events = |image: ImageId| recording.event_chunks(image).map(|chunk| u64::from(chunk.head().rows)).sum::<u64>();
    let images = recording.images().iter();
    let chosen = images.filter(|start| arguments.process.is_none_or(|process| process == u64::from(start.pid)));
    let chosen = chosen.map(|start| (events(start.image), start)).max_by_key(|(events, _)| *events);
    let Some((all, start)) = chosen.filter(|(events, _)| *events > 0) else {
        let word = quoted(&input.path.to_string_lossy());
        return Err(match arguments.process {
            Some(process) if recording.images().iter().all(|start| u64::from(start.pid) != process) => {
                Failure::new(Exit::Usage, format_args!("process {process} is not in `{file}`"))
                    .hint(format_args!("see which are:\nheapledger info {word}"))
            }
            _ => Failure::new(Exit::Usage, format_args!("`{file}` has no events"))
                .hint("a recording made with --aggregate has only sums: record without it"),
        });
    };
    let (mut progress, mut done) = (Progress::new(), 0);
    let added = recorded(recording, start.image, work, |events| {
        done += events;
        progress.events(done, all);
    });
    added.map_err(|error| match error {
        RecordedError::Work(error) => failure(error),
        RecordedError::Recording(error) => {
            Failure::caused(Exit::Unreadable, format_args!("cannot read `{file}`"), error)
        }
        other => Failure::from_error(Exit::Unreadable, other),
    })?;
    Ok(start.pid.into())
}

/// Adds the calls of a process of a log. Returns the process.
pub(super) fn add_log(arguments: &Replay, work: &mut WorkWriter) -> Result<u64> {
    let log = arguments.file.to_string_lossy();
    let mut process = match arguments.process {
        Some(process) => Some(process),
        None if arguments.file == Path::new("-") => None,
        None => Some(busiest(&log)?),
    };
    let (mut reader, mut number, mut wrong, mut failed) = (None, 0_u64, 0_u64, None);
    read(&log, |line| {
        number += 1;
        if process.is_none() {
            process = Line::parse(line).ok().map(|line| line.process);
        }
        let reader = reader.get_or_insert_with(|| LogReader::new(process.unwrap_or(0)));
        match reader.add(line, work) {
            Ok(Ok(())) => Seen::Call,
            Ok(Err(_)) if arguments.keep_going || line.trim_ascii().is_empty() => {
                wrong += 1;
                Seen::Other
            }
            Ok(Err(error)) => {
                let text: String = String::from_utf8_lossy(line.trim_ascii()).chars().take(100).collect();
                let what = format!("line {number} of `{log}` is no call: {error}: \"{}\"", escape(&text));
                failed = Some(Failure::new(Exit::Unreadable, what).hint("leave such lines out: --keep-going"));
                Seen::Enough
            }
            Err(error) => {
                failed = Some(failure(error));
                Seen::Enough
            }
        }
    })
    .or_else(|error| if failed.is_some() { Ok(()) } else { Err(error) })?;
    if let Some(failed) = failed {
        return Err(failed);
    }
    let skipped = reader.map_or_else(Skipped::default, |reader| reader.skipped());
    for (number, one, more) in [
        (skipped.others, "call of another process is left out", "calls of other processes are left out"),
        (skipped.failed, "call that failed is left out", "calls that failed are left out"),
    ] {
        if number > 0 {
            notify(format_args!("heapledger: {}", counted(number, one, more)));
        }
    }
    if wrong > 0 {
        notify(format_args!("heapledger: {} left out: no calls", counted(wrong, "line is", "lines are")));
    }
    Ok(process.unwrap_or(0))
}

/// Returns the process with the most calls.
fn busiest(log: &str) -> Result<u64> {
    let mut calls: HashMap<u64, u64> = HashMap::new();
    read(log, |line| match Line::parse(line) {
        Ok(line) => {
            *calls.entry(line.process).or_default() += 1;
            Seen::Call
        }
        Err(_) => Seen::Other,
    })?;
    // The first of several, by its number.
    let most = calls.into_iter().max_by_key(|&(process, calls)| (calls, std::cmp::Reverse(process)));
    Ok(most.map_or(0, |(process, _)| process))
}

/// Describes why the work cannot be written.
pub(super) fn failure(error: WorkError) -> Failure {
    let hint = match error {
        WorkError::Threads => "leave out --threads: then one thread makes all calls",
        WorkError::Blocks => "replay a part: heapledger trim --to TIME -o PART.hl FILE",
        _ => "it takes 16 bytes for each call in the directory for temporary files:\ndf -h /tmp",
    };
    Failure::caused(Exit::NotStarted, "cannot prepare the replay", error).hint(hint)
}
