//! `heapledger start PID` of an armed program: records it while it runs.

use std::fs;
use std::process;

use heapledger_collect::{self as collect, ArmError, ArmedProcess, Denial, RecordError, Sandbox};
use heapledger_report_format::{Row, Tree};

use crate::args::RunningOptions;
use crate::code::Code;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::launch::failure;
use crate::messages::notify;
use crate::output::Output;
use crate::text::shown;
use crate::verbs::running;

/// Records an armed process, until it has ended or somebody asks for the end. One under filters of
/// system calls only if `sandboxed`.
pub(crate) fn run(process: &ArmedProcess, arguments: &RunningOptions, sandboxed: bool) -> Result<()> {
    let pid = process.pid();
    process.check_sandbox(sandboxed).map_err(refusal)?;
    let mut options = running::options(process.command(), arguments);
    options.options_text = format!("start {pid} by process {}", process::id());
    running::record(pid, arguments, |observer| {
        collect::attach(process, &options, observer).map_err(|error| match error {
            RecordError::Attach { source } => refusal(source),
            error => failure(error),
        })
    })
}

/// Returns the failure to ask a process.
pub(crate) fn refusal(error: ArmError) -> Failure {
    let (exit, code, hint) = match &error {
        ArmError::Gone { .. } => (Exit::Usage, None, "`pgrep NAME` tells the numbers of the processes of a name"),
        ArmError::NotArmed { .. } => (
            Exit::Usage,
            Some(Code::NotArmed),
            "record it from outside:\nheapledger attach PID\n\
             or start it with the library, then ask again:\nLD_PRELOAD=$(heapledger lib record) COMMAND",
        ),
        ArmError::OtherVersion { .. } => (
            Exit::Usage,
            Some(Code::NotArmed),
            "place the library of this version, and start the program again:\nheapledger lib record",
        ),
        ArmError::Recorded { .. } => (Exit::Usage, None, "`heapledger status` lists what is being recorded"),
        ArmError::Sandboxed { sandbox: Sandbox::Strict, .. } => (
            Exit::Usage,
            Some(Code::UnderFilter),
            "record it from its start, before it enters the sandbox: heapledger record -- COMMAND",
        ),
        ArmError::Sandboxed { .. } => (
            Exit::Usage,
            Some(Code::UnderFilter),
            "if its filters allow the calls that docs/services.md names, or refuse them by an error:\n\
             heapledger start PID --sandboxed",
        ),
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
