//! The resident snapshots of a recording.

pub(crate) mod json;

use std::path::{Path, PathBuf};

use clap::{Args as _, FromArgMatches as _};
use heapledger_analysis::{
    Filter, ImageSnapshots, Metric, Moment, ProcessPattern, ResidentGroup, ResidentGroups, Selection,
};
use heapledger_collect::{ControlRequest, RunningSession};
use heapledger_core::Bytes;
use heapledger_recording::{ExitStatus, ImageId, Recording, ResidentSnapshot, SnapshotCause, Time};
use heapledger_report_format::{Row, Tree};
use heapledger_resident::{GlibcArena, GlibcHeap, PartKind, ResidentMemory, ResidentPart};

pub(crate) use self::json::RecordedRssJson;

use super::{advice, print_parts};
use crate::args::{By, Depth, Record, Rows, Rss};
use crate::code::Code;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::format::{bytes, count, counted, duration, percent, time};
use crate::input::Input;
use crate::json::document::Form;
use crate::messages::{notify, warn};
use crate::output::Output;
use crate::question::Question;
use crate::text::{quoted, shown};
use crate::verbs::record;
use crate::views::rows::row;
use crate::views::table::limit;

/// The share of the kernel's peak that the highest snapshot must have, in percent.
const NEAR_PEAK: u64 = 90;

/// Records the command, and shows a snapshot. Returns how the command ended.
pub(crate) fn run_command(arguments: &Rss, out: &mut Output) -> Result<ExitStatus> {
    let (path, exit) = record_first(arguments)?;
    let input = Input::map(&path)?;
    let at = arguments.at.unwrap_or(Moment::Peak);
    show(arguments, (&input, &input.open()?), &arguments.processes, at, out)?;
    Ok(exit)
}

/// Shows a snapshot of a recording.
pub(crate) fn run(arguments: &Rss, out: &mut Output) -> Result<()> {
    match arguments.process() {
        Some(process) => {
            let path = snapshot_of(process).ok_or_else(|| not_recorded(process))?;
            let input = Input::map(&path)?;
            let processes = [ProcessPattern::Pid(process)];
            // It has no end yet, which is no reason for a warning.
            let recording = input.recording()?;
            show(arguments, (&input, &recording), &processes, arguments.at.unwrap_or(Moment::End), out)
        }
        None => {
            let file = arguments.recording();
            let input = Input::find(file.map(|file| &**file))?;
            let at = arguments.at.or(file.and_then(|file| file.at)).unwrap_or(Moment::Peak);
            show(arguments, (&input, &input.open()?), &arguments.processes, at, out)
        }
    }
}

fn not_recorded(process: u32) -> Failure {
    let what = format_args!("process {process} is not being recorded: its live blocks are not known");
    Failure::new(Exit::Usage, what)
        .hint(format_args!("heapledger rss {process}; or record it: heapledger attach {process}"))
}

/// Records the command. Returns the path of the recording, and how the command ended.
fn record_first(arguments: &Rss) -> Result<(PathBuf, ExitStatus)> {
    let program = arguments.command.first().map(Path::new).and_then(Path::file_name).unwrap_or_default();
    let path = format!("heapledger.{}.{}.hl", program.to_string_lossy(), std::process::id());
    // The snapshots are what is asked for: they may take more time than they do by default.
    let words = ["record", "--quiet", "--resident-every", "250ms", "--resident-exit", "10s", "-o", &path, "--"];
    let words = words.map(Into::into);
    let words = words.into_iter().chain(arguments.command.iter().cloned());
    // The words are those of the verb itself, so that it has all its defaults.
    let matches = Record::augment_args(clap::Command::new("record")).try_get_matches_from(words);
    let record = matches.and_then(|matches| Record::from_arg_matches(&matches));
    let record = record.map_err(|error| Failure::from_error(Exit::Usage, error))?;
    let exit = record::run_command(&record)?;
    notify(format_args!("heapledger: recorded into {}", shown(Path::new(&path))));
    Ok((path.into(), exit))
}

/// Has a snapshot of a process written into its recording. Returns the recording; `None` if the
/// process is not being recorded, or cannot be read.
pub(crate) fn snapshot_of(process: u32) -> Option<PathBuf> {
    let session = RunningSession::of_process(process).ok()??;
    Some(session.ask(ControlRequest::Resident(process)).ok()?.output)
}

/// Says that a snapshot of a process was written, and how to see it.
pub(crate) fn notify_of_snapshot(file: &Path, process: u32) {
    let command = format!("heapledger rss {}@end -p {process}", quoted(&shown(file)));
    notify(format_args!("heapledger: a snapshot with the live blocks is in its recording: {command}"));
}

