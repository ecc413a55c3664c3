//! `heapledger replay`: the allocator calls of a program, made again with other allocators.

pub(crate) mod json;
mod picture;
mod source;

use std::env;
use std::io::Write as _;
use std::path::Path;

use heapledger_recording::Recording;
use heapledger_replay::{Allocator, Options, Player, Run, SizeClass, Threads, Work, WorkWriter};
use heapledger_report_format::{Row, Tree};

use crate::args::{AllocatorName, InstalledAllocator, Replay};
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::format::{bytes, count, counted, duration, percent};
use crate::input::Input;
use crate::json::document::Form;
use crate::launch::allocator;
use crate::launch::preload::PLAYER;
use crate::messages::notify;
use crate::output::Output;
use crate::progress::Progress;
use crate::text::shown;

pub(crate) fn run(arguments: &Replay, out: &mut Output) -> Result<()> {
    if let Some(path) = &arguments.written.output {
        out.direct(path, arguments.written.force, &[&arguments.file])?;
    }
    let cannot = |error| Failure::from_error(Exit::NotStarted, error);
    let host =
        env::current_exe().map_err(|error| Failure::caused(Exit::NotStarted, "cannot find this command", error))?;
    let player = Player::install(PLAYER, host).map_err(cannot)?;
    let allocators = allocators(arguments, &player)?;
    let (work, process) = work(arguments, &player)?;
    notify_of(&work, process);
    let options = Options {
        rounds: arguments.rounds,
        touches: !arguments.no_touch,
        pace: arguments.time.then_some(arguments.scale),
    };
    let mut progress = Progress::new();
    let runs = player.run(&work, &allocators, &options, |done, all| progress.runs(done, all));
    drop(progress);
    let runs = runs.map_err(|(name, error)| {
        Failure::caused(Exit::NotStarted, format_args!("cannot replay with {}", shown(Path::new(&name))), error).hint(
            "leave this allocator out, or see whether a program runs with it:\nheapledger run --allocator NAME -- ls",
        )
    })?;
    let runs: Vec<(&str, &Run)> = allocators.iter().map(|allocator| &*allocator.name).zip(&runs).collect();
    if arguments.json {
        return out.document(&json::ReplayJson::new(&work, process, &runs), Form::Json);
    }
    if arguments.svg {
        if arguments.written.output.is_none() {
            let name = arguments.file.file_name().unwrap_or_default();
            let name = format!("{}.replay.svg", Path::new(name).with_extension("").display());
            out.direct(Path::new(&name), arguments.written.force, &[&arguments.file])?;
        }
        return Ok(out.stream().write_all(picture::draw(&work, &runs).as_bytes())?);
    }
    print(&work, &runs, out)?;
    for (name, run) in &runs {
        print_statistics(&work, name, run, out)?;
    }
    if arguments.sizes {
        print_sizes(&runs, out)?;
    }
    Ok(())
}

/// Returns the allocators that are asked for, or all that are installed.
fn allocators(arguments: &Replay, player: &Player) -> Result<Vec<Allocator>> {
    let mut names = arguments.allocators.clone();
    if names.is_empty() {
        let installed = InstalledAllocator::ALL.map(AllocatorName::Installed);
        let is_there = |name: &AllocatorName| allocator::find_for_replay(name).is_ok();
        names.extend([AllocatorName::System, AllocatorName::Heapledger]);
        names.extend(installed.into_iter().filter(is_there));
    }
    let place = |name: &AllocatorName| {
        let found = allocator::find_for_replay(name)?;
        let cannot = |error| Failure::caused(Exit::NotStarted, format_args!("cannot use the allocator {name}"), error);
        player.allocator(name.to_string(), &found).map_err(cannot)
    };
    names.iter().map(place).collect()
}

/// Writes the work. Returns it, and the process that it is of.
fn work(arguments: &Replay, player: &Player) -> Result<(Work, u64)> {
    let cannot = |error| Failure::caused(Exit::NotStarted, "cannot write the calls into a temporary file", error);
    let threads = if arguments.threads { Threads::Recorded } else { Threads::One };
    let mut work = WorkWriter::new(player.work_file().map_err(cannot)?, threads);
    let input = if arguments.file == Path::new("-") { None } else { Input::map_unless_log(&arguments.file)? };
    let process = match input.filter(Input::is_recording) {
        Some(input) => {
            let recording: Recording<'_> = input.open()?;
            source::add_recording(arguments, &input, &recording, &mut work)?
        }
        None => source::add_log(arguments, &mut work)?,
    };
    let work = work.finish().map_err(source::failure)?;
    if work.calls == 0 {
        let what = format_args!("`{}` has no call of an allocator", shown(&arguments.file));
        return Err(Failure::new(Exit::Unreadable, what));
    }
    if arguments.time && !work.has_times {
        return Err(Failure::new(Exit::Usage, "a log does not say when its calls were made")
            .hint("replay a recording: heapledger record -o FILE.hl -- COMMAND"));
    }
    Ok((work, process))
}

