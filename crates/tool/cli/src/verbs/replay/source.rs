//! The calls that are replayed, from a recording or a log.

use std::collections::HashMap;
use std::path::Path;

use heapledger_alloc_log::{Fields, Line, LineParser};
use heapledger_analysis::{AllocatorEventKind, Filter, ProcessPattern, allocator_events, statistics_points};
use heapledger_recording::{ImageId, ImageStart, Recording};
use heapledger_replay::{
    Act, ActKind, EventPlace, LogReader, Player, RecordedError, Threads, WorkError, WorkWriter, recorded,
};
use heapledger_report_format::escape;

use super::Subject;
use crate::args::Replay;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::format::counted;
use crate::input::Input;
use crate::messages::notify;
use crate::progress::Progress;
use crate::text::shown;
use crate::verbs::log::{Seen, read};

/// Writes the works of the chosen processes of a recording.
pub(super) fn of_recording(
    arguments: &Replay,
    input: &Input,
    recording: &Recording<'_>,
    player: &mut Player,
) -> Result<Vec<Subject>> {
    let file = shown(&input.path);
    if recording.is_sample() {
        let what = format_args!("`{file}` has a sample of the blocks: an allocator would not do the same for them");
        return Err(Failure::new(Exit::Usage, what).hint("record all blocks: heapledger record -o FILE.hl -- COMMAND"));
    }
    let filter = Filter { processes: arguments.processes.clone(), ..Filter::default() };
    let images = filter.images(recording).map_err(|error| input.unanswered(error))?;
    let events = |image: ImageId| recording.event_chunks(image).map(|chunk| u64::from(chunk.head().rows)).sum::<u64>();
    let chosen = recording
        .images()
        .iter()
        .filter(|start| images.contains(&start.image))
        .map(|start| (events(start.image), start));
    let chosen: Vec<(u64, &ImageStart)> = chosen.filter(|(events, _)| *events > 0).collect();
    if chosen.is_empty() {
        return Err(Failure::new(Exit::Usage, format_args!("`{file}` has no events"))
            .hint("a recording made with --aggregate has only sums: record without it"));
    }
    let acts = acts(recording);
    let all = chosen.iter().map(|(events, _)| events).sum();
    let (mut progress, mut done, mut subjects) = (Progress::new(), 0, Vec::new());
    for (_, start) in chosen {
        let mut work = writer(arguments, player)?;
        let added = recorded(recording, start.image, &acts, &mut work, |events| {
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
        let mut work = work.finish().map_err(failure)?;
        if let Some(end) = recording.image_end(start.image) {
            work.set_end(end.time.0);
        }
        let path = String::from_utf8_lossy(&start.executable).into_owned();
        let program = Path::new(&path).file_name().map_or(path.clone(), |name| name.to_string_lossy().into_owned());
        subjects.push(Subject { process: start.pid.into(), program, work });
    }
    Ok(subjects)
}

/// Returns what the programs told their allocators to do with memory, and where they asked them for
/// statistics. Purges by an allocator's own
/// decision are left out: another one decides for itself.
fn acts(recording: &Recording<'_>) -> Vec<Act> {
    let acts = allocator_events(recording).filter_map(|event| {
        let kind = match event.kind {
            AllocatorEventKind::ArenaDisposed { label, .. } => ActKind::Disposed(label.into_bytes()),
            AllocatorEventKind::Purged(purge) => match &*purge.reason {
                "all" | "trim" => ActKind::PurgedAll,
                "excess" => ActKind::PurgedExcess,
                _ => return None,
            },
            AllocatorEventKind::ArenaCreated { .. } => return None,
        };
        Some(Act { image: event.image, time: event.time, kind })
    });
    let mut acts: Vec<Act> = acts.collect();
    for image in recording.images().iter().map(|start| start.image) {
        acts.extend(statistics_points(recording, image).into_iter().map(|(thread, time, point)| {
            let kind = ActKind::Statistics(thread, EventPlace { serial: point.serial, rows: point.rows });
            Act { image, time, kind }
        }));
    }
    acts.sort_by_key(|act| (act.image, act.time));
    acts
}

/// A process of a log.
struct Process {
    process: u64,
    reader: LogReader,
    work: WorkWriter,
}

/// Writes the works of the chosen processes of a log. The moment of a call is its time, or its line
/// if the log has no times. A log does not say when a process ends: each runs to the end.
pub(super) fn of_log(arguments: &Replay, player: &mut Player) -> Result<Vec<Subject>> {
    let log = arguments.file.to_string_lossy();
    let pid = |pattern: &ProcessPattern| match pattern {
        ProcessPattern::Pid(pid) => Ok(u64::from(*pid)),
        ProcessPattern::Program(name) => {
            let what = format_args!("a log has no names of programs: process `{name}` is not in it");
            Err(Failure::new(Exit::Usage, what).hint("choose a process by its number: --process PID"))
        }
    };
    let chosen: Vec<u64> = arguments.processes.iter().map(pid).collect::<Result<_>>()?;
    let (mut processes, mut places) = (Vec::<Process>::new(), HashMap::<u64, usize>::new());
    let (mut number, mut wrong, mut left_out, mut failed) = (0_u64, 0_u64, 0_u64, None);
    let (mut parser, mut last) = (LineParser::default(), 0);
    let mut add = |number: u64, line: &Line, fields: &Fields<'_>| -> Result<()> {
        let process = line.process;
        if !chosen.is_empty() && !chosen.contains(&process) {
            left_out += 1;
            return Ok(());
        }
        let place = match places.get(&process) {
            Some(&place) => place,
            None => {
                let work = writer(arguments, player)?;
                processes.push(Process { process, reader: LogReader::default(), work });
                places.insert(process, processes.len() - 1);
                processes.len() - 1
            }
        };
        let Process { reader, work, .. } = &mut processes[place];
        last = last.max(reader.add(number, line, fields, work).map_err(failure)?);
        Ok(())
    };
    read(&log, |text| {
        number += 1;
        match parser.parse_with_fields(text) {
            Ok((line, fields)) => match add(number, &line, &fields) {
                Ok(()) => Seen::Call,
                Err(error) => {
                    failed = Some(error);
                    Seen::Enough
                }
            },
            Err(_) if arguments.keep_going || text.trim_ascii().is_empty() => {
                wrong += 1;
                Seen::Other
            }
            Err(error) => {
                let text: String = String::from_utf8_lossy(text.trim_ascii()).chars().take(100).collect();
                let what = format!("line {number} of `{log}` is no call: {error}: \"{}\"", escape(&text));
                failed = Some(Failure::new(Exit::Unreadable, what).hint("leave such lines out: --keep-going"));
                Seen::Enough
            }
        }
    })
    .or_else(|error| if failed.is_some() { Ok(()) } else { Err(error) })?;
    if let Some(failed) = failed {
        return Err(failed);
    }
    let unanswered: u64 = processes.iter().map(|process| process.reader.failed()).sum();
    for (number, one, more) in [
        (left_out, "call of another process is left out", "calls of other processes are left out"),
        (unanswered, "call that failed is left out", "calls that failed are left out"),
    ] {
        if number > 0 {
            notify(format_args!("heapledger: {}", counted(number, one, more)));
        }
    }
    if wrong > 0 {
        notify(format_args!("heapledger: {} left out: no calls", counted(wrong, "line is", "lines are")));
    }
    let subject = |process: Process| {
        let mut work = process.work.finish().map_err(failure)?;
        work.set_end(last);
        Ok(Subject { process: process.process, program: String::new(), work })
    };
    processes.into_iter().map(subject).collect()
}

fn writer(arguments: &Replay, player: &mut Player) -> Result<WorkWriter> {
    let cannot = |error| Failure::caused(Exit::NotStarted, "cannot write the calls into a temporary file", error);
    let threads = if arguments.threads { Threads::Recorded } else { Threads::One };
    Ok(WorkWriter::new(player.work_file().map_err(cannot)?, threads))
}

/// Describes why the work cannot be written.
fn failure(error: WorkError) -> Failure {
    let hint = match error {
        WorkError::Threads => "leave out --threads: then one thread makes all calls",
        WorkError::Blocks => "replay a part: heapledger trim --to TIME -o PART.hl FILE",
        _ => "it takes 16 bytes for each call in the directory for temporary files:\ndf -h /tmp",
    };
    Failure::caused(Exit::NotStarted, "cannot prepare the replay", error).hint(hint)
}
