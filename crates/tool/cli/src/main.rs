//! The `heapledger` command. Its verbs are documented in [`args`], the source of its help and
//! manual; its exit codes are in [`exit`].

use std::process::ExitCode;

use heapledger_analysis::Relation;
use heapledger_collect::ControlRequest;

use crate::args::{Arguments, Refusal, Verb};
use crate::error::Result;
use crate::exit::Exit;
use crate::output::{Output, notify};

mod advise;
mod anonymize;
mod args;
mod attach;

mod blocks;
mod check;
mod code;
mod complete;
mod config;
mod control;
mod cut;
mod declared;
mod departures;
mod diff;
mod dmd;
mod doctor;
mod document;
mod dump;
mod error;
mod exit;
mod explain;
mod export;
mod flame;
mod format;
mod growth;
mod hook;
mod import;
mod import_format;
mod info;
mod input;
mod label;
mod leaks;
mod lost;
mod merge;
mod mismatch;
mod names;
mod near;
mod neighbours;
mod nested;
mod new_file;
mod output;
mod page;
mod palette;
mod parts;
mod picture;
mod plot;
mod preload;
mod process;
mod progress;
mod question;
mod ranks;
mod reallocations;
mod rebuilt;
mod record;
mod report;
mod reports;
mod resident;
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
mod unmatched;
mod unseen;

fn main() -> ExitCode {
    let arguments = match args::parse(std::env::args_os()) {
        Ok(arguments) => arguments,
        Err(Refusal::Clap(error)) => error.exit(),
        Err(Refusal::Failure(failure)) => {
            notify(&failure);
            return failure.exit.into();
        }
    };
    match run(&arguments) {
        Ok(code) => code,
        // The reader of the output has closed the pipe: it has seen enough.
        Err(failure) if failure.is_broken_pipe() => Exit::Ok.into(),
        Err(failure) => {
            notify(&failure);
            failure.exit.into()
        }
    }
}

fn run(arguments: &Arguments) -> Result<ExitCode> {
    if arguments.verb.names_owners() {
        config::load()?;
    }
    if let Verb::Record(record) = &arguments.verb {
        return record::run(record);
    }
    if let Verb::Run(run) = &arguments.verb {
        return run::run(run);
    }
    if let Verb::Check(check) = &arguments.verb {
        return check::run(check);
    }
    if let Verb::SelfTest = &arguments.verb {
        return Ok(doctor::be_the_self_test());
    }
    let mut out = Output::new(arguments.color);
    let status = read(arguments, &mut out)?;
    out.finish()?;
    Ok(status)
}

/// Runs any verb but `record`, `run` and `check`: these verbs write to stdout or a file.
fn read(arguments: &Arguments, out: &mut Output) -> Result<ExitCode> {
    match &arguments.verb {
        Verb::Leaks(leaks) => leaks::run(leaks, out),
        Verb::Doctor(doctor) => doctor::run(doctor, out).map(ExitCode::from),
        _ => show(arguments, out).map(|()| Exit::Ok.into()),
    }
}

/// Runs a verb that either fails or succeeds, and has no exit status of its own.
fn show(arguments: &Arguments, out: &mut Output) -> Result<()> {
    match &arguments.verb {
        Verb::Summary(summary) => summary::run(summary, out),
        Verb::Attach(attach) => Err(attach::refuse(&attach.pid)),
        Verb::Start(start) => control::run(&start.control, ControlRequest::Start, out),
        Verb::Pause(pause) => control::run(&pause.control, ControlRequest::Stop, out),
        Verb::Sample(sample) => control::sample(sample, out),
        Verb::Status(status) => control::run(&status.control, ControlRequest::Status, out),
        Verb::Top(top) => top::run(top, out),
        Verb::Types(types) => types::run(types, out),
        Verb::Blocks(blocks) => blocks::run(blocks, out),
        Verb::Tree(tree) => tree::run(tree, out),
        Verb::Temporary(temporary) => temporary::run(temporary, out),
        Verb::Flame(flame) => flame::run(flame, out),
        Verb::Timeline(timeline) => timeline::run(timeline, out),
        Verb::Growth(growth) => growth::run(growth, out),
        Verb::Advise(advise) => advise::run(advise, out),
        Verb::Diff(diff) => diff::run(diff, out),
        Verb::Export(export) => export::run(export, out),
        Verb::Merge(merge) => merge::run(merge),
        Verb::Trim(trim) => trim::run(trim),
        Verb::Import(import) => import::run(import),
        Verb::Names(names) => names::run(names),
        Verb::Anonymize(anonymize) => anonymize::run(anonymize),
        Verb::Info(info) => info::run(info, out),
        Verb::Reports(reports) => reports::run(&reports.action, out),
        Verb::Dmd(dmd) => dmd::run(dmd, out),
        Verb::Dump(dump) => dump::run(dump, out),
        Verb::Explain(explain) => explain::run(explain, out),
        Verb::Completions(completions) => shell::completions(completions, out),
        Verb::CompleteWords(words) => complete::run(words, out),
        Verb::Help(help) => shell::help(help, out),
        Verb::Man(man) => shell::man(man, out),
        Verb::Reallocations(reallocations) => reallocations::run(reallocations, out),
        Verb::Callers(neighbours) => neighbours::run(neighbours, Relation::Callers, out),
        Verb::Callees(neighbours) => neighbours::run(neighbours, Relation::Callees, out),
        Verb::Sizes(sizes) => sizes::run(sizes, out),
        Verb::Record(_) | Verb::Run(_) | Verb::Check(_) | Verb::Leaks(_) | Verb::Doctor(_) | Verb::SelfTest => Ok(()),
    }
}
