//! The `heapledger` command. What it can do is documented in [`args`], where help and manual come from; the exit codes
//! are in [`exit`].

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Arguments, Symbols, Verb};
use crate::error::Result;
use crate::exit::Exit;
use crate::output::{Output, tell};
use crate::select::Which;

mod anonymize;
mod args;
mod code;
mod diff;
mod doctor;
mod error;
mod exit;
mod explain;
mod export;
mod flame;
mod format;
mod info;
mod input;
mod label;
mod leaks;
mod lost;
mod merge;
mod mismatch;
mod new_file;
mod output;
mod picture;
mod plot;
mod preload;
mod progress;
mod question;
mod ranks;
mod record;
mod report;
mod select;
mod shell;
#[cfg(test)]
mod snapshots;
mod summary;
mod target;
mod temporary;
mod timeline;
mod top;
mod tree;

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(code) => code,
        // Whoever read the output has seen enough.
        Err(failure) if failure.is_broken_pipe() => Exit::Ok.into(),
        Err(failure) => {
            tell(&failure);
            failure.exit.into()
        }
    }
}

fn run(arguments: &Arguments) -> Result<ExitCode> {
    if let Some(Verb::Record(record)) = &arguments.verb {
        return record::run(record);
    }
    if let Some(Verb::SelfTest) = &arguments.verb {
        return Ok(doctor::be_the_self_test());
    }
    let mut out = Output::new(arguments.color);
    let exit = read(arguments, &mut out)?;
    out.finish()?;
    Ok(exit.into())
}

/// Every verb but `record`: they write to stdout or a file, and change nothing.
fn read(arguments: &Arguments, out: &mut Output) -> Result<Exit> {
    match &arguments.verb {
        Some(Verb::Doctor(doctor)) => return doctor::run(doctor, out),
        None => summary::run(&arguments.input, &Which::default(), &Symbols::default(), out),
        Some(Verb::Summary(summary)) => summary::run(&summary.input, &summary.which, &summary.symbols, out),
        Some(Verb::Top(top)) => top::run(top, out),
        Some(Verb::Tree(tree)) => tree::run(tree, out),
        Some(Verb::Leaks(leaks)) => leaks::run(leaks, out),
        Some(Verb::Temporary(temporary)) => temporary::run(temporary, out),
        Some(Verb::Flame(flame)) => flame::run(flame, out),
        Some(Verb::Timeline(timeline)) => timeline::run(timeline, out),
        Some(Verb::Diff(diff)) => diff::run(diff, out),
        Some(Verb::Export(export)) => export::run(export, out),
        Some(Verb::Merge(merge)) => merge::run(merge),
        Some(Verb::Anonymize(anonymize)) => anonymize::run(anonymize),
        Some(Verb::Info(info)) => info::run(info, out),
        Some(Verb::Explain(explain)) => explain::run(explain, out),
        Some(Verb::Completions(completions)) => shell::completions(completions, out),
        Some(Verb::Man(man)) => shell::man(man.dir.as_deref(), out),
        Some(Verb::Record(_) | Verb::SelfTest) => Ok(()),
    }
    .map(|()| Exit::Ok)
}
