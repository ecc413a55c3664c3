//! `heapledger record`: runs a program under the collector.

pub(crate) mod cut;
pub(crate) mod report;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use heapledger_collect::{self as collect, Begin, Progress, RecordOptions, Rotation, die_by};
use heapledger_recording::ExitStatus;

use crate::args::{AllocatorName, FileLimit, OnFull, Record, RunningOptions, Stacks};
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::format::counted;
use crate::launch::preload::{LIBRARY, PLACED};
use crate::launch::{allocator, failure, hook, nested, report_findings};
use crate::messages::notify;
use crate::symbols::symbolizer_of_roots;
use crate::target::Target;
use crate::verbs::attach;
use crate::verbs::names::{self, Namer};
use crate::verbs::phc::under;
use crate::verbs::running;

pub(crate) fn run(arguments: &Record) -> Result<ExitCode> {
    if let Some(pid) = &arguments.pid {
        return attach::run(pid, &running_options(arguments)).map(|()| ExitCode::SUCCESS);
    }
    end_as(run_command(arguments)?)
}

/// Ends as the command did: with its exit status, or by its signal.
pub(crate) fn end_as(exit: ExitStatus) -> Result<ExitCode> {
    match exit {
        ExitStatus::Code(code) => Ok(ExitCode::from(code as u8)),
        ExitStatus::Signal(signal) => die_by(signal),
    }
}

/// Records the command. Returns how it ended.
pub(crate) fn run_command(arguments: &Record) -> Result<ExitStatus> {
    if arguments.output.as_deref() == Some(Path::new("-")) {
        let what = "standard output is the program's: a recording cannot be written to it";
        return Err(Failure::new(Exit::Usage, what).hint("heapledger record -o /dev/fd/3 -- COMMAND 3> FILE"));
    }
    let has_hooks = !arguments.hook.is_empty()
        || arguments.heap_checker.phc
        || !matches!(arguments.allocator.name, AllocatorName::System);
    let target = arguments.command.first().map_or_else(Target::default, |program| {
        let target = Target::inspect(program);
        if has_hooks { target.with_hooks() } else { target }.with_redirection()
    });
    report_findings(&target, "record", "it will not be recorded", arguments.quiet)?;
    nested::warn_of_nesting("record", arguments.quiet);
    let hooks = hook::libraries(&arguments.hook)?;
    let mut options = options(arguments, hooks)?;
    options.allocator = allocator::find(&arguments.allocator.name)?;
    let mut namer = Namer::new(arguments.names);
    let mut observe = |progress: Progress<'_>| {
        if let Progress::SegmentEnded { path } = progress {
            namer.add_names(path);
        }
        if arguments.quiet {
            return;
        }
        if let Progress::TimeIsUp = progress {
            notify("heapledger: the time is up; the program goes on unrecorded");
        }
        if let Progress::CommandEnded { running, waits: true, .. } = progress
            && running > 0
        {
            let others = counted(running.into(), "process", "processes");
            notify(format_args!("heapledger: the command has ended; waiting for {others} that it started"));
        }
    };
    let outcome = collect::record(&options, &mut observe).map_err(failure)?;

    // The loss of a recording is reported in any case, and before all figures.
    if let Some(problem) = &outcome.problem {
        notify(cut::failure(&outcome, problem));
    }
    // The end of a run must not wait for a symbol server: none is asked.
    let symbolizer = Arc::new(symbolizer_of_roots(&outcome.roots));
    if !arguments.quiet {
        report::print(&outcome, &target, &arguments.wrapper, &symbolizer);
    }
    let length = names::add_at_end(&outcome, namer, &symbolizer, arguments.quiet);
    if !arguments.quiet {
        report::print_file(&outcome, length);
    }
    drop(symbolizer);
    if arguments.heap_checker.phc {
        under::conclude(&outcome.heap_reports, arguments.quiet);
    }
    Ok(outcome.exit)
}

/// Returns the options for a process that runs already.
fn running_options(arguments: &Record) -> RunningOptions {
    RunningOptions {
        output: arguments.output.clone(),
        force: arguments.force,
        quiet: arguments.quiet,
        duration: arguments.duration,
        sample: arguments.sample,
        aggregate: arguments.aggregate,
        usable: arguments.usable,
        mappings: arguments.mappings,
        resident: arguments.resident,
        stacks: arguments.stacks,
        on_full: arguments.on_full,
        names: arguments.names,
    }
}