/// A snapshot that is shown.
pub(crate) struct Chosen<'s> {
    pub(crate) image: ImageId,
    pub(crate) pid: u32,
    pub(crate) program: String,
    pub(crate) snapshot: &'s ResidentSnapshot,
    /// The number of snapshots of the process.
    pub(crate) snapshots: usize,
    /// The most resident memory of the process, by the kernel.
    pub(crate) resident_max: Bytes,
}

fn show(
    arguments: &Rss,
    (input, recording): (&Input, &Recording<'_>),
    processes: &[ProcessPattern],
    at: Moment,
    out: &mut Output,
) -> Result<()> {
    if let Some(output) = &arguments.output {
        out.direct(output, arguments.force, &[&input.path])?;
    }
    let filter = Filter { processes: processes.to_vec(), ..Filter::default() };
    let selection = Selection { filter, ..Selection::default() };
    let mut question = Question::new(input, recording, &arguments.symbols, selection, Metric::Bytes);
    let all = question.answer(|names, selection, _| ImageSnapshots::load(names, &selection.filter))?;
    input.warn_of(&all.damage);
    let chosen = choose(&question, &all, at).ok_or_else(|| without_snapshot(input, &all, at))?;
    let by = arguments.by.unwrap_or(By::Owner);
    let Rows::Sites(rank, depth) = by.rows() else {
        let what = format_args!("a snapshot does not tell blocks apart by {}", by.name());
        return Err(
            Failure::new(Exit::Usage, what).hint("--by owner, line, site, module, type, context and others of stacks")
        );
    };
    warn_of_gaps(&chosen, at);
    let groups = ResidentGroups::of(&mut question.labels.names, chosen.image, chosen.snapshot, rank);
    input.warn_of(&groups.damage);
    let rows = limit(arguments.rows);
    if arguments.json {
        let document = RecordedRssJson::new(&mut question, &chosen, &all, (by.name(), &groups), rows);
        return out.document(&document, Form::Json);
    }
    print(&mut question, &chosen, at, out)?;
    let memory = memory_of(&chosen);
    let live: Vec<u64> = chosen.snapshot.parts.iter().map(|part| part.live.0).collect();
    print_parts(&memory, &live, rows, out)?;
    advice::print(&memory, None, out)?;
    let freed = freed_meanwhile(chosen.snapshot);
    if freed > 0 {
        out.dim_line(format_args!("{} of live blocks were freed while the process was read", bytes(freed)))?;
    }
    print_pages(&chosen, out)?;
    print_groups(&mut question, &groups, (by.name(), depth), rows, out)
}

/// Returns the bytes of live blocks that are not in the memory as it was read a moment later.
fn freed_meanwhile(snapshot: &ResidentSnapshot) -> u64 {
    let freed = snapshot.parts.iter().map(|part| part.live.0.saturating_sub(part.resident.0));
    freed.fold(0, u64::saturating_add)
}

fn without_snapshot(input: &Input, all: &ImageSnapshots, at: Moment) -> Failure {
    let path = input.path.display();
    if let (Moment::At(until), Some((_, first))) = (at, all.snapshots.first()) {
        let (until, first) = (time(until), time(first.time));
        let what = format_args!("the process has no resident snapshot up to {until} in `{path}`");
        return Failure::new(Exit::Usage, what)
            .code(Code::NoSnapshots)
            .hint(format_args!("the first one is at {first}; -p names another process"));
    }
    let what = format_args!("`{path}` has no resident snapshot");
    let hint = "record again: heapledger record -- COMMAND; of a program that runs: heapledger rss PID";
    Failure::new(Exit::Usage, what).code(Code::NoSnapshots).hint(hint)
}

/// Returns the snapshot at a moment: the highest one, or that of the same process which is the last
/// one, or the last one up to a time.
fn choose<'s>(question: &Question<'_, '_>, all: &'s ImageSnapshots, at: Moment) -> Option<Chosen<'s>> {
    let resident = |snapshot: &ResidentSnapshot| snapshot.figures.resident;
    // The first of equals, as for other peaks.
    let highest = || all.snapshots.iter().rev().max_by_key(|(_, snapshot)| resident(snapshot));
    // A process that executes another program has another image.
    let pid = |image: ImageId| question.recording.image(image).map(|start| start.pid);
    let last = |until: Time| {
        let process = pid(highest()?.0);
        all.snapshots.iter().rfind(|(of, snapshot)| pid(*of) == process && snapshot.time <= until)
    };
    let (image, snapshot) = match at {
        Moment::Peak | Moment::Total => highest()?,
        Moment::End => last(Time(u64::MAX))?,
        Moment::At(time) => last(time)?,
    };
    let of_image = || all.snapshots.iter().filter(|(of, _)| of == image).map(|(_, snapshot)| snapshot);
    let samples = question.recording.memory(*image).rows;
    let sampled = samples.iter().map(|sample| sample.resident).max().unwrap_or_default();
    let by_kernel = of_image().map(|snapshot| snapshot.figures.resident_max).max().unwrap_or_default();
    let start = question.recording.image(*image);
    let program = start.map(|start| String::from_utf8_lossy(&start.executable).into_owned()).unwrap_or_default();
    Some(Chosen {
        image: *image,
        pid: start.map_or(0, |start| start.pid),
        program: program.rsplit('/').next().unwrap_or_default().to_owned(),
        snapshot,
        snapshots: of_image().count(),
        resident_max: by_kernel.max(sampled),
    })
}

