//! `heapledger summary`: the totals.

use std::time::Duration;

use heapledger_analysis::{
    Amount, Filter, ImageOverview, Metric, Moment, Overview, ProcessOverview, overview, resident_max, totals,
};
use heapledger_core::{Blocks, Bytes};
use heapledger_recording::{Counts, ExitStatus, ImageOrigin, Live, MemorySample, Recording, StackCounts};
use heapledger_report_format::{Row, Tree};
use serde::Serialize;

use crate::args;
use crate::code::Code;
use crate::declared::Declared;
use crate::departures::{self, DepartureJson};
use crate::document::{Document, Form};
use crate::error::Result;
use crate::format::{bytes, count, duration, percent, time};
use crate::input::{Input, shown};
use crate::label::{command, seconds, shown_command};
use crate::lost::{LostJson, at_least};
use crate::output::Output;
use crate::progress::Progress;
use crate::question::{Question, SelectionJson, expect_something};
use crate::ranks::AmountJson;
use crate::resident;
use crate::sampled::{self, RateJson, TotalErrorsJson, rates_json};
use crate::stack_checks::{self, StackChecksJson};
use crate::unseen::{self, UnseenLibrary};

pub(crate) fn run(arguments: &args::Summary, out: &mut Output) -> Result<()> {
    let selection = arguments.what.resolve(arguments.input.at(), Moment::End)?;
    let input = arguments.input.find(out)?;
    let (arguments, symbols) = (&arguments.input, &arguments.symbols);
    let recording = input.open()?;
    if selection.filter != Filter::default() || selection.moment != Moment::End {
        let question = Question::new(&input, &recording, symbols, selection, Metric::Bytes);
        return of_selection(question.expect_something()?, arguments.form(), out);
    }
    if recording.footer().is_none() {
        expect_something(&recording)?;
    }
    let mut progress = Progress::new();
    let totals =
        overview(&recording, &mut |done, all| progress.events(done, all)).map_err(|error| input.unanswered(error))?;
    drop(progress);
    input.warn_of(&totals.damage);
    let mut damage = Vec::new();
    let resident = resident_max(&recording, &mut damage);
    input.warn_of(&damage);
    let mut question = Question::new(&input, &recording, symbols, selection, Metric::Bytes);
    let declared = Declared::find(&mut question)?;
    match arguments.form() {
        Some(form) => out.document(&json_of(&recording, &totals, resident, declared), form),
        None => print(&input, &recording, &totals, resident, &declared, out),
    }
}

/// Prints the totals of a selection.
fn of_selection(mut question: Question<'_, '_>, form: Option<Form>, out: &mut Output) -> Result<()> {
    let totals = question.answer(|names, selection, progress| totals(names, selection, progress))?;
    question.input.warn_of(&totals.damage);
    question.expect_match(totals.selected.is_nothing())?;
    let (selected, left_out) = (&totals.selected, &totals.left_out);
    if let Some(form) = form {
        let moment = question.selection.moment;
        let document = SelectedJson {
            selection: SelectionJson::new(&question.selection, Metric::Bytes),
            allocated: AmountJson::new(&selected.total, Moment::Total),
            peak: totals.is_peak_known.then(|| AmountJson::new(&selected.peak, Moment::Peak)),
            live: AmountJson::new(&selected.live, moment),
            left_out: AmountJson::new(&left_out.total, Moment::Total),
        };
        return out.document(&document, form);
    }
    out.title(shown(&question.input.path))?;
    sampled::print_notice(question.recording, out)?;
    question.filters(&left_out.total, out)?;
    out.line("")?;
    let mut facts = Tree::new([""]);
    let mut fact = |name: &str, amount: &Amount, one: &str, more: &str| {
        let note = format!("in {}", sampled::blocks_of(amount, one, more));
        facts.push(0, Row::new(sampled::bytes_of(amount)).note(note).cells([name]));
    };
    fact("allocated", &selected.total, "allocation", "allocations");
    if totals.is_peak_known {
        fact("live at the peak", &selected.peak, "block", "blocks");
    }
    fact(&question.what(), &selected.live, "block", "blocks");
    Ok(out.tree(&facts)?)
}

