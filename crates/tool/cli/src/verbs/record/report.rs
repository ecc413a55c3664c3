//! The report at the end of `heapledger record`: the main figures, and the next command to type.

use std::fmt::Write as _;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use heapledger_analysis::{Metric, Moment, Pattern, Profile, RankBy, Selection, rank, resident_max};
use heapledger_collect::{Outcome, RecordError};
use heapledger_core::Bytes;
use heapledger_recording::{Footer, Live, RunCosts};
use heapledger_report_format::{Layout, Tree};
use heapledger_symbols::Symbolizer;

use super::cut::Readable;
use crate::args::{Depth, Symbols};
use crate::code::Code;
use crate::error::hint_lines;
use crate::format::{bytes, count, counted, duration, percent, time};
use crate::input::Input;
use crate::label::Labels;
use crate::messages::{notify, warn};
use crate::notices::{lost, mappings, resident, stack_checks, unseen};
use crate::target::{Finding, Target};
use crate::text::{quoted, shown};
use crate::views::rows::row;
use crate::views::table::Columns;
use crate::views::{departures, sampled};

/// The most functions in the table.
const ROWS: usize = 5;

/// Prints all but [the file](print_file). Functions that match one of `wrappers` allocate for
/// their callers.
pub(crate) fn print(outcome: &Outcome, target: &Target, wrappers: &[Pattern], symbolizer: &Arc<Symbolizer>) {
    let has_allocations = outcome.footer.counts.allocations.0 > 0;
    let is_cut = is_cut(outcome);
    let has_table = if is_cut { rest(&outcome.output) } else { has_allocations };
    if !has_allocations && !is_cut {
        nothing(outcome, target.obstacle());
    }
    if has_allocations {
        if !outcome.command_recorded() {
            warn(Code::NotRecorded, "the program itself could not be recorded; the figures are of what it started");
        }
        if !is_cut {
            let mut totals = totals(&outcome.footer, outcome.processes.len());
            if outcome.departures_count > 0 {
                totals = format!("{totals} · {}", departures::how_many(outcome.departures_count, &outcome.departures));
            }
            notify(totals);
            if let Some(resident) = resident(&outcome.output) {
                notify(format_args!("heapledger: {resident}"));
            }
        }
        if let Some(notice) = notice(&outcome.output) {
            notify(format_args!("heapledger: {notice}"));
        }
        if let Some(costs) = costs(&outcome.footer.costs) {
            notify(format_args!("heapledger: {costs}"));
        }
    }
    if has_table {
        table(&outcome.output, wrappers, symbolizer);
    }
    departures::notify_of(outcome, target);
    if let Some(checks) = stack_checks::describe(&outcome.footer.counts.stacks) {
        notify(format_args!("heapledger: stacks: {checks}"));
    }
    if outcome.footer.counts.stacks.mismatched > 0 {
        let name = shown(&outcome.output);
        let hint = format!("heapledger info {}", quoted(&name));
        warn(Code::Mismatch, format_args!("some stacks are not what glibc says\n{}", hint_lines(&hint)));
    }
    if !outcome.clock_reliable {
        warn(Code::Clock, "this machine's clock does not order events of different processors reliably");
    }
    if let Some(sandboxed) = sandboxed(&outcome.output) {
        warn(Code::Sandboxed, sandboxed);
    }
    if let Some(unseen) = mappings_unseen(&outcome.output) {
        warn(Code::MappingsUnseen, unseen);
    }
    if let Some(stalls) = lost::stalls(&outcome.stalls) {
        warn(Code::Stalled, stalls);
    }
    if let Some(lost) = lost::describe(&outcome.footer.counts) {
        warn(Code::Lost, lost);
    }
    if let Some(missed) = lost::missed(&outcome.footer.counts) {
        warn(Code::MissedFrees, missed);
    }
    if let Some(folded) = lost::folded(&outcome.footer.counts) {
        warn(Code::Folded, folded);
    }
    if let Some(unproven) = lost::unproven(&outcome.footer.counts) {
        warn(Code::UnprovenStacks, unproven);
    }
    for file in &outcome.code_files_damaged {
        let (name, pid, error) = (shown(&file.path), file.pid, &file.error);
        notify(format_args!("heapledger: some functions have no names: `{name}` of process {pid}, {error}"));
    }
    for (code, text) in unseen_libraries(&outcome.output).unwrap_or_default() {
        warn(code, text);
    }
    let running = outcome.processes.iter().filter(|process| process.running).count() as u64;
    if running > 0 && !outcome.time_is_up && outcome.problem.is_none() {
        let who = counted(running, "process is still running, and goes", "processes are still running, and go");
        notify(format_args!("heapledger: {who} on unrecorded (--wait waits for them)"));
    }
}

/// Prints the name and the size of the recording, and the next command to type.
pub(crate) fn print_file(outcome: &Outcome, length: Bytes) {
    let (name, length) = (shown(&outcome.output), bytes(length.0));
    match outcome.segments {
        0 => notify(format_args!("heapledger: wrote {name} ({length})")),
        parts => {
            let files = counted(parts.into(), "file", "files");
            notify(format_args!("heapledger: wrote {files}, the last of them {name} ({length})"));
        }
    }
    let has_table = if is_cut(outcome) {
        Readable::of(&outcome.output).is_some_and(|readable| readable.events > 0)
    } else {
        outcome.footer.counts.allocations.0 > 0
    };
    if has_table {
        notify(format_args!("            next: heapledger top {}", quoted(&name)));
    }
}

