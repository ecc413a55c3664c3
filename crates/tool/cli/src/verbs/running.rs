//! Records programs that run already: what `start` and `attach` have in common.

use std::ffi::OsString;
use std::sync::Arc;

use heapledger_collect::{self as collect, AttachError, Outcome, Progress, RecordOptions, Stop};

use crate::args::{OnFull, ResidentOptions, RunningOptions, Stacks};
use crate::code::Code;
use crate::error::Result;
use crate::format::counted;
use crate::launch::preload::{LIBRARY, PLACED};
use crate::messages::notify;
use crate::symbols::symbolizer_of_roots;
use crate::target::Target;
use crate::verbs::names::{self, Namer};
use crate::verbs::record::{cut, report};

/// Records a process that runs, by a function of the recorder, and reports the outcome.
pub(crate) fn record(
    pid: u32,
    arguments: &RunningOptions,
    attach: impl FnOnce(&mut dyn FnMut(Progress<'_>)) -> Result<Outcome>,
) -> Result<()> {
    let is_loud = !arguments.quiet;
    let mut namer = Namer::new(arguments.names);
    let mut observe = |progress: Progress<'_>| match progress {
        Progress::Started { .. } if is_loud => {
            notify(format_args!("heapledger: process {pid} begins at its next call; Ctrl-C ends the recording"));
        }
        Progress::Joined if is_loud => notify(format_args!("heapledger: recording process {pid}")),
        Progress::CommandEnded { .. } if is_loud => notify(format_args!("heapledger: process {pid} has ended")),
        Progress::SegmentEnded { path } => namer.add_names(path),
        Progress::Attached(stop) if is_loud => notify(format_args!("heapledger: {} to begin", stopped(&stop))),
        Progress::Detached(Ok(Some(stop))) if is_loud => notify(format_args!("heapledger: {} to end", stopped(stop))),
        Progress::Detached(Err(error)) => notify(left_behind(pid, error)),
        _ => {}
    };
    let outcome = attach(&mut observe)?;
    if let Some(problem) = &outcome.problem {
        notify(cut::failure(&outcome, problem));
    }
    if !outcome.has_begun {
        notify(format_args!("heapledger: nothing was recorded: process {pid} made no call of its allocator meanwhile"));
    }
    let symbolizer = Arc::new(symbolizer_of_roots(&outcome.roots));
    if is_loud && outcome.has_begun {
        report::print(&outcome, &Target::default(), &[], &symbolizer);
    }
    let length = names::add_at_end(&outcome, namer, &symbolizer, arguments.quiet);
    if is_loud {
        report::print_file(&outcome, length);
    }
    Ok(())
}

fn stopped(stop: &Stop) -> String {
    let threads = counted(stop.threads as u64, "thread was", "threads were");
    format!("{threads} stopped for {:.2} ms", stop.time.as_secs_f64() * 1e3)
}

/// Returns the warning that something of the recorder is still in a process.
fn left_behind(pid: u32, error: &AttachError) -> String {
    let code = Code::LeftBehind;
    format!(
        "heapledger: warning[{code}]: something of the recorder stays in process {pid}: {error}\nhint: heapledger explain {code}"
    )
}

/// Returns the moments of resident snapshots that the command line asks for.
pub(crate) fn resident(arguments: &ResidentOptions) -> collect::ResidentSnapshots {
    collect::ResidentSnapshots {
        automatic: !arguments.no_resident,
        every: arguments.resident_every,
        exit_wait: arguments.resident_exit,
    }
}

/// Returns the options of the recorder that the command line asks for. `command` is what the
/// recording has as its command.
pub(crate) fn options(command: Vec<OsString>, arguments: &RunningOptions) -> RecordOptions {
    let mut options = RecordOptions::new(command, LIBRARY);
    options.placed_library = PLACED.into();
    options.output = arguments.output.clone();
    options.force = arguments.force;
    options.duration = arguments.duration;
    options.sample_every = arguments.sample;
    options.totals_only = arguments.aggregate;
    options.usable_sizes = arguments.usable;
    options.mappings = arguments.mappings;
    options.resident = resident(&arguments.resident);
    options.tool_version = env!("CARGO_PKG_VERSION").to_owned();
    options.stacks = match arguments.stacks {
        Stacks::Mixed => collect::StackMode::Mixed,
        Stacks::Native => collect::StackMode::Native,
        Stacks::Pseudo => collect::StackMode::Pseudo,
        Stacks::None => collect::StackMode::None,
    };
    options.on_full = match arguments.on_full {
        OnFull::Wait => collect::OnFull::Wait,
        OnFull::Drop => collect::OnFull::Drop,
    };
    options
}
