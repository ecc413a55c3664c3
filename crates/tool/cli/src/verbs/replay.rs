//! `heapledger replay`: the allocator calls of a program, made again with other allocators.

pub(crate) mod json;
mod picture;
pub(crate) mod saved;
mod source;
mod tables;

use std::io::Write as _;
use std::path::Path;

use heapledger_recording::Recording;
use heapledger_replay::{Allocator, Options, Player, Run, Work};

use crate::args::{AllocatorName, InstalledAllocator, Replay, ReplayAllocator};
use crate::code::Code;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::format::count;
use crate::host;
use crate::input::Input;
use crate::json::document::Form;
use crate::launch::allocator;
use crate::launch::preload::PLAYER;
use crate::messages::notify;
use crate::output::Output;
use crate::progress::Progress;
use crate::text::shown;

/// A process that is replayed.
struct Subject {
    process: u64,
    /// The name of its program; empty if it is not known.
    program: String,
    work: Work,
}

/// The figures of all processes with all allocators.
struct Figures<'f> {
    subjects: &'f [Subject],
    allocators: Vec<&'f str>,
    /// For each process, the runs with the allocators in their order.
    runs: Vec<Vec<Run>>,
    /// The sums over the processes, for each allocator.
    totals: Vec<Run>,
    /// The most bytes that were requested and live at once, in all processes at the same moment.
    bytes_live_max: u64,
}

pub(crate) fn run(arguments: &Replay, out: &mut Output) -> Result<()> {
    if let Some(path) = &arguments.written.output {
        out.direct(path, arguments.written.force, &[&arguments.file])?;
    }
    let cannot = |error| Failure::from_error(Exit::NotStarted, error);
    let Some(host) = host::any() else {
        let text = "there is no program for glibc here in which the work could be done";
        return Err(Failure::new(Exit::NotStarted, text).code(Code::NoGlibc).hint("replay it on a machine with glibc"));
    };
    let mut player = Player::install(PLAYER, host).map_err(cannot)?;
    let allocators = allocators(arguments, &player)?;
    let subjects = subjects(arguments, &mut player)?;
    notify_of(&subjects);
    let options = Options {
        rounds: arguments.rounds,
        touches: !arguments.no_touch,
        pace: arguments.time.then_some(arguments.scale),
    };
    let mut progress = Progress::new();
    let works: Vec<&Work> = subjects.iter().map(|subject| &subject.work).collect();
    let runs = player.run(&works, &allocators, &options, |done, all| progress.runs(done, all));
    drop(progress);
    let runs = runs.map_err(|(name, error)| {
        Failure::caused(Exit::NotStarted, format_args!("cannot replay with {}", shown(Path::new(&name))), error).hint(
            "leave this allocator out, or see whether a program runs with it:\nheapledger run --allocator NAME -- ls",
        )
    })?;
    let figures = Figures::new(&subjects, &allocators, runs);
    if arguments.json {
        return out.document(&json::ReplayJson::new(&figures), Form::Json);
    }
    if arguments.svg {
        if arguments.written.output.is_none() {
            let name = arguments.file.file_name().unwrap_or_default();
            let name = format!("{}.replay.svg", Path::new(name).with_extension("").display());
            out.direct(Path::new(&name), arguments.written.force, &[&arguments.file])?;
        }
        return Ok(out.stream().write_all(picture::draw(&figures).as_bytes())?);
    }
    tables::print(arguments, &figures, out)
}

