//! `heapledger summary`: the totals.

mod declared;
pub(crate) mod json;
mod mapped;
pub(crate) mod selected;
mod slop;

use std::time::Duration;

use heapledger_analysis::rewrite::MappedTotals;
use heapledger_analysis::{Filter, Metric, Moment, Overview, ProcessOverview, overview, resident_max};
use heapledger_core::{Blocks, Bytes};
use heapledger_recording::{Counts, ExitStatus, ImageOrigin, ImageStart, Live, MemorySample, Recording, StackCounts};
use heapledger_report_format::{Row, Tree};

use self::declared::Declared;
use self::json::SessionJson;
use self::slop::Slop;
use crate::args::Summary;
use crate::code::Code;
use crate::error::Result;
use crate::format::{bytes, count, duration, percent, time};
use crate::input::Input;
use crate::notices::lost::at_least;
use crate::notices::{resident, stack_checks, unseen};
use crate::output::Output;
use crate::progress::Progress;
use crate::question::{Question, expect_something};
use crate::text::{shown, shown_command};
use crate::views::{departures, sampled};

/// The most processes that are listed.
const PROCESSES_MAX: usize = 20;

pub(crate) fn run(arguments: &Summary, out: &mut Output) -> Result<()> {
    let selection = arguments.what.resolve(arguments.input.at(), Moment::End)?;
    let input = arguments.input.find(out)?;
    let (arguments, symbols) = (&arguments.input, &arguments.symbols);
    let recording = input.open()?;
    if selection.filter != Filter::default() || selection.moment != Moment::End {
        let question = Question::new(&input, &recording, symbols, selection, Metric::Bytes);
        return selected::print(question.expect_something()?, arguments.form(), out);
    }
    if recording.footer().is_none() {
        expect_something(&recording)?;
    }
    let mut progress = Progress::new();
    let overview =
        overview(&recording, &mut |done, all| progress.events(done, all)).map_err(|error| input.unanswered(error))?;
    drop(progress);
    input.warn_of(&overview.damage);
    let mut damage = Vec::new();
    let resident = resident_max(&recording, &mut damage);
    input.warn_of(&damage);
    let mut question = Question::new(&input, &recording, symbols, selection, Metric::Bytes);
    let declared = Declared::find(&mut question)?;
    let slop = Slop::find(&mut question)?;
    let mapped = mapped::find(&input, &recording)?;
    let totals = Totals { input: &input, recording: &recording, overview, resident, declared, slop, mapped };
    match arguments.form() {
        Some(form) => out.document(&SessionJson::new(totals), form),
        None => print(&totals, out),
    }
}

/// The totals of a recording, and what else its summary says.
struct Totals<'s, 'a> {
    input: &'s Input,
    recording: &'s Recording<'a>,
    overview: Overview,
    /// The moment with the most resident memory, if it was measured.
    resident: Option<MemorySample>,
    declared: Declared,
    slop: Option<Slop>,
    /// The memory that was mapped, if mappings were recorded.
    mapped: Option<MappedTotals>,
}

impl Totals<'_, '_> {
    /// Returns the least that can have been live at once, in a recording merged from totals.
    fn peak_least(&self) -> Option<Live> {
        self.recording.footer()?.peak_least
    }
}

fn print(totals: &Totals<'_, '_>, out: &mut Output) -> Result<()> {
    let Totals { input, recording, overview, declared, .. } = totals;
    let counts = &overview.counts;
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
    live(totals, &mut fact);
    if let Some(slop) = &totals.slop {
        slop.print(&mut fact);
    }
    if let Some(mapped) = &totals.mapped {
        mapped::print(mapped, &mut fact);
    }
    attached(recording, &mut fact);
    calls(counts, is_attached(recording), &mut fact);
    for (_, text) in unseen::describe(recording) {
        fact("unseen", String::new(), text);
    }
    let blocks_least = totals.peak_least().filter(|least| least.blocks != counts.blocks_live_max);
    let note = blocks_least.map_or(String::new(), |least| format!("at most, at least {}", count(least.blocks.0)));
    fact("most blocks at once", count(counts.blocks_live_max.0), note);
    fact("threads", count(counts.threads), String::new());
    stacks(&counts.stacks, &mut fact);
    declared.print(&mut fact);
    out.tree(&facts)?;

    if !overview.processes.is_empty() {
        out.line("")?;
        out.tree(&processes(recording, overview))?;
        if let Some(more) = overview.processes.len().checked_sub(PROCESSES_MAX).filter(|&more| more > 0) {
            out.dim_line(format_args!("and {more} more: --json lists them all"))?;
        }
    }
    departures::print(recording, out)
}