fn warn_of_gaps(chosen: &Chosen<'_>, at: Moment) {
    let figures = &chosen.snapshot.figures;
    if !figures.has_sites {
        warn(Code::NoSites, "the live blocks are not divided: the recording is of a sample, or they were too many");
    }
    if !figures.knows_zeroes {
        let what = "the kernel did not tell pages of zeroes from others: in heaps they are counted";
        warn(Code::ZeroesUnknown, format_args!("{what}, so that the parts may be more than the whole"));
    }
    let (resident, most) = (figures.resident.0, chosen.resident_max.0);
    if at == Moment::Peak && resident < most / 100 * NEAR_PEAK {
        let (resident, most) = (bytes(resident), bytes(most));
        warn(
            Code::BelowPeak,
            format_args!("resident memory was {most} at the most; the highest snapshot has {resident}"),
        );
    }
}

fn print(question: &mut Question<'_, '_>, chosen: &Chosen<'_>, at: Moment, out: &mut Output) -> Result<()> {
    let Chosen { pid, program, snapshot, snapshots, resident_max, .. } = chosen;
    let figures = &snapshot.figures;
    let (resident, mapped) = (bytes(figures.resident.0), bytes(figures.mapped.0));
    let when = time(snapshot.time);
    out.title(format_args!("process {pid} ({program}): {resident} resident of {mapped} mapped, at {when}"))?;
    let which = match at {
        Moment::Peak | Moment::Total => "the highest",
        Moment::End => "the last",
        Moment::At(_) => "one",
    };
    let before = match (at, question.recording.image_end(chosen.image)) {
        (Moment::End, Some(end)) if end.time > snapshot.time => {
            format!(", {} before the end", time(Time(end.time.0 - snapshot.time.0)))
        }
        _ => String::new(),
    };
    let (of, most) = (counted(*snapshots as u64, "snapshot", "snapshots"), bytes(resident_max.0));
    out.line(format_args!("{which} of {of}{before}; at the most {most} were resident"))?;
    let read = duration(std::time::Duration::from_nanos(figures.read_ns));
    let copy = duration(std::time::Duration::from_nanos(figures.copy_ns));
    out.dim_line(format_args!("made because {}; read in {read}, while the process ran;", cause(figures.cause)))?;
    out.dim_line(format_args!("the recorder took no events for {copy}"))?;
    Ok(out.line("")?)
}

/// Returns the reason why a snapshot was made.
fn cause(cause: SnapshotCause) -> &'static str {
    match cause {
        SnapshotCause::Asked => "somebody asked",
        SnapshotCause::Schedule => "it was time",
        SnapshotCause::Growth => "memory grew",
        SnapshotCause::Fall => "memory fell",
        SnapshotCause::End => "the program ended",
        SnapshotCause::Unknown => "of an unknown reason",
    }
}

/// Returns a snapshot as what is read from a running process.
fn memory_of(chosen: &Chosen<'_>) -> ResidentMemory {
    let figures = &chosen.snapshot.figures;
    let mut memory = ResidentMemory::default();
    memory.command = chosen.program.clone();
    memory.kernel.resident = figures.resident.0;
    memory.kernel.anonymous = figures.anonymous.0;
    memory.kernel.anonymous_huge = figures.huge.0;
    memory.kernel.swapped = figures.swapped.0;
    memory.kernel.huge_tlb = figures.huge_tlb.0;
    (memory.mapped, memory.reserved) = (figures.mapped.0, figures.reserved.0);
    memory.page_tables = figures.page_tables.0;
    memory.knows_zeroes = figures.knows_zeroes;
    memory.threads = figures.threads;
    if figures.arenas > 0 {
        let mut heap = GlibcHeap::default();
        // No snapshot has more arenas than bytes.
        heap.arenas = vec![GlibcArena::default(); figures.arenas.min(1 << 16) as usize];
        let first = &mut heap.arenas[0];
        first.trimmable = figures.trimmable.0;
        // The figures of all arenas are in one: advice about their number needs those of each, and
        // finds nothing.
        for part in &chosen.snapshot.parts {
            let piece = match PartKind::from_word(&part.kind) {
                Some(PartKind::GlibcFree) => &mut first.free,
                Some(PartKind::GlibcTop) => &mut first.top,
                _ => continue,
            };
            (piece.chunks, piece.bytes, piece.resident) = (part.count, part.mapped.0, part.resident.0);
        }
        heap.caches = figures.caches;
        memory.glibc = Some(heap);
    }
    memory.parts = chosen.snapshot.parts.iter().map(part_of).collect();
    memory
}