fn notify_of(work: &Work, process: u64) {
    for (number, says) in [
        (work.unknown, "frees and reallocations are about blocks that were not allocated here"),
        (work.lost, "blocks whose frees are missing stay allocated"),
    ] {
        if number > 0 {
            notify(format_args!("heapledger: process {process}: {} {says}", count(number)));
        }
    }
}

fn print(work: &Work, runs: &[(&str, &Run)], out: &mut Output) -> Result<()> {
    let player = runs.first().map_or(0, |(_, run)| run.cpu_player_ns);
    out.title(format_args!(
        "{} in {}; at most {} requested at once",
        counted(work.calls, "call", "calls"),
        counted(work.threads as u64, "thread", "threads"),
        bytes(work.bytes_live_max),
    ))?;
    out.dim_line(format_args!(
        "the replay itself takes {} a call, which is not in the times",
        each(player, work.calls)
    ))?;
    out.line("")?;
    let headings = ["time", "a call", "peak", "of requested", "end", "mapped", "slop", "faults", "calls"];
    let mut table = Tree::new(headings);
    for (name, run) in runs {
        let (peak, end, time) = (run.peak(), run.end(), run.cpu_allocator_ns());
        let mapped = run.samples.iter().map(|sample| sample.mapped).max().unwrap_or(0);
        let (requested, usable) =
            run.classes.iter().fold((0, 0), |sum, class| (sum.0 + class.requested, sum.1 + class.usable));
        let mut row = Row::new(*name).cells([
            duration(std::time::Duration::from_nanos(time)),
            each(time, work.calls),
            bytes(peak.resident),
            percent(peak.resident, work.bytes_live_max),
            bytes(end.resident),
            bytes(mapped),
            percent(usable.saturating_sub(requested), requested),
            count(run.faults_minor + run.faults_major),
            run.system_calls.map_or_else(|| "?".to_owned(), |calls| count(calls.iter().sum())),
        ]);
        if run.failed > 0 {
            row = row.note(format!("{} failed", counted(run.failed, "request", "requests")));
        }
        table.push(0, row);
    }
    Ok(out.tree(&table)?)
}

/// Prints the memory at the points at which the program asked for statistics, in the lines of
/// logalloc-replay, as far as they mean something for any allocator.
fn print_statistics(work: &Work, name: &str, run: &Run, out: &mut Output) -> Result<()> {
    let samples = run.samples.iter().filter(|sample| sample.is_statistics);
    for (point, sample) in work.points.iter().zip(samples) {
        out.line("")?;
        out.title(format_args!("{name}, at a call of jemalloc_stats"))?;
        for (label, figure) in [
            ("Objects", point.blocks),
            ("Slots", point.slots),
            ("Ops", point.calls),
            ("mapped", sample.mapped),
            ("committed", sample.resident),
            ("rss", sample.resident),
            ("allocated", sample.usable),
            ("waste", sample.resident.saturating_sub(sample.usable)),
        ] {
            out.line(format_args!("{:<11}{figure:>13}", format!("{label}:")))?;
        }
    }
    Ok(())
}

/// Prints the requests by powers of two, and the slop that each allocator adds to them.
fn print_sizes(runs: &[(&str, &Run)], out: &mut Output) -> Result<()> {
    let classes: Vec<Vec<SizeClass>> = runs.iter().map(|(_, run)| powers(&run.classes)).collect();
    let Some(first) = classes.first() else { return Ok(()) };
    out.line("")?;
    let names = runs.iter().map(|(name, _)| format!("slop of {name}"));
    let headings = ["blocks".to_owned(), "requested".to_owned()].into_iter().chain(names);
    let mut table = Tree::new(headings);
    for class in first {
        let mut cells = vec![count(class.blocks), bytes(class.requested)];
        cells.extend(classes.iter().map(|own| {
            let same = own.iter().find(|other| other.size_min == class.size_min).copied().unwrap_or_default();
            percent(same.usable.saturating_sub(same.requested), same.requested)
        }));
        table.push(0, Row::new(format!("from {}", bytes(class.size_min))).cells(cells));
    }
    Ok(out.tree(&table)?)
}

/// Joins the classes of each power of two.
fn powers(classes: &[SizeClass]) -> Vec<SizeClass> {
    let mut powers: Vec<SizeClass> = Vec::new();
    for class in classes {
        let size_min = 1 << class.size_min.max(1).ilog2();
        match powers.last_mut().filter(|last| last.size_min == size_min) {
            Some(last) => {
                last.blocks += class.blocks;
                last.requested += class.requested;
                last.usable += class.usable;
            }
            None => powers.push(SizeClass { size_min, ..*class }),
        }
    }
    powers
}

/// Formats the time of one of several calls.
fn each(nanoseconds: u64, calls: u64) -> String {
    format!("{:.1} ns", nanoseconds as f64 / calls.max(1) as f64)
}