/// Adds facts about what was live at the peak and at the end.
fn live(totals: &Totals<'_, '_>, fact: &mut impl FnMut(&str, String, String)) {
    let counts = &totals.overview.counts;
    let errors = counts.errors.unwrap_or_default();
    let size = |size: Bytes, error: Live| sampled::bytes_with(size, error.bytes);
    let blocks = |number: Blocks, error: Live| {
        let unit = if number.0 == 1 { "block" } else { "blocks" };
        format!("{} {unit}", sampled::count_with(number, error.blocks))
    };
    let in_blocks = blocks(counts.blocks_at_bytes_max, errors.live_at_peak);
    let peak = size(counts.bytes_live_max, errors.live_at_peak);
    match totals.peak_least() {
        Some(least) => {
            let note = format!("in {in_blocks}, at least {} [{}]", bytes(least.bytes.0), Code::PeakBounds);
            fact("peak, at most", peak, note);
        }
        None => fact("peak", peak, format!("at {} in {in_blocks}", time(counts.bytes_live_max_time))),
    }
    if let Some(most) = &totals.resident {
        fact("resident, at most", bytes(most.resident.0), resident::note(most, counts.bytes_live_max));
    }
    let in_blocks = format!("in {}", blocks(counts.blocks_live_end, errors.live_end));
    fact("live at the end", size(counts.bytes_live_end, errors.live_end), in_blocks);
}

/// True if the recorder joined a program of this recording that ran already.
fn is_attached(recording: &Recording<'_>) -> bool {
    recording.images().iter().any(|image| image.how == ImageOrigin::Attached)
}

/// Says when the recording begins, if the program ran before.
fn attached(recording: &Recording<'_>, fact: &mut impl FnMut(&str, String, String)) {
    let attached = recording.images().iter().find(|image| image.how == ImageOrigin::Attached && image.age_ns > 0);
    if let Some(image) = attached {
        let note = format!("after the start of process {}; blocks from before are unknown", image.pid);
        fact("recorded from", duration(Duration::from_nanos(image.age_ns)), note);
    }
}

/// Adds facts about calls: those that were counted, and those that were lost, failed or missed.
fn calls(counts: &Counts, is_attached: bool, fact: &mut impl FnMut(&str, String, String)) {
    let allocated = counts.errors.unwrap_or_default().allocated;
    let flow = |figure: String| at_least(counts, figure);
    let temporary = percent(counts.temporary_allocations.0, counts.allocations.0);
    let all = sampled::bytes_with(counts.bytes_allocated, allocated.bytes);
    let note = format!("of {} in all, {temporary} temporary", flow(all));
    let allocations = sampled::count_with(counts.allocations, allocated.blocks);
    fact("allocations", flow(allocations), note);
    fact("of these reallocations", flow(count(counts.reallocations.0)), String::new());
    fact("frees", flow(count(counts.frees.0)), String::new());
    if counts.failed.0 > 0 {
        fact("failed", flow(count(counts.failed.0)), String::new());
    }
    if counts.events_lost > 0 {
        fact("lost", count(counts.events_lost), "allocations and frees that are not counted above".to_owned());
    }
    if counts.frees_unknown.0 > 0 {
        let note =
            if is_attached { "allocated before the recording, or not seen" } else { "not recorded when allocated" };
        fact("frees of unknown blocks", count(counts.frees_unknown.0), note.to_owned());
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
}

/// Adds facts about stacks that were cut, incomplete or folded, and how stacks compare with the C
/// library's.
fn stacks(stacks: &StackCounts, fact: &mut impl FnMut(&str, String, String)) {
    let of_interest = [
        ("stacks cut", stacks.truncated, "too deep: only the innermost frames were kept".to_owned()),
        ("stacks incomplete", stacks.dropped, "a frame has no usable unwind information".to_owned()),
        ("stacks unproven", stacks.unproven, format!("callers found by frame pointers [{}]", Code::UnprovenStacks)),
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
fn processes(recording: &Recording<'_>, overview: &Overview) -> Tree {
    let mut processes: Vec<&ProcessOverview> = overview.processes.iter().collect();
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

/// Describes how a process ended, for people.
fn exit_shown(process: &ProcessOverview) -> String {
    match process.exit {
        _ if process.running => "running".to_owned(),
        Some(ExitStatus::Code(code)) => format!("exit {code}"),
        Some(ExitStatus::Signal(signal)) => format!("signal {signal}"),
        None => "?".to_owned(),
    }
}

/// Returns the last process image of a process.
fn last_image<'r>(recording: &'r Recording<'_>, process: &ProcessOverview) -> Option<&'r ImageStart> {
    recording.image(process.images.last()?.image)
}