fn part_of(part: &heapledger_recording::SnapshotPart) -> ResidentPart {
    let kind = PartKind::from_word(&part.kind);
    // A kind of a later version is shown as private memory of that name.
    let name = if kind.is_none() && part.name.is_empty() { &part.kind } else { &part.name };
    let mut found = ResidentPart::new(kind.unwrap_or(PartKind::Anonymous), name.clone());
    (found.count, found.mapped, found.resident) = (part.count, part.mapped.0, part.resident.0);
    (found.private_dirty, found.shared) = (part.private_dirty.0, part.shared.0);
    found
}

/// Prints how full the pages of heaps are.
fn print_pages(chosen: &Chosen<'_>, out: &mut Output) -> Result<()> {
    let figures = &chosen.snapshot.figures;
    if !figures.has_sites || figures.heap_pages == 0 {
        return Ok(());
    }
    let size = figures.page_size.0;
    let memory = |pages: u64| bytes(pages.saturating_mul(size));
    let empty = figures.heap_pages.saturating_sub(chosen.snapshot.pages_live());
    let [sparse, half, most, full] = figures.pages_by_fill;
    out.line("")?;
    let mut table = Tree::new(["resident", "share", "pages"]);
    let cells = |pages: u64| [memory(pages), percent(pages, figures.heap_pages), count(pages)];
    table.push(0, Row::new("pages of heaps").cells(cells(figures.heap_pages)));
    table.push(1, Row::new("without a live byte").cells(cells(empty)));
    let alone = format!("{} with one block alone", counted(figures.pages_alone, "page is", "pages are"));
    let alone = alone.replace("page is with", "page has").replace("pages are with", "pages have");
    table.push(1, Row::new("less than a quarter full").cells(cells(sparse)));
    table.push(1, Row::new("less than a half full").cells(cells(half)));
    table.push(1, Row::new("less than three quarters full").cells(cells(most)));
    table.push(1, Row::new("fuller").cells(cells(full)));
    out.tree(&table)?;
    Ok(out.dim_line(alone)?)
}

/// Prints the groups of live blocks that keep pages.
fn print_groups(
    question: &mut Question<'_, '_>,
    groups: &ResidentGroups,
    (by, depth): (&str, Depth),
    rows: usize,
    out: &mut Output,
) -> Result<()> {
    let (listed, rest) = groups.groups.split_at(groups.groups.len().min(rows));
    if listed.is_empty() {
        return Ok(());
    }
    out.line("")?;
    out.line(format_args!("live blocks and the pages that they keep, by {by}:"))?;
    let mut table = Tree::new(["kept", "share", "live", "blocks", "alone", "sparse"]);
    let whole = groups.whole.kept.0;
    let cells = |group: &ResidentGroup| {
        let sum = &group.sum;
        [
            bytes(sum.kept.0),
            percent(sum.kept.0, whole),
            bytes(sum.resident.0),
            count(sum.blocks.0),
            count(sum.pages_alone),
            count(sum.pages_sparse),
        ]
    };
    for group in listed {
        let name = row(&mut question.labels, &groups.stacks, &group.rank, depth);
        table.push(0, name.cells(cells(group)));
    }
    if !rest.is_empty() {
        let kept = rest.iter().fold(0_u64, |sum, group| sum.saturating_add(group.sum.kept.0));
        let text = format!("and {} more: -n 0 shows them", count(rest.len() as u64));
        let empty = String::new;
        let cells = [bytes(kept), percent(kept, whole), empty(), empty(), empty(), empty()];
        table.push(0, Row::new(text).cells(cells));
    }
    out.tree(&table)?;
    out.hint(question.labels.hint_for_unnamed(listed.iter().map(|group| group.rank.frame.function)));
    Ok(())
}