/// The object that `--json` prints for a selection.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct SelectedJson {
    #[serde(flatten)]
    selection: SelectionJson,
    /// The amount that was ever allocated, or that was allocated in the time that was asked for.
    allocated: AmountJson,
    /// The part of `allocated` that was live at the peak of all selected processes. Null if it is
    /// not known: for several processes in a recording without events.
    peak: Option<AmountJson>,
    /// The part of `allocated` that was live at the moment `at`; with a time of allocation, the
    /// amount retained.
    live: AmountJson,
    /// The amount of all allocations that are not selected.
    left_out: AmountJson,
}

impl Document for SelectedJson {
    const SCHEMA: &'static str = "selected";
    const ROWS: Option<&'static str> = None;
}

/// The counts in the object that `--json` prints: for the session and, except for a few fields, for
/// each process and image.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct CountsJson {
    allocations: u64,
    reallocations: u64,
    frees: u64,
    failed: u64,
    bytes_allocated: u64,
    bytes_live_max: u64,
    bytes_live_max_time_seconds: f64,
    blocks_at_bytes_live_max: u64,
    blocks_live_max: u64,
    bytes_live_end: u64,
    blocks_live_end: u64,
    temporary_allocations: u64,
    frees_unknown: u64,
    frees_missed: u64,
    stamps_unknown: u64,
    frees_inherited: u64,
    bytes_inherited_live_end: u64,
    blocks_inherited_live_end: u64,
    events_lost: u64,
    events_lost_by_cause: LostJson,
    frees_paused: u64,
    events_late: u64,
    events_reordered: u64,
    threads: u64,
    stacks_truncated: u64,
    stacks_dropped: u64,
    stacks_folded: u64,
    #[serde(flatten)]
    stack_checks: StackChecksJson,
    /// The standard errors, if the recording is a sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    standard_errors: Option<TotalErrorsJson>,
}

