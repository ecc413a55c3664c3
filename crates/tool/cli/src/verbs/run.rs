//! `heapledger run`: runs a program with hooks, the heap checker or another allocator, and records
//! nothing.

use std::process::ExitCode;

use heapledger_collect::{self as collect, CommandAllocator, CommandLibraries, die_by};
use heapledger_recording::ExitStatus;

use crate::args::Run;
use crate::error::Result;
use crate::launch::preload::LIBRARY;
use crate::launch::{allocator, failure, hook, nested, report_findings};
use crate::target::Target;
use crate::verbs::phc::under;

pub(crate) fn run(arguments: &Run) -> Result<ExitCode> {
    let hooks = hook::libraries(&arguments.hook)?;
    let allocator = allocator::find(&arguments.allocator.name)?;
    let heap_checker = under::library(&arguments.heap_checker, arguments.quiet)?;
    let target = || arguments.command.first().map_or_else(Target::default, |program| Target::inspect(program));
    if !hooks.is_empty() || heap_checker.is_some() {
        report_findings(&target(), "run with hooks", "it will run without hooks", arguments.quiet)?;
        nested::warn_of_nesting("run", arguments.quiet);
    } else if allocator != CommandAllocator::System {
        let misses = "it will run with the allocator that it has";
        report_findings(&target().with_obstacles_only(), "run with this allocator", misses, arguments.quiet)?;
    }
    let libraries = CommandLibraries { preload: LIBRARY, allocator: &allocator, heap_checker: heap_checker.as_ref() };
    let (exit, reports) = collect::run(&arguments.command, libraries, &hooks).map_err(failure)?;
    if heap_checker.is_some() {
        under::conclude(&reports, arguments.quiet);
    }
    match exit {
        ExitStatus::Code(code) => Ok(ExitCode::from(code as u8)),
        ExitStatus::Signal(signal) => die_by(signal),
    }
}