/// True if the file could not be written to its end: more was recorded than it contains.
fn is_cut(outcome: &Outcome) -> bool {
    matches!(outcome.problem, Some(RecordError::WriteOutput { .. }))
}

/// Says how much can be read of a file that could not be written to its end. Returns true if there
/// are events in it.
fn rest(path: &Path) -> bool {
    let Some(Readable { events, until }) = Readable::of(path) else {
        notify("heapledger: nothing of the file can be read");
        return false;
    };
    let number = counted(events, "event", "events");
    notify(format_args!("heapledger: what can be read of the file: {number}, until {}", time(until)));
    events > 0
}

/// Says that nothing was recorded, and why.
fn nothing(outcome: &Outcome, obstacle: Option<&Finding>) {
    if let (Some(error), None) = (&outcome.not_placed, obstacle) {
        let code = Code::NotPlaced;
        let hint = format!("heapledger explain {code}");
        let what = "the recorder could not be placed into the program, which is statically linked";
        notify(format_args!("heapledger: nothing was recorded[{code}]: {what}: {error}\n{}", hint_lines(&hint)));
        return;
    }
    match obstacle {
        Some(obstacle) => {
            let code = obstacle.code;
            notify(format_args!(
                "heapledger: nothing was recorded[{code}]: {obstacle}\n{}",
                hint_lines(&obstacle.hint)
            ));
        }
        None if !outcome.has_begun => {
            let hint = "while the program runs: heapledger start";
            notify(format_args!("heapledger: nothing was recorded: nobody started it\n{}", hint_lines(hint)));
        }
        None if outcome.command_recorded() => {
            let code = Code::Nothing;
            notify(format_args!("heapledger: nothing was recorded[{code}]: the program made no allocator call"));
        }
        None => {
            let hint = "it may have ended before it began, it does not start with the usual dynamic linker, or it was kept\n\
                        from reaching the recorder (a sandbox; no descriptor, process or memory to be had: see `ulimit -a`)";
            notify(format_args!(
                "heapledger: nothing was recorded[{}]: the program did not load the recorder\n{}",
                Code::Nothing,
                hint_lines(hint)
            ));
        }
    }
}

fn totals(footer: &Footer, processes: usize) -> String {
    let counts = &footer.counts;
    let allocations = counts.allocations.0;
    let temporary = percent(counts.temporary_allocations.0, allocations);
    let errors = counts.errors.unwrap_or_default();
    let size = |size: Bytes, error: Live| sampled::bytes_with(size, error.bytes);
    let unit = if allocations == 1 { "allocation" } else { "allocations" };
    let calls = sampled::count_with(counts.allocations, errors.allocated.blocks);
    let mut text = format!(
        "heapledger: peak {} at {} · {} still live at exit · {} ({temporary} temporary)",
        size(counts.bytes_live_max, errors.live_at_peak),
        time(counts.bytes_live_max_time),
        size(counts.bytes_live_end, errors.live_end),
        lost::at_least(counts, format!("{calls} {unit}")),
    );
    if processes > 1 {
        // Writing to a String cannot fail.
        let _ = write!(text, " · {} processes", count(processes as u64));
    }
    text
}

/// Says that the recording is a sample, if it is one. Returns `None` for an output that is not a
/// file, such as a pipe.
fn notice(path: &Path) -> Option<String> {
    let input = Input::map(path).ok().filter(|_| path.is_file())?;
    sampled::notice(&input.recording().ok()?)
}

/// Returns the peak of resident memory and how it compares with the live heap. `None` if the
/// recorder never measured it.
fn resident(path: &Path) -> Option<String> {
    let input = Input::map(path).ok().filter(|_| path.is_file())?;
    let recording = input.recording().ok()?;
    let live_max = recording.footer()?.counts.bytes_live_max;
    let most = resident_max(&recording, &mut Vec::new())?;
    Some(resident::sentence(&most, live_max))
}

fn unseen_libraries(path: &Path) -> Option<Vec<(Code, String)>> {
    let input = Input::map(path).ok().filter(|_| path.is_file())?;
    Some(unseen::describe(&input.recording().ok()?))
}

/// Says that recorded programs are in sandboxes, if any are.
fn sandboxed(path: &Path) -> Option<String> {
    let input = Input::map(path).ok().filter(|_| path.is_file())?;
    lost::sandboxed(&input.recording().ok()?)
}

/// Says in which programs no call that changes mappings was seen.
fn mappings_unseen(path: &Path) -> Option<String> {
    let input = Input::map(path).ok().filter(|_| path.is_file())?;
    mappings::unseen(&input.recording().ok()?)
}