impl CountsJson {
    fn new(counts: &Counts) -> CountsJson {
        CountsJson {
            allocations: counts.allocations.0,
            reallocations: counts.reallocations.0,
            frees: counts.frees.0,
            failed: counts.failed.0,
            bytes_allocated: counts.bytes_allocated.0,
            bytes_live_max: counts.bytes_live_max.0,
            bytes_live_max_time_seconds: seconds(counts.bytes_live_max_time),
            blocks_at_bytes_live_max: counts.blocks_at_bytes_max.0,
            blocks_live_max: counts.blocks_live_max.0,
            bytes_live_end: counts.bytes_live_end.0,
            blocks_live_end: counts.blocks_live_end.0,
            temporary_allocations: counts.temporary_allocations.0,
            frees_unknown: counts.frees_unknown.0,
            frees_missed: counts.frees_missed.0,
            stamps_unknown: counts.stamps_unknown,
            frees_inherited: counts.frees_inherited.0,
            bytes_inherited_live_end: counts.bytes_inherited_live_end.0,
            blocks_inherited_live_end: counts.blocks_inherited_live_end.0,
            events_lost: counts.events_lost,
            events_lost_by_cause: LostJson::new(counts),
            frees_paused: counts.frees_paused.0,
            events_late: counts.events_late,
            events_reordered: counts.events_reordered,
            threads: counts.threads,
            stacks_truncated: counts.stacks.truncated,
            stacks_dropped: counts.stacks.dropped,
            stacks_folded: counts.stacks.folded,
            stack_checks: StackChecksJson::new(&counts.stacks),
            standard_errors: counts.errors.map(TotalErrorsJson::from),
        }
    }
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct SessionJson {
    #[serde(flatten)]
    counts: CountsJson,
    complete: bool,
    /// The least bytes that can have been live at once, in a recording merged from totals:
    /// `bytes_live_max` and `blocks_live_max` are then the most.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_live_max_least: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    blocks_live_max_least: Option<u64>,
    /// The moment at which the processes had the most resident memory, among those at which the
    /// recorder measured it. Shared pages count for each process. Null if it was never measured.
    resident_max: Option<ResidentJson>,
    /// The rates at which blocks were sampled, if they were.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    sampling: Vec<RateJson>,
    /// True if the totals were counted again from the events.
    recounted: bool,
    command: Vec<String>,
    duration_seconds: Option<f64>,
    exit: Option<ExitJson>,
    costs: Option<CostsJson>,
    #[serde(flatten)]
    declared: Declared,
    processes: Vec<ProcessJson>,
    /// The libraries whose calls of the allocator are not recorded.
    unseen_libraries: Vec<UnseenLibrary>,
    /// The programs that recorded processes started and that were not recorded.
    unrecorded: Vec<DepartureJson>,
    damage: Vec<DamageJson>,
}

impl Document for SessionJson {
    const SCHEMA: &'static str = "summary";
    const ROWS: Option<&'static str> = Some("processes");
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ResidentJson {
    time_seconds: f64,
    bytes: u64,
    /// The part of it that is pages without a file.
    anonymous_bytes: u64,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ProcessJson {
    pid: u32,
    command: String,
    exit: Option<ExitJson>,
    /// True if the process was still running when the recording ended.
    running: bool,
    #[serde(flatten)]
    counts: CountsJson,
    images: Vec<ImageJson>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ImageJson {
    image: u32,
    command: String,
    executable: String,
    how: &'static str,
    start_time_seconds: Option<f64>,
    end_time_seconds: Option<f64>,
    #[serde(flatten)]
    counts: CountsJson,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct CostsJson {
    hook_seconds: Option<f64>,
    program_cpu_seconds: Option<f64>,
    program_wall_seconds: Option<f64>,
    collector_cpu_seconds: Option<f64>,
    collector_rss_max_bytes: Option<u64>,
    ring_bytes: Option<u64>,
    target_private_bytes: Option<u64>,
}

/// A part of the file that cannot be read.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct DamageJson {
    offset: u64,
    reason: String,
}

impl From<&heapledger_recording::Damage> for DamageJson {
    fn from(damage: &heapledger_recording::Damage) -> DamageJson {
        DamageJson { offset: damage.offset, reason: damage.reason.to_string() }
    }
}

fn json_of(
    recording: &Recording<'_>,
    totals: &Overview,
    resident: Option<MemorySample>,
    declared: Declared,
) -> SessionJson {
    let footer = recording.footer();
    let session = recording.session();
    let nanoseconds = |ns: Option<u64>| ns.map(|ns| ns as f64 / 1e9);
    let peak_least = footer.and_then(|footer| footer.peak_least);
    SessionJson {
        counts: CountsJson::new(&totals.counts),
        complete: recording.complete(),
        bytes_live_max_least: peak_least.map(|least| least.bytes.0),
        blocks_live_max_least: peak_least.map(|least| least.blocks.0),
        resident_max: resident.map(|sample| ResidentJson {
            time_seconds: seconds(sample.time),
            bytes: sample.resident.0,
            anonymous_bytes: sample.resident_anonymous.0,
        }),
        sampling: rates_json(recording),
        recounted: totals.recounted,
        command: session.map_or(vec![], |session| {
            session.command.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect()
        }),
        duration_seconds: footer.map(|footer| seconds(footer.time)),
        exit: footer.and_then(|footer| footer.exit).map(ExitJson::from),
        costs: footer.map(|footer| CostsJson {
            hook_seconds: nanoseconds(footer.costs.hook_ns),
            program_cpu_seconds: nanoseconds(footer.costs.program_cpu_ns),
            program_wall_seconds: nanoseconds(footer.costs.program_wall_ns),
            collector_cpu_seconds: nanoseconds(footer.costs.collector_cpu_ns),
            collector_rss_max_bytes: footer.costs.collector_rss_max.map(|bytes| bytes.0),
            ring_bytes: footer.costs.ring_bytes.map(|bytes| bytes.0),
            target_private_bytes: footer.costs.target_private_bytes.map(|bytes| bytes.0),
        }),
        declared,
        processes: totals.processes.iter().map(|process| process_json(recording, process)).collect(),
        unseen_libraries: unseen::libraries(recording),
        unrecorded: departures::json(recording),
        damage: recording.damage().iter().chain(&totals.damage).map(DamageJson::from).collect(),
    }
}

fn process_json(recording: &Recording<'_>, process: &ProcessOverview) -> ProcessJson {
    ProcessJson {
        pid: process.pid,
        command: last_image(recording, process).map(command).unwrap_or_default(),
        exit: process.exit.map(ExitJson::from),
        running: process.running,
        counts: CountsJson::new(&process.counts),
        images: process.images.iter().map(|image| image_json(recording, image)).collect(),
    }
}

fn image_json(recording: &Recording<'_>, image: &ImageOverview) -> ImageJson {
    let start = recording.image(image.image);
    ImageJson {
        image: image.image.0,
        command: start.map(command).unwrap_or_default(),
        executable: start.map_or(String::new(), |start| String::from_utf8_lossy(&start.executable).into_owned()),
        how: match start.map_or(ImageOrigin::Unknown, |start| start.how) {
            ImageOrigin::Launched => "launched",
            ImageOrigin::Exec => "exec",
            ImageOrigin::Fork => "fork",
            ImageOrigin::Attached => "attached",
            _ => "unknown",
        },
        start_time_seconds: start.map(|start| seconds(start.time)),
        end_time_seconds: recording.image_end(image.image).map(|end| seconds(end.time)),
        counts: CountsJson::new(&image.counts),
    }
}

/// The exit status of a program: `{"code": 0}` or `{"signal": 9}`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub(crate) enum ExitJson {
    Code(i32),
    Signal(i32),
}

impl From<ExitStatus> for ExitJson {
    fn from(exit: ExitStatus) -> ExitJson {
        match exit {
            ExitStatus::Code(code) => ExitJson::Code(code),
            ExitStatus::Signal(signal) => ExitJson::Signal(signal),
        }
    }
}

/// Describes how a process ended, for people.
pub(crate) fn exit_shown(process: &ProcessOverview) -> String {
    match process.exit {
        _ if process.running => "running".to_owned(),
        Some(ExitStatus::Code(code)) => format!("exit {code}"),
        Some(ExitStatus::Signal(signal)) => format!("signal {signal}"),
        None => "?".to_owned(),
    }
}

/// Returns the last process image of a process.
pub(crate) fn last_image<'r>(
    recording: &'r Recording<'_>,
    process: &ProcessOverview,
) -> Option<&'r heapledger_recording::ImageStart> {
    recording.image(process.images.last()?.image)
}

/// The most processes that are listed.
const PROCESSES_MAX: usize = 20;

fn print(
    input: &Input,
    recording: &Recording<'_>,
    totals: &Overview,
    resident: Option<MemorySample>,
    declared: &Declared,
    out: &mut Output,
) -> Result<()> {
    let counts = &totals.counts;
    let running = match recording.footer() {
        Some(footer) => format!(", {}", duration(Duration::from_nanos(footer.time.0))),
        None => String::new(),
    };
    out.title(format_args!("{} ({}{running})", shown(&input.path), bytes(input.length().0)))?;
    sampled::print_notice(recording, out)?;
    out.line("")?;

    let mut facts = Tree::new([""]);
    let mut fact = |name: &str, figure: String, note: String| {
        facts.push(0, Row::new(figure).note(note).cells([name]));
    };
    let errors = counts.errors.unwrap_or_default();
    let size = |size: Bytes, error: Live| sampled::bytes_with(size, error.bytes);
    let blocks = |number: Blocks, error: Live| {
        let unit = if number.0 == 1 { "block" } else { "blocks" };
        format!("{} {unit}", sampled::count_with(number, error.blocks))
    };
    let in_blocks = blocks(counts.blocks_at_bytes_max, errors.live_at_peak);
    let peak = size(counts.bytes_live_max, errors.live_at_peak);
    let least = recording.footer().and_then(|footer| footer.peak_least);
    match least {
        Some(least) => {
            let note = format!("in {in_blocks}, at least {} [{}]", bytes(least.bytes.0), Code::PeakBounds);
            fact("peak, at most", peak, note);
        }
        None => fact("peak", peak, format!("at {} in {in_blocks}", time(counts.bytes_live_max_time))),
    }
    if let Some(most) = resident {
        fact("resident, at most", bytes(most.resident.0), resident::note(&most, counts.bytes_live_max));
    }
    let in_blocks = format!("in {}", blocks(counts.blocks_live_end, errors.live_end));
    fact("live at the end", size(counts.bytes_live_end, errors.live_end), in_blocks);
    let temporary = percent(counts.temporary_allocations.0, counts.allocations.0);
    let flow = |figure: String| at_least(counts, figure);
    let all = size(counts.bytes_allocated, errors.allocated);
    let allocated = format!("of {} in all, {temporary} temporary", flow(all));
    let allocations = sampled::count_with(counts.allocations, errors.allocated.blocks);
    fact("allocations", flow(allocations), allocated);
    fact("of these reallocations", flow(count(counts.reallocations.0)), String::new());
    fact("frees", flow(count(counts.frees.0)), String::new());
    if counts.failed.0 > 0 {
        fact("failed", flow(count(counts.failed.0)), String::new());
    }
    if counts.events_lost > 0 {
        fact("lost", count(counts.events_lost), "allocations and frees that are not counted above".to_owned());
    }
    if counts.frees_unknown.0 > 0 {
        fact("frees of unknown blocks", count(counts.frees_unknown.0), "not recorded when allocated".to_owned());
    }
    if counts.frees_missed.0 > 0 {
        let note = format!("of blocks whose addresses were handed out again [{}]", Code::MissedFrees);
        fact("missed frees", count(counts.frees_missed.0), note);
    }
    if counts.stamps_unknown > 0 {
        fact(
            "stamps of unknown blocks",
            count(counts.stamps_unknown),
            "not live, or not recorded when allocated".to_owned(),
        );
    }
    if let Some(text) = unseen::describe(recording) {
        fact("unseen", String::new(), text);
    }
    let blocks_least = least.filter(|least| least.blocks != counts.blocks_live_max);
    let note = blocks_least.map_or(String::new(), |least| format!("at most, at least {}", count(least.blocks.0)));
    fact("most blocks at once", count(counts.blocks_live_max.0), note);
    fact("threads", count(counts.threads), String::new());
    stacks(&counts.stacks, &mut fact);
    declared.print(&mut fact);
    out.tree(&facts)?;

    if !totals.processes.is_empty() {
        out.line("")?;
        out.tree(&processes(recording, totals))?;
        if let Some(more) = totals.processes.len().checked_sub(PROCESSES_MAX).filter(|&more| more > 0) {
            out.dim_line(format_args!("and {more} more: --json lists them all"))?;
        }
    }
    departures::print(recording, out)
}

/// Adds facts about stacks that were cut, incomplete or folded, and how stacks compare with the C
/// library's.
fn stacks(stacks: &StackCounts, fact: &mut impl FnMut(&str, String, String)) {
    let of_interest = [
        ("stacks cut", stacks.truncated, "too deep: only the innermost frames were kept".to_owned()),
        ("stacks incomplete", stacks.dropped, "a frame has no usable unwind information".to_owned()),
        ("stacks folded", stacks.folded, format!("into callers, for want of memory [{}]", Code::Folded)),
    ];
    if stacks.were_verified() {
        fact("stacks verified", count(stacks.verified), "the same as glibc's".to_owned());
        let note = if stacks.mismatched > 0 { "`heapledger info` shows the first of each process" } else { "" };
        fact("stacks mismatched", count(stacks.mismatched), note.to_owned());
    }
    for (name, number, note) in of_interest.into_iter().filter(|(_, number, _)| *number > 0) {
        fact(name, count(number), note);
    }
    let name = if stacks.were_verified() { "stacks incomparable" } else { "stacks missing" };
    for (number, reason) in stack_checks::incomparable(stacks) {
        fact(name, count(number), reason.to_owned());
    }
}

/// Returns the table of processes; if not all are listed, those with the highest peaks, the largest
/// first.
fn processes(recording: &Recording<'_>, totals: &Overview) -> Tree {
    let mut processes: Vec<&ProcessOverview> = totals.processes.iter().collect();
    if processes.len() > PROCESSES_MAX {
        processes.sort_by_key(|process| std::cmp::Reverse(process.counts.bytes_live_max));
    }
    let mut table = Tree::new(["pid", "peak", "live at end", "allocations", "temporary", "ended"]);
    for process in processes.into_iter().take(PROCESSES_MAX) {
        let counts = &process.counts;
        let errors = counts.errors.unwrap_or_default();
        let size = |size: Bytes, error: Live| sampled::bytes_cell(size, error.bytes);
        let cells = [
            process.pid.to_string(),
            size(counts.bytes_live_max, errors.live_at_peak),
            size(counts.bytes_live_end, errors.live_end),
            sampled::count_cell(counts.allocations, errors.allocated.blocks),
            percent(counts.temporary_allocations.0, counts.allocations.0),
            exit_shown(process),
        ];
        let command = last_image(recording, process).map(shown_command).unwrap_or_default();
        table.push(0, Row::new(command).cells(cells));
    }
    table
}