impl<'f> Figures<'f> {
    fn new(subjects: &'f [Subject], allocators: &'f [Allocator], runs: Vec<Vec<Run>>) -> Figures<'f> {
        let of_allocator = |at: usize| {
            let of_process = |(subject, runs): (&'f Subject, &'_ Vec<Run>)| (&subject.work, runs.get(at).cloned());
            let all: Vec<(&Work, Run)> =
                subjects.iter().zip(&runs).map(of_process).filter_map(|(work, run)| Some((work, run?))).collect();
            Run::total(&all.iter().map(|(work, run)| (*work, run)).collect::<Vec<_>>())
        };
        let totals: Vec<Run> = (0..allocators.len()).map(of_allocator).collect();
        let sampled = || totals.first()?.samples.iter().map(|sample| sample.requested).max();
        let bytes_live_max = match subjects {
            [alone] => alone.work.bytes_live_max,
            _ => sampled().unwrap_or(0),
        };
        let allocators = allocators.iter().map(|allocator| &*allocator.name).collect();
        Figures { subjects, allocators, runs, totals, bytes_live_max }
    }

    fn calls(&self) -> u64 {
        self.subjects.iter().map(|subject| subject.work.calls).sum()
    }

    /// Returns the allocators with their sums.
    fn rows(&self) -> impl Iterator<Item = (&'f str, &Run)> {
        self.allocators.iter().copied().zip(&self.totals)
    }
}

/// Returns the allocators that are asked for, or all that are installed.
fn allocators(arguments: &Replay, player: &Player) -> Result<Vec<Allocator>> {
    let mut wanted = arguments.allocators.clone();
    if wanted.is_empty() {
        let installed = InstalledAllocator::ALL.map(AllocatorName::Installed);
        let is_there = |name: &AllocatorName| allocator::find_for_replay(name).is_ok();
        let names = [AllocatorName::System, AllocatorName::Heapledger];
        let names = names.into_iter().chain(installed.into_iter().filter(is_there));
        wanted.extend(names.map(|name| ReplayAllocator { variables: Vec::new(), name }));
    }
    if arguments.tuned {
        wanted = wanted.iter().flat_map(ReplayAllocator::tuned).collect();
    }
    let place = |wanted: &ReplayAllocator| {
        let found = allocator::find_for_replay(&wanted.name)?;
        let cannot =
            |error| Failure::caused(Exit::NotStarted, format_args!("cannot use the allocator {wanted}"), error);
        player.allocator(wanted.to_string(), &found, &wanted.variables).map_err(cannot)
    };
    wanted.iter().map(place).collect()
}

/// Writes the works of all processes that are asked for.
fn subjects(arguments: &Replay, player: &mut Player) -> Result<Vec<Subject>> {
    let input = if arguments.file == Path::new("-") { None } else { Input::map_unless_log(&arguments.file)? };
    let mut subjects = match input.filter(Input::is_recording) {
        Some(input) => {
            let recording: Recording<'_> = input.open()?;
            source::of_recording(arguments, &input, &recording, player)?
        }
        None => source::of_log(arguments, player)?,
    };
    subjects.retain(|subject| subject.work.calls > 0);
    if subjects.is_empty() {
        let what = format_args!("`{}` has no call of an allocator", shown(&arguments.file));
        return Err(Failure::new(Exit::Unreadable, what));
    }
    if arguments.time && !subjects.iter().any(|subject| subject.work.has_times) {
        return Err(Failure::new(Exit::Usage, "this log does not say when its calls were made")
            .hint("write a log with times: heapledger log record --times -o FILE.log -- COMMAND"));
    }
    Ok(subjects)
}

/// The most processes that messages are about.
const TOLD_MAX: usize = 10;

fn notify_of(subjects: &[Subject]) {
    let unknown = |work: &Work| work.unknown;
    notify_of_each(subjects, unknown, "frees and reallocations are about blocks that were not allocated here");
    notify_of_each(subjects, |work| work.lost, "blocks whose frees are missing stay allocated");
}

fn notify_of_each(subjects: &[Subject], figure: impl Fn(&Work) -> u64, says: &str) {
    let sum: u64 = subjects.iter().map(|subject| figure(&subject.work)).sum();
    let concerned = subjects.iter().filter(|subject| figure(&subject.work) > 0);
    let mut names: Vec<String> = concerned.map(|subject| subject.process.to_string()).collect();
    if names.len() > TOLD_MAX {
        names.truncate(TOLD_MAX);
        names.push("…".to_owned());
    }
    match &names[..] {
        [] => {}
        [process] => notify(format_args!("heapledger: process {process}: {} {says}", count(sum))),
        _ => notify(format_args!("heapledger: processes {}: {} {says}", names.join(", "), count(sum))),
    }
}