/// Returns the options of the recorder that the command line asks for.
fn options(arguments: &Record, hooks: Vec<PathBuf>) -> Result<RecordOptions> {
    let mut options = RecordOptions::new(arguments.command.clone(), LIBRARY);
    options.placed_library = PLACED.into();
    options.output = arguments.output.clone();
    options.force = arguments.force;
    options.wait_for_descendants = arguments.wait;
    options.tool_version = env!("CARGO_PKG_VERSION").to_owned();
    options.stacks = match arguments.stacks {
        Stacks::Mixed => collect::StackMode::Mixed,
        Stacks::Native => collect::StackMode::Native,
        Stacks::Pseudo => collect::StackMode::Pseudo,
        Stacks::None => collect::StackMode::None,
    };
    options.sample_every = arguments.sample;
    options.usable_sizes = arguments.usable;
    options.mappings = arguments.mappings;
    options.resident = running::resident(&arguments.resident);
    options.verify_stacks = arguments.verify_stacks;
    options.on_full = match arguments.on_full {
        OnFull::Wait => collect::OnFull::Wait,
        OnFull::Drop => collect::OnFull::Drop,
    };
    options.stall_timeout = arguments.stall_timeout.0;
    options.target_memory = arguments.target_memory;
    options.duration = arguments.duration;
    options.begin = match arguments.start_after {
        _ if arguments.start_paused => Begin::OnRequest,
        Some(delay) => Begin::After(delay),
        None => Begin::AtOnce,
    };
    options.rotate = rotation(arguments);
    options.totals_only = arguments.aggregate;
    options.hooks = hooks;
    options.heap_checker = under::library(&arguments.heap_checker, arguments.quiet)?;
    options.options_text = options_text(arguments);
    Ok(options)
}

fn rotation(arguments: &Record) -> Option<Rotation> {
    let mut rotation = Rotation { keep: arguments.keep, ..Rotation::default() };
    for limit in &arguments.rotate {
        match *limit {
            FileLimit::Age(age) => rotation.age = Some(age),
            FileLimit::Bytes(bytes) => rotation.bytes = Some(bytes),
        }
    }
    (!arguments.rotate.is_empty()).then_some(rotation)
}

/// Returns the options that affect the recording, to be stored in it.
fn options_text(arguments: &Record) -> String {
    let mut options = Vec::new();
    if arguments.wait {
        options.push("--wait".to_owned());
    }
    if arguments.on_full == OnFull::Drop {
        options.push("--on-full drop".to_owned());
    }
    match arguments.stall_timeout.0 {
        None => options.push("--stall-timeout never".to_owned()),
        Some(time) if time != RecordOptions::new(Vec::new(), LIBRARY).stall_timeout.unwrap_or_default() => {
            options.push(format!("--stall-timeout {}s", time.as_secs_f64()));
        }
        Some(_) => {}
    }
    options.extend(arguments.resident.text());
    if let Some(size) = arguments.target_memory {
        options.push(format!("--target-memory {}", size.0));
    }
    if let Some(time) = arguments.duration {
        options.push(format!("--duration {}s", time.as_secs_f64()));
    }
    if let Some(time) = arguments.start_after {
        options.push(format!("--start-after {}s", time.as_secs_f64()));
    }
    if arguments.start_paused {
        options.push("--start-paused".to_owned());
    }
    for limit in &arguments.rotate {
        options.push(match limit {
            FileLimit::Age(age) => format!("--rotate {}s", age.as_secs_f64()),
            FileLimit::Bytes(bytes) => format!("--rotate {bytes}"),
        });
    }
    if let Some(keep) = arguments.keep {
        options.push(format!("--keep {keep}"));
    }
    if arguments.aggregate {
        options.push("--aggregate".to_owned());
    }
    if let Some(size) = arguments.sample {
        options.push(format!("--sample {}", size.0));
    }
    if arguments.usable {
        options.push("--usable".to_owned());
    }
    match arguments.stacks {
        Stacks::Mixed => {}
        Stacks::Native => options.push("--stacks native".to_owned()),
        Stacks::Pseudo => options.push("--stacks pseudo".to_owned()),
        Stacks::None => options.push("--stacks none".to_owned()),
    }
    if arguments.mappings {
        options.push("--mappings".to_owned());
    }
    if arguments.verify_stacks {
        options.push("--verify-stacks".to_owned());
    }
    if arguments.allocator.name != AllocatorName::System {
        options.push(format!("--allocator {}", arguments.allocator.name));
    }
    options.extend(under::options_text(&arguments.heap_checker));
    options.extend(arguments.hook.iter().map(|hook| format!("--hook {}", hook.display())));
    options.join(" ")
}
