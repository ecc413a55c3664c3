//! `heapledger start PID` of an armed program: records it while it runs.

use std::fs;
use std::process;
use std::sync::Arc;

use heapledger_collect::{self as collect, ArmError, ArmedProcess, Denial, Progress, RecordError, RecordOptions};
use heapledger_report_format::{Row, Tree};

use crate::args::{OnFull, Stacks, Start, SymbolFiles};
use crate::code::Code;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::launch::failure;
use crate::launch::preload::LIBRARY;
use crate::messages::notify;
use crate::output::Output;
use crate::symbols::symbolizer;
use crate::target::Target;
use crate::text::shown;
use crate::verbs::names::{self, Namer};
use crate::verbs::record::{cut, report};

/// Records an armed process, until it has ended or somebody asks for the end.
pub(crate) fn run(process: &ArmedProcess, arguments: &Start) -> Result<()> {
    let pid = process.pid();
    let options = options(process, arguments);
    let is_loud = !arguments.quiet;
    let mut namer = Namer::new(arguments.names);
    let mut observe = |progress: Progress<'_>| match progress {
        Progress::Started { .. } if is_loud => {
            notify(format_args!("heapledger: process {pid} begins at its next call; Ctrl-C ends the recording"));
        }
        Progress::Joined if is_loud => notify(format_args!("heapledger: recording process {pid}")),
        Progress::CommandEnded { .. } if is_loud => notify(format_args!("heapledger: process {pid} has ended")),
        Progress::SegmentEnded { path } => namer.add_names(path),
        _ => {}
    };
    let outcome = collect::attach(process, &options, &mut observe).map_err(|error| match error {
        RecordError::Attach { source } => refusal(source),
        error => failure(error),
    })?;
    if let Some(problem) = &outcome.problem {
        notify(cut::failure(&outcome, problem));
    }
    if !outcome.has_begun {
        notify(format_args!("heapledger: nothing was recorded: process {pid} made no call of its allocator meanwhile"));
    }
    let symbolizer = Arc::new(symbolizer(&SymbolFiles::default()));
    if is_loud && outcome.has_begun {
        report::print(&outcome, &Target::default(), &[], &symbolizer);
    }
    let length = names::add_at_end(&outcome, namer, &symbolizer, arguments.quiet);
    if is_loud {
        report::print_file(&outcome, length);
    }
    Ok(())
}

/// Returns the failure to ask a process.
pub(crate) fn refusal(error: ArmError) -> Failure {
    let (exit, code, hint) = match &error {
        ArmError::Gone { .. } => (Exit::Usage, None, "`pgrep NAME` tells the numbers of the processes of a name"),
        ArmError::NotArmed { .. } => (
            Exit::Usage,
            Some(Code::NotArmed),
            "start it with the library, then ask again:\nLD_PRELOAD=$(heapledger lib record) COMMAND",
        ),
        ArmError::OtherVersion { .. } => (
            Exit::Usage,
            Some(Code::NotArmed),
            "place the library of this version, and start the program again:\nheapledger lib record",
        ),
        ArmError::Recorded { .. } => (Exit::Usage, None, "`heapledger status` lists what is being recorded"),
        ArmError::Denied { cause, .. } => (Exit::Unexpected, Some(Code::MemoryDenied), denial(*cause)),
        _ => (Exit::Unexpected, None, "heapledger doctor"),
    };
    let failure = Failure::from_error(exit, error).hint(hint);
    match code {
        Some(code) => failure.code(code),
        None => failure,
    }
}

/// Says what to do about a denial.
fn denial(cause: Denial) -> &'static str {
    match cause {
        Denial::OtherUser => "it is another user's: sudo heapledger start PID",
        Denial::Yama(1 | 2) => {
            "this system lets root alone look into processes (kernel.yama.ptrace_scope):\n\
             sudo heapledger start PID\n\
             or, until the next boot, for all users: sudo sysctl kernel.yama.ptrace_scope=0"
        }
        Denial::Yama(_) => {
            "this system lets nobody look into processes until the next boot\n\
             (kernel.yama.ptrace_scope is 3): heapledger record -- COMMAND"
        }
        _ => {
            "it has declared that its memory is private, or runs with other rights than its user's;\n\
             or CAP_SYS_PTRACE is missing in this container: sudo heapledger start PID"
        }
    }
}

/// Lists the armed processes of this user. Returns false if there are none.
pub(crate) fn list(out: &mut Output) -> Result<bool> {
    let all = ArmedProcess::all();
    if all.is_empty() {
        return Ok(false);
    }
    let mut table = Tree::new(["armed"]);
    for pid in &all {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        table.push(0, Row::new(shown(name.trim_end().as_ref())).cells([pid.to_string()]));
    }
    out.tree(&table)?;
    notify("heapledger: `heapledger start PID` records one of them");
    Ok(true)
}

fn options(process: &ArmedProcess, arguments: &Start) -> RecordOptions {
    let mut options = RecordOptions::new(process.command(), LIBRARY);
    options.output = arguments.output.clone();
    options.force = arguments.force;
    options.duration = arguments.duration;
    options.sample_every = arguments.sample;
    options.totals_only = arguments.aggregate;
    options.usable_sizes = arguments.usable;
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
    options.options_text = format!("start {} by process {}", process.pid(), process::id());
    options
}