/// Returns the cost of recording, as far as it was measured.
fn costs(costs: &RunCosts) -> Option<String> {
    let mut time = Vec::new();
    if let (Some(hook), Some(program)) = (costs.hook_ns, costs.program_cpu_ns) {
        time.push(format!("about {} of the program's CPU time", percent(hook.min(program), program)));
    }
    if let Some(collector) = costs.collector_cpu_ns {
        time.push(format!("{} CPU in the recorder", duration(Duration::from_nanos(collector))));
    }
    let parts = [
        ("shared by both", costs.ring_bytes),
        ("in the program alone", costs.target_private_bytes),
        ("in the recorder", costs.collector_rss_max),
    ];
    let memory: Vec<(&str, Bytes)> = parts.into_iter().filter_map(|(name, part)| Some((name, part?))).collect();
    let all: u64 = memory.iter().map(|(_, part)| part.0).sum();
    let memory: Vec<String> = memory.iter().map(|(name, part)| format!("{} {name}", bytes(part.0))).collect();

    let mut text = String::new();
    if !time.is_empty() {
        text.push_str(&format!("overhead {}", time.join(", ")));
    }
    if !memory.is_empty() {
        let between = if text.is_empty() { "" } else { " · " };
        text.push_str(&format!("{between}recorder memory {} ({})", bytes(all), memory.join(", ")));
    }
    (!text.is_empty()).then_some(text)
}

/// Prints the program's own functions that hold the most at the peak. Errors are ignored here: the
/// verbs that read the recording report them.
fn table(path: &Path, wrappers: &[Pattern], symbolizer: &Arc<Symbolizer>) {
    // A pipe or a device cannot be read again.
    if !path.is_file() {
        return;
    }
    let Ok(input) = Input::map(path) else { return };
    let Ok(recording) = input.recording() else { return };
    let symbols = Symbols { wrapper: wrappers.to_vec(), ..Symbols::default() };
    let mut labels = Labels::with_symbolizer(&recording, &symbols, symbolizer.clone());
    let profile = Profile::load(&mut labels.names, &Selection::at(Moment::Peak), &mut |_, _| ());
    let Ok(profile) = profile else { return };
    let ranks = rank(&profile, &mut labels.names, RankBy::Owner, Metric::Bytes);
    let ranks = &ranks[..ranks.len().min(ROWS)];

    let columns = Columns::new(Metric::Bytes, Moment::Peak);
    let mut table = columns.table();
    for rank in ranks {
        table.push(
            0,
            row(&mut labels, &profile.stacks, rank, Depth::Function).cells(columns.cells(&rank.amount, &profile.whole)),
        );
    }
    notify("");
    let _ = print_table(&table);
    notify("");
    let without_place = ranks.iter().filter(|rank| rank.frame.location.is_none());
    if let Some(hint) = labels.hint(without_place.map(|rank| rank.frame.function)) {
        notify(format_args!("{}\n", hint_lines(&hint)));
    }
}

fn print_table(table: &Tree) -> std::fmt::Result {
    let stderr = io::stderr();
    let width = rustix::termios::tcgetwinsize(&stderr).ok().filter(|_| stderr.is_terminal());
    let mut text = String::new();
    let width = width.map(|size| usize::from(size.ws_col).saturating_sub(2)).filter(|&width| width >= 40);
    table.print(&mut text, &Layout { width, ..Layout::default() })?;
    text.lines().for_each(|line| notify(format_args!("  {line}")));
    Ok(())
}

#[cfg(test)]
mod tests {
    use heapledger_core::Blocks;
    use heapledger_recording::{Counts, Time};

    use super::*;

    #[test]
    fn one_line_of_totals() {
        let counts = Counts {
            allocations: Blocks(9_204_118),
            temporary_allocations: Blocks(1_104_000),
            bytes_live_max: Bytes(432_642_458),
            bytes_live_max_time: Time(18_200_000_000),
            bytes_live_end: Bytes(3_250_586),
            ..Counts::default()
        };
        let footer = Footer { counts, ..Footer::default() };
        assert_eq!(
            totals(&footer, 1),
            "heapledger: peak 412.6 MiB at 18.2 s · 3.1 MiB still live at exit · 9,204,118 allocations (12 % temporary)"
        );
        assert!(totals(&footer, 3).ends_with("(12 % temporary) · 3 processes"));
    }

    #[test]
    fn costs_are_told_as_far_as_known() {
        assert_eq!(costs(&RunCosts::default()), None);
        let mut known = RunCosts { hook_ns: Some(70), program_cpu_ns: Some(1000), ..RunCosts::default() };
        assert_eq!(costs(&known).as_deref(), Some("overhead about 7 % of the program's CPU time"));
        known.collector_cpu_ns = Some(800_000_000);
        known.ring_bytes = Some(Bytes(1 << 20));
        known.target_private_bytes = Some(Bytes(2 << 20));
        known.collector_rss_max = Some(Bytes(8 << 20));
        assert_eq!(
            costs(&known).as_deref(),
            Some(
                "overhead about 7 % of the program's CPU time, 800.0 ms CPU in the recorder · recorder memory 11.0 MiB \
                 (1.0 MiB shared by both, 2.0 MiB in the program alone, 8.0 MiB in the recorder)"
            )
        );
    }
}
