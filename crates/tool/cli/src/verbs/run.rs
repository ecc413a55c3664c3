//! `heapledger run`: runs a program with hooks, and records nothing.

use std::process::ExitCode;

use heapledger_collect::{self as collect, die_by};
use heapledger_recording::ExitStatus;

use crate::args::Run;
use crate::error::Result;
use crate::launch::preload::LIBRARY;
use crate::launch::{failure, hook, nested, report_findings};
use crate::target::Target;

pub(crate) fn run(arguments: &Run) -> Result<ExitCode> {
    let hooks = hook::libraries(&arguments.hook)?;
    if !hooks.is_empty() {
        let target = arguments.command.first().map_or_else(Target::default, |program| Target::inspect(program));
        report_findings(&target, "run with hooks", "it will run without hooks", arguments.quiet)?;
        nested::warn_of_nesting("run", arguments.quiet);
    }
    match collect::run(&arguments.command, LIBRARY, &hooks).map_err(failure)? {
        ExitStatus::Code(code) => Ok(ExitCode::from(code as u8)),
        ExitStatus::Signal(signal) => die_by(signal),
    }
}
