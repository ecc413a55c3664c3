//! The `heapledger` command. What it can do is documented in [`args`], where help and manual come from; the exit codes
//! are in [`exit`].

use std::process::ExitCode;

use clap::Parser;
use heapledger_analysis::Relation;
use heapledger_collect::Request;

use crate::args::{Arguments, Symbols, Verb};
use crate::error::Result;
use crate::exit::Exit;
use crate::output::{Output, tell};
use crate::select::Which;

mod anonymize;
mod args;
mod attach;

mod blocks;
mod check;
mod code;
mod control;
mod cut;
mod declared;
mod departures;
mod diff;
mod dmd;
mod doctor;
mod dump;
mod error;
mod exit;
mod explain;
mod export;
mod flame;
mod foreign;
mod format;
mod hook;
mod import;
mod info;
mod input;
mod label;
mod leaks;
mod lost;
mod merge;
mod mismatch;
mod neighbours;
mod nested;
mod new_file;
mod output;
mod page;
mod parts;
mod picture;
mod plot;
mod preload;
mod process;
mod progress;
mod question;
mod ranks;
mod reallocations;
mod record;
mod report;
mod reports;
mod run;
mod sampled;
mod select;
mod shell;
mod sizes;
#[cfg(test)]
mod snapshots;
mod stack_checks;
mod summary;
mod target;
mod temporary;
mod timeline;
mod top;
mod tree;
mod trim;
mod types;
mod unseen;

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
    if let Some(Verb::Run(run)) = &arguments.verb {
        return run::run(run);
    }
    if let Some(Verb::Check(check)) = &arguments.verb {
        return check::run(check);
    }
    if let Some(Verb::SelfTest) = &arguments.verb {
        return Ok(doctor::be_the_self_test());
    }
    let mut out = Output::new(arguments.color);
    let status = read(arguments, &mut out)?;
    out.finish()?;
    Ok(status)
}

/// Every verb but `record` and `run`: they write to stdout or a file.
fn read(arguments: &Arguments, out: &mut Output) -> Result<ExitCode> {
    match &arguments.verb {
        Some(Verb::Leaks(leaks)) => leaks::run(leaks, out),
        Some(Verb::Doctor(doctor)) => doctor::run(doctor, out).map(ExitCode::from),
        _ => show(arguments, out).map(|()| Exit::Ok.into()),
    }
}

/// Those that either fail or end well.
fn show(arguments: &Arguments, out: &mut Output) -> Result<()> {
    match &arguments.verb {
        None => summary::run(&arguments.input, &Which::default(), &Symbols::default(), out),
        Some(Verb::Summary(summary)) => summary::run(&summary.input, &summary.which, &summary.symbols, out),
        Some(Verb::Attach(attach)) => Err(attach::refuse(&attach.pid)),
        Some(Verb::Start(start)) => control::run(&start.control, Request::Start, out),
        Some(Verb::Stop(stop)) => control::run(&stop.control, Request::Stop, out),
        Some(Verb::Sample(sample)) => control::sample(sample, out),
        Some(Verb::Status(status)) => control::run(&status.control, Request::Status, out),
        Some(Verb::Top(top)) => top::run(top, out),
        Some(Verb::Types(types)) => types::run(types, out),
        Some(Verb::Blocks(blocks)) => blocks::run(blocks, out),
        Some(Verb::Tree(tree)) => tree::run(tree, out),
        Some(Verb::Temporary(temporary)) => temporary::run(temporary, out),
        Some(Verb::Flame(flame)) => flame::run(flame, out),
        Some(Verb::Timeline(timeline)) => timeline::run(timeline, out),
        Some(Verb::Diff(diff)) => diff::run(diff, out),
        Some(Verb::Export(export)) => export::run(export, out),
        Some(Verb::Merge(merge)) => merge::run(merge),
        Some(Verb::Trim(trim)) => trim::run(trim),
        Some(Verb::Import(import)) => import::run(import),
        Some(Verb::Anonymize(anonymize)) => anonymize::run(anonymize),
        Some(Verb::Info(info)) => info::run(info, out),
        Some(Verb::Reports(reports)) => reports::run(&reports.action, out),
        Some(Verb::Dmd(dmd)) => dmd::run(dmd, out),
        Some(Verb::Dump(dump)) => dump::run(dump, out),
        Some(Verb::Explain(explain)) => explain::run(explain, out),
        Some(Verb::Completions(completions)) => shell::completions(completions, out),
        Some(Verb::Man(man)) => shell::man(man.dir.as_deref(), out),
        Some(Verb::Reallocations(reallocations)) => reallocations::run(reallocations, out),
        Some(Verb::Callers(neighbours)) => neighbours::run(neighbours, Relation::Callers, out),
        Some(Verb::Callees(neighbours)) => neighbours::run(neighbours, Relation::Callees, out),
        Some(Verb::Sizes(sizes)) => sizes::run(sizes, out),
        Some(Verb::Record(_) | Verb::Run(_) | Verb::Check(_) | Verb::Leaks(_) | Verb::Doctor(_) | Verb::SelfTest) => {
            Ok(())
        }
    }
}
